"""examples/tiny_chat: all its stages, from the text to a model that answers."""

import math
import os
import random

import pytest

from examples.tiny_chat import __main__ as tiny_chat
from examples.tiny_chat import conversations, help_pages, packing, text, tokenizer
from examples.tiny_chat.common import read_lines
from mytorch.chat import Chat, ChatTemplate
from mytorch.tokenizers import BPETokenizer
from mytorch.utils.reading import read_json
from tests.every import every

MODULES = ["math", "textwrap", "string", "random", "bisect", "heapq", "shutil", "statistics"]
OPTIONS = {
    "text": f"--modules {' '.join(MODULES)}",
    "tokenizer": "--vocab_size 512",
    "pretrain": "--layers 2 --width 64 --batch_size 4 --steps 50 --eval_interval 25 --lr 5e-3",
    "conversations": f"--questions 12 --modules {' '.join(MODULES)}",
    "finetune": "--batch_size 4 --steps 50 --eval_interval 25 --lr 5e-3",
    "evaluate": "--max_tokens 2048",
    "report": "--held_out 1",
}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is <|im_end|> 2 + 2?"},
    {"role": "assistant", "content": "It is four."},
    {"role": "user", "content": "Sure?"},
    {"role": "assistant", "content": "Yes.\nSure."},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What all stages make, small ones."""
    folder = tmp_path_factory.mktemp("tiny") / "chat"
    tiny_chat.run_stages(folder, {name: options.split() for name, options in OPTIONS.items()})
    return folder


@pytest.fixture(scope="module")
def bpe():
    train = "What is it? It is four. Sure? Yes. Be brief.\nassistant user system\n" * 9
    return BPETokenizer.train(train, 290, special_tokens=tokenizer.SPECIAL_TOKENS)


@pytest.mark.parametrize("metrics", ["base/pretrain.jsonl", "finetune.jsonl"])
def test_losses_fall(folder, metrics):
    lines = read_lines(folder / metrics)
    val = [line["val_loss"] for line in lines if "val_loss" in line]
    assert len(val) == 3 and val[-1] < 0.9 * val[0], val
    assert lines[-1]["loss"] < 0.9 * lines[1]["loss"]


def test_figures_and_report(folder):
    for figures in read_json(folder / "figures.json").values():
        assert 0 < figures["bits_per_byte"] < 8 and math.isfinite(figures["bits_per_byte"])
        assert figures["multiple_choice"] * 12 == pytest.approx(round(figures["multiple_choice"] * 12))
    report = (folder / "report.md").read_text()
    for picture in ("pretrain.png", "finetune.png"):
        assert f"]({picture})" in report and (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert report.count("| What ") >= 3 and "| evaluate | " in report


def test_the_folder_chats(folder):
    chat = Chat.load(folder)
    assert chat("What does math.sqrt do?", max_new_tokens=24, temperature=0)
    assert chat.messages[-1]["role"] == "assistant" and "<|im" not in chat.messages[-1]["content"]


def test_targets_are_the_answers(bpe):
    tokens, learned = packing.encode(TALK, bpe)
    answers = "It is four.<|im_end|>Yes.\nSure.<|im_end|>"
    assert [y for y in learned if y >= 0] == bpe.encode(answers, allowed_special="all")
    assert every(y in (-1, x) for x, y in zip(tokens, learned, strict=True))
    # A target before an answer's first token would be its input: the answer follows the template's prompt.
    first = next(i for i, y in enumerate(learned) if y >= 0)
    assert bpe.decode(tokens[:first]).endswith("<|im_start|>assistant\n")


def test_tokens_are_those_of_the_chat(bpe):
    """Special tokens in a message are text in both: it can't end itself, unless they are allowed."""
    plain = [{**message, "content": message["content"].replace("<|im_end|> ", "")} for message in TALK]
    for messages, allowed, equal in ((plain, "all", True), (TALK, (), True), (TALK, "all", False)):
        template = ChatTemplate(tokenizer.CHAT_TEMPLATE)
        rendered = template.render(messages, add_generation_prompt=False, allowed_special=allowed)
        tokens, _ = packing.encode(messages, bpe)
        assert bpe.decode(tokens) == rendered
        assert (tokens == bpe.encode(rendered, allowed_special="all")) is equal


def test_packing_keeps_every_conversation_whole():
    rng = random.Random(0)
    talks = [[i] * rng.randint(1, 40) for i in range(1, 200)]
    rows = packing.pack([(talk, [-1, *talk[1:]]) for talk in talks], 50)
    assert every(len(tokens) == len(learned) == 50 for tokens, learned in rows)
    kept = [[t for tokens, _ in rows for t in tokens if t == i] for i in range(1, 200)]
    assert kept == talks
    assert every(len({r for r, (tokens, _) in enumerate(rows) if i in tokens}) == 1 for i in range(1, 200))
    assert sum(y >= 0 for _, learned in rows for y in learned) == sum(len(talk) - 1 for talk in talks)
    assert len(rows) * 50 < 1.15 * sum(map(len, talks))  # little is padding


@pytest.mark.parametrize(("line", "message"), [
    ('{"messages": [{"role": "user", "content": "Hi"}]}', "line 1: expected messages with an answer"),
    ('{"messages": [{"role": "robot", "content": "Hi"}]}', "line 1: expected a role and a content"),
    ('{"text": "Hi"}', "line 1: expected {"),
    ('{"messages": [{"role": "assistant", "content": "It is four, sure?"}]}', "tokens, but a row has 9"),
    ("Hi", "line 1, is damaged"),
])
def test_wrong_conversations(tmp_path, bpe, line, message):
    (tmp_path / "talk.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match="talk.jsonl, line 1") as error:
        packing.read_conversations([tmp_path / "talk.jsonl"], bpe, 8)
    assert message in str(error.value)


def test_held_out_names_are_in_no_conversation(folder):
    talks = read_lines(folder / "data/conversations.jsonl")
    said = {message["content"] for talk in talks for message in talk["messages"]}
    questions = read_lines(folder / "data/questions.jsonl")
    assert len(questions) == 12
    for q in questions:
        assert len(set(q["choices"])) == 4 and not said & {q["question"], *q["choices"]}
        name = q["question"].removeprefix("What does ").removesuffix(" do?")
        assert help_pages.sentences(MODULES)[name] == q["choices"][q["answer"]]


def test_help_pages_tell_nothing_of_this_machine(monkeypatch):
    monkeypatch.setitem(os.environ, "AAA_SECRET", "hunter2")
    (page,) = help_pages.pages(["os"])
    assert "getcwd" in page and "environ(" not in page and os.__file__ not in page


def test_any_folder_of_text(tmp_path, capsys):
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/a.txt").write_text("one")
    (tmp_path / "in/deep/b.md").write_text("zwölf", encoding="utf-8")
    (tmp_path / "in/c.rst").write_bytes(b"\xff")
    (tmp_path / "in/d.bin").write_text("no text")
    text.main(["--path", str(tmp_path / "in"), "--folder", str(tmp_path / "out")])
    found = [read_lines(tmp_path / f"out/data/{split}.jsonl") for split in ("train", "val")]
    assert sorted(line["text"] for split in found for line in split) == ["one", "zwölf"]
    assert "c.rst is not UTF-8" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match="no .md, .py, .rst, .txt files in "):
        text.main(["--path", str(tmp_path / "out/data")])


def test_multiple_choice_has_each_answer_once():
    facts = [(f"name{i}", f"Sentence {i}.") for i in range(9)]
    for i, q in enumerate(conversations.multiple_choice(facts, random.Random(0))):
        assert q["choices"][q["answer"]] == f"Sentence {i}." and len(set(q["choices"])) == 4
