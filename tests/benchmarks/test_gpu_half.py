"""Training in float16, as the GPU benchmark does it: the loss scale, skipped steps, the losses."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import mytorch
from benchmarks.gpu import training
from benchmarks.gpu.half import HalfTrainer, LossScale
from benchmarks.gpu.sizes import SIZES, chain
from benchmarks.gpu.torch_training import train_half
from mytorch.backends.device import CPU
from mytorch.models.gpt2 import GPT2, GPT2Config
from tests.on_device import never_waiting

ROOT = Path(__file__).parents[2]
TINY = SIZES["tiny"]

# (scale at first, growth interval, whether each step finds an inf)
SCRIPTS = {
    "grows": (8.0, 3, [0, 0, 0, 0, 0, 0, 0, 0]),
    "an inf begins the count anew": (8.0, 3, [0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0]),
    "an inf in the step that would grow": (8.0, 2, [0, 1, 0, 0, 1, 0, 0]),
    "no larger than float32": (2.0**126, 1, [0, 0, 0, 1, 0]),
    "falls to nothing": (2.0**-148, 5, [1, 1, 1, 0]),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scale_is_gradscaler_s(script):
    first, interval, steps = SCRIPTS[script]
    ours = LossScale(CPU, init_scale=first, growth_interval=interval)
    theirs = torch.amp.GradScaler("cpu", init_scale=first, growth_interval=interval)
    p = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.0)
    theirs.scale(torch.zeros(()))  # so that it has a tensor
    for step, bad in enumerate(steps):
        p.grad = torch.tensor([np.inf if bad else 1.0, 1.0])
        theirs.step(optimizer)
        theirs.update()
        ours.found_inf[...] = bad
        ours.update()
        state = theirs.state_dict()
        assert (ours.scale.item(), ours.good_steps.item()) == (state["scale"], state["_growth_tracker"]), step
    assert ours.skipped.item() == sum(steps)


def model_and_batch(device="cpu", seed=0):
    mytorch.manual_seed(seed)
    c = TINY.half
    model = GPT2(GPT2Config(c.vocab_size, c.context_length, c.n_layer, c.n_head, c.n_embd, bias=False))
    return model.to(device), [mytorch.from_numpy(a[0]).to(device) for a in chain(c, 1)]


def trainer_of(model, **options):
    return HalfTrainer(model, model.parameter_groups(0.1), lr=1e-2, **options)


def test_it_trains_as_in_float32():
    model, batch = model_and_batch()
    reference, _ = model_and_batch()
    eps = 1e-4  # with less, the sign of a gradient that is next to nothing moves a weight by the whole step
    trainer = trainer_of(model, scale=LossScale(CPU, 256.0), eps=eps)
    optimizer = mytorch.optim.AdamW(reference.parameter_groups(0.1), lr=1e-2, eps=eps)
    start = {name: p.detach().numpy().copy() for name, p in reference.named_parameters()}
    for _ in range(8):
        loss = trainer.forward_backward(*batch)
        trainer.update()
        wide = reference(*batch)[1]
        wide.backward()
        mytorch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        assert loss.dtype == np.float32 and loss.item() == pytest.approx(wide.item(), rel=2e-3)
    assert wide.item() < 3.2
    for (name, p), q in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert p.dtype == np.float16
        way = q.detach().numpy() - start[name]
        off = p.detach().float().numpy() - q.detach().numpy()
        assert np.linalg.norm(off) < 0.025 * np.linalg.norm(way), name
    for half in trainer.groups:
        np.testing.assert_array_equal(half.flat.data, half.master.detach().numpy().astype(np.float16))
    wide = sum(half.master.numel() for half in trainer.groups)
    assert wide == pytest.approx(model.num_parameters(), rel=0.01) and trainer.loss_scale.skipped.item() == 0


def test_the_masters_are_the_weights_before_they_were_rounded():
    model, _ = model_and_batch()
    before = np.concatenate([p.detach().numpy().reshape(-1) for p in model.parameters() if p.ndim >= 2])
    master = trainer_of(model).groups[0].master
    np.testing.assert_array_equal(master.detach().numpy()[: before.size], before)


@pytest.mark.parametrize("planted", ["inf", "nan"])
def test_a_step_with_inf_or_nan_is_skipped(planted):
    model, batch = model_and_batch()
    trainer = trainer_of(model, scale=LossScale(CPU, 256.0))
    trainer.forward_backward(*batch)
    trainer.update()
    kept = [half.master.detach().numpy().copy() for half in trainer.groups]
    counts = [float(entry["step"]) for entry in trainer.optimizer.state.values()]
    handle = model.lm_head.weight.register_hook(lambda g: g * float(planted))
    trainer.forward_backward(*batch)
    assert trainer.loss_scale.found_inf.item() == 1
    trainer.update()
    handle.remove()
    for half, before in zip(trainer.groups, kept, strict=True):
        np.testing.assert_array_equal(half.master.detach().numpy(), before)
    assert [float(entry["step"]) for entry in trainer.optimizer.state.values()] == counts == [1.0, 1.0]
    assert (trainer.loss_scale.scale.item(), trainer.loss_scale.skipped.item()) == (128.0, 1)
    trainer.forward_backward(*batch)
    trainer.update()
    assert trainer.loss_scale.found_inf.item() == 0
    assert (trainer.groups[0].master.detach().numpy() != kept[0]).any() and np.isfinite(
        trainer.groups[0].flat.data
    ).all()


def test_parameters_of_another_dtype_are_refused():
    model, _ = model_and_batch()
    with pytest.raises(TypeError, match=r"must be float32, but not so are transformer\.wte\.weight"):
        trainer_of(model.half())


def test_forward_and_backward_never_wait(fake_cuda, monkeypatch):
    model, batch = model_and_batch("cuda")
    trainer = trainer_of(model)
    trainer.forward_backward(*batch)
    trainer.update()
    with never_waiting(monkeypatch, fake_cuda):
        trainer.forward_backward(*batch)


STEP = """
import pytest
from mytorch.backends.device import cupy
cupy()
from benchmarks.gpu import training
from benchmarks.gpu.sizes import SIZES, chain
from tests.on_device import never_waiting
import mytorch
trainer = training.make_trainer(SIZES["tiny"].half)
assert trainer.optimizer.param_groups[0]["fused"] is True
training.set_rate(trainer, 19)
batch = [mytorch.from_numpy(a[0]).to("cuda") for a in chain(SIZES["tiny"].half, 1)]
before = trainer.groups[0].master.data._array.get()
with never_waiting(pytest.MonkeyPatch(), cupy()):
    for _ in range(2):
        trainer.forward_backward(*batch)
        trainer.update()
scale = trainer.loss_scale
assert 0 <= scale.skipped.item() <= 1, "both were skipped"
assert (trainer.groups[0].master.data._array.get() != before).any()
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")
def test_a_whole_step_with_kernels_never_waits():
    path = os.pathsep.join([str(ROOT / "tests" / "benchmarks" / "gpu_stand_in"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", STEP], cwd=ROOT, capture_output=True, text=True, env=env, timeout=900
    )
    assert done.stdout == "done\n", done.stderr


def test_a_graph_has_the_losses_of_single_steps(fake_cuda):
    eager, captured = (training.train(TINY, captured) for captured in (False, True))
    assert len(eager["ms"]) == TINY.windows and len(eager["losses"]) == (TINY.windows + 1) * TINY.steps
    assert eager["losses"] == captured["losses"] and len(set(eager["losses"])) > TINY.steps
    assert (eager["scale"], eager["skipped"]) == (captured["scale"], captured["skipped"])


def test_the_losses_are_pytorch_s(fake_cuda):
    ours, theirs = training.train_half(TINY), train_half(TINY, "cpu")
    assert len(ours["losses"]) == TINY.half_steps
    np.testing.assert_allclose(ours["losses"], theirs["losses"], rtol=1e-2)
    assert ours["losses"][-1] < ours["losses"][0]
