"""No test sees the settings of the person who runs it."""

import os

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty home, and no variable of ours; the value is its path."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("MYTORCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MYTORCH_COMPILE", "wait")
    monkeypatch.setenv("HOME", str(folder))
    return folder
