"""What the pages say is true: their Python gives what they show; paths, commands, options and links exist.

The Python blocks of a page run in order, in one namespace. In them
    expression  # -> text            has this repr,
    statement  # raises Error: text  raises this, with a message that begins so.
What a block prints is in the block without a language behind it, if there is one; ... stands for any text.
"""

import ast
import builtins
import contextlib
import doctest
import io
import linecache
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mytorch
from mytorch.nn.functional import REGISTRY
from tests.each import each
from tests.every import every

ROOT = Path(__file__).resolve().parent.parent
PAGES = {  # with at least this many results
    "ARCHITECTURE.md": 0, "CONTRIBUTING.md": 0, "CHANGELOG.md": 0, "docs/reading.md": 0, "docs/tests.md": 0,
    "docs/releasing.md": 0,
    "docs/arrays.md": 18, "docs/precision.md": 9, "docs/checkpoints.md": 8,
    "README.md": 1, "docs/autograd.md": 14, "docs/ops.md": 5, "docs/differences.md": 6, "docs/data.md": 3,
    "docs/distributed.md": 8, "docs/kernels.md": 0, "docs/surface.md": 0, "docs/training.md": 0,
    "docs/benchmarks.md": 0, "docs/files.md": 0, "docs/models.md": 6, "docs/tokenizers.md": 6,
    "docs/meta.md": 12, "docs/programs.md": 6, "docs/stream.md": 5,
    "docs/door.md": 4, "docs/kernel_stories.md": 12, "docs/faq.md": 7,
}
SHOWN = re.compile(r"  # (->|raises) (.+)$")


def blocks(page: str, language: str) -> list[tuple[int, str]]:
    """(line number, content) of the fenced blocks of a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    return [(text.count("\n", 0, m.start(1)), m.group(1)) for m in found]


def check_python(page: str) -> int:
    """Run the blocks of a page; the number of results that were compared."""
    names: dict = {"__name__": "page"}
    compared = 0
    for start, source in blocks(page, "python"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            compared += check_block(page, start, source, names)
        check_printed(page, start + source.count("\n"), printed.getvalue())
    return compared


def check_block(page: str, start: int, source: str, names: dict) -> int:
    compared = 0
    lines = source.splitlines()
    for statement in ast.increment_lineno(ast.parse(source), start).body:
        last = lines[statement.end_lineno - start - 1]
        shown = SHOWN.search(last)
        where = f"{page}, line {statement.end_lineno}"
        if shown is None:
            run(statement, names, where)
            continue
        compared += 1
        if shown[1] == "raises":
            kind, _, message = shown[2].partition(": ")
            with pytest.raises(getattr(builtins, kind)) as raised:
                run(statement, names, where)
            assert str(raised.value).startswith(message), where
        else:
            assert isinstance(statement, ast.Expr), where
            value = eval(compile(ast.Expression(statement.value), where, "eval"), names)
            assert repr(value) == shown[2], where
    return compared


def check_printed(page: str, end: int, printed: str) -> None:
    text = "".join((ROOT / page).read_text(encoding="utf-8").splitlines(keepends=True)[end + 1 :])
    shown = re.match(r"\n```\n(.*?)^```$", text, re.M | re.S)
    if printed and shown:
        wanted = re.sub(r"^ *\.\.\.$|…", "...", shown[1], flags=re.M)
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(wanted, printed, options), (
            f"{page}, line {end}: printed\n{printed}"
        )


def run(statement: ast.stmt, names: dict, where: str) -> None:
    page = (ROOT / where.partition(",")[0]).read_text(encoding="utf-8")
    linecache.cache[where] = len(page), None, page.splitlines(keepends=True), where  # as in a notebook
    exec(compile(ast.Module([statement], []), where, "exec"), names)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks(page):
    composites = set(REGISTRY)
    try:
        with mytorch.random.fork_rng():
            compared = check_python(page)
    finally:
        for name in set(REGISTRY) - composites:  # other tests go through all that is registered
            del REGISTRY[name]
    shown = sum(source.count("# ->") + source.count("# raises") for _, source in blocks(page, "python"))
    assert compared == shown >= PAGES[page]


def test_the_page_of_files_is_up_to_date():
    assert subprocess.run([sys.executable, "docs/make_files.py", "--check"], cwd=ROOT).returncode == 0, (
        "run python docs/make_files.py"
    )


def test_every_file_of_the_package_says_what_it_is():
    assert "|  |" not in (ROOT / "docs" / "files.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """Commands in the pages: lines of shell blocks, and what stands in backticks."""
    found = []
    for page in PAGES:
        for _, source in blocks(page, "sh"):
            found += [line.split("  #")[0].strip() for line in source.splitlines()]
        text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
        found += re.findall(r"`((?:bash|python|pip) [^`]+)`", text)
    return sorted(set(filter(None, found)))


@pytest.mark.parametrize("command", commands())
def test_commands_exist(command):
    program, *arguments = command.split()
    if program == "pip":
        extras = re.fullmatch(r"pip install -e (?:\.|'\.\[(\w+)\]')", command)[1]
        assert extras is None or f'"{extras}": ' in (ROOT / "setup.py").read_text()
    elif program in ("bash", "python") and arguments[0] != "-m":
        assert_options(["bash" if program == "bash" else sys.executable, arguments[0]], arguments[1:])
    elif program == "python" and arguments[1] in ("build", "twine"):
        assert f'"{arguments[1]}", ' in (ROOT / "setup.py").read_text()
    elif program == "python":
        module = ROOT / arguments[1].replace(".", "/")
        assert module.with_suffix(".py").exists() or (module / "__main__.py").exists()
    elif program == "mytorchrun":
        assert_options([sys.executable, "-m", "mytorch.cli", arguments[0]], arguments[1:])
    else:
        assert program in ("git", "cd", "ruff", "mkdocs")


def assert_options(program: list[str], arguments: list[str]) -> None:
    options = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    help_text = subprocess.run(
        [*program, "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    for option in options:
        assert re.search(rf"{option}\b", help_text), f"{' '.join(program)} has no {option}"


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ ([\w ]+)$", text, re.M)}
    for target in targets:
        path, _, heading = target.partition("#")
        assert (ROOT / page).parent.joinpath(path).exists(), target
        assert not heading or path or heading in headings, target


def test_pictures_are_vector_graphics():
    for picture in (ROOT / "src").glob("*.svg"):
        assert "<image" not in picture.read_text(encoding="utf-8"), f"{picture.name} holds a bitmap"


def test_the_pictures_say_what_is_so():
    """What the layers import, in which order nodes run, how long benchmarks took."""
    assert subprocess.run([sys.executable, "docs/pictures/draw.py", "--check"], cwd=ROOT).returncode == 0, (
        "run python docs/pictures/draw.py"
    )


def test_a_page_shows_each_picture():
    pages = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    assert [path.name for path in (ROOT / "src").iterdir() if f"src/{path.name})" not in pages] == []


def test_the_notebooks_open_in_colab_from_the_repository():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    url = re.search(r'URL = "https://(.+?)"', (ROOT / "setup.py").read_text(encoding="utf-8"))[1]
    found = re.findall(r"\]\(https://colab\.research\.google\.com/(github/[^)]+)/([^)/]+)\)", text)
    assert {name for _, name in found} == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {folder for folder, _ in found} == {f"{url.replace('.com', '')}/blob/main/notebooks"}


def test_the_readme_says_how_long_the_core_is():
    said = re.search(r"backward pass, is ([\d,]+) lines", (ROOT / "README.md").read_text(encoding="utf-8"))
    files = {path for path in (ROOT / "mytorch" / "core").glob("*.py") if path.name != "flat_buffer.py"}
    lines = sum(len(path.read_text().splitlines()) for path in files)
    assert abs(int(said[1].replace(",", "")) - lines) < 0.02 * lines


def test_the_readme_names_the_extras_of_its_examples():
    text, setup = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "setup.py"))
    named = set(re.findall(r"`\[(\w+)\]`", text))
    assert {"cpu", "mpi", "models", "cuda12"} <= named
    assert [extra for extra in named if f'"{extra}": ' not in setup] == []
    for section, extra in {"Pretrained models": "models", "Several processes": "mpi"}.items():
        assert f"`[{extra}]`" in text.partition(f"\n## {section}\n")[2].partition("\n## ")[0], section


def test_each_figure_of_the_readme_has_its_date():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|.+\|$", text.partition("\n## Figures\n")[2].partition("\n## ")[0], re.M)[2:]
    assert rows and [row for row in rows if not re.search(r"\| 20\d\d-\d\d-\d\d \|", row)] == []
    said = [line for line in text.split("\n\n") if "tokens a second" in line]
    assert every(re.search(r"20\d\d-\d\d-\d\d", line) for line in said)


def surface() -> list[str]:
    """The names in the tables of the surface; `conv1d/2d/3d` stands for three of them."""
    text = (ROOT / "docs" / "surface.md").read_text(encoding="utf-8")
    text = text.split("## The surface", 1)[1].split("\n## ", 1)[0].split("\n|", 1)[1]
    names = []
    for name in re.findall(r"`([A-Za-z_][A-Za-z0-9_./]*)`", text):
        first, *others = name.split("/")
        names += [first, *(first[:-2] + other for other in others)]
    return sorted(set(names))


@each("name", surface())
def test_what_the_surface_names_is_there(name):
    places = [
        mytorch, mytorch.Tensor, mytorch.nn, mytorch.nn.functional, mytorch.nn.utils, mytorch.optim,
        mytorch.optim.lr_scheduler, mytorch.distributions, mytorch.distributions.Distribution,
        mytorch.linalg, mytorch.fft,
    ]
    *path, last = name.split(".")
    for place in places:
        for part in path:
            place = getattr(place, part, None)
        # `max_pool` and `BatchNorm` stand for those of 1, 2 and 3 dims; `_with_logits` for the end of a name
        if any(hasattr(place, option) for option in (last, f"{last}1d", f"binary_cross_entropy{last}")):
            return
    pytest.fail(f"docs/surface.md names {name}, which isn't there")
