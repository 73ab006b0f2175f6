"""ProcessGroup: some ranks, the backends that connect them, and the checks of each of their operations."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from operator import methodcaller
from typing import TYPE_CHECKING, TypeAlias

from ..backends.device import RawArray, device_of
from ..backends.door import in_force
from ..core.grad_mode import _state
from ..utils.call_site import call_site
from . import error_report, flight_recorder, watchdog
from .backends import Request
from .environment import Timeout, seconds
from .errors import DistTimeout
from .polling import spin_seconds
from .reduce_op import ReduceOp
from .work import Work

if TYPE_CHECKING:
    from .backends.local import LocalBackend
    from .backends.mpi import MPIBackend
    from .backends.nccl import NCCLBackend
    from .backends.threads import ThreadsBackend, ThreadsChecker
    from .consistency import ConsistencyChecker
    from .turns import World

    Backend: TypeAlias = LocalBackend | MPIBackend | NCCLBackend | ThreadsBackend
    Checker: TypeAlias = ConsistencyChecker | ThreadsChecker


class ProcessGroup:
    """The ranks of a group.

    Args:
        name: "WORLD", or a number.
        ranks: the global rank of each member, in the group's order.
        rank: the rank of this process in the group.
        backend: the name that `get_backend` returns.
        cpu_backend: moves arrays on the CPU.
        make_gpu_backend: makes the backend that moves arrays on GPUs, at the first one.
        checker: compares what the ranks call; None if there is only one.
        timeout: of its operations, in seconds.
        recorder: the flight recorder of this process.
        world: lets other ranks run while this one waits, where they are threads; see `worlds`.
    """

    def __init__(
        self, name: str, ranks: tuple[int, ...], rank: int, backend: str, cpu_backend: Backend,
        make_gpu_backend: Callable[[], Backend], checker: Checker | None, timeout: float,
        recorder: flight_recorder.FlightRecorder,
        world: World | None = None,
    ):
        self.name, self.ranks, self._rank, self.backend = name, ranks, rank, backend
        self.checker, self.timeout, self.recorder, self.world = checker, timeout, recorder, world
        self.cpu_backend, self._make_gpu_backend = cpu_backend, make_gpu_backend
        self._gpu_backend: Backend | None = None
        self._count, self._p2p_count = itertools.count(1), itertools.count(1)
        self._starting: int | None = None  # the record of the operation that starts now
        self._starting_seconds = 0.0
        self._in_flight: list[Work] = []
        self.is_destroyed = False

    def rank(self) -> int:
        """Returns the rank of this process in the group."""
        return self._rank

    def size(self) -> int:
        """Returns the number of ranks."""
        return len(self.ranks)

    def __repr__(self) -> str:
        return f"ProcessGroup({self.name}, ranks={self.ranks}, backend={self.backend})"

    def backend_of(self, raw: RawArray) -> Backend:
        """Returns the backend that moves a raw array: what its kind says."""
        return device_of(raw).kind.collectives(self)

    @property
    def gpu_backend(self) -> Backend:
        """The backend that moves arrays on GPUs, made at its first use."""
        if self._gpu_backend is None:
            self._gpu_backend = self._make_gpu_backend()
            if self._gpu_backend is not self.cpu_backend:  # no wait() blocks on a GPU
                watchdog.watch(self)
        return self._gpu_backend

    def ranks_in(self, raw: RawArray) -> int:
        """Returns the number of ranks between which it moves a raw array: in a process, one as a rule."""
        return len(self.ranks) * device_of(raw).kind.ranks

    def share_flag(self, flag: RawArray) -> None:
        """Sets a flag, an array with one element, on all ranks if it is set on one, in place.

        Raises:
            ValueError: the group was destroyed.
        """
        if self.is_destroyed:
            raise ValueError(f"{self!r} was destroyed")
        if self.ranks_in(flag) > 1:
            start = methodcaller("all_reduce", flag, ReduceOp.MAX)
            self.run("all_reduce", flag, start, f", {ReduceOp.MAX.value}").wait()

    def run(
        self, op: str, raw: RawArray, start: Callable[[Backend], Request], detail: str = "",
        store: Callable[[], None] | None = None, same_shape: bool = True,
        peers: tuple[int, ...] | None = None, timeout: float | None = None,
    ) -> Work:
        """Starts an operation with its checks.

        Args:
            op: its public name.
            raw: the array whose shape, dtype and device all ranks must agree on.
            start: called with the backend; starts the operation.
            detail: other arguments to agree on.
            store: copies the result to the caller's tensors.
            same_shape: whether the shapes must be the same on all ranks.
            peers: the ranks that a send or receive can be with. It isn't compared, tensors may differ.
            timeout: in seconds; by default the group's.
        """
        in_force().once(f"{op}() of a process group")
        if self.world is not None:
            self.world.check(self.ranks[self._rank])
        for work in self._in_flight[:]:
            work.poll()  # MPI makes progress only when it is polled
        counter = self._count if peers is None else self._p2p_count
        seq, site = next(counter), call_site()
        shape, dtype = str(tuple(raw.shape)), str(raw.dtype)
        record = self.recorder.begin(seq, self.name, op, shape, dtype, site)
        instruction = None
        if (stream := _state.stream) is not None:
            instruction = stream.begin_collective(op, raw, self.name, seq, site, peers)
        check = watch = None
        target = device_of(raw)
        try:
            if self.checker is not None and peers is None:
                device = target.kind.name or target.type
                description = f"{op}({shape if same_shape else 'any shape'}, {dtype}, {device}{detail})"
                check = self.checker.start(description, seq, site)
            elif self.checker is not None:
                watch = self.checker.watch(peers)
            request, spin = self._start(record, raw, start), spin_seconds(raw.nbytes)
        except BaseException:
            self.recorder.end(record, flight_recorder.FAILED)
            if instruction is not None:
                instruction.end(failed=True)
            raise
        is_host = target.kind.is_host
        work = Work(self, record, check, request, store, watch, timeout, is_host, spin, instruction)
        self._in_flight.append(work)
        return work

    def _start(self, record: int, raw: RawArray, start: Callable[[Backend], Request]) -> Request:
        """Starts an operation under the watchdog: connecting to the other ranks may block."""
        self._starting, self._starting_seconds = record, 0.0
        try:
            return start(self.backend_of(raw)) or Request()
        finally:
            self._starting = None

    def check(self, elapsed: float) -> None:
        """Checks the operations in flight, `elapsed` seconds after the last check; for the watchdog.

        Raises:
            DistTimeout: an operation missed its deadline; it is marked as failed.
            DistMismatch: the ranks don't agree.
        """
        if self._starting is not None:
            self._starting_seconds += elapsed
            if self._starting_seconds > self.timeout:
                raise DistTimeout(self.explain_timeout(self._starting, self.timeout))
        for work in self._in_flight[:]:
            if not work.poll() and work.age(elapsed) > work.timeout:
                raise work.time_out(work.timeout)

    def uses_gpu(self) -> bool:
        """Returns whether the group has moved an array on a GPU."""
        return self._gpu_backend is not None

    def coalesce(self) -> contextlib.AbstractContextManager[None]:
        """Context manager that starts sends and receives together, so that they may depend on each other."""
        return getattr(self._gpu_backend, "coalesce", contextlib.nullcontext)()

    def remove(self, work: Work) -> None:
        """Removes an operation from those in flight."""
        with contextlib.suppress(ValueError):  # the watchdog may have removed it
            self._in_flight.remove(work)

    def timeout_of(self, timeout: Timeout) -> float:
        return self.timeout if timeout is None else seconds(timeout)

    def describe(self, record: int) -> str:
        """Returns an operation of this rank as text, from the number of its record."""
        return f"rank {self.ranks[self._rank]}: {self.recorder.read(record)}"

    def explain_timeout(self, record: int, timeout: float) -> str:
        """Returns what the ranks of the group were doing when this one missed a deadline."""
        own = self.recorder.read(record)
        return error_report.explain_timeout(self.ranks[self._rank], self.ranks, own, timeout)
