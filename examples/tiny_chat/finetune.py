"""Stage 5: supervised fine-tuning on conversations; the result is a folder that mytorch.chat loads."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import mytorch
from mytorch.models import Llama
from mytorch.tokenizers import load_tokenizer

from .common import Batch, parser, positive, run, train
from .packing import Encoded, pack, read_conversations
from .pretrain import mean_loss


def batches_of(rows: Sequence[Encoded], batch_size: int) -> Iterator[Batch]:
    """Yields inputs and targets (B, T) of rows of T + 1 tokens."""
    for i in range(0, len(rows), batch_size):
        tokens, learned = (mytorch.tensor(part) for part in zip(*rows[i : i + batch_size], strict=True))
        yield tokens[:, :-1], learned[:, 1:]


def epochs(conversations: list[Encoded], size: int, batch_size: int, rng: random.Random) -> Iterator[Batch]:
    """Yields batches without end; each epoch packs the conversations in another order."""
    while True:
        rows = pack(rng.sample(conversations, len(conversations)), size)
        yield from batches_of(rng.sample(rows, len(rows)), batch_size)


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--conversations", type=Path, nargs="+", help="JSONL files instead of stage 4's")
    options.add_argument("--batch_size", type=positive, default=4, help="rows of a step")
    options.add_argument("--steps", type=positive, default=600)
    options.add_argument("--lr", type=float, default=2e-3, help="the largest learning rate")
    options.add_argument("--eval_interval", type=positive, default=50, help="steps between two evaluations")
    args = options.parse_args(arguments)

    mytorch.manual_seed(args.seed)
    rng, tokenizer = random.Random(args.seed), load_tokenizer(args.folder)
    model = Llama.from_pretrained(args.folder / "base").train()
    context = model.config.context_length
    paths = args.conversations or [args.folder / "data/conversations.jsonl"]
    found = read_conversations(paths, tokenizer, context)
    rng.shuffle(found)
    held_out = max(1, len(found) // 20)
    if len(found) <= held_out:
        raise ValueError(f"{len(found)} conversations are too few to hold {held_out} out")
    held, found = list(batches_of(pack(found[:held_out], context + 1), args.batch_size)), found[held_out:]
    tokens, rows = sum(len(tokens) for tokens, _ in found), len(pack(found, context + 1))
    print(f"finetune: {len(found):,} conversations, {tokens:,} tokens in {rows:,} rows of {context + 1}")
    train(
        model, epochs(found, context + 1, args.batch_size, rng), lambda: mean_loss(model, held), args.folder,
        "finetune", args.steps, args.lr, args.eval_interval,
    )


if __name__ == "__main__":
    run(main)
