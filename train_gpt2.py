"""
Train a GPT-2 on token files, as prepared by prepare_data/.

    python train_gpt2.py --path_to_data data/shakespeare --model_size nano --context_length 64
    mytorchrun launch --num_processes 2 train_gpt2.py --path_to_data data/shakespeare

Several processes update from the batches of all, as one would from a batch as large as all of theirs.
`python -m benchmarks.smoke` trains three steps on random tokens: it needs no data.

Writes into <working_directory>/<project_name>/:
    checkpoints/             the last two states, from which --resume_from_checkpoint continues exactly
    model.safetensors        the weights with the lowest validation loss, config.json beside them
    metrics.jsonl, loss.png  losses, gradient norm, learning rate, speed and samples of text by iteration
"""

import math
import os
import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from itertools import count, islice
from pathlib import Path

import numpy as np
from tqdm import tqdm

import mytorch
from mytorch.accelerate import Accelerator, set_seed
from mytorch.accelerate.throughput import Throughput
from mytorch.models import GPT2, GPT2Config
from mytorch.models.gpt2_config import SIZES
from mytorch.optim import AdamW
from mytorch.optim.lr_scheduler import WarmupCosineLR
from mytorch.utils.data import DataLoader
from mytorch.utils.scripts import python_command, require_bounds, usable_device
from mytorch.utils.tokens import TokenWindows, size_of_vocabulary
from run_folder import Run, make_run_folder, open_metrics, resume, sample_text, save_loss_curve

INFERENCE = Path(__file__).with_name("inference_gpt2.py")


def arguments(description="Train a GPT-2.", **defaults):
    parser = ArgumentParser(description=description, formatter_class=ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--project_name", default="gpt2-small-shakespeare", help="folder of the run in working_directory")
    add("--working_directory", default="work_dir", help="parent folder of runs")
    add("--path_to_data", default="data/shakespeare", help="holds train.bin, val.bin and tokenizer.json")
    add("--model_size", default="nano", choices=SIZES, help="base is GPT-2 with 124 M parameters")
    add("--context_length", type=int, default=64, help="tokens in a sequence")
    add("--dropout_p", type=float, default=0.0, help="probability of dropping an activation")
    add("--train_iterations", type=int, default=2000, help="optimizer steps")
    add("--chinchilla", action="store_true", help="train on 20 tokens a parameter, warm-up at most a tenth")
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
    add("--sample_tokens", type=int, default=100, help="tokens that an evaluation generates; 0: none")
    add("--log_iter", type=int, default=10, help="iterations between two lines of metrics.jsonl")
    add("--checkpoint_iterations", type=int, default=250, help="iterations between two checkpoints")
    add("--resume_from_checkpoint", metavar="FOLDER", help="continue the run in this folder")
    add("--fused", action="store_true", help="fail without fused kernels")
    add("--mixed_precision", nargs="?", const="fp16", choices=("no", "fp16", "bf16"),
        help="train in half precision, with float32 master weights; without a value fp16")
    add("--allow_nan", action="store_true", help="train on when the loss or weights are inf or NaN")
    add("--log_wandb", action="store_true", help="also log to Weights & Biases")
    add("--peak_flops", type=float, help="FLOP/s of a device, for the MFU; default: known, or measured (CPU)")
    add("--seed", type=int, default=1337, help="of the weights, the batches and dropout")
    add("--device", default="cuda" if mytorch.cuda.is_available() else "cpu", type=usable_device,
        help="cpu, cuda or cuda:N")
    parser.set_defaults(**defaults)
    args = parser.parse_args()
    counts = ("context_length", "train_iterations", "batch_size", "gradient_accumulation_steps", "log_iter",
              "eval_interval", "eval_iterations", "checkpoint_iterations", "peak_flops")
    sizes = "max_lr", "min_lr", "warmup_steps", "weight_decay", "max_grad_norm", "sample_tokens", "seed"
    require_bounds(parser, args, counts, sizes, below_1=("dropout_p", "beta1", "beta2"))
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
    """Returns a new model, its optimizer, and what measures tokens a second and MFU, of all processes."""
    config = GPT2Config.of_size(
        args.model_size, vocab_size=vocab_size, context_length=args.context_length,
        dropout_p=args.dropout_p, bias=False,
    )
    model = GPT2(config).to(accelerator.device)
    groups = model.parameter_groups(args.weight_decay)
    optimizer = AdamW(groups, lr=args.max_lr, betas=(args.beta1, args.beta2))
    tokens = args.batch_size * args.context_length * args.gradient_accumulation_steps
    return model, optimizer, Throughput.of(accelerator, model, tokens, args.peak_flops)


def build_scheduler(optimizer, iteration, args):
    """Returns the schedule of the learning rate, after `iteration` steps."""
    for group in optimizer.param_groups:  # a checkpoint has those of its own options
        group["lr"] = group["initial_lr"] = args.max_lr
    decay_steps = max(args.train_iterations, args.warmup_steps)
    return WarmupCosineLR(optimizer, args.warmup_steps, decay_steps, args.min_lr, last_epoch=iteration - 1)


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
    """Logs and prints both losses and a sample of text, and saves the model if it is the best so far."""
    losses = {name: mean_loss(accelerator, model, loader) for name, loader in loaders.items()}
    if losses["val_loss"] <= run.best_val_loss:
        run.best_val_loss = losses["val_loss"]
        accelerator.save_model(model, folder)
    if accelerator.is_main_process:
        sample = sample_text(accelerator.unwrap_model(model), folder, run.arguments["sample_tokens"])
        accelerator.log({**losses, "sample": sample}, step=run.iteration)
        text = "iteration {}: train {train_loss:.4f}, validation {val_loss:.4f}"
        tqdm.write(text.format(run.iteration, **losses) + f"\n{sample}".replace("\n", "\n    ").rstrip())


def train(accelerator, model, optimizer, data, run, folder, throughput, args):
    """Runs the iterations that are left; Ctrl-C saves a checkpoint and ends the program."""
    scheduler = build_scheduler(optimizer, run.iteration, args)
    batches = iter(training_loader(data["train"], accelerator, args, run.iteration + 1))  # (B, T + 1) tokens
    loaders = {
        "train_loss": evaluation_loader(data["train"], accelerator, args, 1),
        "val_loss": evaluation_loader(data["val"], accelerator, args, 2),
    }
    accelerator.set_trigger_on_signals()
    progress = tqdm(
        total=args.train_iterations, initial=run.iteration, disable=not accelerator.is_main_process,
        dynamic_ncols=True, mininterval=0.1 if sys.stderr.isatty() else 10,  # fewer lines in a log file
    )
    throughput.start(run.iteration)
    while run.iteration < args.train_iterations:
        if run.iteration % args.eval_interval == 0:
            evaluate(accelerator, model, loaders, run, folder)
            throughput.start(run.iteration)
        run.iteration += 1
        loss = train_step(accelerator, model, optimizer, batches, args)
        lr = scheduler.get_last_lr()[0]
        scheduler.step()
        progress.update()
        is_stopped, is_over = accelerator.check_trigger(), run.iteration == args.train_iterations
        is_logged = run.iteration % args.log_iter == 0
        is_saved = is_stopped or is_over or run.iteration % args.checkpoint_iterations == 0
        if is_logged or is_saved:
            loss = accelerator.reduce(loss.double(), "mean").item()
            accelerator.check_finite(loss, checks_weights=is_saved)
        if is_logged:
            speed = throughput.measure(run.iteration)
            norm = {} if accelerator.grad_norm is None else {"grad_norm": accelerator.grad_norm.item()}
            accelerator.log({"loss": loss, **norm, "lr": lr, **speed}, step=run.iteration)
            progress.set_postfix_str(f"loss {loss:.4f}, lr {lr:.2e}, {throughput.text()}", refresh=False)
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


def finish(accelerator, model, windows, run, folder, args):
    """Evaluates the model on the whole validation split, and draws the curves."""
    with accelerator.split_between_processes(list(range(0, len(windows), args.context_length))) as share:
        whole_split = DataLoader(windows, args.batch_size, sampler=share, generator=mytorch.Generator())
    loss = mean_loss(accelerator, model, whole_split)
    accelerator.log({"val_loss": loss, "whole_split": True}, step=run.iteration)
    if accelerator.is_main_process:
        save_loss_curve(folder)
        print(f"validation loss over the whole split: {loss:.4f}")
        if os.environ.get("MYTORCH_SAMPLE_HINT") != "0":  # train_gpt2.sh prints a sample itself
            print(f"a sample of its text: {python_command(INFERENCE, f'{folder}/')}")
    accelerator.end_training()


def make_accelerator(args):
    """Returns the Accelerator that the options describe, and seeds the generators."""
    accelerator = Accelerator(
        args.gradient_accumulation_steps, args.mixed_precision, args.log_wandb or None,
        device=args.device, fused=args.fused,
    )
    accelerator.checks_loss = not args.allow_nan
    set_seed(args.seed, device_specific=True)  # the weights are those of the first process
    return accelerator


def main():
    args = arguments()
    try:
        accelerator = make_accelerator(args)
        vocab_size = size_of_vocabulary(args.path_to_data)
        window = args.context_length, vocab_size  # all ids are checked now, not when they are drawn
        data = {split: TokenWindows(args.path_to_data, split, *window) for split in ("train", "val")}
    except (ImportError, OSError, ValueError) as error:  # a message without a traceback
        raise SystemExit(str(error)) from None

    folder = Path(args.resume_from_checkpoint or Path(args.working_directory) / args.project_name)
    model, optimizer, throughput = build(accelerator, vocab_size, args)
    size = f"{model.num_parameters():,} parameters, {len(data['train'].tokens):,} training tokens"
    if args.chinchilla:  # Hoffmann et al. 2022, https://arxiv.org/abs/2203.15556
        args.train_iterations = math.ceil(20 * model.num_parameters() / throughput.tokens)
        args.warmup_steps = min(args.warmup_steps, args.train_iterations // 10)
    run = Run(model.config.to_dict(), args)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.register_for_checkpointing(run)
    is_continued = resume(accelerator, run, folder, bool(args.resume_from_checkpoint))

    accelerator.init_trackers("mytorch", run.arguments, {"wandb": {"name": args.project_name}})
    if accelerator.is_main_process:
        make_run_folder(folder, run.config, Path(args.path_to_data) / "tokenizer.json", not is_continued)
        accelerator.trackers.append(open_metrics(folder, run.iteration))
    devices = f"{accelerator.num_processes} x {args.device}" if accelerator.num_processes > 1 else args.device
    steps = f"{args.train_iterations:,} steps of {throughput.tokens:,} tokens"
    accelerator.print(f"{size}, {steps}, {devices}, results in {folder}/")
    try:
        train(accelerator, model, optimizer, data, run, folder, throughput, args)
    except FloatingPointError as error:
        hint = "a lower --max_lr may help; --allow_nan trains on"
        raise SystemExit(f"iteration {run.iteration}: {error}; {hint}") from None
    finish(accelerator, model, data["val"], run, folder, args)


if __name__ == "__main__":
    mytorch.stream.publish()  # `mytorchrun top` shows this process
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
