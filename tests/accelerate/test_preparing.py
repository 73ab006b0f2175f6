"""What prepare() makes of objects that come alone, twice, late, or again after free_memory()."""

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.accelerate import Accelerator, skip_first_batches
from mytorch.utils.data import DataLoader, TensorDataset
from tests.every import every


def make(precision="no", **options):
    return Accelerator(mixed_precision=precision, cpu=True, scaler_kwargs={"init_scale": 64.0}, **options)


def network(seed=0):
    mytorch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def sgd(model, lr=0.125):
    return optim.SGD(model.parameters(), lr=lr)


def loader():
    return DataLoader(TensorDataset(mytorch.arange(10)), 2)


def loss_of(model):
    return model(mytorch.ones(3, 4)).sum()


def values(model):
    return [p.detach().numpy().astype(np.float32).copy() for p in model.parameters()]


def has_moved(model, before):
    return [not np.array_equal(a, b) for a, b in zip(values(model), before, strict=True)]


OBJECTS = {
    "model": network,
    "optimizer": lambda: sgd(network()),
    "loader": loader,
    "scheduler": lambda: optim.lr_scheduler.StepLR(sgd(network()), 1),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_the_same_object_twice_is_one(kind):
    accelerator, obj = make(), OBJECTS[kind]()
    first = accelerator.prepare(obj)
    assert accelerator.prepare(obj) is first and accelerator.prepare(first) is first
    both = accelerator.prepare(obj, first)
    assert both[0] is first and both[1] is first
    registered = [
        accelerator._models, accelerator._optimizers, accelerator._loaders, accelerator._schedulers
    ]
    assert sum(map(len, registered)) == 1


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_again_after_free_memory(precision, tmp_path):
    """What was prepared before is trained on, and saved, as if it were new."""
    accelerator = make(precision, gradient_accumulation_steps=2)
    model = network()
    objects = model, sgd(model), loader()
    objects = (*objects, optim.lr_scheduler.StepLR(objects[1], 1))
    prepared = accelerator.prepare(*objects)
    with accelerator.accumulate(model):  # a window that never ends
        accelerator.backward(loss_of(prepared[0]))
    assert not accelerator.sync_gradients
    assert accelerator.free_memory(*prepared) == [None] * 4
    assert accelerator.sync_gradients and accelerator.gradient_accumulation_steps == 2
    model, optimizer, batches, schedule = accelerator.prepare(*prepared)
    optimizer.zero_grad()
    before = values(model)
    for _ in batches:
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    assert every(has_moved(model, before)) and schedule.last_epoch == 3  # 2 + 2 + 1 batches
    accelerator.save_state(tmp_path / "c")
    assert {"model.safetensors", "optimizer.bin", "scheduler.bin"} <= {
        path.name for path in (tmp_path / "c").iterdir()
    }


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_what_was_freed_still_trains(precision):
    accelerator = make(precision, gradient_accumulation_steps=2)
    model = network()
    model, optimizer = accelerator.prepare(model, sgd(model))
    with accelerator.accumulate(model):
        accelerator.backward(loss_of(model))
    accelerator.free_memory()
    for moves in (False, True):
        before = values(model)
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model))
            optimizer.step()
            optimizer.zero_grad()
        assert every(has_moved(model, before)) == moves


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_two_accelerators_in_one_process(precision):
    """Each has its windows and its scale."""
    one, other = make(precision, gradient_accumulation_steps=2), make(precision)
    pairs = []
    for accelerator in (one, other):
        model = network()
        pairs.append(accelerator.prepare(model, sgd(model)))
    before = values(pairs[0][0])
    for accelerator, (model, optimizer) in zip((one, other), pairs, strict=True):
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model) * (float("inf") if accelerator is one else 1.0))
            optimizer.step()
    assert (one.sync_gradients, other.sync_gradients) == (False, True)
    assert not any(has_moved(pairs[0][0], before)) and any(has_moved(pairs[1][0], before))
    assert not other.optimizer_step_was_skipped


def test_what_has_no_parameters():
    for precision in ("no", "fp16", "bf16"):
        accelerator = make(precision)
        model = accelerator.prepare(nn.Tanh())
        assert model(mytorch.zeros(2)).tolist() == [0, 0]
        assert accelerator.clip_grad_norm_(model.parameters(), 1.0).item() == 0


def test_an_optimizer_without_its_model():
    """In float32 it trains; in half precision the model must come first."""
    accelerator, model = make(), network()
    optimizer, before = accelerator.prepare(sgd(model)), values(model)
    accelerator.backward(loss_of(model))
    optimizer.step()
    assert every(has_moved(model, before))
    accelerator = make("fp16")
    optimizer, before = accelerator.prepare(sgd(model)), values(model)
    with pytest.raises(ValueError, match="a model comes before its optimizer"):
        accelerator.prepare(model)
    optimizer.zero_grad()
    accelerator.backward(loss_of(model))  # it stays a float32 model, with a scaled loss
    assert accelerator.clip_grad_norm_(model.parameters(), 1e9).item() < 100
    optimizer.step()
    assert every(has_moved(model, before)) and model[0].weight.dtype == np.float32


@pytest.mark.filterwarnings("ignore:lr_scheduler.step")  # nobody steps the optimizer
def test_a_schedule_without_its_optimizer():
    accelerator = make(gradient_accumulation_steps=2)
    schedule = accelerator.prepare(optim.lr_scheduler.StepLR(sgd(network(), 1.0), 1, 0.5))
    for rate in (1.0, 0.5, 0.5, 0.25):
        with accelerator.accumulate():
            schedule.step()
        assert schedule.get_last_lr() == [rate]


def test_batches_that_are_skipped_go_through_prepare():
    accelerator = make()
    raw = loader()
    skipped = accelerator.prepare(skip_first_batches(raw, 3))
    assert skipped.loader is accelerator.prepare(raw) and skipped.num_batches == 3
    assert [batch[0].tolist() for batch in skipped] == [[6, 7], [8, 9]]
    assert accelerator.prepare(skipped) is skipped


def test_device_placement_is_one_for_each():
    with pytest.raises(ValueError, match=r"2 objects, but device_placement is \[True\]"):
        make().prepare(network(), network(1), device_placement=[True])


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_parameters_that_begin_to_be_trained_later(precision):
    accelerator = make(precision)
    model = network()
    exact = values(model)
    model, optimizer = accelerator.prepare(model, optim.SGD(model[2].parameters(), lr=0.125))
    optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.25})
    if precision != "no":  # the float32 weights are those before halving
        found = accelerator.get_state_dict(model)
        for value, before in zip(found.values(), exact, strict=True):
            assert np.array_equal(value.numpy(), before)
    accelerator.backward(loss_of(model))
    norm = accelerator.clip_grad_norm_(model.parameters(), 1e9).item()
    before, grads = values(model), [p.grad.numpy().astype(np.float32) for p in model.parameters()]
    scale = 64 if precision == "fp16" else 1
    assert norm == pytest.approx(np.sqrt(sum((g**2).sum() for g in grads)) / scale, rel=1e-3)
    optimizer.step()
    for i, (new, old, grad) in enumerate(zip(values(model), before, grads, strict=True)):
        rate = 0.25 if i < 2 else 0.125
        rounding = 8e-3 if precision == "bf16" else 2e-3
        np.testing.assert_allclose(new, old - rate * grad / scale, rtol=rounding, atol=1e-3)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.25]
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": model[0].parameters()})


def test_added_parameters_must_be_of_a_prepared_model():
    accelerator = make("fp16")
    model = network()
    model, optimizer = accelerator.prepare(model, sgd(model))
    with pytest.raises(ValueError, match="float16 parameters, got one of float32"):
        optimizer.add_param_group({"params": network(1).parameters()})
    accelerator.backward(loss_of(model))
    optimizer.step()


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_weights_for_others(tmp_path, precision):
    """Of a half-precision model those in float32, also what was written into it since the last step."""
    accelerator = make(precision)
    model = network()
    before = values(model)
    model, optimizer = accelerator.prepare(model, sgd(model))
    accelerator.save_model(model, tmp_path / "new" / "folder")
    found = mytorch.load(tmp_path / "new" / "folder" / "model.safetensors")
    assert list(found) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    for value, expected in zip(found.values(), before, strict=True):
        assert value.dtype == np.float32 and np.array_equal(value.numpy(), expected)
    looks = (lambda: accelerator.get_state_dict(model).values(), optimizer.optimizer.masters)
    for look, new in zip(looks, (2.0, 3.0), strict=True):
        model.load_state_dict({name: mytorch.full(p.shape, new) for name, p in model.named_parameters()})
        assert every((value.numpy() == new).all() for value in look())
    accelerator.save({"a": 1}, tmp_path / "a.bin")
    assert mytorch.load(tmp_path / "a.bin") == {"a": 1}
