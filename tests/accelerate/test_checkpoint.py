"""Checkpoints: exact, whole or not there, and damage is noticed."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch import optim
from mytorch.accelerate import Accelerator, CheckpointError, checkpoint, saving
from tests.accelerate import train_and_save as program

ROOT = Path(__file__).parent.parent.parent
FILES = {
    "accelerator.bin", "custom_checkpoint.bin", "manifest.json", "model.safetensors", "optimizer.bin",
    "random_states.bin", "sampler.bin", "scheduler.bin",
}  # fmt: skip


def begin(precision="no", steps=1):
    accelerator, *prepared = program.parts(precision, steps)
    counter = program.Counter()
    accelerator.register_for_checkpointing(counter)
    return accelerator, *prepared, counter


def run(run, steps, after_step=lambda: None):
    return list(program.losses(*run, steps, after_step))


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("precision", ["no", "fp16"])
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
    assert names == FILES | ({"mp_config.bin"} if precision == "fp16" else set())


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


def truncate(path):
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 7)


def alter(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


DAMAGE = {"truncated": (truncate, "bytes instead of"), "altered": (alter, "was altered"),
          "missing": (Path.unlink, "is missing")}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", sorted(FILES - {"manifest.json"}))
def test_damage_is_refused_by_name_and_a_good_one_offered(tmp_path, name, kind):
    accelerator = three(tmp_path)
    damage, text = DAMAGE[kind]
    damage(tmp_path / "checkpoint_2" / name)
    before = [p.data.numpy().copy() for p in accelerator._models[0].parameters()]
    for asked in (tmp_path, tmp_path / "checkpoint_2"):
        with pytest.raises(CheckpointError, match=rf"checkpoint_2: {name}.*{text}.*good.*checkpoint_1"):
            accelerator.load_state(asked)
    after = [p.data.numpy() for p in accelerator._models[0].parameters()]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
    assert accelerator.load_state(tmp_path / "checkpoint_1") == str(tmp_path / "checkpoint_1")


@pytest.mark.parametrize(
    "text, expected", [(None, "missing"), ("{", "damaged"), ('{"version": 9, "files": {}}', "version 9")]
)
def test_a_bad_manifest(tmp_path, text, expected):
    accelerator = three(tmp_path)
    path = tmp_path / "checkpoint_2/manifest.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(CheckpointError, match=f"manifest.json is {expected}|it has {expected}"):
        accelerator.load_state(tmp_path)


def test_only_the_last_ones_stay(tmp_path):
    parts = begin()
    run(parts, 5, lambda: parts[0].save_state(tmp_path, keep_last=2))
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_3", "checkpoint_4"]
    (tmp_path / ".checkpoint_9.abc.partial").mkdir()  # what a killed process leaves behind
    parts[0].save_state(tmp_path, keep_last=1)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_5"]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        parts[0].save_state(tmp_path, keep_last=0)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
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
        (lambda a: setattr(a, "scaler", mytorch.accelerate.GradScaler()), "without mixed precision"),
    ):
        accelerator, *_ = begin()
        change(accelerator)
        with pytest.raises(ValueError, match=text):
            accelerator.load_state(tmp_path)


def test_an_asynchronous_checkpoint_is_of_the_moment_it_was_asked_for(tmp_path, monkeypatch):
    parts = begin()
    run(parts, 1)
    expected = [p.data.numpy().copy() for p in parts[1].parameters()]
    real, may_write = checkpoint.write, threading.Event()

    def late(folder, files):
        may_write.wait()
        real(folder, files)

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


# Kill -9.

STEPS, KILLS = 60, 20


def start(folder, asynchronous):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MYTORCH_TUNE": "0"}
    command = [sys.executable, program.__file__, str(folder), str(STEPS), "no", str(asynchronous)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_of(text):
    """{step: loss}; the last line may be cut off in the middle."""
    whole = [line.split() for line in text.split("\n")[:-1]]
    return {int(step): float.fromhex(loss) for step, loss in whole}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_kill_at_any_moment(tmp_path, asynchronous):
    expected = dict(run(begin(), STEPS))
    rng = random.Random(asynchronous)
    seen, kills = {}, 0
    while kills < KILLS // 2:
        process = start(tmp_path, asynchronous)
        first = process.stdout.readline()  # it is running now
        time.sleep(rng.random() * 0.12)
        process.kill()
        rest, error = process.communicate()
        kills += 1
        assert "Traceback" not in error, error
        seen.update(lines_of(first + rest))
        for path in checkpoint.numbered(tmp_path).values():
            assert not checkpoint.what_is_wrong(path)
        if max(seen) == STEPS:  # it was done already: begin anew
            for path in checkpoint.numbered(tmp_path).values():
                os.rename(path, tmp_path / f"done_{kills}_{path.name}")
    process = start(tmp_path, asynchronous)
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    seen.update(lines_of(out))
    assert seen == expected
    assert json.loads((max(checkpoint.numbered(tmp_path).items())[1] / "manifest.json").read_text())
    assert np.isfinite(list(seen.values())).all()
