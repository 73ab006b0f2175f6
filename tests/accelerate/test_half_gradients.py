"""Half precision: gradients that add up in float32, one scale for several optimizers, and no way out."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

import mytorch
from mytorch import nn, optim
from mytorch.accelerate import Accelerator
from mytorch.amp import GradScaler
from mytorch.amp.loss_scale import LOOK_EVERY, MAX_STUCK

INF = float("inf")


def weight(size=3):
    """A model whose gradients are its inputs."""
    model = nn.Linear(size, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def started(*models, steps=1, scale=64.0, precision="fp16", **options):
    accelerator = Accelerator(
        steps, mixed_precision=precision, cpu=True, scaler_kwargs={"init_scale": scale, **options}
    )
    optimizers = [optim.SGD(model.parameters(), lr=1.0) for model in models]
    return accelerator, *accelerator.prepare(*models, *optimizers)


def row(*values):
    return mytorch.tensor([values])


# The gradients of 64 micro-batches, multiplied by the scale as they are in float16, and their sum. Added up
# in half precision each of these loses most of what comes after the first.
SUMS = {
    ("fp16", "small beside the first"): ([2048.0] + [1.0] * 63, 2111.0),
    ("fp16", "tiny"): ([1.0] + [2.0**-12] * 63, 1 + 63 * 2.0**-12),
    ("fp16", "cancelling"): ([32768.0] + [8.0] * 62 + [-32768.0], 62 * 8.0),
    ("bf16", "small beside the first"): ([256.0] + [1.0] * 63, 319.0),
    ("bf16", "tiny"): ([2.0**-60] + [2.0**-69] * 63, 2.0**-60 + 63 * 2.0**-69),
    ("bf16", "cancelling"): ([2.0**20] + [2.0**12] * 62 + [-(2.0**20)], 62 * 2.0**12),
}
HALVES = {"fp16": (np.float16, 2.0**-10), "bf16": (bfloat16, 2.0**-7)}  # and their rounding


@pytest.mark.parametrize("zero", ["to none", "to zeros", "not at all"])
@pytest.mark.parametrize("precision, name", SUMS)
def test_many_micro_batches_add_up_in_float32(precision, name, zero):
    gradients, expected = SUMS[precision, name]
    half, rounding = HALVES[precision]
    in_half = half(0)
    for gradient in gradients:
        in_half += half(gradient)
    rounding *= max(abs(expected), abs(gradients[-1]))
    assert abs(float(in_half) - expected) > 3 * rounding
    accelerator, model, optimizer = started(weight(1), steps=64, precision=precision)
    for window in (1, 2):
        before = model.weight.item()
        for gradient in gradients:
            with accelerator.accumulate(model):
                accelerator.backward(model(row(gradient)).sum())
                norm = accelerator.clip_grad_norm_(model.parameters(), 1e9)
                optimizer.step()
                if zero != "not at all":
                    optimizer.zero_grad(zero == "to none")
        times = window if zero == "not at all" else 1  # then the sum is that of both windows
        mean = times * expected / 64
        assert norm.item() == pytest.approx(mean, abs=times * rounding / 64)
        moved = before - optimizer.optimizer.masters()[0].item()
        assert moved == pytest.approx(mean, abs=times * rounding / 64)


def test_an_overflow_in_any_micro_batch_skips_the_step():
    for bad in range(3):
        accelerator, model, optimizer = started(weight(), steps=3)
        for i in range(3):
            with accelerator.accumulate(model):
                accelerator.backward(model(row(1.0, 2.0, INF if i == bad else 3.0)).sum())
                optimizer.step()
        assert accelerator.optimizer_step_was_skipped and accelerator.scaler.get_scale() == 32
        assert model.weight.tolist() == [[0, 0, 0]]


def test_bfloat16_steps_whatever_the_gradient_is():
    """As without mixed precision: no check for inf and NaN, and no scale."""
    accelerator, model, optimizer = started(weight(), precision="bf16")
    assert accelerator.scaler is None
    accelerator.backward(model(row(2.0**100, 1.0, INF)).sum())
    assert accelerator.clip_grad_norm_(model.parameters(), 1.0).item() == INF
    optimizer.zero_grad()
    accelerator.backward(model(row(2.0**100, 1.0, INF)).sum())
    optimizer.step()
    assert not accelerator.optimizer_step_was_skipped
    assert model.weight.tolist() == [[-(2.0**100), -1, -INF]]


@pytest.mark.parametrize("precision", HALVES)
def test_parameters_that_take_part_in_some_micro_batches(precision):
    first, second, third = weight(2), weight(2), weight(2)
    model = nn.ModuleList([first, second, third])
    accelerator, model, optimizer = started(model, steps=4, precision=precision)
    for layer in (first, second, first, second):
        with accelerator.accumulate(model):
            accelerator.backward(layer(row(1.0, 2.0).to(first.weight.dtype)).float().sum())
            optimizer.step()
    assert first.weight.tolist() == second.weight.tolist() == [[-0.5, -1]]
    assert third.weight.grad is None and third.weight.tolist() == [[0, 0]]


def test_held_gradients_outlive_a_change_of_the_layout():
    """A parameter is frozen, and weights are loaded, in the middle of a window."""
    first, second = weight(2), weight(2)
    accelerator, model, optimizer = started(nn.ModuleList([first, second]), steps=2)
    for i in range(2):
        with accelerator.accumulate(model):
            loss = first(row(1.0, 2.0).half()).float() + second(row(4.0, 8.0).half()).float()
            accelerator.backward(loss.sum())
            optimizer.step()
        if i == 0:
            second.weight.requires_grad_(False)
            model.load_state_dict({name: p.data for name, p in model.named_parameters()}, assign=True)
    assert first.weight.tolist() == [[-1, -2]]


def test_a_window_that_is_given_up():
    accelerator, model, optimizer = started(weight(1), steps=3)
    with accelerator.accumulate(model):
        accelerator.backward(model(row(7.0)).sum())
    accelerator.sync_gradients = True
    optimizer.zero_grad()
    for _ in range(2):
        with accelerator.accumulate(model):
            accelerator.backward(model(row(3.0)).sum())
            optimizer.step()
    assert model.weight.item() == -3


def test_gradients_are_held_on_a_gpu(fake_cuda):
    """With the stand-in for CuPy, whose arrays go nowhere by themselves."""
    gradients, expected = SUMS["fp16", "tiny"]
    accelerator = Accelerator(64, mixed_precision="fp16", scaler_kwargs={"init_scale": 64.0})
    model = weight(1)
    optimizer = optim.SGD(model.parameters(), lr=1.0, fused=False)
    model, optimizer = accelerator.prepare(model, optimizer)
    for gradient in gradients:
        with accelerator.accumulate(model):
            accelerator.backward(model(mytorch.tensor([[gradient]], device="cuda:0")).sum())
            optimizer.step()
            optimizer.zero_grad()
    assert optimizer.optimizer.masters()[0].item() == pytest.approx(-expected / 64, rel=2.0**-10)


def test_two_optimizers_divide_by_the_scale_that_their_gradients_have():
    """The first one's inf lowers the scale, but not before the second has stepped."""
    for clips in (False, True):
        accelerator, one, other, first, second = started(weight(), weight())
        accelerator.backward(one(row(INF, 1.0, 1.0)).sum() + other(row(1.0, 2.0, 4.0)).sum())
        if clips:
            accelerator.clip_grad_norm_(one.parameters(), 1e9)
            accelerator.clip_grad_norm_(other.parameters(), 1e9)
        first.step()
        second.step()
        assert (first.step_was_skipped, second.step_was_skipped) == (True, False)
        assert one.weight.tolist() == [[0, 0, 0]] and other.weight.tolist() == [[-1, -2, -4]]
        assert accelerator.scaler.get_scale() == 32


@pytest.mark.parametrize("precision", HALVES)
def test_clipping_over_two_optimizers(precision):
    accelerator, one, other, first, second = started(weight(1), weight(1), precision=precision)
    accelerator.backward(one(row(3.0)).sum() + other(row(4.0)).sum())
    norm = accelerator.clip_grad_norm_([*one.parameters(), *other.parameters()], 0.5)
    first.step()
    second.step()
    assert norm.item() == 5 and norm.dtype == np.float32
    assert first.optimizer.masters()[0].item() == pytest.approx(-0.3, rel=1e-6)
    assert second.optimizer.masters()[0].item() == pytest.approx(-0.4, rel=1e-6)


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("by", ["norm", "value"])
def test_clipping_what_the_optimizer_calls_its_parameters(by, precision):
    """They are the float32 copies of the model's."""
    accelerator, model, optimizer = started(weight(2), precision=precision)
    accelerator.backward(model(row(3.0, 4.0)).sum())
    params = [p for group in optimizer.param_groups for p in group["params"]]
    if by == "norm":
        assert accelerator.clip_grad_norm_(params, 1.0).item() == 5
    else:
        accelerator.clip_grad_value_(params, 3.5)
    optimizer.step()
    expected = [[-0.6, -0.8]] if by == "norm" else [[-3, -3.5]]
    np.testing.assert_allclose(optimizer.optimizer.masters()[0].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("clip", ["clip_grad_norm_", "clip_grad_value_"])
def test_clipping_what_no_optimizer_has(clip):
    """In half precision it would be 64 times as large."""
    accelerator, other, _ = started(weight())
    one = accelerator.prepare(weight())
    params = [*one.parameters(), *other.parameters()]
    accelerator.backward(other(row(1.0, 2.0, 3.0)).sum())
    getattr(accelerator, clip)(params, 1.0)
    accelerator.backward(one(row(1.0, 2.0, 3.0)).sum())
    with pytest.raises(ValueError, match="1 of these parameters have gradients, but are in no optimizer"):
        getattr(accelerator, clip)(params, 1.0)


def test_optimizers_that_step_by_turns():
    """As a generator and its critic: each loss has the scale after the step before."""
    accelerator, one, other, first, second = started(weight(1), weight(1), growth_interval=2)
    scales = []
    for factor in (1.0, 1.0, INF, 1.0, 1.0):
        for model, optimizer in ((one, first), (other, second)):
            accelerator.backward(model(row(factor)).sum())
            optimizer.step()
            optimizer.zero_grad()
        scales.append(accelerator.scaler.state_dict()["scale"])
    assert scales == [128, 256, 64, 128, 256]
    assert one.weight.item() == other.weight.item() == -4


def test_gradients_that_are_thrown_away_do_not_count():
    accelerator, model, optimizer = started(weight())
    accelerator.backward(model(row(INF, 1.0, 1.0)).sum())
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.zero_grad()
    accelerator.backward(model(row(1.0, 2.0, 3.0)).sum())
    optimizer.step()
    assert model.weight.tolist() == [[-1, -2, -3]] and accelerator.scaler.get_scale() == 64


def test_an_optimizer_without_gradients_among_others():
    accelerator, one, other, first, second = started(weight(), weight())
    accelerator.backward(one(row(1.0, 2.0, 3.0)).sum())
    assert accelerator.clip_grad_norm_(other.parameters(), 1.0).item() == 0
    second.step()
    first.step()
    assert one.weight.tolist() == [[-1, -2, -3]] and other.weight.tolist() == [[0, 0, 0]]


@pytest.mark.filterwarnings("ignore:gradients are inf or NaN although")
def test_a_loss_that_stays_nan_ends_the_training():
    accelerator, model, optimizer = started(weight(1), scale=4.0)
    steps = 0
    with pytest.raises(FloatingPointError) as caught:
        for steps in range(1, 1000):  # noqa: B007
            accelerator.backward((model(row(1.0)) * float("nan")).sum())
            optimizer.step()
            optimizer.zero_grad()
    assert steps == 2 + MAX_STUCK  # from 4 to 2 to 1
    text = str(caught.value)
    assert f"the last {MAX_STUCK} steps were skipped" in text and "the last loss was nan on rank 0" in text


@pytest.mark.filterwarnings("ignore:gradients are inf or NaN although")
def test_a_good_step_gives_new_patience():
    accelerator, model, optimizer = started(weight(1), scale=1.0)
    for i in range(3 * MAX_STUCK):
        accelerator.backward(model(row(1.0 if i % MAX_STUCK == 5 else INF)).sum())
        optimizer.step()
        optimizer.zero_grad()
    assert model.weight.item() == -3


@pytest.mark.filterwarnings("ignore:gradients are inf or NaN although")
def test_a_gpu_is_asked_now_and_then(device):
    """With the stand-in for CuPy."""
    p = mytorch.ones(2, device=device, requires_grad=True)
    optimizer, scaler = optim.SGD([p], lr=1.0, fused=False), GradScaler(init_scale=1.0)
    expected, steps = MAX_STUCK if device == "cpu" else LOOK_EVERY, 0
    with pytest.raises(FloatingPointError, match=rf"the last {expected} steps were skipped"):
        for steps in range(1, 1000):  # noqa: B007
            scaler.scale((p * INF).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert steps == expected and p.tolist() == [1, 1]
