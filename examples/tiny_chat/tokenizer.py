"""Stage 2: trains the tokenizer on the training documents, and writes the tokens of both splits."""

from __future__ import annotations

import json

import numpy as np

from mytorch.tokenizers import BPETokenizer
from mytorch.utils import atomic_write

from .common import bar, parser, read_lines, run

START, END = "<|im_start|>", "<|im_end|>"  # of a message
SPECIAL_TOKENS = ("<|endoftext|>", START, END)  # a document begins with the first one
CHAT_TEMPLATE = (  # ChatML
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--vocab_size", type=int, default=2048, help="bytes, merges and 3 special tokens")
    args = options.parse_args(arguments)
    if args.vocab_size > 2**16:
        raise ValueError(f"--vocab_size {args.vocab_size}: ids are stored as uint16, which allows 65,536")

    data = args.folder / "data"
    lines = {split: read_lines(data / f"{split}.jsonl") for split in ("train", "val")}
    texts = {split: [line["text"] for line in found] for split, found in lines.items()}
    tokenizer = BPETokenizer.train(texts["train"], args.vocab_size, special_tokens=SPECIAL_TOKENS)
    tokenizer.save(args.folder / "tokenizer.json")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL_TOKENS[0], "eos_token": END,
        "chat_template": CHAT_TEMPLATE,
    }
    with atomic_write(args.folder / "tokenizer_config.json") as partial:
        partial.write_text(json.dumps(config, indent=2) + "\n")

    first = tokenizer.token_to_id(SPECIAL_TOKENS[0])
    for split, documents in texts.items():
        ids = [np.array([first, *tokenizer.encode(text)], np.uint16) for text in bar(documents, split)]
        with atomic_write(data / f"{split}.bin") as partial:
            np.concatenate(ids).tofile(partial)
        tokens, size = sum(map(len, ids)), sum(len(text.encode()) for text in documents)
        print(f"tokenizer: {split} has {tokens:,} tokens, {size / tokens:.2f} bytes a token")


if __name__ == "__main__":
    run(main)
