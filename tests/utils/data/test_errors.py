"""What goes wrong in a worker: errors arrive as they are, a death is named, with the sample and the batch."""

import os
import re
import signal
import threading

import pytest
import torch.utils.data

from mytorch.utils import data
from tests.utils.data.datasets import (
    Numbers,
    OwnError,
    Stream,
    eventually,
    is_alive,
    kill_itself,
    leave,
    raise_at_5,
    segfault,
    within,
)


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


# Errors

ERRORS = {
    "value": ValueError("what"),
    "key": KeyError("which"),
    "division": ZeroDivisionError(),
    "of two arguments": OwnError(1, 2),
    "unicode": UnicodeDecodeError("utf8", b"x", 0, 1, "bad"),
    "stop": StopIteration(),
    "stop stream": EOFError("file"),
    "pipe": BrokenPipeError(32, "disk"),
    "not implemented": NotImplementedError("later"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_arrive_with_index_and_traceback(name):
    dataset = Numbers(10, raise_at_5(ERRORS[name]))
    iterator = iter(data.DataLoader(dataset, 2, num_workers=2))
    assert [next(iterator).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(Exception) as raised:  # noqa: PT011 - its type is compared
        next(iterator)
    message = str(raised.value)
    assert "worker process 0" in message and "sample 5, in batch 2" in message
    assert "in act\n    raise error\n" in message and type(ERRORS[name]).__name__ in message
    theirs = iter(torch.utils.data.DataLoader(dataset, 2, num_workers=2))
    with pytest.raises(Exception) as expected:  # noqa: PT011
        [next(theirs) for _ in range(3)]
    if name not in ("unicode", "of two arguments", "stop"):
        assert raised.type is expected.type
    else:  # PyTorch's is a RuntimeError where a type doesn't take a message; ours a base that does
        assert issubclass(type(ERRORS[name]), raised.type) or raised.type is RuntimeError
    # the user may go on; PyTorch's workers, if they are not told to end, take 10 s to do so
    assert [b.tolist() for b in iterator] == [b.tolist() for b in theirs] == [[6, 7], [8, 9]]


def test_an_error_of_a_class_that_only_the_worker_knows():
    def act(i):
        class Strange(ValueError):
            pass

        raise Strange("odd")

    with pytest.raises(ValueError, match=r"Caught .*Strange in DataLoader worker process 0[^$]*sample 0"):
        next(iter(data.DataLoader(Numbers(2, act), num_workers=1)))


PLACES = {
    "collate_fn": ({"collate_fn": lambda samples: 1 / 0}, r"the collate_fn of samples \[0, 1\], in batch 0"),
    "single": ({"batch_size": None, "collate_fn": lambda x: 1 / 0}, "the collate_fn of sample 0, in batch 0"),
    "worker_init_fn": ({"worker_init_fn": lambda i: 1 / 0}, "at its worker_init_fn"),
    "unpicklable": ({"collate_fn": lambda samples: 1 / (lambda: 0)()}, "collate_fn"),
}


@pytest.mark.parametrize("name", PLACES)
def test_where_an_error_was(name):
    options, place = PLACES[name]
    with pytest.raises(ZeroDivisionError, match=place):
        next(iter(data.DataLoader(Numbers(), **{"batch_size": 2, "num_workers": 1} | options)))


def test_a_batch_that_cannot_be_sent():
    loader = data.DataLoader(Numbers(4), 2, num_workers=1, collate_fn=lambda x: lambda: 0)
    with pytest.raises(Exception, match="batch 0, to send it"):
        next(iter(loader))


def test_errors_of_streams_and_many_samples_say_where():
    class Failing(Stream):
        def __iter__(self):
            yield from range(3)
            raise ValueError("no more")

    with pytest.raises(ValueError, match="sample 3 of its stream, in batch 1"):
        list(data.DataLoader(Failing(), 2, num_workers=1))

    class Batched(Numbers):
        def __getitems__(self, indices):
            raise ValueError("no")

    with pytest.raises(ValueError, match=r"samples \[0, 1, 2, 3, 4, 5, 6, 7, …\], in batch 0"):
        next(iter(data.DataLoader(Batched(), 9, num_workers=1)))


class FailsTwice:
    """A stream that goes on after an error, as an object that is its own iterator may."""

    def __iter__(self):
        self.number = -1
        return self

    def __next__(self):
        self.number += 1
        if self.number in (2, 5):
            raise ValueError(f"sample {self.number} is damaged")
        if self.number == 9:
            raise StopIteration
        return self.number


def test_a_stream_goes_on_after_its_errors_and_from_a_state():
    """The errors before a sample aren't raised again by the pass that continues after that sample."""

    class Damaged(FailsTwice, data.IterableDataset):
        pass

    def rest_of(iterator):
        found = []
        while True:
            try:
                found.append(next(iterator))
            except ValueError as error:
                found.append(re.search("sample . is damaged", str(error))[0])
            except StopIteration:
                return found

    whole = rest_of(iter(data.DataLoader(Damaged(), None)))
    assert whole == [0, 1, "sample 2 is damaged", 3, 4, "sample 5 is damaged", 6, 7, 8]
    for count in range(len(whole)):
        loader = data.DataLoader(Damaged(), None)
        iterator = iter(loader)
        for item in whole[:count]:
            if isinstance(item, str):
                with pytest.raises(ValueError, match=item):
                    next(iterator)
            else:
                next(iterator)
        resumed = data.DataLoader(Damaged(), None)
        resumed.load_state_dict(loader.state_dict())
        if count and isinstance(whole[count - 1], str):
            count -= 1  # the state is that after the last sample
        assert rest_of(iter(resumed)) == whole[count:]


def test_an_error_ahead_is_not_the_end():
    """Whether a batch is the last one of a stream is known by loading ahead; `next` raises what that did."""

    class Damaged(FailsTwice, data.IterableDataset):
        pass

    batches = iter(data.DataLoader(Damaged(), None))
    assert [next(batches), next(batches)] == [0, 1] and not batches.is_last()
    with pytest.raises(ValueError, match="sample 2 is damaged"):
        next(batches)


def test_stop_iteration_does_not_end_a_pass_in_silence():
    with pytest.raises(RuntimeError, match="batch 5: the dataset raised StopIteration"):
        list(data.DataLoader(Numbers(10, raise_at_5(StopIteration()))))


# Death

DEATHS = {
    "kill": (
        lambda: kill_itself(signal.SIGKILL),
        r"was killed by signal 9 \(SIGKILL\), as happens when memory",
    ),
    "terminate": (lambda: kill_itself(signal.SIGTERM), r"was killed by signal 15 \(SIGTERM\)"),
    "segfault": (segfault, r"was killed by signal 11 \(SIGSEGV\)"),
    "exit": (leave, "exited with code 3"),
    "end": (lambda: os._exit(0), "exited with code 0"),
}


@pytest.mark.parametrize("name", DEATHS)
def test_a_dead_worker_is_named(name):
    die, how = DEATHS[name]
    loader = data.DataLoader(Numbers(20, lambda i: die() if i == 13 else i), 2, num_workers=2)
    iterator = iter(loader)
    with (
        pytest.raises(
            RuntimeError, match=rf"worker 0 \(pid \d+\) {how}.*while loading sample 13, in batch 6"
        ),
        within(20),
    ):
        list(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_a_worker_that_dies_while_nobody_waits_is_named_once_it_is_wanted():
    loader = data.DataLoader(Numbers(100), 1, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)
    pids, pool = [worker.process.pid for worker in iterator._pool.workers], iterator._pool
    eventually(lambda: pool._receive(0) or pool.workers[1].answered == 2)  # the samples 1 and 3
    os.kill(pids[1], signal.SIGKILL)
    eventually(lambda: not is_alive(pids[1]))
    with pytest.raises(RuntimeError, match=rf"worker 1 \(pid {pids[1]}\).*SIGKILL.*, between two batches"):
        list(iterator)  # what it had loaded may come first
    eventually(lambda: not is_alive(pids[0]))
    assert [b.tolist() for b in loader] == [[i] for i in range(100)]  # with new workers


def test_timeout():
    loader = data.DataLoader(
        Numbers(4, lambda i: threading.Event().wait() if i == 3 else i), 2, num_workers=2, timeout=3
    )
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(RuntimeError, match=r"timed out after 3 s: batch 1 of worker 1 .* it is at sample 3"):
        next(iterator)
