"""What the stages share: options, lines of JSON, the training loop."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mytorch import Tensor, nn
from mytorch.models.language_model import LanguageModel
from mytorch.optim import AdamW
from mytorch.optim.lr_scheduler import WarmupCosineLR
from mytorch.utils import atomic_write
from mytorch.utils.reading import read_json_lines
from mytorch.utils.writing import json_text

Batch = tuple[Tensor, Tensor]  # inputs and targets (B, T); the target -1 is ignored


def parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of all stages."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    made.add_argument("--folder", type=Path, default=Path("work_dir/tiny_chat"), help="of all files")
    made.add_argument("--seed", type=int, default=0, help="of the random numbers")
    return made


def positive(text: str) -> int:
    """Returns the value of an option that is at least 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def run(main: Callable[[], Any]) -> None:
    """Runs a stage; its errors are printed in one line."""
    try:
        main()
    except (ImportError, OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def write_lines(path: Path, entries: list[dict[str, Any]]) -> None:
    """Writes a JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial, open(partial, "w", encoding="utf-8") as file:
        file.writelines(json_text(entry, ensure_ascii=False) + "\n" for entry in entries)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the objects in a file of `write_lines`."""
    return [content for _, content in read_json_lines(path)]


def bar(iterable: Any, description: str) -> tqdm:
    return tqdm(iterable, description, mininterval=0.1 if sys.stderr.isatty() else 10)


def train(
    model: LanguageModel, batches: Iterator[Batch], val_loss: Callable[[], float], folder: Path, name: str,
    steps: int, lr: float, eval_interval: int,
) -> None:
    """Trains on `steps` batches; saves the model in `folder` and its losses at each evaluation.

    Raises:
        ValueError: the learning rate is negative, or the loss becomes inf or NaN.
    """
    optimizer = AdamW(model.parameter_groups(weight_decay=0.1), lr=lr, betas=(0.9, 0.95))
    schedule = WarmupCosineLR(optimizer, steps // 20, steps, lr / 10)
    metrics = [{"iteration": 0, "val_loss": val_loss()}]
    for step in (progress := bar(range(1, steps + 1), name)):
        _, loss = model(*next(batches), return_logits=False)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        metrics.append({"iteration": step, "loss": loss.item()})
        if not math.isfinite(metrics[-1]["loss"]):
            raise ValueError(f"the loss of step {step} is {metrics[-1]['loss']}; a lower --lr may help")
        if step % eval_interval == 0 or step == steps:
            metrics[-1]["val_loss"] = val_loss()
            model.save_pretrained(folder)
            write_lines(folder / f"{name}.jsonl", metrics)
            progress.set_postfix(val=f"{metrics[-1]['val_loss']:.3f}")
    print(f"{name}: validation loss {metrics[0]['val_loss']:.3f} → {metrics[-1]['val_loss']:.3f}")
