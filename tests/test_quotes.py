"""What the pages quote is there: code and figures of the kernels' stories, and where an op is named."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "kernel_stories.md").read_text(encoding="utf-8")
QUOTES = re.findall(r"^```py\n# (\S+)\n(.*?)^```$", PAGE, re.M | re.S)
TABLES = re.findall(r"^\| (\w.*?), ([\d×, ]+) \| (.*)\n.*\n((?:\| .*\n)+)", PAGE, re.M)
COLUMNS = {"NumPy": "NumPy alone", "kernel": "mytorch", "`mytorch.compile`": "mytorch.compile"}
RESULTS = {"AMD": "kernels-cpu", "Intel": "kernels-cpu-intel", "AdamW": "compile-intel"}


def test_the_page_has_quotes_and_tables():
    assert len(QUOTES) >= 14 and len(TABLES) == 5


@pytest.mark.parametrize(("path", "quote"), QUOTES)
def test_quoted_lines_are_in_the_file(path, quote):
    file = "\n".join(line.strip() for line in (ROOT / path).read_text(encoding="utf-8").splitlines())
    end = 0
    for part in re.split(r"^ *\.\.\.\n", quote, flags=re.M):
        lines = "\n".join(line.strip() for line in part.splitlines())
        assert f"\n{lines}\n" in file[end:], f"{path} has no\n{part}"
        end = file.index(f"\n{lines}\n", end) + len(lines)


@pytest.mark.parametrize(("name", "size", "head", "body"), TABLES)
def test_figures_are_those_of_the_results(name, size, head, body):
    columns = [COLUMNS.get(column, column) for column in head.rstrip(" |").split(" | ")]
    for row in body.splitlines():
        machine, *shown = row.strip("| ").split(" | ")
        file = ROOT / "benchmarks" / "results" / f"{RESULTS.get(name, RESULTS[machine])}.json"
        found = json.loads(file.read_text(encoding="utf-8"))["rows"]
        (by,) = (r["by"] for r in found if (r["name"], r["size"]) == (name, size))
        assert [float(text) for text in shown] == [float(f"{by[c]['ms']:.3g}") for c in columns], row


PLACES = {
    "**An op**": "log1p",
    "**A composite and its layer**": "squared_?relu",
    "**A kernel**": "squared_relu",
}


@pytest.mark.parametrize(("heading", "name"), PLACES.items())
def test_files_where_something_is_added_have_the_example(heading, name):
    text = (ROOT / "docs" / "ops.md").read_text(encoding="utf-8").split(heading)[1].split("```")[0]
    files = re.findall(r"\]\((.*?(?:py|surface\.md))\)", text)
    assert len(files) >= 4
    for file in files:
        content = (ROOT / "docs" / file).read_text(encoding="utf-8")
        assert re.search(rf"\b{name}\b", content, re.I), f"{file} has no {name}"
