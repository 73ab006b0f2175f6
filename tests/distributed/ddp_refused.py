"""What DistributedDataParallel refuses: each returns a function that raises, on all ranks."""

import contextlib
import copy
from functools import partial

import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch.distributed.comm_hooks import allreduce_hook
from mytorch.distributed.ddp import DistributedDataParallel
from tests.distributed.training import loss_of, network, rank


def failing_hook(error):
    """An exception in a hook, and the next forward pass."""
    model = DistributedDataParallel(network())
    model.register_comm_hook(None, lambda state, bucket: error())
    with contextlib.suppress(ZeroDivisionError):
        loss_of(model, 0).backward()
    return lambda: loss_of(model, 1)


def wrong_hook(returned):
    model = DistributedDataParallel(network())
    work = dist.Future(dist.all_reduce(np.zeros(1), async_op=True), lambda: returned)
    model.register_comm_hook(None, lambda state, bucket: work)
    return loss_of(model, 0).backward


def wrong_buffer():
    model = DistributedDataParallel(network())
    model.register_comm_hook(None, lambda state, bucket: bucket.set_buffer(bucket.buffer().half()))
    return loss_of(model, 0).backward


def unfrozen():
    model = network()
    model[0].bias.requires_grad_(False)
    model = DistributedDataParallel(model)
    loss_of(model, 0).backward()
    model.module[0].bias.requires_grad_(True)
    return lambda: loss_of(model, 0)


def copy_with_hook():
    model = DistributedDataParallel(network())
    model.register_comm_hook(None, allreduce_hook)
    return lambda: copy.deepcopy(model)


def joined(iteration, **options):
    """An iteration of every rank inside join()."""
    model = DistributedDataParallel(network(), **options)

    def run():
        with model.join():
            iteration(model)

    return run


def one_in_no_sync(model):
    with model.no_sync() if rank() == 0 else contextlib.nullcontext():
        loss_of(model, 0).backward()


REFUSED = {
    "failing_hook": partial(failing_hook, lambda: 1 / 0), "wrong_hook": partial(wrong_hook, True),
    "wrong_result": partial(wrong_hook, mytorch.zeros(2)), "wrong_buffer": wrong_buffer, "unfrozen": unfrozen,
    "copy_with_hook": copy_with_hook, "one_in_no_sync": partial(joined, one_in_no_sync),
    "join_skips": partial(
        joined, one_in_no_sync, find_unused_parameters=True, skip_all_reduce_unused_params=True
    ),
    "join_groups": lambda: lambda: dist.Join(
        [DistributedDataParallel(network(), process_group=group) for group in (None, dist.new_group())]
    ),
    "join_nothing": lambda: partial(dist.Join, []),
}
