"""The NCCL backend on strict stand-ins, two ranks: ids, dtypes, operations, addresses, streams."""

import queue
import threading

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch.distributed import ReduceOp, error_report, flight_recorder, polling, watchdog, world
from mytorch.distributed.backends import nccl as nccl_backend
from mytorch.distributed.process_group import ProcessGroup
from tests.strict_cupy import device

from .fake_nccl import DTYPES, Nccl

SIZE = 2


@pytest.fixture
def nccl(fake_cuda, monkeypatch):
    """The stand-in for cupy.cuda.nccl."""
    module = Nccl()
    monkeypatch.setattr(nccl_backend, "_nccl", lambda: module)
    monkeypatch.setattr(watchdog, "watch", lambda group: None)
    return module


def on_ranks(run):
    """What `run(group, rank)` returns on each rank: a thread, with its GPU as the current one."""
    boxes = [queue.Queue() for _ in range(SIZE)]
    found, errors = [None] * SIZE, []

    def broadcast(rank):
        def pass_on(data):
            assert (data is None) == (rank != 0)
            for box in boxes if rank == 0 else ():
                box.put(data)
            return boxes[rank].get(timeout=60)

        return pass_on

    def work(rank):
        device.set_device(rank)
        log = flight_recorder.FlightRecorder(rank)
        connect = lambda: nccl_backend.NCCLBackend(rank, SIZE, broadcast(rank))  # noqa: E731
        group = ProcessGroup("WORLD", tuple(range(SIZE)), rank, "nccl", None, connect, None, 10.0, log)
        world._groups.append(group)
        try:
            found[rank] = run(group, rank)
        except BaseException as error:
            errors.append(error)
        finally:
            world._groups.remove(group)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def on_gpu(values, rank, dtype="float32"):
    return mytorch.tensor(np.asarray(values, dtype), device=f"cuda:{rank}")


def host(tensor):
    return tensor.cpu().numpy()


SUMMED = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", SUMMED)
def test_each_dtype_has_its_number(nccl, dtype):
    def run(group, rank):
        x = on_gpu([[1, 2, 3], [4, 5, 6]], rank, dtype) * (rank + 1)
        dist.all_reduce(x, group=group)
        return host(x)

    for found in on_ranks(run):
        np.testing.assert_array_equal(found, np.array([[3, 6, 9], [12, 15, 18]], dtype))
        assert found.dtype == dtype
    assert [call[1:] for call in nccl.calls] == [("allReduce", 6, DTYPES.index(np.dtype(dtype)), 0)] * SIZE


OPS = {
    ReduceOp.SUM: ([5, 7], 0), ReduceOp.PRODUCT: ([6, 12], 1), ReduceOp.MAX: ([3, 4], 2),
    ReduceOp.MIN: ([2, 3], 3), ReduceOp.AVG: ([2.5, 3.5], 4),
}


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_each_operation_has_its_number(nccl, op):
    expected, number = OPS[op]

    def run(group, rank):
        x = on_gpu([2, 3], rank) + rank
        dist.all_reduce(x, op, group)
        y = on_gpu([2, 3], rank) + rank
        dist.reduce(y, 1, op, group)
        return host(x), host(y)

    for rank, (x, y) in enumerate(on_ranks(run)):
        np.testing.assert_array_equal(x, np.float32(expected))
        np.testing.assert_array_equal(y, np.float32(expected if rank == 1 else [2, 3]))
    assert {call[4] for call in nccl.calls} == {number}


def test_bools_and_complex_numbers(nccl):
    def run(group, rank):
        x = on_gpu([rank, 1, 0], rank, "bool")
        dist.all_reduce(x, group=group)
        y = on_gpu([rank, 1, 0], rank, "bool")
        dist.all_reduce(y, ReduceOp.PRODUCT, group)
        z = on_gpu([1 + 2j, rank * 1j], rank, "complex64")
        dist.all_reduce(z, group=group)
        return host(x).tolist(), host(y).tolist(), host(z).tolist()

    assert on_ranks(run) == [([True, True, False], [False, True, False], [2 + 4j, 1j])] * SIZE
    assert nccl.calls[-1][2:4] == (4, DTYPES.index(np.dtype("float32")))


def test_what_only_moves_moves_as_bytes(nccl):
    def run(group, rank):
        x = on_gpu([rank, 5], rank, "int16")
        y = on_gpu([[1, 2], [3, 4]], rank, "complex64") * (rank + 1)
        dist.broadcast(x, 1, group)
        out = mytorch.zeros(4, 2, dtype="complex64", device=f"cuda:{rank}")
        dist.all_gather_into_tensor(out, y.T, group)
        parts = [mytorch.zeros(2, 2, dtype="complex64", device=f"cuda:{rank}") for _ in range(SIZE)]
        dist.all_gather(parts, y, group)
        return [host(t) for t in (x, out, *parts)]

    y = np.array([[1, 2], [3, 4]], np.complex64)
    for x, out, first, second in on_ranks(run):
        np.testing.assert_array_equal(x, np.int16([1, 5]))
        np.testing.assert_array_equal(out, np.concatenate([y.T, 2 * y.T]))
        np.testing.assert_array_equal(np.stack([first, second]), np.stack([y, 2 * y]))
    assert {call[3] for call in nccl.calls} == {1}


def test_scattering_gathering_and_exchanging(nccl):
    def run(group, rank):
        cuda = f"cuda:{rank}"
        out = mytorch.zeros(2, device=cuda)
        dist.reduce_scatter_tensor(out, on_gpu([0, 1, 2, 3], rank) + rank, group=group)
        other = mytorch.zeros(2, device=cuda)
        dist.reduce_scatter(other, [on_gpu([0, 1], rank) + rank, on_gpu([2, 3], rank) + rank], group=group)
        parts = [mytorch.zeros(2, device=cuda) for _ in range(SIZE)] if rank == 1 else None
        dist.gather(on_gpu([rank, 7], rank), parts, 1, group)
        mine = mytorch.zeros(2, device=cuda)
        dist.scatter(mine, [on_gpu([8, 9], rank), on_gpu([6, 5], rank)] if rank == 0 else None, 0, group)
        outs = [mytorch.zeros(of + 1, device=cuda) for of in range(SIZE)]
        dist.all_to_all(outs, [on_gpu([10 * rank + to] * (rank + 1), rank) for to in range(SIZE)], group)
        return [host(t).tolist() for t in (out, other, mine, *outs, *(parts or ()))]

    assert on_ranks(run) == [
        [[1, 3], [1, 3], [8, 9], [0], [10, 10]],
        [[5, 7], [5, 7], [6, 5], [1], [11, 11], [0, 7], [1, 7]],
    ]


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bool"])
def test_parts_of_different_shapes(nccl, dtype):
    lengths, y = (0, 3), np.array([1, 0, 1], dtype)

    def run(group, rank):
        parts = [mytorch.zeros(n, dtype=dtype, device=f"cuda:{rank}") for n in lengths]
        dist.all_gather(parts, on_gpu(y[: lengths[rank]], rank, dtype), group)
        out = mytorch.zeros(lengths[rank], dtype=dtype, device=f"cuda:{rank}")
        dist.reduce_scatter(out, [on_gpu(y[:n], rank, dtype) for n in lengths], group=group)
        return [host(part) for part in parts], host(out)

    for rank, (parts, out) in enumerate(on_ranks(run)):
        for part, length in zip(parts, lengths, strict=True):
            np.testing.assert_array_equal(part, y[:length])
        np.testing.assert_array_equal(out, (y + y)[: lengths[rank]])


def test_sends_that_wait_for_each_other(nccl):
    def run(group, rank):
        other, x = 1 - rank, mytorch.zeros(2, device=f"cuda:{rank}")
        dist.all_reduce(x, group=group)
        ops = [
            dist.P2POp(dist.irecv, x, other, group),
            dist.P2POp(dist.isend, on_gpu([rank, 3], rank), other, group),
        ]
        for work in dist.batch_isend_irecv(ops):
            assert work.wait() and work.is_completed()
        y = mytorch.zeros(2, device=f"cuda:{rank}")
        if rank == 0:
            dist.send(on_gpu([4, 5], rank), 1, group)
        else:
            assert dist.recv(y, 0, group) == 0
        return host(x).tolist(), host(y).tolist()

    assert on_ranks(run) == [([1, 3], [0, 0]), ([0, 3], [4, 5])]


def test_streams_wait_for_each_other(nccl, monkeypatch):
    """The operation for the work before it; the work after it for the operation, but only after `wait()`."""
    seen = []
    plain = device.Stream.wait_event

    def wait_event(self, event):
        seen.append((device.get_device(), "null" if self is device.Stream.null else "own"))
        plain(self, event)

    monkeypatch.setattr(device.Stream, "wait_event", wait_event)

    def run(group, rank):
        work = dist.all_reduce(on_gpu([1], rank), group=group, async_op=True)
        before = [who for gpu, who in seen if gpu == rank]
        work.wait()
        return before, [who for gpu, who in seen if gpu == rank]

    assert on_ranks(run) == [(["own"], ["own", "null"])] * SIZE


def test_a_view_is_written_in_place(nccl):
    def run(group, rank):
        base = mytorch.zeros(2, 3, device=f"cuda:{rank}")
        base[:, ::2] = rank + 1
        work = dist.all_reduce(base[:, ::2], group=group, async_op=True)
        work.wait()
        return host(base).tolist()

    assert on_ranks(run) == [[[3, 0, 3], [3, 0, 3]]] * SIZE


def test_what_nccl_cannot_do_is_said(nccl):
    def run(group, rank):
        with pytest.raises(ValueError, match=r"NCCL can't reduce int16 with ReduceOp.SUM"):
            dist.all_reduce(on_gpu([1], rank, "int16"), group=group)
        group.check(100.0)  # it isn't taken for one that still begins
        with pytest.raises(ValueError, match=r"NCCL has no ReduceOp.BAND"):
            dist.all_reduce(on_gpu([1], rank, "int32"), ReduceOp.BAND, group)
        with pytest.raises(ValueError, match="any rank"):
            dist.recv(on_gpu([1], rank), group=group)
        with pytest.raises(dist.DistError, match="call a collective first"):
            group.backend_of(on_gpu([1], rank).data._array)
            dist.batch_isend_irecv([dist.P2POp(dist.isend, on_gpu([1], rank), 1 - rank, group)])
        dist.all_reduce(on_gpu([1], rank), group=group)
        with pytest.raises(dist.DistError, match=rf"on cuda:{rank}, got an array on cuda:{1 - rank}"):
            dist.all_reduce(on_gpu([1], 1 - rank), group=group)

    on_ranks(run)


def test_cupy_without_nccl(fake_cuda):
    with pytest.raises(dist.DistError, match="pip install nvidia-nccl-cu12"):
        nccl_backend.NCCLBackend(0, 1, lambda data: data)


def test_the_watchdog_sees_operations_without_a_wait(nccl, monkeypatch):
    """An operation that never ends: the check of the thread, step by step."""

    def run(group, rank):
        work = dist.all_reduce(on_gpu([1], rank), group=group, async_op=True)
        work._request.test = lambda: False
        for _ in range(20):
            group.check(0.5)
        with pytest.raises(dist.DistTimeout, match="all_reduce #1 of group WORLD not complete after 10 s"):
            group.check(0.5)
        assert work.exception() is not None and not group._in_flight

    on_ranks(run)


def test_the_watchdog_ends_the_job(nccl, monkeypatch):
    failures = queue.Queue()
    monkeypatch.setattr(error_report, "fail", failures.put)

    class Late:
        times = 0

        def check(self, elapsed):
            self.times += 1
            if self.times == 1:  # the stand-in for `fail` returns, so the thread continues
                assert elapsed <= polling.LONGEST_STEP
                raise dist.DistTimeout("too late")

    late = Late()
    watching = watchdog.Watchdog()
    watching.watch(late)
    watching.start()
    assert str(failures.get(timeout=30)) == "too late"
