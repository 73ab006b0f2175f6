"""
An LSTM that learns to spell: a language model on characters, trained on made-up sentences in a few seconds.

    python -m examples.lstm_lm

The verb at the end of a sentence agrees with the noun at its beginning, and another noun may stand between
them. A model that sees only the last character, a bigram model, knows nothing about it; an LSTM remembers.
"""

from __future__ import annotations

import argparse
import random

import numpy as np

import mytorch
from mytorch import Tensor, nn
from mytorch.tokenizers import CharTokenizer

NOUNS = ["cat", "dog", "bird", "farmer", "teacher", "horse", "river", "engine", "painter", "garden"]
VERBS = ["sleep", "wait", "sing", "wander", "listen", "disappear"]
SEES = ["know", "follow", "remember", "paint", "hear"]
ADJECTIVES = ["old", "green", "quiet", "small", "famous", "hungry"]


def sentence(rng: random.Random) -> str:
    """Returns a sentence such as "the old cats that the farmer knows sleep near the river." """

    def noun(plural: bool) -> str:
        adjective = rng.choice(ADJECTIVES) + " " if rng.random() < 0.5 else ""
        return f"the {adjective}{rng.choice(NOUNS)}{'s' if plural else ''}"

    many, others = rng.random() < 0.5, rng.random() < 0.5
    text = noun(many)
    if rng.random() < 0.6:
        text += f" that {noun(others)} {rng.choice(SEES)}{'' if others else 's'}"
    text += f" {rng.choice(VERBS)}{'' if many else 's'}"
    return text + (f" near {noun(False)}" if rng.random() < 0.4 else "") + ".\n"


class LanguageModel(nn.Module):
    """The logits of the next character, from all characters before."""

    def __init__(self, vocab_size: int, width: int = 128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 32)
        self.lstm = nn.LSTM(32, width, batch_first=True)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens: Tensor, state: tuple | None = None) -> tuple[Tensor, tuple]:
        y, state = self.lstm(self.embedding(tokens), state)  # (batch, length, width)
        return self.head(y), state


def streams(tokens: np.ndarray, batch_size: int) -> Tensor:
    """Returns the text as `batch_size` contiguous parts, (batch_size, length)."""
    length = len(tokens) // batch_size
    return mytorch.from_numpy(tokens[: length * batch_size].reshape(batch_size, length))


def loss_of(model: LanguageModel, tokens: Tensor, state: tuple | None = None) -> tuple[Tensor, tuple]:
    """Returns the mean cross entropy in nats a character, and the state after the last one."""
    logits, state = model(tokens[:, :-1], state)
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()), state


def train(model: LanguageModel, text: Tensor, iterations: int, length: int = 48, lr: float = 5e-3) -> None:
    """Trains on one part of the text after the other; the state is kept, gradients end at each part."""
    optimizer = mytorch.optim.Adam(model.parameters(), lr=lr)
    schedule = mytorch.optim.lr_scheduler.OneCycleLR(optimizer, lr, iterations, cycle_momentum=False)
    start, state = 0, None
    for iteration in range(1, iterations + 1):
        if start + length >= text.shape[1]:
            start, state = 0, None
        loss, state = loss_of(model, text[:, start : start + length + 1], state)
        state = tuple(s.detach() for s in state)
        start += length
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if iteration % 50 == 0 or iteration == iterations:
            print(f"iteration {iteration:4}  training loss {loss.item():.3f}")


@mytorch.no_grad()
def write(model: LanguageModel, start: int, count: int) -> list[int]:
    """Returns characters, each drawn given the last one and the state."""
    tokens, state = [start], None
    for _ in range(count):
        logits, state = model(mytorch.tensor([tokens[-1:]]), state)
        tokens.append(mytorch.multinomial(logits[0, -1].softmax(0), 1).item())
    return tokens[1:]


def bigram_entropy(tokens: np.ndarray) -> float:
    """Returns the lowest loss of a model of (last character, next character) on this text, in nats."""
    counts = np.zeros((tokens.max() + 1,) * 2)
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    joint = counts / counts.sum()
    conditional = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return float(-(joint * np.log(np.where(counts > 0, conditional, 1))).sum())


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Trains; returns the validation loss and the bound of the bigram models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--sentences", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    mytorch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    text = "".join(sentence(rng) for _ in range(options.sentences))
    tokenizer = CharTokenizer.from_text(text)
    tokens = np.array(tokenizer.encode(text))
    cut = len(tokens) * 9 // 10
    model = LanguageModel(tokenizer.vocab_size)
    train(model, streams(tokens[:cut], 32), options.iterations)

    with mytorch.no_grad():
        loss = loss_of(model, streams(tokens[cut:], 16))[0].item()
    bound = bigram_entropy(tokens[cut:])
    print(f"validation loss {loss:.3f} nats a character; no bigram model is below {bound:.3f}\n")
    print(tokenizer.decode(write(model, tokenizer.encode("\n")[0], 300)))
    return loss, bound


if __name__ == "__main__":
    main()
