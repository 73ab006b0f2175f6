"""Grids, bags, alignments and Gumbel samples: what the cases of `test_parity` don't reach."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch.autograd import gradcheck
from mytorch.nn import functional as F
from tests.oracle import check, fails_alike, in_both

TF = torch.nn.functional
rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 4), (2, 3, 2, 4, 3), (2, 1, 3, 1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_affine_grid(size, align, dtype):
    dims = len(size) - 2
    theta = rng.standard_normal((2, dims, dims + 1)).astype(dtype)
    check(F.affine_grid, TF.affine_grid, theta, size=size, align_corners=align)


def test_align_corners_has_a_default_and_a_warning():
    for call in (lambda t: t.nn.functional.affine_grid(t.ones(1, 2, 3), (1, 1, 2, 2)),
                 lambda t: t.nn.functional.grid_sample(t.ones(1, 1, 2, 2), t.ones(1, 2, 2, 2))):
        for t in (mytorch, torch):
            with pytest.warns(UserWarning, match="align_corners"):
                call(t)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_points_at_the_ends_and_far_away(mode, padding, align):
    x = normal(1, 2, 3, 4)
    points = np.array([-1e4, -3, -2, -1, -0.5, 0, 1 / 3, 1, 2, 3, 7.5, 1e4], "float32")
    grid = np.stack(np.meshgrid(points, points), -1)[None]

    def call(t, x, grid):
        grid = grid if mode == "nearest" else grid * 1.0
        return t.nn.functional.grid_sample(x, grid, mode, padding, align)

    # where pixels meet, rounding decides on which side a point lies: of the gradients, only those of x
    mine, his = (t.tensor(grid) for t in (mytorch, torch))
    check(lambda x: call(mytorch, x, mine), lambda x: call(torch, x, his), x, atol=2e-5)


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_points_that_are_not_finite(padding):
    x, grid = normal(1, 1, 3, 3), np.array([[np.nan, 0], [np.inf, 0], [0, -np.inf], [0.1, 0.2]], "float32")
    grid = mytorch.tensor(grid).reshape(1, 1, 4, 2)
    ours = F.grid_sample(mytorch.tensor(x), grid, "nearest", padding, False)
    want = {"zeros": [0, 0, 0], "border": [x[0, 0, 1, 0], x[0, 0, 1, 2], x[0, 0, 0, 1]]}[padding]
    np.testing.assert_array_equal(ours.numpy()[0, 0, 0], [*want, x[0, 0, 1, 1]])


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_gradients_of_grid_sample(mode, padding):
    x = mytorch.tensor(rng.standard_normal((1, 2, 3, 4)), requires_grad=True)
    grid = mytorch.tensor(rng.uniform(-1.7, 1.7, (1, 2, 3, 2)), requires_grad=True)
    gradcheck(lambda x, grid: F.grid_sample(x, grid, mode, padding, False), [x, grid])


def test_grids_are_refused():
    x, grid = normal(2, 3, 4, 5), normal(2, 6, 7, 2)
    for match, args, how in (
        ("mode to be one of .* 'cubic'", (x, grid), {"mode": "cubic"}),
        ("padding_mode to be one of", (x, grid), {"padding_mode": "wrap"}),
        ("one dtype, got float32 and float64", (x, grid.astype(float)), {}),
        ("same number of dimensions", (x, normal(2, 1, 6, 7, 2)), {}),
        ("same number of dimensions", (x[0], grid[0]), {}),
        (r"grid of shape \(2, …, 2\)", (x, grid[:1]), {}),
        (r"grid of shape \(2, …, 2\)", (x, normal(2, 6, 7, 3)), {}),
        ("non-empty", (x[:, :, :0], grid), {}),
        ("only supports 4D", (normal(2, 3, 4, 5, 6), normal(2, 2, 2, 2, 3)), {"mode": "bicubic"}),
    ):
        fails_alike(F.grid_sample, TF.grid_sample, *args, match=match, align_corners=False, **how)
    theta = normal(2, 2, 3)
    for match, args in (
        ("floating point", (np.ones((2, 2, 3), int), (2, 1, 3, 3))),
        ("4D and 5D sizes", (theta, (2, 1, 3))),
        ("Nx2x3", (theta[0], (2, 1, 3, 3))),
        ("Nx3x4", (theta, (2, 1, 3, 3, 3))),
        ("positive output size", (theta, (2, 1, 0, 3))),
        ("one N, got 2 and 3", (theta, (3, 1, 3, 3))),
    ):
        fails_alike(F.affine_grid, TF.affine_grid, *args, match=match, align_corners=False)


BAGS = (np.array([3, 1, 6, 1]), normal(7, 5), np.array([0, 2]))


def test_bags_are_refused():
    index, rows, bags = BAGS
    for match, args, how in (
        ("mode has to be one of .* got 'min'", BAGS, {"mode": "min"}),
        ("by the frequency", BAGS, {"mode": "max", "scale_grad_by_freq": True}),
        ("sparse weights", BAGS, {"mode": "max", "sparse": True}),
        ("2D Tensor, got shape .35.", (index, rows.reshape(-1), bags), {}),
        ("offsets has to be None", (index.reshape(2, 2), rows, bags), {}),
        ("got None", (index, rows), {}),
        (r"1D Tensor, got shape \[1, 2\]", (index, rows, bags[None]), {}),
        ("1D or 2D", (index.reshape(2, 2, 1), rows), {}),
        (r"offsets\[0\] has to be 0", (index, rows, bags + 1), {}),
        ("greater than input's length 4, got 5", (index, rows, np.array([0, 5])), {}),
        ("at least 1", (index, rows, bags[:0]), {"include_last_offset": True}),
        ("out of range: 6, of 5 rows", (index, rows[:5], bags), {}),
        ("padding_idx must be within .* got 7", BAGS, {"padding_idx": 7}),
        ("indices of dtype", (index.astype("float32"), rows, bags), {}),
    ):
        fails_alike(F.embedding_bag, TF.embedding_bag, *args, match=match, **how)

    def weighted(factors, **how):
        return lambda t: t.nn.functional.embedding_bag(
            *(t.tensor(a) for a in BAGS), per_sample_weights=t.tensor(factors), **how
        )

    for match, call in (
        ("only supported for mode='sum', got mode='mean'", weighted(normal(4))),
        ("same shape as the input", weighted(normal(3), mode="sum")),
        ("the same dtype, got float32 and float64", weighted(np.ones(4), mode="sum")),
    ):
        fails_alike(*in_both(call), match=match)
    with pytest.raises(NotImplementedError, match="sparse gradients"):
        F.embedding_bag(*map(mytorch.tensor, BAGS[:1]), mytorch.ones(7, 2, requires_grad=True), sparse=True)


def test_rows_of_bags_are_renormalized_in_place():
    index, rows, bags = BAGS
    tables = []
    for t in (mytorch, torch):
        table = t.tensor(rows)
        t.nn.functional.embedding_bag(t.tensor(index), table, t.tensor(bags), max_norm=1.0)
        tables.append(table.numpy())
    np.testing.assert_allclose(*tables, rtol=1e-5)
    assert (tables[0][0] == rows[0]).all() and (tables[0][1] != rows[1]).any()


def test_frequencies_scale_each_row():
    """PyTorch 2.13 divides the rows 3 and 6 by the frequency of row 1."""
    index, rows, bags = BAGS
    table = mytorch.tensor(rows, requires_grad=True)
    F.embedding_bag(
        mytorch.tensor(index), table, mytorch.tensor(bags), mode="sum", scale_grad_by_freq=True
    ).sum().backward()
    np.testing.assert_array_equal(table.grad.numpy()[:, 0], [0, 1, 0, 1, 0, 0, 1])


def log_probs(*shape, dtype="float64"):
    return torch.randn(shape, dtype=torch.float64).log_softmax(-1).numpy().astype(dtype)


def test_gradient_of_ctc_loss_after_log_softmax():
    x = mytorch.tensor(rng.standard_normal((6, 2, 4)), requires_grad=True)
    targets = mytorch.tensor([[1, 1], [2, 3]])

    def loss(x):
        return F.ctc_loss(F.log_softmax(x, -1), targets, (6, 4), (2, 1), reduction="none")

    gradcheck(loss, x)
    gradcheck(mytorch.func.grad(lambda x: loss(x).sum()), x)


def test_long_sequences():
    x, targets = log_probs(300, 2, 12, dtype="float32"), rng.integers(1, 12, (2, 60))
    check(F.ctc_loss, TF.ctc_loss, x, targets, (300, 250), (60, 40), rtol=1e-4, atol=1e-6)


def test_alignments_are_refused():
    x, targets = log_probs(5, 2, 4), np.array([[1, 2], [3, 1]])
    for match, args, how in (
        ("log_probs of 2 or 3 dims", (x[0, 0], targets, (5,), (2,)), {}),
        ("labels, the sum of target_lengths|shape", (x, targets[0], (5, 5), (2, 2)), {}),
        ("blank must be in label range, 0 to 3, got 4", (x, targets, (5, 5), (2, 2)), {"blank": 4}),
        ("batch_size, 2, got 1", (x, targets, (5,), (2, 2)), {}),
        ("batch_size, 2, got 3", (x, targets, (5, 5), (2, 2, 2)), {}),
        ("at most 5, got 6", (x, targets, (5, 6), (2, 2)), {}),
        (r"\(2, 3 or more\), got \[2, 2\]", (x, targets, (5, 5), (3, 2)), {}),
        ("reduction", (x, targets, (5, 5), (2, 2)), {"reduction": "max"}),
        ("batch size must not be zero", (x[:, :0], targets[:0], (), ()), {}),
    ):
        fails_alike(F.ctc_loss, TF.ctc_loss, *args, match=match, **how)
    with pytest.raises(RuntimeError, match="target_lengths must be integral, got float64"):
        F.ctc_loss(mytorch.tensor(x), mytorch.tensor(targets), (5, 5), (1.5, 2))
    with pytest.raises(RuntimeError, match="labels from 0 to 3, got 4"):  # PyTorch reads beyond the row
        F.ctc_loss(mytorch.tensor(x), mytorch.tensor(targets + 1), (5, 5), (2, 2))


@pytest.mark.parametrize("dim", [-1, 0])
def test_gumbel_softmax(dim, monkeypatch):
    logits = mytorch.tensor(normal(3, 4), requires_grad=True)
    monkeypatch.setattr(F.use_fused, "default", False)  # saves compiling a kernel
    soft = F.gumbel_softmax(logits, 0.7, dim=dim)
    np.testing.assert_allclose(soft.sum(dim).detach().numpy(), 1, rtol=1e-5)
    hard = F.gumbel_softmax(logits, 0.7, hard=True, dim=dim)
    assert set(np.unique(np.round(hard.detach().numpy(), 5))) == {0, 1}
    (hard * mytorch.tensor(normal(3, 4))).sum().backward()
    assert np.abs(logits.grad.numpy()).min() > 0
    np.testing.assert_allclose(logits.grad.numpy().sum(dim), 0, atol=1e-6)


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_softmax_has_the_probabilities_of_softmax(hard, monkeypatch):
    monkeypatch.setattr(F.use_fused, "default", False)
    logits = mytorch.tensor([0.0, 1.0, 2.0]).expand(20000, 3)
    drawn = F.gumbel_softmax(logits, hard=hard).argmax(1).bincount() / 20000
    np.testing.assert_allclose(drawn.numpy(), F.softmax(logits[0], 0).numpy(), atol=0.01)
