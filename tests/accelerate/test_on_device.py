"""Mixed precision with the strict stand-in for CuPy: no implicit copies, and nothing waits for a GPU."""

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.accelerate import Accelerator, GradScaler, MixedPrecisionOptimizer, half_parameters, world
from mytorch.nn import fused_ops


def model_on(device):
    mytorch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)


@pytest.mark.parametrize("planted", [None, np.inf])
def test_steps_are_those_on_the_cpu(device, planted):
    results = []
    for where in ("cpu", device):
        model = model_on("cpu").to(where)
        optimizer = optim.AdamW(model.parameters(), lr=0.1, fused=False)
        optimizer = MixedPrecisionOptimizer(optimizer, half_parameters(model))
        scaler = GradScaler(init_scale=16, growth_interval=2)
        rng = np.random.default_rng(0)
        for step in range(4):
            scaler.scale(mytorch.ones((), device=where))
            for p in model.parameters():
                grad = rng.standard_normal(tuple(p.shape)).astype(np.float16)
                if planted is not None and step == 1:
                    grad.reshape(-1)[0] = planted
                p.grad = mytorch.tensor(grad, device=where)
            scaler.unscale_(optimizer)
            optimizer.clip_grad_norm(1.0)
            scaler.step(optimizer)
            scaler.update()
        results.append((scaler.state_dict(), [p.cpu().numpy() for p in optimizer.masters()]))
    (state, weights), (other_state, other_weights) = results
    assert state == other_state and state["scale"] == (64 if planted is None else 16)
    for p, q in zip(weights, other_weights, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6)


def test_the_accelerator_takes_the_gpu(fake_cuda, tmp_path):
    accelerator = Accelerator(mixed_precision="fp16")
    assert accelerator.device == "cuda:0"
    model = model_on("cpu")
    optimizer = optim.AdamW(model.parameters(), lr=0.1, fused=False)
    model, optimizer = accelerator.prepare(model, optimizer)
    x = mytorch.ones(3, 5, device="cuda:0")
    accelerator.backward(model(x).sum() * 1e-3)
    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert norm.device == "cuda:0" and norm.item() > 0
    accelerator.save_state(tmp_path / "c")
    accelerator.load_state(tmp_path / "c")
    accelerator.save_state(tmp_path / "d", asynchronous=True)
    accelerator.end_training()
    assert optimizer.optimizer.masters()[0].device == "cuda:0"


def test_the_accelerator_takes_the_device_that_is_named(fake_cuda, monkeypatch):
    named = {
        "cpu": "cpu",
        "cuda": "cuda:0",
        "cuda:1": "cuda:1",
        None: "cuda:0",
        mytorch.device("cuda"): "cuda:0",
    }
    for name, found in named.items():
        assert Accelerator(device=name).device == found
    with pytest.raises(RuntimeError, match="'cuda:9' does not exist"):
        Accelerator(device="cuda:9")
    with pytest.raises(ValueError, match="^device='meta': its tensors hold no data"):
        Accelerator(device="meta")
    monkeypatch.setattr(world, "world_size", lambda group=None: 2)
    monkeypatch.setattr(world, "local_rank", lambda: 1)
    assert (world.own_device("cuda"), world.own_device(None), world.own_device("cpu")) == (
        "cuda:1",
        "cuda:1",
        "cpu",
    )
    with pytest.raises(ValueError, match="^device='cuda:1': several processes have a GPU each"):
        world.own_device("cuda:1")


def test_the_accelerator_demands_kernels(monkeypatch):
    monkeypatch.setattr(
        fused_ops, "why_not", lambda kind: "" if kind == "cuda" else f"there are none for {kind}"
    )
    Accelerator(cpu=True)
    with pytest.raises(ValueError, match="^fused=True, but there are none for cpu$"):
        Accelerator(device="cpu", fused=True)
