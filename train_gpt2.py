"""
Train a GPT-2 on token files, as prepared by prepare_data/.

    python train_gpt2.py --path_to_data data/shakespeare --model_size nano --context_length 64

Writes into <working_directory>/<project_name>/:
    checkpoint.safetensors   the latest state, from which --resume_from_checkpoint continues exactly
    model.safetensors        the weights with the lowest validation loss, config.json beside them
    metrics.jsonl, loss.png  losses and learning rate by iteration
"""

import argparse
import json
import math
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import mytorch
from mytorch.models import GPT2, GPT2Config
from mytorch.models.gpt2 import SIZES
from mytorch.utils import atomic_write


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
    add("--batch_size", type=int, default=12, help="sequences in a batch")
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
    add("--mixed_precision", action="store_true", help="train in float16 (not there yet: an error)")
    add("--log_wandb", action="store_true", help="also log to Weights & Biases")
    add("--seed", type=int, default=1337, help="of the weights, the batches and dropout")
    add("--device", default="cuda" if mytorch.cuda.is_available() else "cpu", help="cpu, cuda or cuda:N")
    args = parser.parse_args()
    if args.mixed_precision:
        parser.error("--mixed_precision: this version trains in float32 only")
    if args.fused and (reason := mytorch.nn.fused_ops.why_not(mytorch.device(args.device).type)):
        parser.error(f"--fused: {reason}")
    for name in ("train_iterations", "batch_size", "gradient_accumulation_steps", "eval_interval",
                 "eval_iterations", "log_iter", "checkpoint_iterations"):  # fmt: skip
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    return args


def load_tokens(folder, split, context_length):
    """The tokens of a split, as a memory-mapped uint16 array."""
    path = Path(folder) / f"{split}.bin"
    if not path.exists():
        raise SystemExit(
            f"{path} is missing; make it with: "
            f"python prepare_data/prepare_shakespeare.py --path_to_save {folder}"
        )
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    if len(tokens) <= context_length:
        raise SystemExit(f"{path} has {len(tokens)} tokens, too few for a context of {context_length}")
    return tokens


def size_of_vocabulary(folder):
    """How many tokens the tokenizer beside the data has; GPT-2's 50,257, rounded up to a multiple of 64."""
    path = Path(folder) / "tokenizer.json"
    kind = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"type": "gpt2"}
    return len(kind["characters"]) if kind["type"] == "char" else 50304


def random_batch(tokens, args, *key):
    """Windows from anywhere in the text, a function of the seed and `key` alone."""
    rng = np.random.default_rng((args.seed, *key))
    return windows(tokens, rng.integers(len(tokens) - args.context_length, size=args.batch_size), args)


def windows(tokens, starts, args):
    """The sequences (B, T) that begin at `starts`, and what follows each of their tokens (B, T)."""
    rows = np.stack([tokens[s : s + args.context_length + 1] for s in starts]).astype(np.int64)
    rows = mytorch.from_numpy(rows).to(args.device)
    return rows[:, :-1], rows[:, 1:]


@mytorch.no_grad()
def estimate_loss(model, tokens, args, name):
    """Mean loss over `eval_iterations` random batches, always the same ones."""
    model.eval()
    key = {"train": 1, "val": 2}[name]
    losses = [model(*random_batch(tokens, args, key, i))[1].item() for i in range(args.eval_iterations)]
    model.train()
    return sum(losses) / len(losses)


@mytorch.no_grad()
def full_loss(model, tokens, args):
    """Mean loss over a whole split, cut into windows that don't overlap."""
    model.eval()
    starts = range(0, len(tokens) - args.context_length, args.context_length)
    total = 0.0
    for i in progress_bar(range(0, len(starts), args.batch_size), desc="validation split", leave=False):
        batch = starts[i : i + args.batch_size]
        total += model(*windows(tokens, batch, args))[1].item() * len(batch)
    model.train()
    return total / len(starts)


def progress_bar(*args, **options):
    """tqdm, which in a log file doesn't write ten lines a second."""
    return tqdm(*args, dynamic_ncols=True, mininterval=0.1 if sys.stderr.isatty() else 10, **options)


def learning_rate(iteration, args):
    """Linear warm-up, then a cosine from max_lr down to min_lr at the last iteration."""
    if iteration < args.warmup_steps:
        return args.max_lr * (iteration + 1) / (args.warmup_steps + 1)
    progress = (iteration - args.warmup_steps) / max(1, args.train_iterations - args.warmup_steps)
    return args.min_lr + 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))) * (args.max_lr - args.min_lr)


class StopRequest:
    """True once Ctrl-C was pressed or the process was asked to end; a second time ends it at once."""

    def __init__(self):
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.ask)

    def ask(self, number, frame):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __bool__(self):
        return self.asked


def save_checkpoint(folder, model, optimizer, iteration, best, args):
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "iteration": iteration,
        "best_val_loss": best,
        "rng": {mytorch.device(args.device).type: mytorch.get_rng_state(args.device)},
        "config": model.config.to_dict(),
        "arguments": {name: value for name, value in vars(args).items() if name != "resume_from_checkpoint"},
    }
    mytorch.save(state, folder / "checkpoint.safetensors")


def save_model(folder, model):
    mytorch.save(model.state_dict(), folder / "model.safetensors")
    with atomic_write(folder / "config.json") as path:
        path.write_text(json.dumps(model.config.to_dict(), indent=2) + "\n")


def save_picture(folder):
    """Losses by iteration as loss.png, if matplotlib is there."""
    try:
        import matplotlib
    except ImportError:
        print("no picture of the losses: pip install matplotlib")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    figure, axes = plt.subplots(figsize=(8, 4.5), dpi=120, layout="constrained")
    train = [(m["iteration"], m["loss"]) for m in lines if "loss" in m]
    val = list({m["iteration"]: m["val_loss"] for m in lines if "val_loss" in m}.items())
    axes.plot(*zip(*train, strict=True), color="#9db8d9", linewidth=1, label="train, one batch")
    axes.plot(*zip(*val, strict=True), color="#c0392b", marker="o", markersize=4, label="validation")
    axes.annotate(
        f"{val[-1][1]:.3f}", val[-1], xytext=(0, 8), textcoords="offset points", ha="right", color="#c0392b"
    )
    axes.set(xlabel="iteration", ylabel="cross entropy (nats per token)", title=folder.name)
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic_write(folder / "loss.png") as path:
        figure.savefig(path, format="png")
    print(f"loss curve: {folder / 'loss.png'}")


def build(vocab_size, args):
    """A new model and its optimizer."""
    config = GPT2Config.of_size(
        args.model_size, vocab_size=vocab_size, context_length=args.context_length,
        dropout_p=args.dropout_p, bias=False,
    )  # fmt: skip
    model = GPT2(config).to(args.device)
    groups = model.parameter_groups(args.weight_decay)
    return model, mytorch.optim.AdamW(groups, lr=args.max_lr, betas=(args.beta1, args.beta2))


def resume(folder, model, optimizer, args):
    """Load a checkpoint into model, optimizer and random state; its iteration and lowest validation loss."""
    if not (folder / "checkpoint.safetensors").exists():
        raise SystemExit(f"{folder} holds no checkpoint.safetensors to resume from")
    state = mytorch.load(folder / "checkpoint.safetensors")
    config = model.config.to_dict()
    if state["config"] != config:
        raise SystemExit(f"the checkpoint in {folder} is of another model: {state['config']}, not {config}")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    kind = mytorch.device(args.device).type
    if kind in state["rng"]:  # another kind of device draws other numbers anyway
        mytorch.set_rng_state(state["rng"][kind], args.device)
    return state["iteration"], state["best_val_loss"]


def train_step(model, optimizer, tokens, iteration, args):
    """One update, from `gradient_accumulation_steps` batches; their mean loss, and the learning rate."""
    lr = learning_rate(iteration - 1, args)
    for group in optimizer.param_groups:
        group["lr"] = lr
    total = 0.0
    for micro_step in range(args.gradient_accumulation_steps):
        _, loss = model(*random_batch(tokens, args, 0, iteration, micro_step))
        (loss / args.gradient_accumulation_steps).backward()
        total += loss.item() / args.gradient_accumulation_steps
    if args.max_grad_norm:
        mytorch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
    optimizer.step()
    optimizer.zero_grad()
    return total, lr


class Log:
    """metrics.jsonl, and Weights & Biases if asked for; resuming drops what came after the checkpoint."""

    def __init__(self, path, start, args):
        lines = path.read_text().splitlines() if start and path.exists() else []
        kept = [line for line in lines if json.loads(line)["iteration"] <= start]
        path.write_text("".join(line + "\n" for line in kept))
        self.file = path.open("a", buffering=1)
        self.run = start_wandb(args) if args.log_wandb else None

    def __call__(self, **values):
        self.file.write(json.dumps(values) + "\n")
        if self.run:
            self.run.log(values, step=values["iteration"])

    def close(self):
        self.file.close()
        if self.run:
            self.run.finish()


def main():
    args = arguments()
    mytorch.manual_seed(args.seed)
    folder = Path(args.resume_from_checkpoint or Path(args.working_directory) / args.project_name)
    data = {split: load_tokens(args.path_to_data, split, args.context_length) for split in ("train", "val")}
    model, optimizer = build(size_of_vocabulary(args.path_to_data), args)
    start, best = 0, math.inf
    if args.resume_from_checkpoint:
        start, best = resume(folder, model, optimizer, args)
    folder.mkdir(parents=True, exist_ok=True)
    if (Path(args.path_to_data) / "tokenizer.json").exists():
        shutil.copy(Path(args.path_to_data) / "tokenizer.json", folder / "tokenizer.json")
    log = Log(folder / "metrics.jsonl", start, args)

    size = f"{model.num_parameters():,} parameters, {len(data['train']):,} training tokens"
    print(f"{size}, {args.device}, results in {folder}/")
    stop = StopRequest()
    progress = progress_bar(total=args.train_iterations, initial=start)

    def evaluate(iteration):
        """Log both losses; keep the model if it is the best so far."""
        nonlocal best
        losses = {f"{name}_loss": estimate_loss(model, data[name], args, name) for name in data}
        log(iteration=iteration, **losses)
        text = "train {train_loss:.4f}, validation {val_loss:.4f}".format(**losses)
        progress.write(f"iteration {iteration}: {text}")
        if losses["val_loss"] <= best:
            best = losses["val_loss"]
            save_model(folder, model)

    tokens_per_iteration = args.batch_size * args.context_length * args.gradient_accumulation_steps
    since, counted = time.perf_counter(), 0
    for iteration in range(start + 1, args.train_iterations + 1):
        if (iteration - 1) % args.eval_interval == 0:
            evaluate(iteration - 1)
            since, counted = time.perf_counter(), 0
        loss, lr = train_step(model, optimizer, data["train"], iteration, args)
        counted += tokens_per_iteration
        progress.update()
        if iteration % args.log_iter == 0:
            speed = counted / (time.perf_counter() - since)
            log(iteration=iteration, loss=loss, lr=lr, tokens_per_second=round(speed))
            progress.set_postfix(loss=f"{loss:.4f}", lr=f"{lr:.2e}", tok_s=f"{speed:,.0f}", refresh=False)
        if stop or iteration % args.checkpoint_iterations == 0:
            save_checkpoint(folder, model, optimizer, iteration, best, args)
        if stop:
            progress.close()
            print(f"stopped after iteration {iteration}; continue with --resume_from_checkpoint {folder}")
            raise SystemExit(130)

    evaluate(args.train_iterations)
    progress.close()
    save_checkpoint(folder, model, optimizer, args.train_iterations, best, args)
    loss = full_loss(model, data["val"], args)
    log(iteration=args.train_iterations, val_loss=loss, whole_split=True)
    log.close()
    save_picture(folder)
    print(f"validation loss over the whole split: {loss:.4f}")


def start_wandb(args):
    try:
        import wandb
    except ImportError:
        raise SystemExit("--log_wandb needs Weights & Biases: pip install wandb") from None
    return wandb.init(project="mytorch", name=args.project_name, config=vars(args))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
