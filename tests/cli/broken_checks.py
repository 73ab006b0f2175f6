"""mytorchrun's checks, each with something broken beneath it: `python broken_checks.py [error]`.

With `error`, one rank raises one.
"""

import sys
from unittest import mock

from mytorch import distributed as dist
from mytorch.accelerate.gradient_state import GradientState
from mytorch.accelerate.shard import ShardedBatchSampler
from mytorch.cli import checks

all_reduce, DDP = dist.all_reduce, checks.DistributedDataParallel
mine_of, factor = ShardedBatchSampler._mine, GradientState.factor


def other_sum(tensor, *arguments, **options):
    work = all_reduce(tensor, *arguments, **options)
    tensor += dist.get_rank()
    return work


def alone(model):
    wrapped = DDP(model)
    wrapped.require_backward_grad_sync = False  # nothing is sent
    return wrapped


def reversed_parts(self, batches):
    return (list(reversed(part)) for part in mine_of(self, batches))


def other_factor(self, n):
    return 3 * factor(self, n) if self.step else factor(self, n)


FAULTS = {  # by the check that finds it: what is replaced, by what
    "collectives": (dist, "all_reduce", other_sum),
    "gradients of DDP equal those of one process": (checks, "DistributedDataParallel", alone),
    "data sharding": (ShardedBatchSampler, "_mine", reversed_parts),
    "mixed precision": (checks.Accelerator, "optimizer_step_was_skipped", False),
    "checkpoints": (checks.Accelerator, "load_state", lambda self, folder: None),
    "gradient accumulation": (GradientState, "factor", other_factor),
}


def fail():
    if dist.get_rank() == dist.get_world_size() - 1:
        raise OSError("no such wire")
    dist.barrier()
    return ""


if __name__ == "__main__":
    if sys.argv[1:] == ["error"]:
        checks.CHECKS = {"collectives": fail}
    else:
        checks.CHECKS = {name: mock.patch.object(*FAULTS[name])(checks.CHECKS[name]) for name in FAULTS}
    checks.main()
