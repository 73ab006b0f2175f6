"""What needs no second process: backends single and fake, the recorder, deadlines, arguments."""

import subprocess
import sys
import time
from datetime import timedelta

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch.distributed import ReduceOp, environment, failure, polling, recorder

from .launched import ROOT


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", environment.TIMEOUT_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def test_one_process_needs_no_mpi():
    code = """
import sys
sys.modules["mpi4py"] = None
import numpy as np, mytorch.distributed as dist
assert not dist.is_available() and not dist.is_initialized()
dist.init_process_group()
x = np.arange(3.0)
dist.all_reduce(x, dist.ReduceOp.AVG)
dist.barrier()
assert x.tolist() == [0, 1, 2] and dist.get_backend() == "single" and dist.get_world_size() == 1
dist.destroy_process_group()
try:
    dist.init_process_group("mpi")
except dist.DistError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "pip install 'mytorch[mpi]'" in done.stdout


def test_mpi_starts_with_the_group_not_with_the_import():
    code = "import sys, mytorch.distributed; print('mpi4py' in sys.modules, 'cupy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_the_fake_group_has_a_size_and_a_rank(device):
    dist.init_process_group("fake", rank=1, world_size=3)
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (1, 3, "fake")
    x = mytorch.arange(4, dtype="float32", device=device)
    work = dist.all_reduce(x, async_op=True)
    assert work.is_completed() and work.wait()
    assert x.tolist() == [0, 1, 2, 3]
    out = mytorch.zeros(12, device=device)
    dist.all_gather_into_tensor(out, x)
    assert out.tolist() == [0, 1, 2, 3] * 3
    mine = mytorch.zeros(4, device=device)
    dist.reduce_scatter_tensor(mine, mytorch.arange(12, dtype="float32", device=device))
    assert mine.tolist() == [4, 5, 6, 7]
    parts = [mytorch.zeros(4, device=device) for _ in range(3)]
    dist.all_to_all(parts, [x, x + 1, x + 2])
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]
    group = dist.new_group([0, 1])
    assert dist.get_world_size(group) == 2 and dist.new_group([0, 2]) is dist.GroupMember.NON_GROUP_MEMBER


WRONG = {
    "backend": ({"backend": "gloo"}, ValueError, "no backend 'gloo', but mpi, nccl, single, fake"),
    "rank": ({"backend": "fake", "rank": 3, "world_size": 3}, ValueError, "rank 3 is not in"),
    "single": ({"backend": "single", "world_size": 2}, ValueError, "rank 0 of 1, but"),
    "init_method": ({"init_method": "tcp://a:1"}, ValueError, "tcp://a:1"),
    "store": ({"store": object()}, ValueError, "store"),
    "timeout": ({"timeout": 0}, ValueError, "positive number of seconds, got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    arguments, kind, says = WRONG[name]
    with pytest.raises(kind, match=says):
        dist.init_process_group(**arguments)
    assert not dist.is_initialized()


X, FIXED = np.ones(3, np.float32), np.broadcast_to(np.float32(1), (3,))
REFUSED = {
    "no tensor": (TypeError, "got list", lambda: dist.all_reduce([1.0])),
    "no op": (TypeError, "ReduceOp", lambda: dist.all_reduce(X, "sum")),
    "average of integers": (
        ValueError, "AVG is not defined for int64", lambda: dist.all_reduce(np.ones(3, int), ReduceOp.AVG),
    ),
    "bits of floats": (ValueError, "BAND", lambda: dist.all_reduce(X, ReduceOp.BAND)),
    "largest complex": (ValueError, "MAX", lambda: dist.all_reduce(X.astype("complex64"), ReduceOp.MAX)),
    "read-only": (ValueError, "read-only", lambda: dist.all_reduce(FIXED)),
    "src": (ValueError, "rank 2 is not in", lambda: dist.broadcast(X, 2)),
    "no src": (ValueError, "one of a global rank", lambda: dist.broadcast(X)),
    "count": (ValueError, "expected 2 tensors", lambda: dist.all_gather([X] * 3, X)),
    "shape": (ValueError, r"\(3,\) and \(2,\)", lambda: dist.all_gather([np.ones(2, "f4")] * 2, X)),
    "dtype": (ValueError, "float32 and float64", lambda: dist.all_gather([np.ones(3)] * 2, X)),
    "size": (ValueError, "times as many", lambda: dist.all_gather_into_tensor(np.ones(7, "f4"), X)),
    "itself": (ValueError, "rank 0 can't send to itself", lambda: dist.send(X, 0)),
    "twice": (ValueError, r"ranks \[0, 0\]", lambda: dist.new_group([0, 0])),
    "no list": (ValueError, "must give a scatter_list", lambda: dist.scatter(X)),
    "a list too many": (ValueError, "for rank dst alone", lambda: dist.gather(X, [X, X], dst=1)),
    "no group": (TypeError, "ProcessGroup", lambda: dist.all_reduce(X, group="WORLD")),
    "split": (ValueError, "isn't 2 equal parts", lambda: dist.all_to_all_single(X.copy(), X)),
    "objects": (ValueError, "a list of 2 objects", lambda: dist.all_gather_object([None], 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_do_not_fit(name):
    kind, says, call = REFUSED[name]
    dist.init_process_group("fake", rank=0, world_size=2)
    with pytest.raises(kind, match=says):
        call()


def test_without_a_group():
    for call in (
        dist.get_rank,
        dist.get_world_size,
        dist.barrier,
        dist.new_group,
        dist.destroy_process_group,
    ):
        with pytest.raises(ValueError, match="init_process_group"):
            call()


def test_timeouts_are_numbers_or_timedeltas(monkeypatch):
    assert environment.seconds() == 60 and environment.seconds(2) == 2
    assert environment.seconds(timedelta(minutes=2)) == 120
    monkeypatch.setenv(environment.TIMEOUT_VARIABLE, "7.5")
    assert environment.seconds() == 7.5
    dist.init_process_group()
    assert dist.group.WORLD.timeout == 7.5


def test_a_second_group_is_refused_and_pytorchs_backends_are_read():
    dist.init_process_group("cpu:single,cuda:single", timeout=timedelta(seconds=5))
    assert dist.get_backend() == "single" and dist.group.WORLD.timeout == 5
    with pytest.raises(dist.DistError, match="already"):
        dist.init_process_group()


def test_local_rank(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert dist.get_node_local_rank(3) == 3
    with pytest.raises(RuntimeError, match="LOCAL_RANK"):
        dist.get_node_local_rank()
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert dist.get_node_local_rank() == 2


class Clock:
    """A time that passes only in naps, plus jumps."""

    def __init__(self, monkeypatch):
        self.now, self.naps = 0.0, []
        monkeypatch.setattr(polling.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(polling.time, "sleep", self.nap)
        monkeypatch.setattr(polling.os, "sched_yield", lambda: self.nap(1e-5, False))

    def nap(self, seconds, kept=True):
        self.now += seconds
        if kept:
            self.naps.append(seconds)


def test_waiting_is_eager_and_then_idle(monkeypatch):
    clock = Clock(monkeypatch)
    assert not polling.wait_until(lambda: False, 0.5)
    assert 0.5 < clock.now < 0.51
    assert clock.naps[0] < 2e-5 and max(clock.naps) == 2e-3
    clock.naps.clear()
    assert polling.wait_until(lambda: clock.now > 0.51, 0.5)


def test_time_in_which_this_process_was_stopped_does_not_count(monkeypatch):
    clock = Clock(monkeypatch)
    looks = []

    def done():
        looks.append(clock.now)
        if len(looks) == 30:
            clock.now += 1000.0
        return len(looks) == 60

    assert polling.wait_until(done, 1.0)


def test_the_recorder_keeps_the_last_records(tmp_path):
    log = recorder.Recorder(3, tmp_path)
    places = [log.begin(i, "WORLD", "all_reduce", f"({i},)", "float32", "a.py:1") for i in range(100)]
    for place in places[:-1]:
        log.end(place)
    flight = recorder.read_all(tmp_path)[3]
    assert [record.seq for record in flight.records] == list(range(100 - recorder.RECORDS, 100))
    assert str(flight.last) == "all_reduce((99,), float32) #99 of group WORLD at a.py:1: waiting"
    assert not flight.finished
    log.end(places[-1], recorder.FAILED)
    log.finish()
    flight = recorder.read_all(tmp_path)[3]
    assert flight.last.state == recorder.FAILED and flight.finished
    place = log.begin(1, "WORLD", "x", "y" * 2000, "z", "site")
    assert len(log.read(place).shape) < recorder.RECORD_BYTES
    assert log.read(0).op == "an operation long ago"
    assert recorder.read_all(tmp_path / "nowhere") == {} == recorder.read_all(None)


def test_an_operation_is_recorded_with_the_users_line(tmp_path, monkeypatch):
    monkeypatch.setenv(environment.RUN_FOLDER_VARIABLE, str(tmp_path))
    dist.init_process_group()
    dist.all_gather_object([None], "x")
    line = sys._getframe().f_lineno - 1
    last = recorder.read_all(tmp_path)[0].last
    assert last.site == f"{__file__}:{line}" and last.state == recorder.DONE
    assert last.begin <= last.end <= time.time()


def test_a_failed_engine_is_an_error_of_the_operation():
    dist.init_process_group()
    work = dist.all_reduce(np.ones(2), async_op=True)

    def broken():
        raise OSError("the line is cut")

    work._pending.test = broken
    with pytest.raises(dist.DistError, match=r"rank 0: all_reduce\(\(2,\), float64\) #1 .*OSError: the line"):
        work.wait()
    assert not work.is_success() and isinstance(work.exception(), dist.DistError)
    assert failure.kind_of(work.exception()) == "connection"


def test_exit_codes_are_never_0():
    codes = {
        SystemExit(3): 3,
        SystemExit("text"): 1,
        SystemExit(256): 1,
        ValueError(): 1,
        KeyboardInterrupt(): 130,
    }
    for error, code in codes.items():
        assert failure.exit_code(error) == code
