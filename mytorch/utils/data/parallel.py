"""One pass over the data with workers."""

from __future__ import annotations

from typing import Any

from .iterate import Pass, Requests
from .pool import Pool, exception_of
from .state import ENDED, Position
from .workers import BATCH, END


class WithWorkers(Pass):
    """Takes batches from a pool, and keeps its workers busy.

    Each worker has `prefetch_factor` requests at any time: the one whose batch is taken gets the next. So
    batches come from the workers in turn, and a stream that has ended is passed over.

    Args:
        order: see `Pass`.
        stays: the pool is there for the next pass, too.
    """

    def __init__(
        self, order: Any, pool: Pool, position: Position, requests: Requests, asked_epoch: int | None,
        prefetch_factor: int, in_order: bool, stays: bool,
    ):  # fmt: skip
        super().__init__(order)
        self._pool, self._position, self._requests = pool, position, requests
        self._in_order, self._stays = in_order, stays
        pool.begin(position.epoch, asked_epoch, position.streams)
        self._pass = pool.pass_number
        count = len(pool.workers)
        turns = [(position.turn + i) % count for i in range(count)]
        streams = [position.streams[i] for i in turns]
        going = [i for i, state in zip(turns, streams, strict=True) if not (state and state["ended"])]
        for i in going * prefetch_factor:
            self._ask(i)

    def _ask(self, worker: int) -> None:
        for number, indices in self._requests:
            self._pool.request(worker, number, indices)
            return

    def __next__(self) -> Any:
        if not self._position.is_over and self._pool.pass_number != self._pass:
            raise RuntimeError("another pass with the same persistent workers was begun: this one is over")
        while not (self._position.is_over or self._pool.is_idle):
            try:
                request, kind, value = self._pool.next_answer(self._in_order)
            except BaseException:  # somebody died, or Ctrl-C was pressed: no use to go on
                self._position.is_over = True
                self._pool.close()
                raise
            worker = request.worker
            if kind == END:
                self._position.streams[worker.id] = ENDED
                continue
            self._ask(worker.id)
            if kind == BATCH:
                batch, stream = value
                self._position.advance(request.number, worker.id, stream)
                return batch
            self._position.advance(request.number, worker.id, self._position.streams[worker.id])
            raise exception_of(value[0], worker)
        self._position.is_over = True
        if not self._stays:
            self._pool.close()
        raise StopIteration
