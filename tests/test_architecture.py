"""ARCHITECTURE.md is true: its paths, names and commands exist, its layers are those of the layer test."""

import re
from pathlib import Path

from tests.test_layers import layer

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
PATH = re.compile(r"[\w./*-]*[\w*](?:/|\.(?:py|pyi|md|sh|json|svg|ipynb))")


def test_it_is_two_screens_long():
    assert len(PAGE.splitlines()) <= 110 and max(map(len, PAGE.splitlines())) <= 170
    assert list(SECTIONS) == [
        "The one rule", "Layers", "The door: kinds of arrays", "Where is …", "What one may touch", "Commands",
    ]


def test_every_path_in_it_exists():
    """The links, and what looks like a path in the text."""
    links = [target for _, target in re.findall(r"\[([^]]+)\]\(([^)]+)\)", PAGE)]
    text = re.sub(r"\[[^]]+\]\([^)]+\)", "", PAGE)
    paths = [*links, *(path for part in text.split() for path in PATH.findall(part.strip("`(),;:")))]
    assert len(links) > 40 and len(paths) - len(links) > 20
    folders = ("", "mytorch/nn")  # of `fused_ops/numba/`
    missing = [
        path
        for path in paths
        if not any(list(ROOT.glob(f"{folder}/{path}".strip("/"))) for folder in folders)
    ]
    assert missing == []


def test_links_say_where_they_lead():
    links = re.findall(r"\[([\w./]+)\]\(([^)]+)\)", PAGE)
    assert [pair for pair in links if not f"/{pair[1]}".endswith(f"/{pair[0]}")] == []


def test_names_beside_a_link_are_in_its_file():
    found = re.findall(r"`(\w+)` in \[[^]]+\]\(([^)]+)\)", PAGE)
    assert found
    for name, path in found:
        assert re.search(rf"^(?:def|class) {name}\b", (ROOT / path).read_text(encoding="utf-8"), re.M), name


def test_layers_are_in_order():
    rows = re.findall(r"^\| (`mytorch/.+?) \|", SECTIONS["Layers"], re.M)
    numbers = [layer(path) for row in rows for path in re.findall(r"`mytorch/(\S+)/`", row)]
    assert len(numbers) > 12 and numbers == sorted(numbers)
    known = {path.name for path in (ROOT / "mytorch").iterdir() if (path / "__init__.py").exists()}
    small = {"aliases", "cuda", "distributions", "profiler"}
    assert {
        path.partition("/")[0] for row in rows for path in re.findall(r"`mytorch/(\S+)/`", row)
    } == known - small


def test_its_commands_are_those_of_the_other_pages():
    """test_readme.py runs their help."""
    pages = [
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "notebooks/README.md", "run_tests.sh", ".ci/run")
    ]
    known = "\n".join(page.read_text(encoding="utf-8") for page in [*pages, *(ROOT / "docs").glob("*.md")])
    lines = SECTIONS["Commands"].partition("```sh\n")[2].partition("```")[0].splitlines()
    commands = [line.partition("  #")[0].strip() for line in lines]
    assert len(commands) > 8 and [command for command in commands if command not in known] == []


def test_the_other_pages_lead_to_it():
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "](ARCHITECTURE.md)" in (ROOT / page).read_text(encoding="utf-8"), page
