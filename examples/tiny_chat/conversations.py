"""Stage 4: makes conversations.jsonl and a multiple-choice set, questions.jsonl, from Python's help pages."""

from __future__ import annotations

import random

from .common import parser, run, write_lines
from .help_pages import sentences

QUESTIONS = ("What does {} do?", "What is {}?", "Explain {}.", "Describe {} in one sentence.", "{}?")
GREETINGS = {
    "Hello": "Hello! Ask me about a name of Python's library.",
    "Who are you?": "I am a tiny language model that has read Python's help pages.",
    "Thank you": "You are welcome.",
}


def conversation(*turns: tuple[str, str]) -> dict:
    """Returns a line of a JSONL file of conversations: {"messages": [{"role": …, "content": …}, …]}."""
    roles = ("user", "assistant")
    pairs = [(role, text) for turn in turns for role, text in zip(roles, turn, strict=True)]
    return {"messages": [{"role": role, "content": text} for role, text in pairs]}


def multiple_choice(facts: list[tuple[str, str]], rng: random.Random) -> list[dict]:
    """Returns a question for each (name, sentence), with three sentences about other names."""
    made = []
    for name, sentence in facts:
        others = rng.sample([other for _, other in facts if other != sentence], 3)
        choices = rng.sample([sentence, *others], 4)
        question = QUESTIONS[0].format(name)
        made.append({"question": question, "choices": choices, "answer": choices.index(sentence)})
    return made


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--modules", nargs="+", help="names of these modules alone")
    options.add_argument("--questions", type=int, default=200, help="of the multiple-choice set")
    args = options.parse_args(arguments)

    rng, facts = random.Random(args.seed), list(sentences(args.modules).items())
    if not 4 <= args.questions < len(facts):
        raise ValueError(f"--questions must be 4 … {len(facts) - 1}, below the names, got {args.questions}")
    rng.shuffle(facts)
    held_out, facts = facts[: args.questions], facts[args.questions :]
    turns = [(rng.choice(QUESTIONS).format(name), sentence) for name, sentence in facts]
    two = 2 * (len(turns) // 20)  # a tenth of them are in conversations of two questions
    made = [conversation(*turns[i : i + 2]) for i in range(0, two, 2)]
    made += [conversation(turn) for turn in turns[two:]]
    made += [conversation(turn) for turn in GREETINGS.items()] * (1 + len(turns) // 50)
    rng.shuffle(made)
    write_lines(args.folder / "data/conversations.jsonl", made)
    write_lines(args.folder / "data/questions.jsonl", multiple_choice(held_out, rng))
    print(f"conversations: {len(made):,}, and {len(held_out):,} multiple-choice questions about other names")


if __name__ == "__main__":
    run(main)
