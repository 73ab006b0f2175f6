"""Makes the notebooks of their sources: NN_name.ipynb of NN_name.py, and README.md with a table of them.

    python notebooks/build.py            writes them; needs jupytext: pip install -e '.[notebooks]'
    python notebooks/build.py --check    exits with 1 if one is not up to date

A source is a plain script in jupytext's percent format, so changes of it are easy to read. A notebook gets
two things that a script doesn't need: a badge that opens it on Colab, and a cell that gets mytorch.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
URL = re.search(r'^URL = "(.+?)"', (ROOT / "setup.py").read_text(encoding="utf-8"), re.M)[1]
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({address})"
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SETUP = """\
# On Colab and Kaggle this cell installs mytorch from its repository (Kaggle: switch the internet on in the
# settings). Elsewhere it installs nothing: it uses the checkout that the notebook lies in, or else the
# package that you have installed, by `pip install mytorch` or by `pip install git+` and the address below.
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

URL = "{url}"

if "google.colab" in sys.modules or "KAGGLE_KERNEL_RUN_TYPE" in os.environ:
    ROOT = Path("mytorch-repository").resolve()
    if not (ROOT / "setup.py").exists():
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", URL, str(ROOT)], check=True)
    extras = ["cpu", "plot", "examples", "models", "mpi", "triton"]
    if shutil.which("nvidia-smi") and importlib.util.find_spec("cupy") is None:
        extras += ["cuda12"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, f"{{ROOT}}[{{','.join(extras)}}]"], check=True)
else:
    folders = (Path.cwd(), *Path.cwd().parents)
    ROOT = next((folder for folder in folders if (folder / "mytorch" / "version.py").exists()), None)
if ROOT is not None:
    sys.path.insert(0, str(ROOT))  # its scripts and examples can be imported, too
"""
README = """\
# Notebooks

Written by `python notebooks/build.py`. Each runs from top to bottom on a CPU in less than three minutes, and
on a GPU where there is one. The `.py` beside a notebook is its source, a script that also runs by itself.

| | what you learn | |
|---|---|---|
{rows}
"""


def badge(name: str) -> str:
    """Returns the Markdown of the picture that opens a notebook on Colab, which reads from GitHub."""
    repository = URL.removeprefix("https://github.com/")
    return BADGE.format(
        address=f"https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}.ipynb"
    )


def absolute(markdown: str) -> str:
    """Returns the text with links to the repository's pages: Colab can't follow relative ones."""

    def link(match: re.Match) -> str:
        path, _, heading = match[1].partition("#")
        inside = (FOLDER / path).resolve().relative_to(ROOT).as_posix()
        return f"]({URL}/blob/main/{inside}{'#' * bool(heading)}{heading})"

    return re.sub(r"\]\((?!\w+:|#)([^)\s]+)\)", link, markdown)


def notebook(source: Path) -> str:
    """Returns the notebook as JSON; of one source always the same."""
    import jupytext
    from nbformat import v4

    cells = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent").cells
    if not cells or cells[0].cell_type != "markdown" or not cells[0].source.startswith("# "):
        raise ValueError(f"{source.name}: the first cell must be Markdown with a title")
    title = v4.new_markdown_cell(f"{cells[0].source}\n\n{badge(source.stem)}")
    setup = v4.new_code_cell(SETUP.format(url=URL).strip())
    built = v4.new_notebook(cells=[title, setup, *cells[1:]], metadata=KERNEL)
    for i, cell in enumerate(built.cells):
        cell.id, cell.metadata = f"cell-{i:02}", {}
        if cell.cell_type == "markdown":
            cell.source = absolute(cell.source)
    return v4.writes(built) + "\n"


def row(source: Path) -> str:
    """Returns a row of the table: the title and the first sentence of a notebook, and its badge."""
    text = source.read_text(encoding="utf-8")
    title, paragraph = re.match(r"# %% \[markdown\]\n# # (.+)\n#\n((?:# .+\n)+)", text).groups()
    sentence = re.split(r"(?<=[.?!]) ", paragraph.replace("# ", "").replace("\n", " ").strip())[0]
    return f"| [{title}]({source.stem}.ipynb) | {sentence} | {badge(source.stem)} |"


def sources() -> list[Path]:
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def files() -> dict[Path, str]:
    """Returns what is written: all notebooks and README.md."""
    built = {source.with_suffix(".ipynb"): notebook(source) for source in sources()}
    return built | {FOLDER / "README.md": README.format(rows="\n".join(map(row, sources())))}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    stale = {p: text for p, text in files().items() if not p.exists() or p.read_text("utf-8") != text}
    for path, text in stale.items():
        print(f"{path.relative_to(ROOT)} {'is not up to date' if check else 'written'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
