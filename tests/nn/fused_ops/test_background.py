"""Kernels that are compiled in the background: who compiles what, without processes."""

import pytest

from mytorch.nn.fused_ops import background


class Worker:
    """A process that has compiled a file when the test says so."""

    made = []

    def __init__(self):
        self.file, self.files, self.stopped = None, [], False
        self.made.append(self)

    def begin(self, file):
        self.file = file
        self.files.append(file)

    def is_idle(self):
        return self.file in Worker.compiled

    def stop(self):
        self.stopped = True


@pytest.fixture
def jobs(monkeypatch):
    monkeypatch.setattr(background, "_Worker", Worker)
    monkeypatch.setattr(background, "available_cores", lambda: 2)
    monkeypatch.setattr(background, "_is_first", lambda: True)
    monkeypatch.setattr(background.atexit, "register", lambda function: None)
    Worker.made, Worker.compiled = [], set()
    return background._Jobs()


def test_each_core_compiles_a_file_and_the_processes_end_with_the_last(jobs, capsys):
    for file in ("a", "b", "c", "a", "b", "c"):
        jobs.add(file)
    assert [worker.files for worker in Worker.made] == [["a"], ["b"]] and jobs.finished == set()
    Worker.compiled.add("b")
    jobs.add("a")
    assert [worker.files for worker in Worker.made] == [["a"], ["b", "c"]] and jobs.finished == {"b"}
    Worker.compiled |= {"a", "c"}
    assert not any(worker.stopped for worker in Worker.made)
    jobs.add("c")
    assert jobs.finished == {"a", "b", "c"} and [worker.stopped for worker in Worker.made] == [True, True]
    lines = capsys.readouterr().err.splitlines()
    assert "compiling kernels in the background" in lines[0] and "3 files of kernels are compiled" in lines[1]
    jobs.add("d")  # what comes later begins anew
    assert len(Worker.made) == 3 and Worker.made[2].files == ["d"]


def test_a_file_is_looked_for_ten_times_a_second(jobs, monkeypatch):
    now = [5.0]
    monkeypatch.setattr(background.time, "monotonic", lambda: now[0])
    assert [jobs.is_due("a"), jobs.is_due("a"), jobs.is_due("b")] == [True, False, True]
    now[0] += 0.11
    assert [jobs.is_due("a"), jobs.is_due("a")] == [True, False]
