"""Updates of whole vectors: the state of an optimizer lies as the parameters in their FlatBuffers."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import optim
from mytorch.optim.update import CHUNK
from tests.every import every
from tests.optim.flat_cases import SHAPES, offset, parameters, same, train, twins


def test_gaps_stay_zero():
    ours = parameters(shapes=[(3,), (5, 5), (1,)])
    optimizer = optim.AdamW(ours, lr=0.1, weight_decay=0.1)
    train(optimizer, torch.optim.AdamW(twins(ours)), ours, twins(ours))
    (flat,) = optimizer.flat_buffers()
    gaps = np.ones(flat.size, bool)
    for p, (start, _) in zip(ours, flat.spans, strict=True):
        gaps[start : start + p.numel()] = False
    assert gaps.sum() == 13 + 7 + 15
    for vector in (flat.data, flat.grad, *flat.moments.values()):
        assert not vector[gaps].any() and vector[~gaps].all()


def test_state_is_a_view_of_the_vectors():
    ours = parameters()
    optimizer = optim.AdamW(ours)
    assert not optimizer.state
    train(optimizer, torch.optim.AdamW(twins(ours)), ours, twins(ours), steps=1)
    (flat,) = optimizer.flat_buffers()
    for name in ("exp_avg", "exp_avg_sq"):
        assert offset(optimizer.state[ours[3]][name].data, flat.moments[name]) == flat.spans[3][0]
    assert [optimizer.state[p]["step"].item() for p in ours] == [1] * len(ours)


def test_dtypes_have_vectors_of_their_own():
    ours = parameters() + parameters(dtype="float64", seed=1)
    theirs = twins(ours)
    optimizer, oracle = optim.AdamW(ours), torch.optim.AdamW(theirs)
    train(optimizer, oracle, ours, theirs)
    assert [flat.dtype for flat in optimizer.flat_buffers()] == [np.float32, np.float64]
    same(ours, theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clipped_gradients_are_those_of_the_update(dtype):
    """`clip_grad_norm` of the optimizer leaves them to the pass that updates."""
    ours = parameters(dtype=dtype)
    theirs = twins(ours)
    optimizer, oracle = optim.SGD(ours, lr=0.5, fused=False), torch.optim.SGD(theirs, lr=0.5)
    for bound in (0.3, 1e9):
        for p, q in zip(ours, theirs, strict=True):
            p.grad, q.grad = np.full(p.shape, 2.0, dtype), torch.full(p.shape, 2.0, dtype=q.dtype)
        norm = optimizer.clip_grad_norm(bound)
        assert norm.item() == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs, bound).item())
        optimizer.step()
        oracle.step()
        same(ours, theirs)


def test_vectors_longer_than_a_chunk():
    ours = parameters(shapes=[(CHUNK - 5,), (3, 7), (2 * CHUNK + 1,)])
    theirs = twins(ours)
    optimizer, oracle = optim.AdamW(ours, weight_decay=0.1), torch.optim.AdamW(theirs, weight_decay=0.1)
    train(optimizer, oracle, ours, theirs)
    same(ours, theirs)


def updates(optimizer, monkeypatch):
    """How many elements each call of the formula gets."""
    sizes, update = [], optimizer.update
    monkeypatch.setattr(optimizer, "update", lambda x, *rest: (sizes.append(x.data.size), update(x, *rest)))
    return sizes


def test_all_parameters_are_updated_at_once(monkeypatch):
    ours = parameters()
    optimizer = optim.AdamW(ours, fused=False)
    sizes = updates(optimizer, monkeypatch)
    for p in ours:
        p.backward(np.ones(p.shape, np.float32))
    for _ in range(3):
        optimizer.step()
    (flat,) = optimizer.flat_buffers()
    assert sizes == [flat.size] * 3


def test_neighbours_with_gradients_are_updated_together(monkeypatch):
    ours = parameters()
    optimizer = optim.AdamW(ours, fused=False)
    sizes = updates(optimizer, monkeypatch)

    def updated():
        sizes.clear()
        optimizer.step()
        return sizes

    for i in (0, 1, 3, 4, 5):
        ours[i].backward(np.ones(ours[i].shape, np.float32))
    assert updated() == [16 + 16, 16 + 0 + 80]  # 5 x 3 and 7 elements; 4 x 4, 0 and 65
    ours[2].backward(np.float32(1))
    assert updated() == [32, 16, 96]  # the middle one is at another step
    ours[5].grad = None
    assert updated() == [32, 16, 16]


def test_backward_writes_into_the_vector():
    ours = parameters()
    optimizer = optim.AdamW(ours)
    (flat,) = optimizer.flat_buffers()
    for _ in range(2):
        for p in ours:
            p.backward(np.ones(p.shape, np.float32))
            p.backward(np.ones(p.shape, np.float32))  # accumulates
        assert flat.grad.sum() == 2 * sum(p.numel() for p in ours)
        optimizer.zero_grad()
        assert every(p.grad is None for p in ours)


def test_no_update_goes_unnoticed_by_a_graph():
    (p,) = parameters(shapes=[(3,)])
    optimizer = optim.SGD([p], lr=0.1)
    loss = (p * p).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    unused = parameters(shapes=[(3,)])[0]
    optimizer.add_param_group({"params": [unused]})
    loss = (unused * unused).sum()
    optimizer.step()  # it has no gradient, so it stays as it is
    loss.backward()
    np.testing.assert_array_equal(unused.grad.numpy(), 2 * unused.data.numpy())


OPTIONS = {
    "SGD": {"momentum": 0.9, "nesterov": True}, "Adam": {"amsgrad": True}, "AdamW": {"amsgrad": True},
    "RMSprop": {"momentum": 0.9, "centered": True, "eps": 0.1}, "Adagrad": {"initial_accumulator_value": 0.5},
    "Adadelta": {}, "NAdam": {}, "RAdam": {"betas": (0.5, 0.8)}, "Adamax": {}, "ASGD": {"t0": 1}, "Lion": {},
    "Rprop": {"weight_decay": None}, "Muon": {"maximize": None},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_on_a_gpu(fake_cuda, name):
    device = "cuda:1" if name in ("AdamW", "Adagrad", "Muon") else "cuda:0"
    options = {"lr": 0.1, "weight_decay": 0.1, "maximize": True, **OPTIONS[name]}
    options = {key: value for key, value in options.items() if value is not None}
    if name == "Muon":
        options["adjust_lr_fn"] = "match_rms_adamw"
    ours = parameters(shapes=[(5, 3), (3, 4), (7, 7), (1, 3)] if name == "Muon" else SHAPES)
    on_gpu = [mytorch.Tensor(p.data, requires_grad=True, device=device) for p in ours]
    pairs = [(ours, getattr(optim, name)(ours, **options)), (on_gpu, getattr(optim, name)(on_gpu, **options))]
    for params, optimizer in pairs:
        rng = np.random.default_rng(0)
        for step in range(4):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            for i, p in enumerate(params):
                if i != step:
                    p.grad = mytorch.Array(
                        np.asarray(rng.standard_normal(p.shape), np.float32), device=p.device
                    )
            optimizer.step()
    for p, q in zip(ours, on_gpu, strict=True):
        assert q.device == device
        np.testing.assert_allclose(p.data.numpy(), q.data.cpu().numpy(), rtol=1e-6, atol=1e-6)
    resumed = getattr(optim, name)(ours, **options)
    resumed.load_state_dict(pairs[1][1].state_dict())
    for p, q in zip(ours, on_gpu, strict=True):
        for key, value in resumed.state[p].items():
            assert value.device == "cpu"
            np.testing.assert_array_equal(value.numpy(), pairs[1][1].state[q][key].cpu().numpy())


def test_backward_on_a_gpu_writes_into_the_vector(fake_cuda):
    p = mytorch.Tensor([1.0, 2.0], requires_grad=True, device="cuda:0")
    optimizer = optim.SGD([p], lr=1.0)
    (flat,) = optimizer.flat_buffers()
    (p * 3).backward(mytorch.Tensor([1.0, 1.0], device="cuda:0"))
    optimizer.step()
    assert p.cpu().tolist() == [-2, -1]
    assert mytorch.Array(flat.grad).cpu().numpy()[:2].tolist() == [3, 3]


def test_a_model_may_move_after_the_optimizer_was_made(fake_cuda):
    ours = parameters()
    theirs = twins(ours)
    optimizer, oracle = optim.AdamW(ours, lr=0.01), torch.optim.AdamW(theirs, lr=0.01)
    train(optimizer, oracle, ours, theirs)
    for p, q in zip(ours, theirs, strict=True):
        p.data = p.data.to("cuda:0")
        p.grad = mytorch.Array(np.ones(p.shape, np.float32), device="cuda:0")
        q.grad = torch.ones_like(q)
    optimizer.step()
    oracle.step()
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.data.cpu().numpy(), q.detach().numpy(), rtol=1e-6, atol=1e-6)
    assert optimizer.state[ours[0]]["exp_avg"].device == "cuda:0"
    assert int(optimizer.state[ours[0]]["step"]) == 4


def test_a_kept_gradient_keeps_its_values():
    p = mytorch.tensor([1.0, 2.0], requires_grad=True)
    optimizer = mytorch.optim.SGD([p], lr=0.1)
    (p * 3.0).sum().backward()
    first = p.grad
    optimizer.zero_grad()
    (p * 5.0).sum().backward()
    assert first.tolist() == [3, 3] and p.grad.tolist() == [5, 5]
    optimizer.step()
    assert p.tolist() == pytest.approx([0.5, 1.5])
