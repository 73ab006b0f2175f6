"""Packages that take PyTorch's tensors, or NumPy's arrays, take mytorch's tensors."""

import numpy as np
import pytest

import mytorch
from mytorch import nn

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 4)), RNG.standard_normal((4, 5))


def test_einops():
    einops = pytest.importorskip("einops")
    import mytorch.utils.einops  # noqa: F401 - registers the tensors

    x = mytorch.tensor(X.reshape(2, 3, 4), requires_grad=True)
    y = einops.rearrange(x, "b t (h d) -> b h t d", h=2)
    assert y.shape == (2, 2, 3, 2)
    np.testing.assert_array_equal(y.detach().numpy(), X.reshape(2, 3, 2, 2).transpose(0, 2, 1, 3))
    pooled = einops.reduce(x, "b t d -> b d", "mean")
    np.testing.assert_allclose(pooled.detach().numpy(), X.reshape(2, 3, 4).mean(1))
    (pooled.sum() + einops.repeat(y, "b h t d -> b h t d n", n=3).sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full((2, 3, 4), 3 + 1 / 3))


def test_opt_einsum():
    opt_einsum = pytest.importorskip("opt_einsum")
    z = RNG.standard_normal((5, 3))
    for equation, arrays in (
        ("ij,jk,kl->il", (X, Y, z)), ("ij,jk,kl->li", (X, Y, z)), ("ij,ij->", (X, X)), ("ij,jk->ijk", (X, Y)),
    ):
        tensors = [mytorch.tensor(a, requires_grad=True) for a in arrays]
        out = opt_einsum.contract(equation, *tensors)
        assert isinstance(out, mytorch.Tensor)
        np.testing.assert_allclose(out.detach().numpy(), np.einsum(equation, *arrays), 1e-10)
        out.sum().backward()
        want = [mytorch.tensor(a, requires_grad=True) for a in arrays]
        mytorch.einsum(equation, *want).sum().backward()
        for a, b in zip(tensors, want, strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 1e-10)
    prepared = opt_einsum.contract_expression("ij,jk,kl->il", X.shape, Y.shape, z.shape)
    out = prepared(*(mytorch.tensor(a) for a in (X, Y, z)))
    np.testing.assert_allclose(out.numpy(), X @ Y @ z, 1e-10)


def test_tensordot_takes_numpys_axes():
    """As opt_einsum calls it, where a pair of operands has no backend of its own."""
    a, b = mytorch.tensor(X), mytorch.tensor(Y)
    for axes in (1, ([1], [0]), ((1,), (0,))):
        np.testing.assert_allclose(mytorch.tensordot(a, b, axes=axes).numpy(), X @ Y, 1e-12)


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    from safetensors.numpy import load_file, save_file

    model = nn.Linear(4, 3)
    mytorch.save(model.state_dict(), tmp_path / "ours.safetensors")
    theirs = load_file(tmp_path / "ours.safetensors")
    assert sorted(theirs) == ["bias", "weight"]
    np.testing.assert_array_equal(theirs["weight"], model.weight.detach().numpy())
    save_file({"weight": np.ones((3, 4), "float32"), "bias": np.zeros(3, "float32")}, tmp_path / "theirs")
    with safetensors.safe_open(tmp_path / "theirs", framework="np") as opened:
        model.load_state_dict({key: opened.get_tensor(key) for key in opened.keys()})  # noqa: SIM118
        part = mytorch.tensor(opened.get_slice("weight")[:1])
    assert model.weight.detach().sum() == 12 and part.tolist() == [[1, 1, 1, 1]]
    save_file({"x": np.asarray(mytorch.ones(2))}, tmp_path / "again")
    assert mytorch.load(tmp_path / "again")["x"].tolist() == [1, 1]


def test_scikit_learn():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LinearRegression
    from sklearn.metrics import accuracy_score, mean_squared_error
    from sklearn.model_selection import train_test_split

    x, w = mytorch.tensor(X), mytorch.tensor([1.0, -2.0, 0.5, 3.0], dtype="float64")
    y = x @ w + 1
    found = LinearRegression().fit(x, y)
    np.testing.assert_allclose(found.coef_, w.numpy(), 1e-10)
    np.testing.assert_allclose(found.predict(x), y.numpy(), 1e-10)
    assert mean_squared_error(y, y + 1) == pytest.approx(1)
    assert accuracy_score(mytorch.tensor([1, 0, 1, 1]), mytorch.tensor([1, 1, 1, 1])) == 0.75
    train, test = train_test_split(x, test_size=2, random_state=0)
    assert isinstance(train, mytorch.Tensor) and (len(train), len(test)) == (4, 2)


def test_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(mytorch.tensor(X), columns=list("abcd"))
    np.testing.assert_array_equal(frame.to_numpy(), X)
    frame["e"] = mytorch.arange(6)
    assert frame["e"].dtype == "int64" and frame["e"].sum() == 15
    series = pandas.Series(mytorch.ones(3).numpy())
    assert mytorch.tensor(series).tolist() == [1, 1, 1]
    assert mytorch.tensor(frame[["a", "b"]].values).shape == (6, 2)
    assert mytorch.from_numpy(frame["e"].to_numpy().copy()).sum() == 15


def test_matplotlib(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (a, b, c) = pyplot.subplots(1, 3)
    x = mytorch.linspace(0, 1, 5)
    (line,) = a.plot(x, x**2)
    np.testing.assert_allclose(line.get_ydata(), np.linspace(0, 1, 5) ** 2, 1e-6)
    heights, _, _ = b.hist(mytorch.tensor([0.0, 0.0, 1.0]), bins=2)
    assert heights.tolist() == [2, 1]
    image = c.imshow(mytorch.tensor(X))
    np.testing.assert_array_equal(image.get_array(), X)
    a.scatter(x, x)
    b.bar(mytorch.arange(3), mytorch.ones(3))
    figure.savefig(tmp_path / "figure.png")
    pyplot.close(figure)
