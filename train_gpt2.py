"""
Train a GPT-2 on token files, as prepared by prepare_data/.

    python train_gpt2.py --path_to_data data/shakespeare --model_size nano --context_length 64
    mytorchrun launch --num_processes 2 train_gpt2.py --path_to_data data/shakespeare

Several processes update from the batches of all, as one would from a batch as large as all of theirs.

Writes into <working_directory>/<project_name>/:
    checkpoints/             the last two states, from which --resume_from_checkpoint continues exactly
    model.safetensors        the weights with the lowest validation loss, config.json beside them
    metrics.jsonl, loss.png  losses and learning rate by iteration
"""

import argparse
import json
import math
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import mytorch
from mytorch.accelerate import Accelerator, CheckpointError, JsonlTracker, set_seed
from mytorch.models import GPT2, GPT2Config
from mytorch.models.gpt2 import SIZES
from mytorch.utils import atomic_write
from mytorch.utils.loss_curve import draw_loss_curve
from mytorch.utils.tokens import load_tokens, size_of_vocabulary

CHECKPOINTS = "checkpoints"


def arguments():
    parser = argparse.ArgumentParser(
        description="Train a GPT-2.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--project_name", default="gpt2-small-shakespeare",
        help="folder of this run, inside the working directory")  # fmt: skip
    add("--working_directory", default="work_dir", help="where runs are kept")
    add("--path_to_data", default="data/shakespeare",
        help="folder with train.bin, val.bin and tokenizer.json")  # fmt: skip
    add("--model_size", default="nano", choices=SIZES,
        help="layers, heads and width; base is GPT-2 with 124 M")  # fmt: skip
    add("--context_length", type=int, default=64, help="tokens the model sees at once")
    add("--dropout_p", type=float, default=0.0, help="probability of dropping an activation")
    add("--train_iterations", type=int, default=2000, help="optimizer steps")
    add("--batch_size", type=int, default=12, help="sequences in a batch of each process")
    add("--gradient_accumulation_steps", type=int, default=1, help="batches for each optimizer step")
    add("--max_lr", type=float, default=1e-3, help="learning rate after the warm-up")
    add("--min_lr", type=float, default=1e-4, help="learning rate at the end")
    add("--warmup_steps", type=int, default=100, help="iterations of linear warm-up")
    add("--weight_decay", type=float, default=0.1, help="decoupled decay of the weight matrices")
    add("--max_grad_norm", type=float, default=1.0, help="gradients are clipped to this norm; 0 is off")
    add("--beta1", type=float, default=0.9, help="AdamW's decay of the gradient's mean")
    add("--beta2", type=float, default=0.99, help="AdamW's decay of the gradient's square")
    add("--eval_interval", type=int, default=250, help="iterations between two evaluations")
    add("--eval_iterations", type=int, default=50, help="random batches in an evaluation")
    add("--log_iter", type=int, default=10, help="iterations between two lines of metrics.jsonl")
    add("--checkpoint_iterations", type=int, default=250, help="iterations between two checkpoints")
    add("--resume_from_checkpoint", metavar="FOLDER", help="continue the run in this folder")
    add("--fused", action="store_true", help="fail where there are no fused kernels")
    add("--mixed_precision", nargs="?", const="fp16", choices=("no", "fp16", "bf16"),
        help="train in half precision, with float32 weights behind it; alone it is fp16")  # fmt: skip
    add("--log_wandb", action="store_true", help="also log to Weights & Biases")
    add("--seed", type=int, default=1337, help="of the weights, the batches and dropout")
    add("--device", default="cuda" if mytorch.cuda.is_available() else "cpu", help="cpu, cuda or cuda:N")
    args = parser.parse_args()
    if args.fused and (reason := mytorch.nn.fused_ops.why_not(mytorch.device(args.device).type)):
        parser.error(f"--fused: {reason}")
    for name in ("train_iterations", "batch_size", "gradient_accumulation_steps", "eval_interval",
                 "eval_iterations", "log_iter", "checkpoint_iterations"):  # fmt: skip
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    return args


def random_batch(accelerator, tokens, args, *key):
    """This process's windows of a batch from anywhere in the text: a function of the seed and `key` alone."""
    rng = np.random.default_rng((args.seed, *key))
    size = args.batch_size * accelerator.num_processes
    starts = rng.integers(len(tokens) - args.context_length, size=size).tolist()
    with accelerator.split_between_processes(starts) as mine:
        return windows(tokens, mine, args.context_length, accelerator.device)


def windows(tokens, starts, context_length, device):
    """The sequences (B, T) that begin at `starts`, and what follows each of their tokens (B, T)."""
    rows = np.stack([tokens[s : s + context_length + 1] for s in starts]).astype(np.int64)
    rows = mytorch.from_numpy(rows).to(device)
    return rows[:, :-1], rows[:, 1:]


@mytorch.no_grad()
def estimate_loss(accelerator, model, tokens, args, name):
    """Mean loss over `eval_iterations` random batches, always the same ones."""
    model.eval()
    key = {"train": 1, "val": 2}[name]
    batches = (random_batch(accelerator, tokens, args, key, i) for i in range(args.eval_iterations))
    losses = [model(*batch)[1].item() for batch in batches]
    model.train()
    return mean_of_all(accelerator, sum(losses) / len(losses))


@mytorch.no_grad()
def full_loss(accelerator, model, tokens, args):
    """Mean loss over a whole split, cut into windows that don't overlap."""
    model.eval()
    starts = list(range(0, len(tokens) - args.context_length, args.context_length))
    total = 0.0
    with accelerator.split_between_processes(starts) as mine:
        for i in progress_bar(accelerator, range(0, len(mine), args.batch_size), desc="validation split"):
            batch = mine[i : i + args.batch_size]
            loss = model(*windows(tokens, batch, args.context_length, accelerator.device))[1]
            total += loss.item() * len(batch)
    model.train()
    return mean_of_all(accelerator, total * accelerator.num_processes) / len(starts)


def mean_of_all(accelerator, number):
    """The mean of what the processes have, the same for all of them."""
    return accelerator.reduce(mytorch.tensor(number, dtype="float64"), "mean").item()


def progress_bar(accelerator, *args, **options):
    """tqdm on the main process, which in a log file doesn't write ten lines a second."""
    options.update(dynamic_ncols=True, mininterval=0.1 if sys.stderr.isatty() else 10, leave=not args)
    return tqdm(*args, disable=not accelerator.is_main_process, **options)


def learning_rate(iteration, args):
    """Linear warm-up, then a cosine from max_lr down to min_lr at the last iteration."""
    if iteration < args.warmup_steps:
        return args.max_lr * (iteration + 1) / (args.warmup_steps + 1)
    progress = (iteration - args.warmup_steps) / max(1, args.train_iterations - args.warmup_steps)
    return args.min_lr + 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))) * (args.max_lr - args.min_lr)


def stop_on_signals(accelerator):
    """Ctrl-C, or being asked to end, sets the trigger that all processes check; twice ends at once."""
    asked = []

    def ask(number, frame):
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        accelerator.set_trigger()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)


class Run:
    """Where a run is; saved with each checkpoint."""

    def __init__(self, config, args):
        self.iteration, self.best_val_loss = 0, math.inf
        self.config = config.to_dict()
        self.arguments = {k: v for k, v in vars(args).items() if k != "resume_from_checkpoint"}

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        if state["config"] != self.config:
            raise ValueError(f"it is of another model: {state['config']}, not {self.config}")
        self.iteration, self.best_val_loss = state["iteration"], state["best_val_loss"]


def resume(accelerator, run, folder, is_restarted):
    """Load the newest checkpoint of a run into all that was prepared and registered.

    The run that mytorchrun started again after a failure takes the newest good one, or begins anew.
    """
    if not is_restarted and not (folder / CHECKPOINTS).is_dir():
        raise SystemExit(f"{folder} holds no checkpoint to resume from")
    try:
        accelerator.load_state(folder / CHECKPOINTS, last_good=is_restarted)
    except CheckpointError as error:
        raise SystemExit(str(error)) from None
    except RuntimeError:  # a page of names and shapes
        raise SystemExit(f"the checkpoint in {folder} is of another model, not {run.config}") from None
    except ValueError as error:
        raise SystemExit(f"the checkpoint in {folder} can't be loaded: {error}") from None


def make_folder(folder, args, is_new):
    """The folder of the run; what an earlier one of this name has left to resume from is put aside."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f"{CHECKPOINTS}.old"
    if is_new and (folder / CHECKPOINTS).exists():
        shutil.rmtree(aside, ignore_errors=True)
        (folder / CHECKPOINTS).rename(aside)
    if (Path(args.path_to_data) / "tokenizer.json").exists():
        shutil.copy(Path(args.path_to_data) / "tokenizer.json", folder / "tokenizer.json")


def save_model(folder, weights, config):
    mytorch.save(weights, folder / "model.safetensors")
    with atomic_write(folder / "config.json") as path:
        path.write_text(json.dumps(config, indent=2) + "\n")


def save_picture(folder):
    """The losses as loss.png, if matplotlib is there."""
    try:
        draw_loss_curve(folder / "metrics.jsonl", folder / "loss.png", folder.name)
    except ImportError as error:
        print(error)
    else:
        print(f"loss curve: {folder / 'loss.png'}")


def make_accelerator(args):
    """What the run happens on: this process among the others, its device and its precision."""
    accelerator = Accelerator(
        args.gradient_accumulation_steps, args.mixed_precision, args.log_wandb or None,
        cpu=mytorch.device(args.device).type == "cpu",
    )  # fmt: skip
    if ":" in args.device:
        if accelerator.num_processes > 1:
            raise SystemExit(f"--device {args.device}: several processes take a GPU each; say --device cuda")
        accelerator.device = mytorch.device(args.device)
    return accelerator


def build(accelerator, vocab_size, args):
    """A new model and its optimizer."""
    config = GPT2Config.of_size(
        args.model_size, vocab_size=vocab_size, context_length=args.context_length,
        dropout_p=args.dropout_p, bias=False,
    )  # fmt: skip
    model = GPT2(config).to(accelerator.device)
    groups = model.parameter_groups(args.weight_decay)
    return model, mytorch.optim.AdamW(groups, lr=args.max_lr, betas=(args.beta1, args.beta2))


def train_step(accelerator, model, optimizer, tokens, iteration, args):
    """One update, from `gradient_accumulation_steps` batches; their mean loss on this process, a Tensor."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(iteration - 1, args)
    losses = []
    for micro_step in range(args.gradient_accumulation_steps):
        with accelerator.accumulate(model):
            _, loss = model(*random_batch(accelerator, tokens, args, 0, iteration, micro_step))
            accelerator.backward(loss)
            if args.max_grad_norm:
                accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return mytorch.stack(losses).mean()


def evaluate(accelerator, model, data, run, folder, args):
    """Log and print both losses, and keep the model if it is the best so far."""
    losses = {f"{name}_loss": estimate_loss(accelerator, model, data[name], args, name) for name in data}
    accelerator.log(losses, step=run.iteration)
    if losses["val_loss"] <= run.best_val_loss:
        run.best_val_loss = losses["val_loss"]
        if accelerator.is_main_process:
            save_model(folder, accelerator.get_state_dict(model), run.config)
    text = "iteration {}: train {train_loss:.4f}, validation {val_loss:.4f}".format(run.iteration, **losses)
    if accelerator.is_main_process:
        tqdm.write(text)


def report(accelerator, progress, run, loss, speed, args):
    """Log the loss and the learning rate of the last iteration, and show them beside the progress bar."""
    loss, lr = mean_of_all(accelerator, loss.item()), learning_rate(run.iteration - 1, args)
    accelerator.log({"loss": loss, "lr": lr, "tokens_per_second": round(speed)}, step=run.iteration)
    progress.set_postfix(loss=f"{loss:.4f}", lr=f"{lr:.2e}", tok_s=f"{speed:,.0f}", refresh=False)


def train(accelerator, model, optimizer, data, run, folder, args):
    """All iterations that are left; Ctrl-C leaves a checkpoint and ends the program."""
    bare_model = accelerator.unwrap_model(model)  # evaluating needs nothing of the other processes
    stop_on_signals(accelerator)
    progress = progress_bar(accelerator, total=args.train_iterations, initial=run.iteration)
    tokens = args.batch_size * args.context_length * args.gradient_accumulation_steps
    since, first = time.perf_counter(), run.iteration
    while run.iteration < args.train_iterations:
        if run.iteration % args.eval_interval == 0:
            evaluate(accelerator, bare_model, data, run, folder, args)
            since, first = time.perf_counter(), run.iteration
        loss = train_step(accelerator, model, optimizer, data["train"], run.iteration + 1, args)
        run.iteration += 1
        progress.update()
        if run.iteration % args.log_iter == 0:
            seconds = (time.perf_counter() - since) / (run.iteration - first)
            report(accelerator, progress, run, loss, tokens * accelerator.num_processes / seconds, args)
        is_stopped, is_over = accelerator.check_trigger(), run.iteration == args.train_iterations
        if is_stopped or (run.iteration % args.checkpoint_iterations == 0 and not is_over):
            accelerator.save_state(folder / CHECKPOINTS, keep_last=2)
        if is_stopped:
            progress.close()
            where = f"continue with --resume_from_checkpoint {folder}"
            accelerator.print(f"stopped after iteration {run.iteration}; {where}")
            accelerator.wait_for_everyone()
            raise SystemExit(130)
    evaluate(accelerator, bare_model, data, run, folder, args)
    progress.close()
    accelerator.save_state(folder / CHECKPOINTS, keep_last=2)


def main():
    args = arguments()
    try:
        accelerator = make_accelerator(args)
        data = {name: load_tokens(args.path_to_data, name, args.context_length) for name in ("train", "val")}
    except (ImportError, FileNotFoundError, ValueError) as error:  # what the user has to know, in one line
        raise SystemExit(str(error)) from None
    set_seed(args.seed, device_specific=True)  # the weights are those of the first process
    folder = Path(args.resume_from_checkpoint or Path(args.working_directory) / args.project_name)
    model, optimizer = build(accelerator, size_of_vocabulary(args.path_to_data), args)
    size = f"{model.num_parameters():,} parameters, {len(data['train']):,} training tokens"
    run = Run(model.config, args)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.register_for_checkpointing(run)
    is_restarted = os.environ.get("MYTORCH_RESTART_COUNT", "0") != "0"
    if args.resume_from_checkpoint or is_restarted:
        resume(accelerator, run, folder, is_restarted)

    accelerator.init_trackers("mytorch", run.arguments, {"wandb": {"name": args.project_name}})
    if accelerator.is_main_process:
        make_folder(folder, args, is_new=not (args.resume_from_checkpoint or is_restarted))
        accelerator.trackers.append(JsonlTracker("metrics", folder, "iteration", start=run.iteration))
    where = f"{accelerator.num_processes} x {args.device}" if accelerator.num_processes > 1 else args.device
    accelerator.print(f"{size}, {where}, results in {folder}/")

    train(accelerator, model, optimizer, data, run, folder, args)
    loss = full_loss(accelerator, accelerator.unwrap_model(model), data["val"], args)
    accelerator.log({"val_loss": loss, "whole_split": True}, step=run.iteration)
    if accelerator.is_main_process:
        save_picture(folder)
        print(f"validation loss over the whole split: {loss:.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
