"""Stage 7: writes report.md: figures, curves, sample answers."""

from __future__ import annotations

from pathlib import Path

from mytorch.chat import Chat
from mytorch.utils import atomic_write
from mytorch.utils.reading import read_json
from mytorch.utils.writing import with_numbers
from run_folder import draw_loss_curve

from .common import parser, read_lines, run

ASKED = ("Hello", "Who are you?", "What does math.sqrt do?", "What is str.lower?")


def row(*cells: str) -> str:
    """Returns a row of a table in Markdown."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def table(*titles: str) -> list[str]:
    return [row(*titles), "|---" * len(titles) + "|"]


def figures_table(folder: Path) -> list[str]:
    figures = with_numbers(read_json(folder / "figures.json"))
    lines = table("", "validation loss, nats a token", "bits a byte", "multiple choice")
    for title, name, metrics in (
        ("pretrained", "base", folder / "base/pretrain.jsonl"),
        ("fine-tuned", "chat", folder / "finetune.jsonl"),
    ):
        loss, bits, right = read_lines(metrics)[-1]["val_loss"], *figures[name].values()
        lines.append(row(title, f"{loss:.3f}", f"{bits:.3f}", f"{right:.1%}"))
    return [*lines, "", "The first loss is that of text, the second that of answers alone. Chance is 25 %."]


def sample_answers(folder: Path, held_out: int) -> list[str]:
    """Returns the most probable answers to usual questions, and to some that were not trained on."""
    asked = {question: "" for question in ASKED}
    for q in read_lines(folder / "data/questions.jsonl")[:held_out]:
        asked[q["question"]] = q["choices"][q["answer"]]
    lines, chat = table("question", "answer", "its page"), Chat.load(folder)
    for question, truth in asked.items():
        chat.messages.clear()
        lines.append(row(question, chat(question, max_new_tokens=48, temperature=0), truth))
    return lines


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--held_out", type=int, default=6, help="sample answers to held-out questions")
    args = options.parse_args(arguments)

    folder = args.folder
    draw_loss_curve(folder / "base/pretrain.jsonl", folder / "pretrain.png", "pretraining")
    draw_loss_curve(folder / "finetune.jsonl", folder / "finetune.png", "fine-tuning, answers alone")
    lines = ["# tiny_chat", "", *figures_table(folder), ""]
    if (folder / "stages.jsonl").exists():
        times = [s.values() for s in read_lines(folder / "stages.jsonl")]
        lines += table("stage", "seconds", "CPU seconds")
        lines += [row(stage, f"{wall:.1f}", f"{cpu:.1f}") for stage, wall, cpu in times] + [""]
    lines += ["![pretraining](pretrain.png)", "", "![fine-tuning](finetune.png)", "", "## Answers", ""]
    lines += ["Those with a page are of names that no conversation was about.", ""]
    lines += sample_answers(folder, args.held_out)
    with atomic_write(folder / "report.md") as partial:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"report: {folder / 'report.md'}; talk to it: python -m mytorch.chat {folder}")


if __name__ == "__main__":
    run(main)
