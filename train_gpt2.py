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

import json
import math
import os
import shutil
import sys
import time
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from itertools import count, islice
from pathlib import Path

import numpy as np
from tqdm import tqdm

import mytorch
from mytorch.accelerate import Accelerator, JsonlTracker, set_seed
from mytorch.models import GPT2, GPT2Config
from mytorch.models.gpt2_config import SIZES
from mytorch.optim import AdamW
from mytorch.optim.lr_scheduler import WarmupCosineLR
from mytorch.utils import atomic_write
from mytorch.utils.data import DataLoader
from mytorch.utils.loss_curve import draw_loss_curve
from mytorch.utils.tokens import TokenWindows, size_of_vocabulary


def arguments():
    parser = ArgumentParser(description="Train a GPT-2.", formatter_class=ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--project_name", default="gpt2-small-shakespeare", help="folder of the run in working_directory")
    add("--working_directory", default="work_dir", help="parent folder of runs")
    add("--path_to_data", default="data/shakespeare", help="holds train.bin, val.bin and tokenizer.json")
    add("--model_size", default="nano", choices=SIZES, help="base is GPT-2 with 124 M parameters")
    add("--context_length", type=int, default=64, help="tokens in a sequence")
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
    add("--fused", action="store_true", help="fail without fused kernels")
    add("--mixed_precision", nargs="?", const="fp16", choices=("no", "fp16", "bf16"),
        help="train in half precision, with float32 master weights; without a value fp16")  # fmt: skip
    add("--allow_nan", action="store_true", help="train on when the loss or weights are inf or NaN")
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


def random_windows(windows, accelerator, args, *key):
    """Returns this process's windows of a random batch, as a function of the seed and `key` alone."""
    rng = np.random.default_rng((args.seed, *key))
    starts = rng.integers(len(windows), size=args.batch_size * accelerator.num_processes).tolist()
    with accelerator.split_between_processes(starts) as share:
        return share


def training_loader(windows, accelerator, args, start):
    """Returns an endless loader, of `gradient_accumulation_steps` batches an iteration from `start` on."""
    batches = (
        random_windows(windows, accelerator, args, 0, iteration, micro_step)
        for iteration in count(start)
        for micro_step in range(args.gradient_accumulation_steps)
    )
    return DataLoader(windows, batch_sampler=batches, generator=mytorch.Generator())


def evaluation_loader(windows, accelerator, args, key):
    """Returns a loader of `eval_iterations` random batches, the same in each evaluation."""
    batches = [random_windows(windows, accelerator, args, key, i) for i in range(args.eval_iterations)]
    return DataLoader(windows, batch_sampler=batches, generator=mytorch.Generator())


def build(accelerator, vocab_size, args):
    """Returns a new model and its optimizer."""
    config = GPT2Config.of_size(
        args.model_size, vocab_size=vocab_size, context_length=args.context_length,
        dropout_p=args.dropout_p, bias=False,
    )  # fmt: skip
    model = GPT2(config).to(accelerator.device)
    groups = model.parameter_groups(args.weight_decay)
    return model, AdamW(groups, lr=args.max_lr, betas=(args.beta1, args.beta2))


def build_scheduler(optimizer, iteration, args):
    """Returns the schedule of the learning rate, after `iteration` steps."""
    for group in optimizer.param_groups:  # a checkpoint has those of its own options
        group["lr"] = group["initial_lr"] = args.max_lr
    decay_steps = max(args.train_iterations, args.warmup_steps)
    return WarmupCosineLR(optimizer, args.warmup_steps, decay_steps, args.min_lr, last_epoch=iteration - 1)


class Run:
    """The progress of a run; saved with each checkpoint."""

    def __init__(self, config, args):
        self.iteration, self.best_val_loss = 0, math.inf
        self.config = config.to_dict()
        self.arguments = {k: v for k, v in vars(args).items() if k != "resume_from_checkpoint"}

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        if state["config"] != self.config:
            raise ValueError(f"it is of another model: {state['config']}, not {self.config}")
        iteration, best = state["iteration"], state["best_val_loss"]
        if not isinstance(iteration, int) or iteration < 0 or not isinstance(best, float):
            raise ValueError(f"its iteration is {iteration!r} and its best loss {best!r}")
        self.iteration, self.best_val_loss = iteration, best


def resume(accelerator, run, folder, is_restarted):
    """Loads the last checkpoint; a run restarted by the launcher loads the last good one, if any."""
    try:
        accelerator.load_state(folder / "checkpoints", last_good=is_restarted)
    except RuntimeError:  # its message lists all parameters
        raise SystemExit(f"the checkpoint in {folder} is of another model, not {run.config}") from None
    except ValueError as error:
        raise SystemExit(f"can't resume from {folder}: {error}") from None


def make_folder(folder, run, args, is_new):
    """Makes the folder of the run; a new run renames the checkpoints of an earlier one of its name."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints, old = folder / "checkpoints", folder / "checkpoints.old"
    if is_new and checkpoints.exists():
        shutil.rmtree(old, ignore_errors=True)
        checkpoints.rename(old)
    with atomic_write(folder / "config.json") as partial:
        partial.write_text(json.dumps(run.config, indent=2) + "\n")
    if (Path(args.path_to_data) / "tokenizer.json").exists():
        with atomic_write(folder / "tokenizer.json") as partial:
            shutil.copyfile(Path(args.path_to_data) / "tokenizer.json", partial)


def start_metrics(folder, run):
    """Returns the tracker that continues the run's metrics.jsonl."""
    try:
        return JsonlTracker("metrics", folder, "iteration", start=run.iteration)
    except (OSError, ValueError) as error:
        raise SystemExit(f"can't resume from {folder}: {error}") from None


def train_step(accelerator, model, optimizer, batches, args):
    """Updates the model from `gradient_accumulation_steps` batches; returns their mean loss, a Tensor."""
    losses = []
    for batch in islice(batches, args.gradient_accumulation_steps):
        batch = batch.to(accelerator.device)
        with accelerator.accumulate(model):
            _, loss = model(batch[:, :-1], batch[:, 1:], return_logits=False)
            accelerator.backward(loss)
            if args.max_grad_norm:
                accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return mytorch.stack(losses).mean()


@mytorch.no_grad()
def mean_loss(accelerator, model, loader):
    """Returns the mean loss over the batches of all processes."""
    model = accelerator.unwrap_model(model).eval()
    total = rows = 0
    for batch in loader:
        batch = batch.to(accelerator.device)
        total += model(batch[:, :-1], batch[:, 1:], return_logits=False)[1].item() * len(batch)
        rows += len(batch)
    model.train()
    total, rows = accelerator.reduce(mytorch.tensor([total, rows], dtype="float64"), "sum").tolist()
    return total / rows


def evaluate(accelerator, model, loaders, run, folder):
    """Logs and prints both losses, and saves the model if it is the best so far."""
    losses = {name: mean_loss(accelerator, model, loader) for name, loader in loaders.items()}
    accelerator.log(losses, step=run.iteration)
    if losses["val_loss"] <= run.best_val_loss:
        run.best_val_loss = losses["val_loss"]
        accelerator.save_model(model, folder)
    if accelerator.is_main_process:
        text = "iteration {}: train {train_loss:.4f}, validation {val_loss:.4f}"
        tqdm.write(text.format(run.iteration, **losses))


def check_finite(accelerator, model, loss, iteration, checks_weights):
    """Ends the program, in all processes alike, if the loss or a weight is inf or NaN.

    Args:
        loss: the mean of all processes. With fp16 it may be inf or NaN, since such a step is skipped.
        checks_weights: as before a checkpoint; else only to explain the loss.
    """
    diverged = not math.isfinite(loss) and accelerator.scaler is None
    if not (diverged or checks_weights):
        return
    weights = dict(accelerator.unwrap_model(model).named_parameters())
    broken = [name for name, weight in weights.items() if not weight.isfinite().all().item()]
    found = [f"the training loss is {loss}"] if diverged else []
    if broken:
        found.append(f"{len(broken)} of {len(weights)} weights are inf or NaN, the first is {broken[0]}")
    if found:
        hint = "a lower --max_lr may help; --allow_nan trains on"
        raise SystemExit(f"iteration {iteration}: {', and '.join(found)}; {hint}")


def train(accelerator, model, optimizer, data, run, folder, args):
    """Runs the iterations that are left; Ctrl-C saves a checkpoint and ends the program."""
    scheduler = build_scheduler(optimizer, run.iteration, args)
    batches = iter(training_loader(data["train"], accelerator, args, run.iteration + 1))  # (B, T + 1) tokens
    loaders = {
        "train_loss": evaluation_loader(data["train"], accelerator, args, 1),
        "val_loss": evaluation_loader(data["val"], accelerator, args, 2),
    }
    tokens = args.batch_size * args.context_length * args.gradient_accumulation_steps
    accelerator.set_trigger_on_signals()
    progress = tqdm(
        total=args.train_iterations, initial=run.iteration, disable=not accelerator.is_main_process,
        dynamic_ncols=True, mininterval=0.1 if sys.stderr.isatty() else 10,  # fewer lines in a log file
    )  # fmt: skip
    start, first = time.perf_counter(), run.iteration
    while run.iteration < args.train_iterations:
        if run.iteration % args.eval_interval == 0:
            evaluate(accelerator, model, loaders, run, folder)
            start, first = time.perf_counter(), run.iteration
        try:
            loss = train_step(accelerator, model, optimizer, batches, args)
        except FloatingPointError as error:  # on CPUs several processes check every loss
            raise SystemExit(f"iteration {run.iteration + 1}: {error}; --allow_nan trains on") from None
        lr = scheduler.get_last_lr()[0]
        scheduler.step()
        run.iteration += 1
        progress.update()
        is_stopped, is_over = accelerator.check_trigger(), run.iteration == args.train_iterations
        is_logged = run.iteration % args.log_iter == 0
        is_saved = is_stopped or is_over or run.iteration % args.checkpoint_iterations == 0
        if is_logged or is_saved:
            loss = accelerator.reduce(loss.double(), "mean").item()
            if not args.allow_nan:
                check_finite(accelerator, model, loss, run.iteration, checks_weights=is_saved)
        if is_logged:
            seconds = (time.perf_counter() - start) / (run.iteration - first)
            speed = tokens * accelerator.num_processes / seconds
            accelerator.log({"loss": loss, "lr": lr, "tokens_per_second": round(speed)}, step=run.iteration)
            progress.set_postfix(loss=f"{loss:.4f}", lr=f"{lr:.2e}", tok_s=f"{speed:,.0f}", refresh=False)
        if is_stopped or (is_saved and not is_over):
            accelerator.save_state(folder / "checkpoints", keep_last=2)
        if is_stopped:
            progress.close()
            hint = f"continue with --resume_from_checkpoint {folder}"
            accelerator.print(f"stopped after iteration {run.iteration}; {hint}")
            accelerator.wait_for_everyone()
            raise SystemExit(130)
    evaluate(accelerator, model, loaders, run, folder)
    progress.close()
    accelerator.save_state(folder / "checkpoints", keep_last=2)


def main():
    args = arguments()
    try:
        accelerator = Accelerator(
            args.gradient_accumulation_steps, args.mixed_precision, args.log_wandb or None,
            cpu=mytorch.device(args.device).type == "cpu",
        )  # fmt: skip
        vocab_size = size_of_vocabulary(args.path_to_data)
        window = args.context_length, vocab_size  # all ids are checked now, not when they are drawn
        data = {split: TokenWindows(args.path_to_data, split, *window) for split in ("train", "val")}
    except (ImportError, OSError, ValueError) as error:  # a message without a traceback
        raise SystemExit(str(error)) from None
    accelerator.checks_loss = not args.allow_nan
    if ":" in args.device:
        if accelerator.num_processes > 1:
            raise SystemExit(f"--device {args.device}: several processes take a GPU each; say --device cuda")
        accelerator.device = mytorch.device(args.device)

    set_seed(args.seed, device_specific=True)  # the weights are those of the first process
    folder = Path(args.resume_from_checkpoint or Path(args.working_directory) / args.project_name)
    model, optimizer = build(accelerator, vocab_size, args)
    size = f"{model.num_parameters():,} parameters, {len(data['train'].tokens):,} training tokens"
    run = Run(model.config, args)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.register_for_checkpointing(run)
    is_restarted = os.environ.get("MYTORCH_RESTART_COUNT", "0") != "0"
    if args.resume_from_checkpoint or is_restarted:
        resume(accelerator, run, folder, is_restarted)

    accelerator.init_trackers("mytorch", run.arguments, {"wandb": {"name": args.project_name}})
    if accelerator.is_main_process:
        make_folder(folder, run, args, is_new=not (args.resume_from_checkpoint or is_restarted))
        accelerator.trackers.append(start_metrics(folder, run))
    devices = f"{accelerator.num_processes} x {args.device}" if accelerator.num_processes > 1 else args.device
    accelerator.print(f"{size}, {devices}, results in {folder}/")
    train(accelerator, model, optimizer, data, run, folder, args)
    with accelerator.split_between_processes(list(range(0, len(data["val"]), args.context_length))) as share:
        whole_split = DataLoader(data["val"], args.batch_size, sampler=share, generator=mytorch.Generator())
    loss = mean_loss(accelerator, model, whole_split)
    accelerator.log({"val_loss": loss, "whole_split": True}, step=run.iteration)
    if accelerator.is_main_process:
        try:
            draw_loss_curve(folder / "metrics.jsonl", folder / "loss.png", folder.name)
            print(f"loss curve: {folder / 'loss.png'}")
        except ImportError as error:  # no matplotlib
            print(error)
        print(f"validation loss over the whole split: {loss:.4f}")
        print(f"a sample of its text: python inference_gpt2.py {folder}/")
    accelerator.end_training()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
