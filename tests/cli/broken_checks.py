"""One of mytorchrun's checks with something broken beneath it: `python broken_checks.py FAULT CHECK`."""

import sys

from mytorch import distributed as dist
from mytorch.accelerate.shard import ShardedBatchSampler
from mytorch.accelerate.state import GradientState
from mytorch.cli import checks


def break_sum():
    real = dist.all_reduce

    def wrong(tensor, *arguments, **options):
        work = real(tensor, *arguments, **options)
        tensor += dist.get_rank()
        return work

    dist.all_reduce = wrong


def break_average():
    real = checks.DistributedDataParallel

    def wrong(model):
        wrapped = real(model)
        wrapped.require_backward_grad_sync = False  # nothing is sent
        return wrapped

    checks.DistributedDataParallel = wrong


def break_order():
    real = ShardedBatchSampler._mine
    ShardedBatchSampler._mine = lambda self, batches: (list(reversed(part)) for part in real(self, batches))


def break_skip():
    checks.Accelerator.optimizer_step_was_skipped = property(lambda self: False)


def break_loading():
    checks.Accelerator.load_state = lambda self, folder: None


def break_window():
    real = GradientState.factor
    GradientState.factor = lambda self, n: 3 * real(self, n) if self.step else real(self, n)


def break_error():
    def fail():
        if dist.get_rank() == dist.get_world_size() - 1:
            raise OSError("no such wire")
        dist.barrier()
        return ""

    checks.CHECKS = {"collectives": fail}


if __name__ == "__main__":
    fault, *names = sys.argv[1:]
    checks.CHECKS = {name: checks.CHECKS[name] for name in names}
    globals()[f"break_{fault}"]()
    checks.main()
