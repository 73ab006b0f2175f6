"""Arguments that don't fit raise before anything is sent, and the message has their values."""

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch.distributed import ReduceOp

pytestmark = pytest.mark.usefixtures("alone")

WRONG = {
    "backend": (
        {"backend": "gloo"},
        ValueError,
        "unknown backend 'gloo', expected one of mpi, nccl, single, fake",
    ),
    "rank": ({"backend": "fake", "rank": 3, "world_size": 3}, ValueError, "rank 3 is not in"),
    "single": ({"backend": "single", "world_size": 2}, ValueError, "world_size=2 on rank 0 of 1"),
    "init_method": ({"init_method": "tcp://a:1"}, ValueError, "tcp://a:1"),
    "store": ({"store": object()}, ValueError, "store"),
    "timeout": ({"timeout": 0}, ValueError, "positive number of seconds, got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    arguments, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
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
    "no src": (ValueError, "either a global rank or", lambda: dist.broadcast(X)),
    "count": (ValueError, "expected 2 tensors", lambda: dist.all_gather([X] * 3, X)),
    "shape": (ValueError, r"\(3,\) and \(2,\)", lambda: dist.all_gather([np.ones(2, "f4")] * 2, X)),
    "dtype": (ValueError, "float32 and float64", lambda: dist.all_gather([np.ones(3)] * 2, X)),
    "size": (ValueError, "times as many", lambda: dist.all_gather_into_tensor(np.ones(7, "f4"), X)),
    "itself": (ValueError, "rank 0 can't send to itself", lambda: dist.send(X, 0)),
    "twice": (ValueError, r"ranks \[0, 0\]", lambda: dist.new_group([0, 0])),
    "no list": (ValueError, "must pass a scatter_list", lambda: dist.scatter(X)),
    "a list too many": (ValueError, "for rank dst alone", lambda: dist.gather(X, [X, X], dst=1)),
    "no group": (TypeError, "ProcessGroup", lambda: dist.all_reduce(X, group="WORLD")),
    "split": (ValueError, "isn't 2 equal parts", lambda: dist.all_to_all_single(X.copy(), X)),
    "own split": (
        ValueError, "sends itself 2 elements, and expects 1",
        lambda: dist.all_to_all_single(X.copy(), X, [1, 2], [2, 1]),
    ),
    "split sizes": (
        ValueError, r"sizes \[2, 2\] don't cut 3 rows", lambda: dist.all_to_all_single(X.copy(), X, [2, 2]),
    ),
    "own shape": (
        ValueError, r"\(3,\) and \(2,\) differ", lambda: dist.all_gather([np.ones(2, "f4"), X.copy()], X)
    ),
    "another kind": (ValueError, "int64 and float32", lambda: dist.all_to_all([X, X], [np.ones(3, int)] * 2)),
    "an empty list": (ValueError, "must pass a gather_list", lambda: dist.gather(X, [], dst=0)),
    "text": (TypeError, "dtype <U1 can't be sent", lambda: dist.broadcast(np.array(["a"]), 0)),
    "dates": (TypeError, "datetime64", lambda: dist.all_reduce(np.array(["2020"], "datetime64[s]"))),
    "fields": (TypeError, "can't be sent", lambda: dist.broadcast(np.zeros(2, [("a", "f4")]), 0)),
    "bytes the other way": (TypeError, "dtype >f4 can't be sent", lambda: dist.all_reduce(X.astype(">f4"))),
    "src no number": (TypeError, "a rank is an int, got '1'", lambda: dist.broadcast(X, "1")),
    "two srcs": (ValueError, "either a global rank or", lambda: dist.broadcast(X, 1, group_src=1)),
    "tag": (ValueError, "a tag is an int of at least 0, got -1", lambda: dist.send(X, 1, tag=-1)),
    "operation of a pair": (ValueError, "isend or irecv", lambda: dist.P2POp(dist.send, X, 1)),
    "no peer": (ValueError, "either a global rank or", lambda: dist.P2POp(dist.isend, X)),
    "two peers": (ValueError, "either a global rank or", lambda: dist.P2POp(dist.isend, X, 1, group_peer=1)),
    "no tensor to send": (TypeError, "got int", lambda: dist.P2POp(dist.isend, 3, 1)),
    "no pairs": (ValueError, "a list of P2POp", lambda: dist.batch_isend_irecv([])),
    "one pair": (ValueError, "a list of P2POp", lambda: dist.batch_isend_irecv(dist.P2POp(dist.isend, X, 1))),
    "pairs of two groups": (
        ValueError, "use the same group",
        lambda: dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, X, 1), dist.P2POp(dist.isend, X, 1, dist.new_group())]
        ),
    ),
    "locally": (
        ValueError, "use_local_synchronization", lambda: dist.new_group([0], use_local_synchronization=True)
    ),
    "rank of a group": (ValueError, "has no rank 2", lambda: dist.get_global_rank(dist.group.WORLD, 2)),
    "barrier": (ValueError, "positive number of seconds, got -1", lambda: dist.barrier(timeout=-1)),
    "objects": (ValueError, "a list of 2 objects", lambda: dist.all_gather_object([None], 1)),
    "objects too many": (
        ValueError, "is for rank dst alone", lambda: dist.gather_object(1, [None, None], dst=1)
    ),
    "no objects": (ValueError, "at least one object", lambda: dist.send_object_list([], 1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_do_not_fit(name):
    kind, message, call = REFUSED[name]
    dist.init_process_group("fake", rank=0, world_size=2)
    with pytest.raises(kind, match=message):
        call()


def test_tensors_of_one_collective_are_of_one_kind(fake_cuda):
    dist.init_process_group("single")
    x = mytorch.ones(2)
    others = {
        "dtypes float32 and float64": mytorch.ones(2, dtype=mytorch.float64),
        "devices cpu and cuda:0": mytorch.ones(2, device="cuda:0"),
        "devices cpu and cuda:1": mytorch.ones(2, device="cuda:1"),
    }
    for text, other in others.items():
        with pytest.raises(ValueError, match=f"all_gather\\(\\): {text} differ"):
            dist.all_gather([other], x)
    found = [mytorch.zeros(2)]
    dist.all_gather(found, x)
    assert found[0].tolist() == [1, 1]
