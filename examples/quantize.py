"""
What quantized weights cost: perplexity and bytes of a small GPT that was trained on text, before and after.

    python -m examples.quantize --file data/tinyshakespeare.txt
"""

from __future__ import annotations

import argparse
import copy
import math
from pathlib import Path

import numpy as np

import mytorch
from mytorch.models.gpt2 import GPT2, GPT2Config
from mytorch.nn.functional.quantization import FORMATS
from mytorch.tokenizers import CharTokenizer

LENGTH = 128  # characters


def train(model: GPT2, ids: np.ndarray, iterations: int) -> None:
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    rng = np.random.default_rng(0)
    for _ in range(iterations):
        starts = rng.integers(0, len(ids) - LENGTH, 12)
        windows = mytorch.tensor(ids[starts[:, None] + np.arange(LENGTH + 1)])
        _, loss = model(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@mytorch.no_grad()
def perplexity(model: GPT2, ids: np.ndarray) -> float:
    """Returns exp(mean cross entropy) of a character, for windows of LENGTH characters."""
    count = (len(ids) - 1) // LENGTH
    inputs, targets = (ids[i : i + count * LENGTH].reshape(count, LENGTH) for i in (0, 1))
    losses = [
        model(mytorch.tensor(inputs[i : i + 16]), mytorch.tensor(targets[i : i + 16]), return_logits=False)[1]
        for i in range(0, count - count % 16, 16)
    ]
    return math.exp(sum(float(loss) for loss in losses) / len(losses))


def megabytes(model: GPT2) -> float:
    return sum(t.numel() * t.dtype.itemsize for t in (*model.parameters(), *model.buffers())) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--file", type=Path, required=True, help="a text, such as Tiny Shakespeare")
    parser.add_argument("--iterations", type=int, default=300)
    args = parser.parse_args()
    mytorch.manual_seed(0)
    text = args.file.read_text(encoding="utf-8")
    tokenizer = CharTokenizer.from_text(text)
    ids = np.asarray(tokenizer.encode(text), np.int64)
    split = len(ids) * 9 // 10
    model = GPT2(GPT2Config.of_size("nano", vocab_size=tokenizer.vocab_size, context_length=LENGTH))
    train(model, ids[:split], args.iterations)
    model.eval()
    for format in ("float32", *FORMATS):
        made = model if format == "float32" else mytorch.quantize(copy.deepcopy(model), format)
        found = perplexity(made, ids[split:])
        print(f"{format:8} perplexity {found:.4f}, {megabytes(made):.2f} MB", flush=True)


if __name__ == "__main__":
    main()
