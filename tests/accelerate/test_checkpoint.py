"""Checkpoints: exact, atomic, and damage is detected."""

import os
import subprocess
import sys
import threading

import pytest

import mytorch
from mytorch import nn, optim
from mytorch.accelerate import Accelerator, CheckpointError, checkpoint, saving, set_seed
from mytorch.utils.data import DataLoader, TensorDataset
from tests.accelerate import train_and_save as program
from tests.distributed.launched import ROOT, surroundings
from tests.every import every

FILES = {
    "accelerator.bin", "custom_checkpoint.bin", "manifest.json", "model.safetensors", "optimizer.bin",
    "random_states.bin", "sampler.bin", "scheduler.bin",
}


def begin(precision="no", steps=1):
    accelerator, *prepared = program.parts(precision, steps)
    counter = program.Counter()
    accelerator.register_for_checkpointing(counter)
    return accelerator, *prepared, counter


def run(run, steps, after_step=lambda: None):
    return list(program.losses(*run, steps, after_step))


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_resuming_is_exact_at_every_step(tmp_path, precision, asynchronous):
    whole = begin(precision)

    def save():
        whole[0].save_state(tmp_path / f"at_{whole[-1].step}", asynchronous=asynchronous)

    expected = run(whole, 20, save)
    whole[0].wait_for_checkpoint()
    for step in (1, 7, 8, 9, 13):  # an epoch has 8 batches
        resumed = begin(precision)
        run(resumed, 3)  # whatever it did before is forgotten
        resumed[0].load_state(tmp_path / f"at_{step}")
        assert run(resumed, 20) == expected[step:]
        for p, q in zip(resumed[1].parameters(), whole[1].parameters(), strict=True):
            assert (p.data.numpy() == q.data.numpy()).all()
    names = {path.name for path in (tmp_path / "at_7").iterdir()}
    assert names == FILES | ({"mp_config.bin"} if precision != "no" else set())


def test_a_window_that_is_not_over_is_warned_of(tmp_path):
    accelerator, model, *_ = begin(steps=4)
    with accelerator.accumulate(model), pytest.warns(UserWarning, match="unfinished window"):
        accelerator.save_state(tmp_path / "c")


def test_nothing_is_pickled(tmp_path):
    accelerator, *_ = begin()
    accelerator.save_state(tmp_path / "c")
    for path in (tmp_path / "c").glob("*.bin"):
        assert isinstance(mytorch.load(path), (dict, list))
    weights = mytorch.load(tmp_path / "c/model.safetensors")
    assert set(weights) == {"0.weight", "0.bias", "3.weight", "3.bias"}


def three(tmp_path):
    parts = begin()
    run(parts, 3, lambda: parts[0].save_state(tmp_path, keep_last=3))
    return parts[0]


def test_only_the_last_ones_stay(tmp_path):
    parts = begin()
    run(parts, 5, lambda: parts[0].save_state(tmp_path, keep_last=2))
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_3", "checkpoint_4"]
    (tmp_path / ".checkpoint_9.abc.partial").mkdir()  # what a killed process leaves behind
    parts[0].save_state(tmp_path, keep_last=1)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_5"]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        parts[0].save_state(tmp_path, keep_last=0)
    with pytest.raises(CheckpointError, match="no checkpoint found"):
        parts[0].load_state(tmp_path / "elsewhere")


def test_a_folder_that_is_saved_again_is_never_gone(tmp_path, monkeypatch):
    parts = begin()
    run(parts, 2)
    parts[0].save_state(tmp_path / "c")
    run(parts, 4)
    real, calls = os.rename, []

    def killed(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(checkpoint.os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        parts[0].save_state(tmp_path / "c")
    monkeypatch.undo()
    resumed = begin()
    resumed[0].load_state(tmp_path / "c")
    assert resumed[-1].step == 2
    parts[0].save_state(tmp_path / "c")
    resumed[0].load_state(tmp_path / "c")
    assert resumed[-1].step == 4 and sorted(os.listdir(tmp_path)) == ["c"]


def test_errors_while_writing_leave_what_was_there(tmp_path, monkeypatch):
    accelerator = three(tmp_path)

    def full(obj, path):
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(OSError, match="no space"):
        accelerator.save_state(tmp_path, keep_last=3)
    with pytest.warns(UserWarning, match="was not written.*no space"):
        accelerator.save_state(tmp_path, keep_last=3, asynchronous=True)
        with pytest.raises(OSError, match="no space"):
            accelerator.end_training()
    monkeypatch.undo()
    assert accelerator.load_state(tmp_path) == str(tmp_path / "checkpoint_2")


def other_model(accelerator):
    accelerator.prepare(mytorch.nn.Linear(2, 2))


def test_a_checkpoint_of_something_else(tmp_path):
    three(tmp_path)
    for change, text in (
        (other_model, "holds 1 of kind model, this run has 2"),
        (lambda a: a._loaders.clear(), "holds 1 loaders, this run has 0"),
        (lambda a: setattr(a, "mixed_precision", "bf16"), "without mixed precision, this run has 'bf16'"),
    ):
        accelerator, *_ = begin()
        change(accelerator)
        with pytest.raises(ValueError, match=text):
            accelerator.load_state(tmp_path)


@pytest.mark.parametrize("saved, loaded", [("bf16", "fp16"), ("fp16", "bf16"), ("bf16", "no")])
def test_a_checkpoint_of_another_precision(tmp_path, saved, loaded):
    begin(saved)[0].save_state(tmp_path / "c")
    with pytest.raises(ValueError, match=f"with mixed precision '{saved}', this run has '{loaded}'"):
        begin(loaded)[0].load_state(tmp_path / "c")


def test_bfloat16_is_saved_without_a_scale(tmp_path):
    parts = begin("bf16")
    run(parts, 3)
    parts[0].save_state(tmp_path / "c")
    state = mytorch.load(tmp_path / "c/mp_config.bin")
    assert (state["precision"], state["scaler"]) == ("bf16", None)
    (weights,) = state["float32_weights"]
    model = mytorch.load(tmp_path / "c/model.safetensors")
    for master, p in zip(weights.values(), model.values(), strict=True):
        assert master.dtype == "float32" and p.dtype == "bfloat16"
        assert (master.to("bfloat16").float().numpy() == p.float().numpy()).all()
    assert any((master.to("bfloat16").float() != master).any() for master in weights.values())


def test_an_asynchronous_checkpoint_is_of_the_moment_it_was_asked_for(tmp_path, monkeypatch):
    parts = begin()
    run(parts, 1)
    expected = [p.data.numpy().copy() for p in parts[1].parameters()]
    real, may_write = checkpoint.write, threading.Event()

    def late(*arguments, **options):
        may_write.wait()
        real(*arguments, **options)

    monkeypatch.setattr(saving.checkpoint, "write", late)
    parts[0].save_state(tmp_path / "c", asynchronous=True)
    assert not (tmp_path / "c").exists()
    run(parts, 4)
    may_write.set()
    parts[0].wait_for_checkpoint()
    found = mytorch.load(tmp_path / "c/model.safetensors")
    for value, p in zip(found.values(), expected, strict=True):
        assert (value.numpy() == p).all()


def test_several_models_and_optimizers(tmp_path):
    def make():
        accelerator = Accelerator(mixed_precision="fp16", cpu=True)
        models = [mytorch.nn.Linear(2, 2) for _ in range(2)]
        optimizers = [optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
        return accelerator, *accelerator.prepare(*models, *optimizers)

    one, other = make(), make()
    for model, optimizer in ((one[1], one[3]), (one[2], one[4])):
        one[0].backward(model(mytorch.ones(1, 2)).sum() * 1e-3)
        optimizer.step()
    one[0].save_state(tmp_path / "c")
    other[0].load_state(tmp_path / "c")
    for a, b in zip(one[3:], other[3:], strict=True):
        for p, q in zip(a.optimizer.masters(), b.optimizer.masters(), strict=True):
            assert (p.numpy() == q.numpy()).all()
    assert (tmp_path / "c/model_1.safetensors").exists() and (tmp_path / "c/optimizer_1.bin").exists()


def test_mixed_precision_goes_on_after_a_skipped_step(tmp_path):
    """The loss scale, the count of good steps since it changed, and float32 weights that aren't float16's."""
    accelerator, model, optimizer, _, _, counter = whole = begin("fp16")

    def overflow_and_save():
        if counter.step != 7:
            return
        accelerator.backward(model(mytorch.full((4, 6), 1e4)).sum() * 1e4)
        optimizer.step()
        optimizer.zero_grad()
        assert accelerator.optimizer_step_was_skipped
        accelerator.save_state(tmp_path / "c")
        state.update(accelerator.scaler.state_dict())
        masters.extend(p.numpy().copy() for p in optimizer.optimizer.masters())

    state, masters = {}, []
    expected = run(whole, 20, overflow_and_save)
    resumed = begin("fp16")
    resumed[0].load_state(tmp_path / "c")
    assert resumed[0].scaler.state_dict() == state
    found = [p.numpy() for p in resumed[2].optimizer.masters()]
    assert every((p == q).all() for p, q in zip(found, masters, strict=True))
    assert any((p != p.astype("float16")).any() for p in found)
    assert run(resumed, 20) == expected[7:]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("count", mytorch.tensor(5))
        self.register_buffer("mask", mytorch.tensor([True, False]))
        self.register_buffer("scratch", mytorch.ones(2), persistent=False)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_weights_are_a_file_for_everybody(tmp_path, asynchronous):
    """PyTorch's safetensors opens it; tied weights are in it once; buffers keep their dtypes."""
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    accelerator, model = Accelerator(cpu=True), Tied()
    accelerator.prepare(model)
    accelerator.save_state(tmp_path / "c", asynchronous=asynchronous)
    accelerator.wait_for_checkpoint()
    found = safetensors.load_file(tmp_path / "c/model.safetensors")
    assert {name: x.dtype for name, x in found.items()} == {
        "embedding.weight": torch.float32, "count": torch.int64, "mask": torch.bool
    }
    assert (found["embedding.weight"].numpy() == model.head.weight.detach().numpy()).all()
    other = Tied()
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(other)
    other.count += 1
    accelerator.load_state(tmp_path / "c")
    assert other.head.weight is other.embedding.weight and other.count.item() == 5
    assert (other.head.weight.detach().numpy() == model.head.weight.detach().numpy()).all()


def test_workers_have_loaded_ahead(tmp_path):
    """What the user was given counts, not what waits in the workers."""

    def make():
        set_seed(4)
        accelerator = Accelerator(cpu=True)
        numbers = TensorDataset(mytorch.arange(24))
        return accelerator, accelerator.prepare(DataLoader(numbers, 2, shuffle=True, num_workers=2))

    accelerator, loader = make()
    seen = []
    for (batch,) in loader:
        seen.append(batch.tolist())
        if len(seen) == 5:
            accelerator.save_state(tmp_path / "c")
    seen += [batch.tolist() for (batch,) in loader]
    accelerator, loader = make()
    accelerator.load_state(tmp_path / "c")
    again = [batch.tolist() for _ in range(2) for (batch,) in loader]
    assert again == seen[5:] and len(again) == 7 + 12


def test_ctrl_c_in_a_save(tmp_path, monkeypatch):
    accelerator = three(tmp_path)
    real = checkpoint.save

    def interrupted(obj, path):
        if path.name == "optimizer.bin":
            raise KeyboardInterrupt
        real(obj, path)

    monkeypatch.setattr(checkpoint, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        accelerator.save_state(tmp_path, keep_last=1)
    assert sorted(os.listdir(tmp_path)) == [f"checkpoint_{i}" for i in range(3)]


FORGOTTEN = """
import sys
from pathlib import Path
from mytorch.accelerate import checkpoint
from tests.accelerate.test_checkpoint import begin
real = checkpoint.save
def slow(obj, path):
    sys.stdin.readline()  # nothing is written before the program is at its end
    if sys.argv[2] == "broken":
        raise OSError("no space left on device")
    real(obj, path)
checkpoint.save = slow
begin()[0].save_state(Path(sys.argv[1]), asynchronous=True)
print("end", flush=True)
"""


@pytest.mark.parametrize("disk", ["whole", "broken"])
def test_a_program_that_ends_waits_for_its_checkpoint(tmp_path, disk):
    """And what goes wrong is said, though nobody asks any more."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORGOTTEN, tmp_path / "c", disk], cwd=ROOT, env=surroundings(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == "end\n"
    _, error = process.communicate("\n" * 20, timeout=300)
    if disk == "whole":
        assert error == "" and checkpoint.find_problem(tmp_path / "c") == ""
    else:
        assert "was not written: OSError('no space left on device')" in error and not os.listdir(tmp_path)


def test_the_first_checkpoint_without_a_problem(tmp_path):
    """Of those of the folder, or of given ones; each that is passed over is a warning."""
    for number in (2, 10, 9):
        (tmp_path / f"checkpoint_{number}").mkdir()
        (tmp_path / f"checkpoint_{number}" / "manifest.json").touch()
    problems = {"checkpoint_10": "cut", "checkpoint_9": "torn"}
    problem_of = lambda path: problems.get(path.name, "")  # noqa: E731
    with pytest.warns(UserWarning, match="passed over the checkpoint") as warned:
        assert checkpoint.last_good(tmp_path, problem_of=problem_of) == tmp_path / "checkpoint_2"
    texts = [str(warning.message).removeprefix("passed over the checkpoint ") for warning in warned]
    assert texts == [f"{tmp_path / 'checkpoint_10'}: cut", f"{tmp_path / 'checkpoint_9'}: torn"]
    found = [tmp_path / "checkpoint_2", tmp_path / "checkpoint_10"]
    assert checkpoint.last_good(tmp_path, found, problem_of) == found[0]
    with pytest.raises(CheckpointError, match="no valid checkpoint found in .*checkpoint_10: cut$"):
        checkpoint.last_good(tmp_path, found[1:], problem_of)
    assert checkpoint.last_good(tmp_path, [], problem_of) is None
    assert checkpoint.last_good(tmp_path / "none") is None
