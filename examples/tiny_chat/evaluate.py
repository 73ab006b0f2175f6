"""Stage 6: evaluates the model before and after fine-tuning: bits a byte, multiple choice; figures.json."""

from __future__ import annotations

import math

import numpy as np

import mytorch
from mytorch.chat import ChatTemplate
from mytorch.models import Llama
from mytorch.nn import functional as F
from mytorch.tokenizers import BPETokenizer, load_tokenizer
from mytorch.utils import atomic_write
from mytorch.utils.tokens import load_tokens
from mytorch.utils.writing import json_text

from .common import bar, parser, positive, read_lines, run


@mytorch.no_grad()
def bits_per_byte(model: Llama, tokenizer: BPETokenizer, tokens: np.ndarray, batch_size: int = 16) -> float:
    """Returns -log2 of the text's probability, divided by its bytes of UTF-8.

        loss in nats × tokens / (bytes × ln 2)

    It compares models of different tokenizers. The text is cut into windows of the context's length, so that
    the first tokens of each are predicted from few.
    """
    length = model.config.context_length
    count = (len(tokens) - 1) // length
    inputs, targets = (tokens[i : i + count * length].astype(np.int64).reshape(count, length) for i in (0, 1))
    nats = 0.0
    for i in bar(range(0, count, batch_size), "bits a byte"):
        x, y = mytorch.tensor(inputs[i : i + batch_size]), mytorch.tensor(targets[i : i + batch_size])
        nats += model(x, y, return_logits=False)[1].item() * y.numel()
    size = len(tokenizer.decode_bytes(targets.ravel(), skip_special_tokens=True))
    return nats / (size * math.log(2))


@mytorch.no_grad()
def log_probabilities(model: Llama, prompt: list[int], choices: list[list[int]]) -> list[float]:
    """Returns the mean log probability of a token of each choice, after the prompt."""
    size = len(prompt) + max(map(len, choices))
    rows = mytorch.tensor([prompt + c + [0] * (size - len(prompt) - len(c)) for c in choices])
    targets = mytorch.tensor(
        [[-1] * len(prompt) + c + [-1] * (size - len(prompt) - len(c)) for c in choices]
    )[:, 1:]
    logits = model(rows[:, :-1])
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="none")
    sums = losses.view(len(choices), size - 1).sum(1).tolist()
    return [-total / len(choice) for total, choice in zip(sums, choices, strict=True)]


def accuracy(model: Llama, tokenizer: BPETokenizer, template: ChatTemplate, questions: list[dict]) -> float:
    """Returns the fraction of questions whose right choice is the most probable answer; chance is 1/4."""
    correct = 0
    for q in bar(questions, "multiple choice"):
        prompt = template.render([{"role": "user", "content": q["question"]}])
        ids = tokenizer.encode(prompt, allowed_special="all")
        scores = log_probabilities(model, ids, [tokenizer.encode(choice) for choice in q["choices"]])
        correct += scores.index(max(scores)) == q["answer"]
    return correct / len(questions)


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--max_tokens", type=positive, default=65536, help="of the validation text")
    args = options.parse_args(arguments)

    tokenizer, template = load_tokenizer(args.folder), ChatTemplate.of_folder(args.folder)
    questions = read_lines(args.folder / "data/questions.jsonl")
    figures = {}
    for name, folder in {"base": args.folder / "base", "chat": args.folder}.items():
        model = Llama.from_pretrained(folder)
        context = model.config.context_length
        tokens = load_tokens(args.folder / "data", "val", context, tokenizer.vocab_size)
        figures[name] = {
            "bits_per_byte": bits_per_byte(model, tokenizer, tokens[: max(args.max_tokens, context + 1)]),
            "multiple_choice": accuracy(model, tokenizer, template, questions),
        }
        print(f"evaluate: {name} has {figures[name]['bits_per_byte']:.3f} bits a byte, "
              f"{figures[name]['multiple_choice']:.1%} of {len(questions)} questions right")
    with atomic_write(args.folder / "figures.json") as partial:
        partial.write_text(json_text(figures, indent=2) + "\n")


if __name__ == "__main__":
    run(main)
