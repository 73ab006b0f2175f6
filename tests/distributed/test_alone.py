"""What needs no second process: backends single and fake, the recorder, deadlines."""

import subprocess
import sys
import time
from datetime import timedelta

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch.distributed import consistency, environment, error_report, flight_recorder, polling
from mytorch.stream import record

from .launched import ROOT

pytestmark = pytest.mark.usefixtures("alone")


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
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "pip install 'mytorch[mpi]'" in done.stdout


def test_mpi_starts_with_the_group_not_with_the_import():
    code = "import sys, mytorch.distributed; print('mpi4py' in sys.modules, 'cupy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
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
    uneven = [mytorch.zeros(n, device=device) for n in (1, 4, 2)]
    dist.all_gather(uneven, x)
    assert [part.tolist() for part in uneven] == [[0], [0, 1, 2, 3], [0, 0]]
    dist.reduce_scatter(mine, [x[:1], x + 5, x[:2]])
    assert mine.tolist() == [5, 6, 7, 8]
    assert dist.recv(x, 2) == 2
    group = dist.new_group([0, 1])
    assert dist.get_world_size(group) == 2 and dist.new_group([0, 2]) is dist.GroupMember.NON_GROUP_MEMBER


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


def test_many_bytes_are_waited_for_eagerly(monkeypatch):
    clock = Clock(monkeypatch)
    eager = polling.spin_seconds(16 << 20)
    assert polling.spin_seconds(0) < 1e-3 < 10e-3 < eager < 50e-3
    assert polling.wait_until(lambda: clock.now > 0.9 * eager, 1.0, eager) and not clock.naps
    assert polling.wait_until(lambda: clock.now > 3 * eager, 1.0, eager) and clock.naps
    dist.init_process_group()
    assert dist.all_reduce(np.ones(1 << 20), async_op=True)._spin == polling.spin_seconds(8 << 20)


def test_time_in_which_this_process_was_stopped_does_not_count(monkeypatch):
    clock = Clock(monkeypatch)
    looks = []

    def done():
        looks.append(clock.now)
        if len(looks) == 30:
            clock.now += 1000.0
        return len(looks) == 60

    assert polling.wait_until(done, 1.0)


class Checker:
    """Rank 1 of the group has finished, rank 2 finishes later."""

    ranks = (10, 11, 12)

    def __init__(self):
        self.queried, self.finished, self.advances = [], {1}, 0

    def query_finished(self, peer):
        self.queried.append(peer)

    def has_finished(self, peer):
        return peer in self.finished

    def advance(self):
        self.advances += 1


def test_a_rank_is_gone_when_all_have_ended_and_nothing_came_for_a_while(monkeypatch):
    clock, checker = Clock(monkeypatch), Checker()
    watch = consistency.PeerWatch(checker, (1, 2))
    assert not watch.are_gone() and checker.queried == []  # the message may arrive soon
    clock.now += 1
    assert not watch.are_gone() and set(checker.queried) == {1, 2} and checker.advances == 1
    clock.now += 1000
    assert not watch.are_gone()
    checker.finished.add(2)
    assert not watch.are_gone()  # a message that was sent before may still be on its way
    clock.now += 0.9 * consistency._LATE_MESSAGE
    assert not watch.are_gone()
    clock.now += 0.2 * consistency._LATE_MESSAGE
    assert watch.are_gone()
    error = watch.error("rank 10: recv")
    assert error.finished == (11, 12) and str(error).startswith("ranks 11, 12 reached the end")


def test_the_recorder_keeps_the_last_records(tmp_path):
    log = flight_recorder.FlightRecorder(3, tmp_path)
    places = [log.begin(i, "WORLD", "all_reduce", f"({i},)", "float32", "a.py:1") for i in range(100)]
    for place in places[:-1]:
        log.end(place)
    flight = flight_recorder.read_all(tmp_path)[3]
    assert [record.seq for record in flight.records] == list(range(100 - flight_recorder.RECORDS, 100))
    assert str(flight.last) == "all_reduce((99,), float32) #99 of group WORLD at a.py:1: waiting"
    assert not flight.finished
    log.end(places[-1], flight_recorder.FAILED)
    log.enter(flight_recorder.FINISHED)
    flight = flight_recorder.read_all(tmp_path)[3]
    assert flight.last.state == flight_recorder.FAILED and flight.finished
    place = log.begin(1, "WORLD", "x", "y" * 2000, "z", "site")
    assert len(log.read(place).shape) < flight_recorder.RECORD_BYTES
    assert log.read(0).op == "an operation long ago"
    assert flight_recorder.read_all(tmp_path / "nowhere") == {} == flight_recorder.read_all(None)


def test_an_operation_is_recorded_with_the_users_line(tmp_path, monkeypatch):
    monkeypatch.setenv(environment.RUN_FOLDER_VARIABLE, str(tmp_path))
    dist.init_process_group()
    dist.all_gather_object([None], "x")
    line = sys._getframe().f_lineno - 1
    last = flight_recorder.read_all(tmp_path)[0].last
    assert last.site == f"{__file__}:{line}" and last.state == flight_recorder.DONE
    assert last.begin <= last.end <= time.time()


def test_a_failed_backend_is_an_error_of_the_operation(monkeypatch):
    """Also in the recording, whether it fails later or at its start."""
    dist.init_process_group()

    def broken(*args):
        raise OSError("the line is cut")

    error = r"rank 0: all_reduce\(\(2,\), float64\) #1 .*OSError: the line"
    with record() as instructions:
        work = dist.all_reduce(np.ones(2), async_op=True)
        work._request.test = broken
        with pytest.raises(dist.DistError, match=error):
            work.wait()
        monkeypatch.setattr(type(dist.group.WORLD.backend_of(np.ones(2))), "all_reduce", broken)
        with pytest.raises(OSError, match="the line"):
            dist.all_reduce(np.ones(2))
    assert [(i.name, i.failed) for i in instructions] == [("all_reduce", True)] * 2
    assert not work.is_success() and isinstance(work.exception(), dist.DistError)
    assert error_report.kind_of(work.exception()) == "connection"


def test_exit_codes_are_never_0():
    codes = {
        SystemExit(3): 3,
        SystemExit("text"): 1,
        SystemExit(256): 1,
        ValueError(): 1,
        KeyboardInterrupt(): 130,
    }
    for error, code in codes.items():
        assert error_report.exit_code(error) == code


def test_what_the_ranks_must_agree_on():
    """The fingerprint of an operation is made of its name, shape, dtype, device and arguments."""
    dist.init_process_group("fake", rank=0, world_size=2)
    seen = []

    class Recorded:
        def start(self, description, seq, site):
            seen.append(description)

    dist.group.WORLD.checker = Recorded()
    x = np.ones(8, np.float32)
    dist.all_reduce(x)
    dist.all_reduce(x[:5])
    dist.all_reduce(x.astype(np.float64))
    dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.broadcast(x, 1)
    dist.all_gather([np.ones(1), np.ones(3)], np.ones(1))
    assert seen == [
        "all_reduce((8,), float32, cpu, sum)",
        "all_reduce((5,), float32, cpu, sum)",
        "all_reduce((8,), float64, cpu, sum)",
        "all_reduce((8,), float32, cpu, max)",
        "broadcast((8,), float32, cpu, src=1)",
        "all_gather(any shape, float64, cpu, shapes=[(1,), (3,)])",
    ]
