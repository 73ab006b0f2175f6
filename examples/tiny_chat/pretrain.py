"""Stage 3: pretrains a small Llama on the documents; writes base/."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import mytorch
from mytorch.models import Llama, LlamaConfig
from mytorch.tokenizers import load_tokenizer
from mytorch.utils.tokens import load_tokens

from .common import Batch, parser, positive, run, train


def random_windows(tokens: np.ndarray, context: int, batch_size: int, seed: int) -> Iterator[Batch]:
    """Yields inputs and targets (batch_size, context) from random positions, without end."""
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(len(tokens) - context, size=batch_size)
        windows = tokens[starts[:, None] + np.arange(context + 1)].astype(np.int64)
        yield mytorch.tensor(windows[:, :-1]), mytorch.tensor(windows[:, 1:])


@mytorch.no_grad()
def mean_loss(model: Llama, batches: list[Batch]) -> float:
    """Returns the mean of the batches' losses."""
    return sum(model(x, y, return_logits=False)[1].item() for x, y in batches) / len(batches)


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--layers", type=positive, default=4)
    options.add_argument("--width", type=int, default=128, help="features of a token; 32 for each head")
    options.add_argument("--context", type=positive, default=256, help="tokens in a sequence")
    options.add_argument("--batch_size", type=positive, default=4, help="sequences of a step")
    options.add_argument("--steps", type=positive, default=500)
    options.add_argument("--lr", type=float, default=3e-3, help="the largest learning rate")
    options.add_argument("--eval_interval", type=positive, default=100, help="steps between two evaluations")
    args = options.parse_args(arguments)
    if args.width < 32 or args.width % 32:
        raise ValueError(f"--width must be a multiple of 32, got {args.width}")

    mytorch.manual_seed(args.seed)
    vocab_size = load_tokenizer(args.folder).vocab_size
    train_tokens, val_tokens = (
        load_tokens(args.folder / "data", split, args.context, vocab_size) for split in ("train", "val")
    )
    model = Llama(LlamaConfig(
        vocab_size, args.width, 32 * round(args.width / 12), args.layers, args.width // 32,
        max_position_embeddings=args.context, tie_word_embeddings=True,
    ))
    tokens = args.steps * args.batch_size * args.context
    print(f"pretrain: {model.num_parameters():,} parameters, {tokens:,} tokens")
    held_out = random_windows(val_tokens, args.context, args.batch_size, args.seed)
    held_out = [next(held_out) for _ in range(16)]
    batches = random_windows(train_tokens, args.context, args.batch_size, args.seed + 1)
    train(
        model, batches, lambda: mean_loss(model, held_out), args.folder / "base", "pretrain", args.steps,
        args.lr, args.eval_interval,
    )


if __name__ == "__main__":
    run(main)
