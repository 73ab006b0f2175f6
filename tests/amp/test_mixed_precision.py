"""A half-precision model with float32 masters."""

import copy
from typing import NamedTuple

import numpy as np
import pytest
from ml_dtypes import bfloat16

import mytorch
from mytorch import nn, optim
from mytorch.accelerate import GradScaler, MixedPrecisionOptimizer, half_parameters
from mytorch.amp.precision import floats_to
from mytorch.models import GPT2, GPT2Config
from tests.every import every


def layers(seed=0):
    mytorch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 17), nn.Tanh(), nn.Linear(17, 3))


def pair(make=lambda p: optim.AdamW(p, lr=0.01), model=None, dtype="float16"):
    """A half-precision model and its optimizer."""
    model = model or layers()
    optimizer = make(model.parameters())
    return model, MixedPrecisionOptimizer(optimizer, half_parameters(model, dtype))


def give_grads(params, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    for p in params:
        p.grad = (rng.standard_normal(tuple(p.shape)) * scale).astype(p.dtype)


HALVES = {"float16": np.dtype("float16"), "bfloat16": np.dtype(bfloat16)}


@pytest.mark.parametrize("dtype", HALVES)
def test_updates_are_those_of_float32(dtype):
    """The same rounded gradients give the same float32 weights, of which the model has the rounded ones."""
    model, optimizer = pair(dtype=dtype)
    reference = layers()
    oracle = optim.AdamW(reference.parameters(), lr=0.01)
    scaler = GradScaler(init_scale=64)
    scaler.scale(mytorch.ones(()))
    for step in range(5):
        give_grads(model.parameters(), step, scale=64)
        for p, q in zip(model.parameters(), reference.parameters(), strict=True):
            q.grad = p.grad.numpy().astype(np.float32) / 64
        scaler.step(optimizer)
        scaler.update()
        oracle.step()
        for master, q, p in zip(optimizer.masters(), reference.parameters(), model.parameters(), strict=True):
            np.testing.assert_allclose(master.numpy(), q.data.numpy(), rtol=2e-6, atol=1e-7)
            assert master.dtype == np.float32 and p.dtype == HALVES[dtype]
            assert (p.data.numpy() == master.numpy().astype(p.dtype)).all()


@pytest.mark.parametrize("dtype, step", [("float16", 2.0**-17), ("bfloat16", 2.0**-14)])
def test_small_updates_add_up(dtype, step):
    """A weight of 1 changes by `step` a step: in half precision alone it never would."""
    half = HALVES[dtype].type
    assert half(1) - half(step) == 1
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    model, optimizer = pair(lambda p: optim.SGD(p, lr=step), model, dtype)
    for _ in range(200):
        model.weight.grad = np.ones((1, 1), half)
        optimizer.step()
    assert optimizer.masters()[0].item() == 1 - 200 * step
    assert model.weight.item() == half(1 - 200 * step) < 1


@pytest.mark.parametrize("planted", [np.inf, -np.inf, np.nan])
def test_one_bad_gradient_leaves_everything_as_it_was(planted):
    model, optimizer = pair()
    scaler = GradScaler(init_scale=16)
    scaler.scale(mytorch.ones(()))
    give_grads(model.parameters(), 0)
    scaler.step(optimizer)
    scaler.update()
    before = copy.deepcopy([p.numpy() for p in optimizer.masters()])
    state = copy.deepcopy(optimizer.state_dict()["state"][0]["exp_avg"].numpy())
    give_grads(model.parameters(), 1)
    list(model.parameters())[-1].grad._array[-1] = planted
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 8
    for p, q in zip(optimizer.masters(), before, strict=True):
        assert (p.numpy() == q).all()
    assert (optimizer.state_dict()["state"][0]["exp_avg"].numpy() == state).all()


def test_an_unused_parameter_is_left_alone_with_what_lies_in_its_place():
    model, optimizer = pair()
    first, *_, last = params = list(model.parameters())
    give_grads(params, 0)
    optimizer.step()
    first_slot = first.grad_slot.raw
    first_slot[...] = np.inf  # from an earlier step that overflowed
    optimizer.zero_grad()
    before = [p.data.numpy().copy() for p in params]
    scaler = GradScaler(init_scale=2)
    scaler.scale(mytorch.ones(()))
    last.grad = np.ones(last.shape, np.float16)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2
    same = [(p.data.numpy() == q).all() for p, q in zip(params, before, strict=True)]
    assert same == [True] * (len(params) - 1) + [False]


def test_gradients_are_computed_where_they_are_cast_from():
    model, optimizer = pair()
    model(mytorch.ones(2, 6).half()).sum().backward()
    vectors = {id(p.grad_slot.vector) for p in model.parameters()}
    assert len(vectors) == 1 and every(p.grad_slot.holds(p.grad) for p in model.parameters())
    optimizer.zero_grad()
    assert every(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("dtype", HALVES)
def test_tied_weights_are_one(dtype):
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    model, optimizer = pair(model=model, dtype=dtype)
    assert len(optimizer.masters()) == 1 and model[0].weight is model[1].weight
    model(mytorch.ones(1, 4).to(dtype)).sum().backward()
    optimizer.step()
    assert (model[1].weight.data.numpy() == optimizer.masters()[0].numpy().astype(HALVES[dtype])).all()


@pytest.mark.parametrize("assign", [False, True])
def test_weights_that_are_loaded_into_the_model_stay(assign):
    model, optimizer = pair(lambda p: optim.SGD(p, lr=0.5))
    give_grads(model.parameters(), 0)
    optimizer.step()
    new = {name: mytorch.full(p.shape, 2.0).half() for name, p in model.named_parameters()}
    model.load_state_dict(new, assign=assign)
    for p in model.parameters():
        p.grad = np.ones(p.shape, np.float16)
    optimizer.step()
    for p, master in zip(model.parameters(), optimizer.masters(), strict=True):
        assert (master.numpy() == 1.5).all() and (p.data.numpy() == 1.5).all()


def test_tensors_that_replace_the_weights_are_trained():
    """Their gradients are cast, and they are rounded into; what wasn't replaced stays bound."""
    model, optimizer = pair(lambda p: optim.SGD(p, lr=0.5))
    first, *others = model.parameters()
    for _ in range(2):
        give_grads(model.parameters(), 0)
        optimizer.step()
    bound = optimizer._current_pairs()
    assert [a is b for a, b in zip(optimizer._current_pairs(), bound, strict=True)] == [True] * len(bound)
    first.data = mytorch.full(first.shape, 2.0).half().data
    for p in (first, *others):
        p.grad = np.ones(p.shape, np.float16)
    optimizer.step()
    assert (first.data.numpy() == 1.5).all() and (optimizer.masters()[0].numpy() == 1.5).all()


def test_each_step_casts_the_gradients_of_then():
    """Also where someone else than `zero_grad` of the optimizer has reset them."""
    model, optimizer = pair(lambda p: optim.SGD(p, lr=1.0))
    optimizer.load_masters([mytorch.zeros(p.shape) for p in model.parameters()])
    for gradient, expected in ((1.0, -1.0), (4.0, -5.0)):
        model.zero_grad()
        for p in model.parameters():
            p.grad = np.full(p.shape, gradient, np.float16)
        optimizer.step()
        assert every((p.numpy() == expected).all() for p in optimizer.masters())


def test_gradients_that_are_held_are_added_in_float32():
    """2048 + 1 + 1 is 2050, and 2048 in float16; what came after the last `hold_grads` is added, too."""
    model, optimizer = pair()
    first, *others = model.parameters()
    for value in (2048.0, 1.0, 1.0):
        first.grad = np.full(first.shape, value, np.float16)
        optimizer.hold_grads()
        assert first.grad is None
    others[0].grad = np.full(others[0].shape, 3.0, np.float16)
    first.grad = np.full(first.shape, 6.0, np.float16)
    optimizer.release_grads()
    assert (first.grad.numpy() == 2056).all() and (others[0].grad.numpy() == 3).all()
    assert first.grad.dtype == np.float16 and every(p.grad is None for p in others[1:])
    optimizer.release_grads()  # once
    assert (first.grad.numpy() == 2056).all()


def test_masters_need_gradients_as_their_weights_do():
    model, optimizer = pair()
    params = list(model.parameters())
    for needed in (False, True):
        params[1].requires_grad_(needed)
        assert [p.requires_grad for p in optimizer.masters_of(params)] == [True, needed, True, True]


def test_a_group_that_is_added():
    model, more = layers(), layers(1)
    model, optimizer = pair(lambda p: optim.SGD(p, lr=1.0), model)
    wrong, *_ = layers(2).parameters()
    half_parameters(more)
    fits, *rest = more.parameters()
    with pytest.raises(ValueError, match="needs float16 parameters, got one of float32"):
        optimizer.add_param_group({"params": [fits, wrong]})
    assert optimizer.masters_of([fits])[0] is fits and len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": [fits, *rest], "lr": 0.5})
    assert [p is q for p, q in zip(optimizer.parameters()[4:], [fits, *rest], strict=True)] == [True] * 4
    more(mytorch.ones(2, 6).half()).sum().backward()
    assert every(p.grad_slot is not None and p.grad_slot.holds(p.grad) for p in more.parameters())
    for p in optimizer.parameters():
        p.data = np.zeros(p.shape, np.float16)
        p.grad = np.ones(p.shape, np.float16)
    optimizer.step()
    for p, expected in zip(optimizer.parameters(), [-1.0] * 4 + [-0.5] * 4, strict=True):
        assert (p.data.numpy() == expected).all()


def test_float32_weights_that_are_loaded_come_after_what_was_loaded_into_the_model():
    model, optimizer = pair(lambda p: optim.SGD(p, lr=0.5))
    model.load_state_dict({name: mytorch.full(p.shape, 2.0).half() for name, p in model.named_parameters()})
    optimizer.load_masters([mytorch.full(tuple(p.shape), 3.0001) for p in model.parameters()])
    for p, master in zip(model.parameters(), optimizer.masters(), strict=True):
        assert (master.numpy() == np.float32(3.0001)).all() and (p.data.numpy() == 3).all()


def test_clipping_gives_the_true_norm():
    results = []
    for scale in (1, 1024):
        model, optimizer = pair()
        give_grads(model.parameters(), 3, scale)
        scaler = GradScaler(init_scale=scale)
        scaler.scale(mytorch.ones(()))
        scaler.unscale_(optimizer)
        norm = optimizer.clip_grad_norm(0.1).item()
        scaler.step(optimizer)
        results.append((norm, [p.numpy().copy() for p in optimizer.masters()]))
    (norm, one), (norm_of_scaled, other) = results
    grads = [np.random.default_rng(3)]
    expected = np.sqrt(
        sum(
            (grads[0].standard_normal(tuple(p.shape)).astype(np.float16).astype(float) ** 2).sum()
            for p in one
        )
    )
    assert norm == pytest.approx(expected, rel=1e-6) and norm_of_scaled == pytest.approx(norm, rel=1e-3)
    for p, q in zip(one, other, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6)


def test_resuming_is_exact():
    def run(model, optimizer, scaler, steps):
        for step in steps:
            give_grads(model.parameters(), step)
            scaler.step(optimizer)
            scaler.update()

    def start():
        scaler = GradScaler(init_scale=4, growth_interval=3)
        scaler.scale(mytorch.ones(()))
        return (*pair(), scaler)

    whole = start()
    run(*whole, range(6))
    half = start()
    run(*half, range(3))
    state = copy.deepcopy((half[1].state_dict(), half[1].masters(), half[2].state_dict()))
    resumed = start()
    resumed[1].load_state_dict(state[0])
    resumed[1].load_masters(state[1])
    resumed[2].load_state_dict(state[2])
    run(*resumed, range(3, 6))
    for p, q in zip(whole[1].masters(), resumed[1].masters(), strict=True):
        assert (p.numpy() == q.numpy()).all()
    with pytest.raises(ValueError, match="expected weights of shapes"):
        resumed[1].load_masters(state[1][:-1])


def test_what_is_not_half_is_refused():
    with pytest.raises(ValueError, match=r"float16 parameters, got one of float32 and shape \(17, 6\)"):
        MixedPrecisionOptimizer(optim.SGD(layers().parameters(), lr=1))
    model, optimizer = pair()
    model.float()
    with pytest.raises(ValueError, match="float32"):
        optimizer.step()
    with pytest.raises(ValueError, match="dtype is float16 or bfloat16, got float32"):
        half_parameters(layers(), "float32")


def test_one_optimizer_has_one_kind_of_half():
    one, other = layers(), layers(1)
    optimizer = optim.SGD([*one.parameters(), *other.parameters()], lr=1)
    half_parameters(one, "bfloat16")
    half_parameters(other)
    with pytest.raises(ValueError, match="needs bfloat16 parameters, got one of float16"):
        MixedPrecisionOptimizer(optimizer)


def test_structures_are_cast():
    """The floats in them; what they are made of stays."""

    class Pair(NamedTuple):
        x: object
        rest: object

    x, n = mytorch.ones(2), mytorch.tensor([1])
    found = floats_to({"pair": Pair(x, [n, (x, "text")]), "none": None}, np.dtype("float16"))
    assert type(found["pair"]) is Pair and found["pair"].x.dtype == "float16" and found["none"] is None
    (same, (cast, text)) = found["pair"].rest
    assert same is n and cast.dtype == "float16" and text == "text"
    assert floats_to((x,), np.dtype("float32"))[0] is x


def losses(dtype, steps=30):
    """Of a tiny GPT that learns text that repeats itself."""
    mytorch.manual_seed(0)
    config = GPT2Config(vocab_size=32, context_length=32, n_layer=2, n_head=2, n_embd=32)
    model = GPT2(config)
    optimizer = optim.AdamW(model.parameter_groups(0.1), lr=2e-3, betas=(0.9, 0.99))
    scaler = GradScaler(enabled=dtype == "float16", init_scale=2.0**15)
    if dtype != "float32":
        optimizer = MixedPrecisionOptimizer(optimizer, half_parameters(model, dtype))
    rng, seen = np.random.default_rng(0), []
    text = np.tile(rng.integers(32, size=61), 20)
    for _ in range(steps):
        rows = np.stack([text[s : s + 33] for s in rng.integers(len(text) - 33, size=8)])
        idx, targets = mytorch.tensor(rows[:, :-1]), mytorch.tensor(rows[:, 1:])
        _, loss = model(idx, targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if dtype == "bfloat16":
            optimizer.collect_grads()
        optimizer.clip_grad_norm(1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        seen.append(loss.item())
    return seen


def test_a_gpt_learns_as_in_float32():
    """bfloat16 has an eighth of float16's precision."""
    single = losses("float32")
    assert single[-1] < 0.8 * single[0]
    for dtype, tolerance in {"float16": 2e-4, "bfloat16": 4e-3}.items():
        np.testing.assert_allclose(losses(dtype), single, rtol=tolerance, err_msg=dtype)
