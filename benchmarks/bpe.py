"""Time byte-level BPE beside Hugging Face's tokenizers and tiktoken: training, encoding, decoding.

    python -m benchmarks.bpe TEXT [--vocab_size N] [--rounds N]

All have the vocabulary that mytorch learned from the text, and take turns, in one thread; a time is the
median of the CPU seconds of the rounds. Exit code 1: the ids or the merges differ.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

os.environ["RAYON_NUM_THREADS"] = "1"  # of tokenizers

import tiktoken
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from mytorch.tokenizers import BPETokenizer
from mytorch.tokenizers.pre_tokenizer import GPT2_PATTERN


def train_oracle(text: str, num_tokens: int) -> dict[str, int]:
    """Returns the vocabulary that Hugging Face's trainer learns."""
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=num_tokens, initial_alphabet=alphabet, show_progress=False)
    model.train_from_iterator([text], trainer)
    return model.get_vocab()


def seconds_of(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("text", type=Path, help="a UTF-8 file")
    parser.add_argument("--vocab_size", type=int, default=1281, help="with <|endoftext|> (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    args = parser.parse_args(argv)
    text = args.text.read_text(encoding="utf-8")
    ours = BPETokenizer.train(text, args.vocab_size)
    learned = {token: i for token, i in ours.vocab.items() if i < args.vocab_size - 1}
    hugging_face = tokenizers.Tokenizer.from_str(json.dumps(ours.to_json()))
    ranks = {ours.decode_bytes([i]): i for i in learned.values()}
    tik = tiktoken.Encoding("bpe", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})
    ids = ours.encode(text)
    if not ids == hugging_face.encode(text).ids == tik.encode_ordinary(text):
        return 1
    if train_oracle(text, len(learned)) != learned:
        return 1

    def encode() -> None:
        ours._cache.clear()  # as in the first use
        ours.encode(text)

    train = partial(BPETokenizer.train, text, args.vocab_size)
    tasks = {
        "train": (train, partial(train_oracle, text, len(learned))),
        "encode": (encode, partial(hugging_face.encode, text), partial(tik.encode_ordinary, text)),
        "decode": (partial(ours.decode, ids), partial(hugging_face.decode, ids), partial(tik.decode, ids)),
    }
    print(f"{len(text.encode()):,} bytes, {len(ids):,} tokens of {args.vocab_size:,}; CPU seconds")
    for task, calls in tasks.items():
        rounds = [[seconds_of(call) for call in calls] for _ in range(args.rounds)]  # in turns
        times = [median(each) for each in zip(*rounds, strict=True)]
        names = zip(("mytorch", "tokenizers", "tiktoken"), times, strict=False)
        row = [f"{name} {time:.3f} (ratio {times[0] / time:.2f})" for name, time in names]
        print(f"{task:8}", "   ".join(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
