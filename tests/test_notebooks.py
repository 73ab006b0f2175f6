"""Every notebook is what build.py makes of its source, is stored without results, and runs."""

import importlib.util
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from tests.every import every

ROOT = Path(__file__).resolve().parent.parent
BUILD = runpy.run_path(str(ROOT / "notebooks" / "build.py"))
SOURCES = BUILD["sources"]()
each_notebook = pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])


def stored(source):
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home folder without settings; matplotlib makes its list of fonts in it only once."""
    return tmp_path_factory.mktemp("home")


def execute(source, home):
    """Returns the notebook after a short run in the folder where Jupyter would run it."""
    settings = {
        "MYTORCH_NOTEBOOK_SHORT": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "HOME": str(home),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",  # more only get in the way of other tests
        "http_proxy": "http://localhost:1",  # nothing is fetched: it would fail
        "https_proxy": "http://localhost:1",
    }
    notebook = stored(source)
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as sockets:
        for name, value in settings.items():
            patch.setenv(name, value)
        # Not over ports: one that is free may be taken before the kernel has it.
        files = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"})
        NotebookClient(
            notebook, timeout=600, startup_timeout=600, kernel_name="python3", config=files,
            resources={"metadata": {"path": str(source.parent)}},
        ).execute()
    return notebook


@each_notebook
def test_it_runs(source, home):
    notebook = execute(source, home)
    once = "mytorch: compiling kernels", "Matplotlib is building the font cache"
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    errors = [output.text for output in outputs if output.get("name") == "stderr"]
    assert [text for text in errors if not text.startswith(once)] == []
    drawn = ["image/png" in output.get("data", {}) for output in outputs]
    shows = sum(cell.source.count("plt.show()") for cell in code(notebook))
    assert any(drawn) == bool(shows)


def test_they_are_what_is_made_of_the_sources():
    stale = [path.name for path, text in BUILD["files"]().items() if path.read_text("utf-8") != text]
    assert SOURCES and stale == [], "run python notebooks/build.py"


@each_notebook
def test_it_is_stored_without_results(source):
    notebook = stored(source)
    nbformat.validate(notebook)
    assert every(cell.outputs == [] and cell.execution_count is None for cell in code(notebook))
    assert every(cell.metadata == {} for cell in notebook.cells)


@each_notebook
def test_it_begins_with_a_badge_and_the_setup(source):
    title, setup = stored(source).cells[:2]
    repository = BUILD["URL"].replace("https://github.com", "https://colab.research.google.com/github")
    colab = f"{repository}/blob/main/notebooks/{source.stem}.ipynb"
    assert title.source.startswith("# ") and f"]({colab})" in title.source
    assert f'URL = "{BUILD["URL"]}"' in setup.source


@each_notebook
def test_links_exist(source):
    text = "".join(cell.source for cell in stored(source).cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert every("://" in target for target in targets)  # Colab follows no others
    start = f"{BUILD['URL']}/blob/main/"
    paths = [target.removeprefix(start).partition("#")[0] for target in targets if target.startswith(start)]
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []


def run_setup(monkeypatch, folder):
    """Runs the setup cell in a folder; returns its names and the commands that it would have started."""
    commands = []
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    names = {}
    exec(code(stored(SOURCES[0]))[0].source, names)
    return names, commands


@pytest.mark.parametrize("has_gpu, has_cupy", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("host", ["Colab", "Kaggle"])
def test_a_host_installs_from_the_repository(host, has_gpu, has_cupy, monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if has_gpu else None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if has_cupy else None)
    if host == "Colab":
        monkeypatch.setitem(sys.modules, "google.colab", sys)
    else:
        monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
    names, (clone, install) = run_setup(monkeypatch, tmp_path)
    folder = str(tmp_path / "mytorch-repository")
    assert clone[:2] == ["git", "clone"] and clone[-2:] == [BUILD["URL"], folder]
    assert install[:4] == [sys.executable, "-m", "pip", "install"]
    extras = "cpu,plot,examples,models,mpi,triton" + ",cuda12" * (has_gpu and not has_cupy)
    assert install[-1] == f"{folder}[{extras}]"
    assert str(names["ROOT"]) == folder == sys.path[0]


def test_a_laptop_uses_its_checkout_and_installs_nothing(monkeypatch, tmp_path):
    monkeypatch.delenv("KAGGLE_KERNEL_RUN_TYPE", raising=False)
    names, commands = run_setup(monkeypatch, ROOT / "notebooks")
    assert names["ROOT"] == ROOT and sys.path[0] == str(ROOT) and commands == []
    names, commands = run_setup(monkeypatch, tmp_path)  # a notebook that was downloaded alone
    assert names["ROOT"] is None and commands == []
