"""The notebook runs from an empty cell, learns, and is stored without results."""

import math
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).resolve().parent.parent
PATH = ROOT / "notebooks" / "gpt_shakespeare.ipynb"
ITERATIONS = 24
TEXT = "".join(f"{n} times {m} is {n * m}.\n" for n in range(30) for m in range(30))


def stored():
    return nbformat.read(PATH, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell):
    """Returns what a cell wrote to stdout; stderr has a line when kernels are compiled."""
    return "".join(output.text for output in cell.outputs if output.get("name") == "stdout")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook after a short run on a text of its own, in the folder where Jupyter would run it."""
    folder = tmp_path_factory.mktemp("notebook")
    text = folder / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    settings = {
        "MYTORCH_NOTEBOOK_ITERATIONS": str(ITERATIONS),
        "MYTORCH_NOTEBOOK_TEXT": str(text),
        "MYTORCH_NOTEBOOK_DATA": str(folder / "data"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "HOME": str(folder),  # no settings of whoever runs the tests
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",  # more only get in the way of other tests
        "http_proxy": "http://localhost:1",  # nothing is fetched: it would fail
        "https_proxy": "http://localhost:1",
    }
    notebook = stored()
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as sockets:
        for name, value in settings.items():
            patch.setenv(name, value)
        # Not over ports: one that is free may be taken before the kernel has it.
        files = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"})
        NotebookClient(
            notebook, timeout=600, startup_timeout=600, kernel_name="python3", config=files,
            resources={"metadata": {"path": str(PATH.parent)}},
        ).execute()  # fmt: skip
    return notebook


def test_the_loss_falls(executed):
    (training,) = [printed(cell) for cell in code(executed) if "optimizer.step()" in cell.source]
    losses = [float(loss) for loss in re.findall(r"^iteration \d+: .*validation (\d+\.\d+)$", training, re.M)]
    assert len(losses) == 9
    assert abs(losses[0] - math.log(len(set(TEXT)))) < 0.2  # it knows nothing but which characters there are
    assert losses[-1] < losses[0] - 0.5 and losses[-1] == min(losses)


def test_a_sample_is_written(executed):
    sample = printed(code(executed)[-1])
    assert len(sample) == 1 + 5 * ITERATIONS and set(sample) <= set(TEXT) and len(set(sample)) > 5


def test_the_graph_is_shown(executed):
    (shown,) = [printed(cell) for cell in code(executed) if "show(loss.grad_fn)" in cell.source]
    names = [line.split() for line in shown.splitlines()]
    assert [name for (name,) in names[:-1]] == ["add", "square", "mul", "leaf", "leaf", "mul", "leaf", "leaf"]
    assert shown.splitlines()[-1] == "d loss / d x = 39.0, analytically (2xw + 1) w = 39"


def test_the_losses_are_drawn(executed):
    (drawn,) = [cell.outputs for cell in code(executed) if "plt.show()" in cell.source]
    assert any("image/png" in output.get("data", {}) for output in drawn)


def test_no_warnings(executed):
    errors = [o.text for cell in code(executed) for o in cell.outputs if o.get("name") == "stderr"]
    assert [text for text in errors if not text.startswith("mytorch: compiling kernels")] == []


def test_it_is_stored_without_results():
    notebook = stored()
    nbformat.validate(notebook)
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code(notebook))
    assert all(cell.metadata == {} for cell in notebook.cells)
    assert notebook.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def test_colab_installs_from_git(monkeypatch, tmp_path):
    settings, install, *_ = code(stored())
    calls = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(subprocess, "run", lambda command, check: calls.append(command))
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    names = {}
    exec(settings.source, names)
    exec(install.source, names)
    source = str(tmp_path / "mytorch-source")
    assert [call[:2] for call in calls] == [["git", "clone"], [sys.executable, "-m"]]
    assert calls[0][-2:] == [names["GIT_URL"], source]
    assert calls[1][1:] == ["-m", "pip", "install", "--quiet", source]
    assert source in sys.path


def test_the_address_is_said_once():
    sources = "".join(cell.source for cell in stored().cells)
    assert len(re.findall(r"https?://", sources)) == 1 and 'GIT_URL = "https://' in code(stored())[0].source
