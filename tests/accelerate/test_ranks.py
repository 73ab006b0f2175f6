"""The Accelerator on several ranks: the same training as on one."""

import re
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from itertools import zip_longest
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch import optim
from mytorch.accelerate import Accelerator, call_function, launchers, notebook_launcher
from mytorch.accelerate.shard import ShardedBatchSampler, distribute
from mytorch.amp.loss_scale import MAX_STUCK
from mytorch.utils.data import BatchSampler, SequentialSampler
from mytorch.utils.start import FILE
from tests.accelerate import ranks_program as program
from tests.distributed.launched import needs_mpi, surroundings
from tests.distributed.on_ranks import results_in, results_of, returned_by, run_cases
from tests.every import every

pytest.importorskip("mpi4py")


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    return {size: str(tmp_path_factory.mktemp("ranks")) for size in (1, 3)}


@pytest.fixture(params=[1, 3])
def results(request, folders):
    folder = folders[request.param]
    return results_of_one(folder) if request.param == 1 else results_of_three(folder)


@cache
def results_of_one(folder):
    """The same of one process without a launcher: this one."""
    with as_script(folder):
        run_cases(program.CASES, 0)
    return results_in(Path(folder))


@cache
def results_of_three(folder):
    """The same of ranks that are threads, or processes where a rank goes on while another one writes."""
    cases = {name: case for name, case in program.CASES.items() if name != "waiting"}

    def ranks():
        accelerator = Accelerator(cpu=True)
        try:
            return returned_by(cases)
        finally:
            accelerator.end_training()

    with as_script(folder):
        found = dist.worlds.run(3, ranks)
    of_processes = results_of(program.__file__, 3, folder, "waiting")
    return {**{name: [results[name] for results in found] for name in cases}, **of_processes}


@contextmanager
def as_script(folder):
    Path(folder).mkdir(exist_ok=True)
    with mock.patch.object(sys, "argv", ["ranks_program.py", folder]):
        yield


TOLERANCES = {"training": 1e-4, "accumulation": 1e-4, "half": 0.03, "bfloat16": 0.03}


@pytest.mark.parametrize("case", TOLERANCES)
def test_training_is_that_of_one_process(results, case):
    expected = program.CASES[case]()
    tolerance = TOLERANCES[case]
    for rank in results[case]:
        for name, value in expected.items():
            np.testing.assert_allclose(rank[name], value, rtol=tolerance, atol=tolerance, err_msg=name)
        for name, value in rank.items():
            assert (value == results[case][0][name]).all(), name
    assert np.mean(expected["losses"][-4:]) < np.mean(expected["losses"][:4])


@pytest.mark.parametrize("case, same", [("plain_accumulation", "accumulation"), ("plain_half", "half")])
def test_a_loop_without_accumulate_trains_the_same(results, case, same):
    for ours, expected in zip(results[case], results[same], strict=True):
        assert ours.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(ours[name], value, err_msg=name)


@pytest.mark.parametrize("case, whole", [("sharded_optimizer", "training"), ("sharded_half", "half")])
def test_a_sharded_optimizer(results, case, whole):
    expected = results[whole][0]
    for rank in results[case]:
        for name, value in expected.items():
            np.testing.assert_allclose(rank[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


def test_metrics_see_each_sample_once_and_in_order(results):
    for rank in results["metrics"]:
        for name, seen in rank.items():
            if name == "objects":
                assert seen.tolist() == list(range(26))
                continue
            kind, samples, _ = name.split()
            whole = int(samples) // program.TOGETHER * program.TOGETHER
            assert seen.tolist() == list(range(whole if kind == "drop" else int(samples))), name


def uneven_reference(n):
    """Every update is from a batch of each rank that has one; its gradients are divided by all ranks."""
    model = program.network(0)
    optimizer = program.adamw(model)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    x, y, _ = program.data(26)
    for _ in range(program.EPOCHS):
        for start in range(0, 26, program.TOGETHER):
            for rank in range(n):
                first = start + rank * (program.TOGETHER // n)
                part = slice(first, min(first + program.TOGETHER // n, 26))
                if part.start < part.stop:
                    (((model(x[part]) - y[part]) ** 2).mean() / n).backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return model, optimizer


@pytest.mark.parametrize(
    "case, tolerance", [("uneven", 1e-6), ("uneven_half", 1e-3), ("uneven_bfloat16", 0.03)]
)
def test_ranks_with_other_numbers_of_batches(results, case, tolerance):
    found = results[case]
    model, optimizer = uneven_reference(len(found))
    expected = np.concatenate([value.ravel() for value in program.weights(model).values()])
    for rank in found:
        assert np.linalg.norm(rank["weights"] - expected) < tolerance * np.linalg.norm(expected)
        assert rank["lr"] == [optimizer.param_groups[0]["lr"]]
        for name in rank.keys() & {"weights", "exp_avg", "masters", "scale"}:
            assert (rank[name] == found[0][name]).all(), name  # bit for bit: all ranks have the same weights
        if "masters" in rank:
            assert 0 < abs(rank["masters"] - rank["rounded"]).max() < 5e-3
        assert rank["is_even"]
    assert sorted(np.concatenate([rank["seen"] for rank in found])) == sorted([*range(26)] * program.EPOCHS)


def test_joining_wrongly(results):
    n = len(results["joining_wrongly"])
    for rank in results["joining_wrongly"]:
        texts = (
            "ValueError: .* expected at least one joinable", "TypeError: .* got Sequential",
            "RuntimeError: .*num_items=3", "ValueError: .* with ZeroRedundancyOptimizer",
        )
        for said, text in zip(rank["said"].tolist(), texts, strict=True):
            assert re.match(text, said) if n > 1 else said == "", said


def test_skipping_batches(results):
    for rank in results["skipping"]:
        assert rank["same"] and rank["left"] == 3


def test_tokens_weigh_over_all_ranks(results):
    found = results["tokens"]
    model = program.network(0)
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    x, y, _ = program.data(48)
    n = sum(7 + 3 * k for k in range(len(found)))
    ((model(x[:n]) - y[:n]) ** 2).mean().backward()
    optimizer.step()
    for rank in found:
        for name, value in program.weights(model).items():
            np.testing.assert_allclose(rank[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_collectives(results):
    found = results["collectives"]
    n = len(found)
    each = -(-7 // n)
    split = [part for r in range(n) for part in _padded(np.array_split(np.arange(7), n)[r], each)]
    for r, rank in enumerate(found):
        assert rank["gather"].tolist() == [i + 10 * k for k in range(n) for i in range(3)]
        assert rank["scalar"].tolist() == list(range(n))
        assert rank["sum"].tolist() == [i * n + 10 * sum(range(n)) for i in range(3)]
        np.testing.assert_allclose(rank["mean"], [2 * i + 10 * (n - 1) for i in range(3)], rtol=1e-6)
        assert rank["padded"].tolist() == [[1, 1]] * (r + 1) + [[-1, -1]] * (n - r - 1)
        assert rank["first"].tolist() == [0] * (n - r - 1) + [1] * (r + 1)
        assert rank["objects"].tolist() == ["a" * (k + 1) for k in range(n)]
        assert rank["parts"].tolist() == list(range(7)) and rank["split"].tolist() == split
        assert rank["is_main"] == (r == 0) and rank["is_last"] == (r == n - 1)


def test_half_gradients_add_up_in_float32_before_they_are_sent(results):
    """The mean over all ranks and micro-batches of 2048 and 63 ones, times 1 + rank; rounded once."""
    mean = (2048 + 63) / 64 * np.mean([1 + k for k in range(len(results["held"]))])
    for rank in results["held"]:
        assert rank["weight"] == pytest.approx(-mean, rel=2.0**-10)
        assert rank["weight"] == results["held"][0]["weight"]


def test_a_rank_whose_loss_stays_nan_ends_the_training_of_all(results):
    n = len(results["stuck"])
    for rank in results["stuck"]:
        assert rank["steps"] == 2 + MAX_STUCK and rank["same"]
        losses = ["nan" if k == n - 1 else r"-?[\d.]+" for k in range(n)]
        expected = ", ".join(f"{loss} on rank {k}" for k, loss in enumerate(losses))
        assert re.search(f"smallest, 1; the last loss was {expected}$", str(rank["said"]))


def test_backward_refuses_a_loss_that_would_spoil_all_ranks(results):
    n = len(results["nan_loss"])
    for k, rank in enumerate(results["nan_loss"]):
        nan, nan_in_half, inf, good = rank["said"].tolist()
        assert nan_in_half == nan
        if n == 1 or k < n - 1:
            assert nan == inf == good == ""
            continue
        assert good == "" and f"the loss on rank {k} is nan; averaged over the {n} ranks" in nan
        assert f"the loss on rank {k} is -inf" in inf


def test_all_ranks_wait_for_the_one_that_writes_and_learn_of_its_errors(results):
    for rank in results["waiting"]:
        assert rank["said"].tolist() == ["refused", "refused", "loaded"]


def test_words(results):
    n = len(results["words"])
    for k, rank in enumerate(results["words"]):
        assert rank["names"].tolist() == [f"sample {i}" for i in range(26)]
        assert rank["losses"].tolist() == [(n - 1) / 2] * 3  # the mean over the ranks
        assert rank["called"].tolist() == [k == 0, k == 0, k == n - 1, k == 1, k == 0]
        assert len(rank["warned"]) == (n > 1)
        assert n == 1 or "4 parameters of AdamW are of no model" in rank["warned"][0]
        assert rank["saved"].tolist() == ["0.bias", "0.weight", "2.bias", "2.weight"]
        assert rank["by"] == rank["empty"] == 0
        assert rank["triggers"].tolist() == [False, True, False]
        assert rank["same"] and rank["bare"] and rank["type"] == ("NO" if n == 1 else "MULTI_CPU")


def _padded(part, length):
    return [*part.tolist(), *[6] * (length - len(part))]


@pytest.mark.parametrize(
    "case",
    ["checkpoints", "checkpoints_zero", "checkpoints_half", "checkpoints_zero_half", "checkpoints_bfloat16"],
)
def test_resuming_is_exact(results, case):
    for rank in results[case]:
        assert rank["same"]


@pytest.mark.parametrize("make", ["adamw", "zero"])
def test_a_checkpoint_loads_on_another_number_of_ranks(results, folders, make):
    """Here: on one, whose batches are as large as those of all ranks together."""
    world = len(results["training"])
    resumed = program.start(seed=7)
    path = Path(folders[world]) / f"{make}-no"
    resumed[0].load_state(path)
    found = program.train(*resumed, epochs=1)
    expected = results["checkpoints" if make == "adamw" else "checkpoints_zero"][0]
    for name in ("losses", "0.weight"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-4)


def test_each_process_imports_the_function_and_gets_the_arguments(tmp_path, monkeypatch):
    """What several processes do, in this one."""
    out = tmp_path / "out"
    out.mkdir()

    def run_here(command, environment):
        monkeypatch.setattr(sys, "argv", command[-2:])
        assert command[1:6] == [FILE, "mytorch.distributed.launch", "-n", "2", "--cpu"]
        assert command[-3:-1] == ["-m", "mytorch.accelerate.call_function"]
        call_function.main()
        return 0

    monkeypatch.setattr(launchers, "_run", run_here)
    monkeypatch.setattr(sys, "path", [*sys.path])
    args = (str(out), {"x": mytorch.arange(3)})
    notebook_launcher(program.write_rank, args, num_processes=2, use_cpu=True)
    assert {path.name: path.read_text() for path in out.iterdir()} == {"0": "[0, 1, 2]"}


SCRIPT = """
from mytorch.accelerate import Accelerator, debug_launcher, notebook_launcher
def train(word):
    accelerator = Accelerator(cpu=True)
    print(word, accelerator.process_index, accelerator.mixed_precision, flush=True)
    accelerator.end_training()
    if accelerator.is_main_process:  # still only one
        accelerator.print("the result of", accelerator.process_index, flush=True)
"""


def run_script(folder, call):
    script = folder / "script.py"
    script.write_text(SCRIPT + call)
    return subprocess.run(
        [sys.executable, script], env=surroundings(), capture_output=True, text=True, timeout=300
    )


@needs_mpi
def test_a_script_starts_several_processes(tmp_path):
    call = 'notebook_launcher(train, ("a",), 2, "fp16", use_cpu=True)'
    done = run_script(tmp_path, call)
    assert sorted(done.stdout.splitlines()) == ["a 0 fp16", "a 1 fp16", "the result of 0"], done.stderr


@needs_mpi
def test_a_script_with_a_guard_is_imported(tmp_path):
    """With what it makes at its top."""
    call = "import threading\nlock = threading.Lock()\ndef locked():\n    with lock:\n        train('a')\n"
    call += "if __name__ == '__main__':\n    notebook_launcher(locked, (), 2, 'fp16', use_cpu=True)"
    done = run_script(tmp_path, call)
    assert sorted(done.stdout.splitlines()) == ["a 0 fp16", "a 1 fp16", "the result of 0"], done.stderr


FAILING = """
word = "b"
def fail(rank):
    if Accelerator(cpu=True).process_index == rank:
        raise ZeroDivisionError(word)
try:
    debug_launcher(fail, (1,))
except RuntimeError as error:
    print(error)
"""


@needs_mpi
def test_the_error_of_a_process_is_printed(tmp_path):
    """Also: a script needs no guard, as the processes don't run it again."""
    done = run_script(tmp_path, FAILING)
    assert done.returncode == 0, done.stderr
    assert "rank 1 on" in done.stdout and "ZeroDivisionError: b\n" in done.stdout
    assert done.stdout.endswith("notebook_launcher(): fail failed with exit code 1\n")


def test_the_debug_launcher_is_the_other_one_on_cpus(monkeypatch):
    called = mock.Mock()
    monkeypatch.setattr(launchers, "notebook_launcher", called)
    launchers.debug_launcher(print, ("a",))
    called.assert_called_once_with(print, ("a",), 2, use_cpu=True)


def test_distribute():
    assert distribute([[0, 1], [2, 3]], 2, 1) == ([2, 3], 0)
    assert [distribute([[0, 1], [2]], 2, r) for r in range(2)] == [([0, 1], 1), ([2, 0], 1)]
    assert [distribute([[5, 6]], 5, r)[0] for r in range(5)] == [[5], [6], [5], [6], [5]]
    assert [distribute([[5]], 3, r) for r in range(3)] == [([5], 2)] * 3
    assert [distribute([[0, 1], [2, 3]], 4, r)[0] for r in range(4)] == [[0], [1], [2], [3]]


@pytest.mark.parametrize("drop_last", [False, True])
def test_sharded_batches_are_the_batches(drop_last):
    """Every length, batch size and number of ranks: all have as many batches, and all samples are there."""
    for size in range(1, 14):
        for batch_size in (1, 2, 5):
            batches = BatchSampler(SequentialSampler(range(size)), batch_size, drop_last)
            for n in (1, 2, 3, 4):
                shards = [ShardedBatchSampler(batches, n, rank) for rank in range(n)]
                parts = [list(shard) for shard in shards]
                assert len({tuple(map(len, part)) for part in parts}) == 1
                assert every(len(part) == len(shard) for part, shard in zip(parts, shards, strict=True))
                flat = [i for step in zip(*parts, strict=True) for part in step for i in part]
                kept = len(flat) - shards[0].duplicates
                expected = size - size % (n * batch_size) if drop_last else size
                assert flat[:kept] == list(range(expected)) and shards[0].duplicates < n


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_uneven_batches_repeat_nothing(split, drop_last):
    for size in range(14):
        for n in (1, 2, 3, 4):
            for batch_size in (1, 2, 5):
                given = batch_size * n if split else batch_size
                batches = BatchSampler(SequentialSampler(range(size)), given, drop_last)
                shards = [ShardedBatchSampler(batches, n, rank, split, False) for rank in range(n)]
                parts = [list(shard) for shard in shards]
                assert [len(part) for part in parts] == [len(shard) for shard in shards]
                steps = zip_longest(*parts, fillvalue=())
                flat = [i for step in steps for part in step for i in part]
                assert flat == list(range(size - size % (n * batch_size) if drop_last else size))
                lengths = [len(part) for part in parts]
                assert lengths == sorted(lengths, reverse=True) and lengths[0] - lengths[-1] <= 1
                assert {len(batch) for part in parts for batch in part[:-1]} <= {batch_size}
                assert every(shard.duplicates == 0 for shard in shards)


@pytest.mark.parametrize("drop_last", [False, True])
def test_split_batches_are_shared_by_all(drop_last):
    for size in range(1, 26):
        for n in (1, 2, 3, 4):
            batches = BatchSampler(SequentialSampler(range(size)), 12, drop_last)
            shards = [ShardedBatchSampler(batches, n, rank, True) for rank in range(n)]
            steps = list(zip(*shards, strict=True))
            assert len(steps) == len(shards[0]) == len(batches)
            for step, batch in zip(steps, batches, strict=True):
                assert len({len(part) for part in step}) == 1
                assert [i for part in step for i in part][: len(batch)] == batch
            last = sum(map(len, steps[-1])) - len(list(batches)[-1]) if steps else 0
            assert every(shard.duplicates == last for shard in shards) and last < n
