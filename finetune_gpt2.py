"""
Fine-tunes a GPT-2: a run of train_gpt2.py, or a pretrained model from a folder or Hugging Face.

    python finetune_gpt2.py work_dir/gpt2-small-shakespeare --path_to_data data/text --lora_rank 8
    python finetune_gpt2.py openai-community/gpt2 --path_to_data data/gpt2-text --freeze_layers 6

The tokens in --path_to_data must be of the model's tokenizer. Writes into --path_to_save:
    model.safetensors, config.json    the model with the lowest validation loss, with adapters merged, as
                                      Hugging Face's transformers and inference_gpt2.py read it
    adapter.safetensors               with --lora_rank the adapters alone
    tokenizer.json, metrics.jsonl     the tokenizer of the data, losses by iteration
    checkpoints/                      the last two states, from which --resume continues exactly
"""

import math
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from pathlib import Path
from shutil import copyfile

from tqdm import tqdm

import mytorch
from mytorch import nn
from mytorch.accelerate import Accelerator, set_seed
from mytorch.models import GPT2
from mytorch.nn.utils import add_lora, merge_lora
from mytorch.optim import AdamW
from mytorch.utils.reading import read_json
from mytorch.utils.scripts import python_command, require_bounds, usable_device
from mytorch.utils.tokens import TokenWindows
from run_folder import Run, make_folder, open_metrics, resume, set_checkpoints_aside
from train_gpt2 import INFERENCE, build_scheduler, evaluation_loader, mean_loss, train_step, training_loader

# The options that a checkpoint depends on, besides the model's configuration.
KINDS = ("model", "freeze_layers", "lora_rank", "lora_alpha", "lora_targets")


def arguments():
    parser = ArgumentParser(description="Fine-tune a GPT-2.", formatter_class=ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("model", help="folder of a run or of a pretrained model, or its name on Hugging Face")
    add("--path_to_data", default="data/text", help="holds train.bin, val.bin and tokenizer.json")
    add("--path_to_save", default="work_dir/finetuned", help="output folder")
    add("--resume", action="store_true", help="continue the run in --path_to_save from its last checkpoint")
    add("--freeze_layers", type=int, default=0, help="freeze the embeddings and the first N blocks")
    add("--lora_rank", type=int, default=0, help="train adapters of this rank; 0: the weights themselves")
    add("--lora_alpha", type=float, help="scale of the adapters times their rank; default: the rank")
    add("--lora_targets", nargs="+", default=["c_attn"], help="the layers of each block with an adapter")
    add("--lora_dropout_p", type=float, default=0.0, help="probability of dropping an adapter's input")
    add("--context_length", type=int, help="tokens in a sequence; default: the model's")
    add("--train_iterations", type=int, default=200, help="optimizer steps")
    add("--batch_size", type=int, default=4, help="sequences in a batch of each process")
    add("--gradient_accumulation_steps", type=int, default=1, help="batches for each optimizer step")
    add("--max_lr", type=float, default=3e-4, help="learning rate after the warm-up")
    add("--min_lr", type=float, default=3e-5, help="learning rate at the end")
    add("--warmup_steps", type=int, default=10, help="iterations of linear warm-up")
    add("--weight_decay", type=float, default=0.0, help="decoupled decay of the weight matrices")
    add("--max_grad_norm", type=float, default=1.0, help="gradients are clipped to this norm; 0 is off")
    add("--eval_interval", type=int, default=50, help="iterations between two evaluations")
    add("--eval_iterations", type=int, default=20, help="random batches in an evaluation")
    add("--mixed_precision", default="no", choices=("no", "fp16", "bf16"), help="train in half precision")
    add("--seed", type=int, default=1337, help="of the adapters, the batches and dropout")
    add("--device", default="cuda" if mytorch.cuda.is_available() else "cpu", type=usable_device,
        help="cpu, cuda or cuda:N")
    args = parser.parse_args()
    counts = ("context_length", "train_iterations", "batch_size", "gradient_accumulation_steps",
              "eval_interval", "eval_iterations")
    sizes = ("freeze_layers", "lora_rank", "max_lr", "min_lr", "warmup_steps", "weight_decay",
             "max_grad_norm", "seed")
    require_bounds(parser, args, counts, sizes, below_1=("lora_dropout_p",))
    return args


def load_model(args):
    """Returns the pretrained model, of which some parameters are trained, perhaps those of adapters."""
    model = GPT2.from_pretrained(args.model)
    blocks = model.transformer.h
    if not 0 <= args.freeze_layers < len(blocks) + (args.lora_rank == 0):
        raise ValueError(f"--freeze_layers {args.freeze_layers}: the model has {len(blocks)} layers")
    trained = nn.ModuleList(blocks[args.freeze_layers :])
    if args.lora_rank:
        model.requires_grad_(False)
        add_lora(trained, args.lora_rank, args.lora_alpha, args.lora_targets, args.lora_dropout_p)
    elif args.freeze_layers:
        model.requires_grad_(False)
        trained.requires_grad_()
        model.transformer.ln_f.requires_grad_()
    return model


def load_data(model, args):
    """Returns the splits' windows; their tokens are those of the model's tokenizer."""
    ours, theirs = Path(args.model) / "tokenizer.json", Path(args.path_to_data) / "tokenizer.json"
    if ours.exists() and theirs.exists():
        kinds = [content for content in map(read_json, (ours, theirs)) if "type" in content]
        if len(kinds) == 2 and kinds[0] != kinds[1]:
            raise ValueError(f"{theirs} is not the tokenizer of the model, {ours}: prepare the data with it")
    args.context_length = args.context_length or model.config.context_length
    window = args.context_length, model.config.vocab_size
    return {split: TokenWindows(args.path_to_data, split, *window) for split in ("train", "val")}


def trained_state(accelerator, model):
    """Returns the part of the state_dict that is trained, in float32."""
    names = [name for name, p in accelerator.unwrap_model(model).named_parameters() if p.requires_grad]
    state = accelerator.get_state_dict(model)
    return {name: state[name] for name in names}


def evaluate(accelerator, model, loader, run, path):
    """Logs and prints the validation loss, and saves what is trained to `path` if it is the lowest."""
    loss = mean_loss(accelerator, model, loader)
    if not math.isfinite(loss):
        raise FloatingPointError(f"the validation loss is {loss}")
    accelerator.log({"val_loss": loss}, step=run.iteration)
    if accelerator.is_main_process:
        tqdm.write(f"iteration {run.iteration}: validation {loss:.4f}")
    if loss <= run.best_val_loss:
        run.best_val_loss = loss
        accelerator.save(trained_state(accelerator, model), path)


def train(accelerator, model, optimizer, data, run, path, args):
    """Runs the iterations that are left, with a checkpoint at each evaluation; Ctrl-C saves one, too."""
    scheduler, folder = build_scheduler(optimizer, run.iteration, args), Path(args.path_to_save)
    batches = iter(training_loader(data["train"], accelerator, args, run.iteration + 1))  # (B, T + 1) tokens
    validation = evaluation_loader(data["val"], accelerator, args, 2)
    accelerator.set_trigger_on_signals()
    progress = tqdm(
        total=args.train_iterations, initial=run.iteration, disable=not accelerator.is_main_process
    )
    while run.iteration < args.train_iterations:
        if run.iteration % args.eval_interval == 0:
            evaluate(accelerator, model, validation, run, path)
        run.iteration += 1
        loss = train_step(accelerator, model, optimizer, batches, args)
        loss = accelerator.reduce(loss.double(), "mean").item()
        accelerator.log({"loss": loss, "lr": scheduler.get_last_lr()[0]}, step=run.iteration)
        scheduler.step()
        progress.update()
        is_stopped, is_over = accelerator.check_trigger(), run.iteration == args.train_iterations
        if is_stopped or is_over or run.iteration % args.eval_interval == 0:
            accelerator.save_state(folder / "checkpoints", keep_last=2)
        if is_stopped:
            progress.close()
            accelerator.print(f"stopped after iteration {run.iteration}; continue with --resume")
            accelerator.wait_for_everyone()
            raise SystemExit(130)
    evaluate(accelerator, model, validation, run, path)
    progress.close()


def save(path, args):
    """Writes the model with what is trained, in the file `path`, merged into what is frozen: that comes from
    the pretrained file, since in half precision it was rounded."""
    folder = Path(args.path_to_save)
    if path.exists():  # else a finished run was resumed, and has found nothing better
        model = load_model(args)
        model.load_state_dict(mytorch.load(path), strict=False)
        merge_lora(model).save_pretrained(folder)
        if not args.lora_rank:
            path.unlink()
    copyfile(Path(args.path_to_data) / "tokenizer.json", folder / "tokenizer.json")
    print(f"a sample of its text: {python_command(INFERENCE, f'{folder}/')}")


def main():
    args = arguments()
    folder = Path(args.path_to_save)
    try:
        accelerator = Accelerator(args.gradient_accumulation_steps, args.mixed_precision, device=args.device)
        set_seed(args.seed, device_specific=True)
        model = load_model(args)
        data = load_data(model, args)
    except (ImportError, OSError, ValueError, TypeError) as error:  # a message without a traceback
        raise SystemExit(str(error)) from None
    count_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    accelerator.print(f"{count_trained:,} of {model.num_parameters():,} parameters are trained")
    run = Run({**model.config.to_dict(), **{name: getattr(args, name) for name in KINDS}}, args)
    optimizer = AdamW(model.to(accelerator.device).parameter_groups(args.weight_decay), lr=args.max_lr)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.register_for_checkpointing(run)
    is_continued = resume(accelerator, run, folder, args.resume)

    accelerator.init_trackers("finetune", run.arguments)
    if accelerator.is_main_process:
        make_folder(folder)
        if not is_continued:
            set_checkpoints_aside(folder)
        accelerator.trackers.append(open_metrics(folder, run.iteration))
    path = folder / ("adapter.safetensors" if args.lora_rank else "trained.safetensors")
    try:
        train(accelerator, model.train(), optimizer, data, run, path, args)
    except FloatingPointError as error:
        raise SystemExit(f"{error}; a lower --max_lr may help") from None
    if accelerator.is_main_process:
        save(path, args)
    accelerator.end_training()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
