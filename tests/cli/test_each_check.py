"""The checks of mytorchrun test in this process: ranks are threads. Each passes, and sees what is broken."""

import os
import tempfile
from pathlib import Path

import pytest

from mytorch import distributed as dist
from mytorch import optim
from mytorch.accelerate import Accelerator
from mytorch.accelerate.shard import ShardedBatchSampler
from mytorch.amp.loss_scale import LossScale
from mytorch.cli import checks
from tests.each import each
from tests.every import every

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = dist.all_reduce, dist.all_gather, dist.reduce_scatter_tensor
DDP, MINE = checks.DistributedDataParallel, ShardedBatchSampler._mine
LOAD, WEIGHTS = Accelerator.load_state, checks._weights


def said(check, size):
    """What a check returns on each of `size` ranks."""
    return dist.worlds.run(size, lambda: dist.init_process_group() or check())


def skipped(*arguments, **options):
    """In place of a collective, or of another function: nothing happens."""


@each("size, name", [(size, name) for size in (1, 3) for name in checks.CHECKS if "precision" not in name])
def test_each_passes(size, name):
    assert said(checks.CHECKS[name], size) == [""] * size


@pytest.mark.parametrize("check, size", [(checks.mixed_precision, 2), (checks.bfloat16, 1)])
def test_half_precision_passes(check, size):
    assert said(check, size) == [""] * size


def sums_skipped(tensor, op=dist.ReduceOp.SUM):
    return ALL_REDUCE(tensor, op) if op != dist.ReduceOp.SUM else None


def maxima_skipped(tensor, op=dist.ReduceOp.SUM):
    return ALL_REDUCE(tensor, op) if op != dist.ReduceOp.MAX else None


def gathered_backwards(rows, mine):
    ALL_GATHER(rows[::-1], mine)


def scattered_twice(part, whole):
    REDUCE_SCATTER(part, whole)
    part *= 2


COLLECTIVES = {  # what is replaced, by what: what three ranks say; rank r has 10 r + [0, 1, 2]
    "all_reduce": (sums_skipped, [f"all_reduce is off by {off}" for off in (34, 24, 14)]),
    "all_reduce, MAX": (maxima_skipped, ["all_reduce(MAX) is off by 20", "all_reduce(MAX) is off by 10", ""]),
    "broadcast": (skipped, ["", "broadcast is off by 10", "broadcast is off by 20"]),
    "all_gather": (gathered_backwards, ["all_gather is off by 20"] * 3),
    "reduce_scatter_tensor": (scattered_twice, [f"reduce_scatter is off by {off}" for off in (30, 33, 36)]),
    "all_gather_object": (skipped, ["all_gather_object gave [None, None, None]"] * 3),
}


@each("name", COLLECTIVES)
def test_each_collective_is_looked_at(name):
    wrong, expected = COLLECTIVES[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, name.partition(",")[0], wrong)
        assert said(checks.collectives, 3) == expected


def sends_nothing(model):
    wrapped = DDP(model)
    wrapped.require_backward_grad_sync = False
    return wrapped


def loads_another_rate(self, folder):
    LOAD(self, folder)
    self._optimizers[0].param_groups[0]["lr"] *= 2


def without_accumulation(gradient_accumulation_steps=1, cpu=False):
    return Accelerator(cpu=cpu)


def reversed_batches(self, batches):
    return (batch[::-1] for batch in MINE(self, batches))


FAULTS = [  # the check; what is replaced, by what; ranks; what each of them says
    (
        checks.ddp_gradients, checks, "DistributedDataParallel", sends_nothing, 3,
        "gradient of 0.weight is off by",
    ),
    (checks.accumulation, checks, "Accelerator", without_accumulation, 1, "a weight is off by"),
    (checks.sharding, ShardedBatchSampler, "_mine", reversed_batches, 3, "an epoch is off by"),
    (
        checks.sharding, Accelerator, "gather_for_metrics", Accelerator.gather, 3,
        "an epoch has shape (15,), expected (13,)",
    ),
    (
        checks.checkpoints, Accelerator, "load_state", skipped, 2,
        "the number of steps after loading is off by 2",
    ),
    (checks.checkpoints, Accelerator, "load_state", loads_another_rate, 2, "a weight is off by"),
]


@each("check, holder, name, wrong, size, expected", FAULTS)
def test_what_is_broken_is_seen(check, holder, name, wrong, size, expected):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder, name, wrong)
        found = said(check, size)
    assert len(found) == size and every(text.startswith(expected) for text in found), found


def untrained(precision):
    accelerator = Accelerator(mixed_precision=precision, cpu=True)
    return (accelerator, *checks._prepared(accelerator, 16, 8)), ""


SKIPPED = [  # what is replaced, by what; ranks; what the check of a skipped step says
    (checks, "_learned", untrained, 1, ""),
    (Accelerator, "optimizer_step_was_skipped", False, 2, "a step with an infinite gradient was made"),
    (LossScale, "update", skipped, 2, "the loss scale stayed at 65536 after an infinite gradient"),
    (checks, "_learned", lambda precision: (untrained(precision)[0], "of _learned"), 2, "of _learned"),
]


@each("holder, name, wrong, size, expected", SKIPPED)
def test_a_step_that_should_be_skipped(holder, name, wrong, size, expected):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "_learned", untrained)
        patch.setattr(holder, name, wrong)
        assert said(checks.mixed_precision, size) == [expected] * size


def weights_and_rank(model):
    return WEIGHTS(model) + dist.get_rank()


LEARNED = [  # what is replaced, by what; what training in bfloat16 on two ranks says
    (checks, "HALVES", {"bf16": "float16"}, "the model is of ['bfloat16']"),
    (optim.AdamW, "step", skipped, "the loss went from "),
    (checks, "_weights", weights_and_rank, "a rank's model is off by 1"),
]


@each("holder, name, wrong, expected", LEARNED)
def test_a_half_precision_model_that_learns_nothing_or_something_else(holder, name, wrong, expected):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "range", lambda count: range(min(count, 40)), raising=False)
        patch.setattr(holder, name, wrong)
        found = said(checks.bfloat16, 2)
    assert len(found) == 2 and every(text.startswith(expected) for text in found), found


def test_the_folder_of_checkpoints(tmp_path, monkeypatch):
    """It is the same on all ranks, where all see it, and gone afterwards, also after an error."""
    for name in ("temporary", "current"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "current")

    def ranks(machines, error):
        dist.init_process_group()
        os.environ["LOCAL_WORLD_SIZE"] = str(4 // machines)
        with checks._shared_folder() as folder:
            dist.barrier()
            assert Path(folder).parent.is_dir()
            found.append(folder)
            if error:
                raise error

    for machines, place in ((1, "temporary"), (2, "current")):
        found = []
        dist.worlds.run(4, ranks, machines, None)
        assert len(found) == 4 and len(set(found)) == 1
        assert Path(found[0]).parent.parent == tmp_path / place
        with pytest.raises(KeyError):
            dist.worlds.run(4, ranks, machines, KeyError("of a rank"))
        assert not [*(tmp_path / place).iterdir()]


def of_main(size, capsys, start=False):
    """What the program prints on `size` ranks, and whether each rank's group outlives it."""

    def ranks():
        if start:
            dist.init_process_group()
        checks.main()
        return dist.is_initialized()

    alive = dist.worlds.run(size, ranks)
    return capsys.readouterr().out.splitlines(), alive


def fails_on_rank_1():
    return "it is wet" if dist.get_rank() == 1 else ""


def test_what_is_printed(capsys, monkeypatch):
    monkeypatch.setattr(checks, "_mark", lambda good: "ok" if good else "bad")
    monkeypatch.setattr(checks, "CHECKS", {"one": lambda: "", "two": lambda: ""})
    lines = ["ok one", "ok two", "all 2 checks passed"]
    assert of_main(3, capsys) == (["3 processes on cpu", *lines], [False] * 3)
    alone = "(a single process sends nothing: --num_processes 2 tests that, too)"
    assert of_main(1, capsys, start=True) == (["1 process on cpu", alone, *lines], [True])
    monkeypatch.setitem(checks.CHECKS, "two", fails_on_rank_1)
    with pytest.raises(SystemExit, match="^1 of 2 checks failed: two$"):
        of_main(3, capsys)
    capsys.readouterr()
    assert said(lambda: checks._passes("two", fails_on_rank_1), 3) == [False] * 3
    assert capsys.readouterr().out == "bad two: rank 1: it is wet\n"


def breaks_on_rank_1():
    if dist.get_rank() == 1:
        raise OSError("no such wire\nat all")
    dist.barrier()


def test_an_error_of_a_check_is_shown_and_ends_all(capsys, monkeypatch):
    monkeypatch.setattr(checks, "_mark", lambda good: "ok" if good else "bad")
    monkeypatch.setattr(checks, "CHECKS", {"one": breaks_on_rank_1, "two": lambda: ""})
    with pytest.raises(OSError, match="no such wire"):
        of_main(3, capsys)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "bad one: rank 1: OSError: no such wire" and "ok two" not in lines


def test_on_gpus_the_checks_train_there(fake_cuda, monkeypatch, capsys):
    devices = set()
    prepared = checks._prepared

    def noted(accelerator, *arguments, **options):
        result = prepared(accelerator, *arguments, **options)
        devices.update(str(p.device) for p in result[0].parameters())
        return result

    monkeypatch.setattr(checks, "_prepared", noted)
    names = ["collectives", "gradient accumulation", "data sharding", checks.IN_BFLOAT16, "checkpoints"]
    monkeypatch.setattr(checks, "CHECKS", {name: checks.CHECKS[name] for name in names})
    lines, _ = of_main(2, capsys)
    assert lines[0] == "2 processes on cuda" and lines[-1] == "all 5 checks passed"
    assert devices == {"cuda:0", "cuda:1"}
