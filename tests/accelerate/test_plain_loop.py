"""A training loop without `accumulate()`, as in the README of the original: it accumulates by itself."""

import gc
import json
import sys
import weakref

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.accelerate import Accelerator
from mytorch.utils.data import DataLoader, TensorDataset
from tests.every import every

BATCHES = 7


def loader():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4 * BATCHES, 4)).astype(np.float32)
    return DataLoader(TensorDataset(mytorch.tensor(x), mytorch.tensor(x[:, :1] * x[:, 1:2])), 4)


def prepared(steps, precision="no"):
    accelerator = Accelerator(steps, precision, cpu=True, scaler_kwargs={"init_scale": 64.0})
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.8)
    return accelerator, *accelerator.prepare(model, optimizer, schedule, loader())


def loss_of(model, x, y):
    return ((model(x) - y) ** 2).mean()


def update(accelerator, model, optimizer, schedule, loss):
    accelerator.backward(loss)
    norm = accelerator.clip_grad_norm_(0.3)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    return norm


def weights(model):
    return [p.detach().float().numpy().copy() for p in model.parameters()]


def train(steps, precision, in_context):
    """The weights, the steps of the schedule, and which batches ended a window; `in_context` says where."""
    accelerator, model, optimizer, schedule, batches = prepared(steps, precision)
    ended = []
    for epoch in range(2):
        for i, (x, y) in enumerate(batches):
            if in_context(epoch, i):
                with accelerator.accumulate(model):
                    norm = update(accelerator, model, optimizer, schedule, loss_of(model, x, y))
            else:
                norm = update(accelerator, model, optimizer, schedule, loss_of(model, x, y))
            assert (norm is not None) == accelerator.sync_grad
            ended += [i] if accelerator.sync_grad else []
    return weights(model), schedule.last_epoch, ended


WINDOWS = {1: [*range(BATCHES)], 2: [1, 3, 5, 6], 3: [2, 5, 6], 10: [6]}


@pytest.mark.parametrize("precision", ["no", "fp16"])
@pytest.mark.parametrize("steps", WINDOWS)
def test_it_steps_on_every_nth_batch_and_on_the_last(steps, precision):
    expected, count, ended = train(steps, precision, lambda *_: True)
    assert ended == 2 * WINDOWS[steps] and count == len(ended)
    ours = train(steps, precision, lambda *_: False)
    mixed = train(steps, precision, lambda epoch, i: (epoch + i) % 2)
    for found in (ours, mixed):
        assert found[1:] == (count, ended)
        for a, b in zip(found[0], expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_all_backward_passes_of_a_batch_are_one_micro_batch():
    def losses_in_parts(steps):
        accelerator, model, optimizer, schedule, batches = prepared(steps)
        for x, y in batches:
            for half in (slice(2), slice(2, 4)):
                accelerator.backward(loss_of(model, x[half], y[half]) / 2)
            optimizer.step()
            optimizer.zero_grad()
        return weights(model)

    for a, b in zip(losses_in_parts(2), weights_of_whole_batches(2), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def weights_of_whole_batches(steps):
    accelerator, model, optimizer, _, batches = prepared(steps)
    for x, y in batches:
        accelerator.backward(loss_of(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


def test_without_a_prepared_loader_each_backward_pass_is_a_micro_batch():
    accelerator, model, optimizer, _, _ = prepared(3)
    before, ended = weights(model), []
    for x, y in loader():
        accelerator.backward(loss_of(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        ended.append(accelerator.sync_grad)
    assert ended == [False, False, True, False, False, True, False]
    assert every((a != b).any() for a, b in zip(weights(model), before, strict=True))


def test_a_validation_pass_in_the_middle_counts_nothing():
    accelerator, model, optimizer, _, batches = prepared(3)
    validation = accelerator.prepare(loader())
    ended = []
    for i, (x, y) in enumerate(batches):
        if i == 1:
            with mytorch.no_grad():
                assert len([model(a) for a, _ in validation]) == BATCHES
        accelerator.backward(loss_of(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        ended += [i] if accelerator.sync_grad else []
    assert ended == WINDOWS[3]


def test_free_memory_drops_the_loader_of_the_last_batch():
    accelerator, model, optimizer, _, batches = prepared(2)
    for x, y in batches:
        accelerator.backward(loss_of(model, x, y))
    dropped = weakref.ref(batches)
    accelerator.free_memory()
    del batches, x, y
    gc.collect()
    assert dropped() is None


def test_clipping_needs_a_number():
    accelerator, model, *_ = prepared(1)
    with pytest.raises(TypeError, match="max_norm is missing"):
        accelerator.clip_grad_norm_(model.parameters())


def test_logging_starts_the_trackers(tmp_path):
    accelerator = Accelerator(cpu=True, log_with="jsonl", project_dir=tmp_path)
    accelerator.log({"loss": mytorch.tensor(0.5)}, step=1)
    accelerator.log({"loss": 0.25}, step=2)
    accelerator.end_training()
    lines = [json.loads(line) for line in (tmp_path / "mytorch.jsonl").read_text().splitlines()]
    assert lines == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]


@pytest.mark.parametrize("options", [{"log_wandb": True}, {"log_with": ["jsonl", "wandb"]}])
def test_a_missing_tracker_is_an_error_before_anything_is_trained(options, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    with pytest.raises(ImportError, match="log_with='wandb' needs the package wandb: pip install wandb"):
        Accelerator(cpu=True, **options)
