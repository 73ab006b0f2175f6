"""`mytorch.fft` and complex numbers against PyTorch: values, gradients, dtypes, shapes and errors."""

import numpy as np
import pytest
import torch

import mytorch
from tests.each import each

rng = np.random.default_rng(0)


def normal(*shape, dtype="float64"):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if "complex" in dtype else x).astype(dtype)


def agree(call, *arrays, grad=True, rtol=1e-9):
    """Both libraries give the same, with the same gradients of |result|² weighted at random."""
    results = []
    for F in (mytorch, torch):
        xs = [F.tensor(a.copy(), requires_grad=grad and a.dtype.kind in "fc") for a in arrays]
        y = call(F, *xs)
        grads = []
        if grad:
            weights = F.tensor(np.random.default_rng(1).standard_normal(tuple(y.shape)) + 0.0)
            z = y * (2 + 1j) if y.dtype in (F.complex64, F.complex128) else y
            loss = ((z + 0.3).abs() * weights).sum()
            loss.backward()
            grads = [x.grad for x in xs]
        results.append((y, *grads))
    for g, w in zip(*results, strict=True):
        assert str(g.dtype) == str(w.dtype)[6:] and tuple(g.shape) == tuple(w.shape)
        w = w.detach().resolve_conj().numpy()
        np.testing.assert_allclose(np.asarray(g.detach().numpy()), w, rtol, 1e-9 + rtol)


KINDS = {"real": normal(3, 6), "complex": normal(3, 6, dtype="complex128"), "odd": normal(2, 3, 5),
         "transposed": normal(6, 3, dtype="complex128").T, "1x1": normal(1, 3)}
ONE = ("fft", "ifft", "rfft", "irfft")
SEVERAL = ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
ARGUMENTS = [{}, {"n": 4}, {"n": 9}, {"dim": 0, "n": 3}, {"norm": "ortho"}, {"norm": "forward", "n": 7},
             {"n": 1}]
ARGUMENTS_OF_SEVERAL = [{}, {"s": (4, 5)}, {"norm": "ortho"}, {"norm": "forward", "s": (2, 7)},
                        {"s": (-1, 5)}, {"dim": (0, 1)}, {"dim": (1, 0), "s": (3, 4)},
                        {"dim": (-1,)}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kwargs", ARGUMENTS, ids=str)
@each("name", ONE)
def test_along_one_dim(name, kwargs, kind):
    x = KINDS[kind]
    x = x.real if name == "rfft" else x
    agree(lambda F, a: getattr(F.fft, name)(a, **kwargs), x)


@each("kind", KINDS)
@pytest.mark.parametrize("kwargs", ARGUMENTS_OF_SEVERAL, ids=str)
@pytest.mark.parametrize("name", SEVERAL)
def test_along_several_dims(name, kwargs, kind):
    x = KINDS[kind]
    x = x.real if name.startswith("rfft") else x
    agree(lambda F, a: getattr(F.fft, name)(a, **kwargs), x)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64", "bool", "uint8"])
@pytest.mark.parametrize("name", ("fft", "ifft", "irfft", "fftn", "irfft2"))
def test_dtypes(name, dtype):
    x = normal(3, 6, dtype="complex64" if dtype == "complex64" else "float32").astype(dtype)
    agree(lambda F, a: getattr(F.fft, name)(a), x, grad=dtype in ("float32", "complex64"), rtol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies(name, n):
    for kwargs in ({}, {"d": 0.25}, {"dtype": "float64"}):
        theirs = {**kwargs, **({"dtype": torch.float64} if "dtype" in kwargs else {})}
        got, want = getattr(mytorch.fft, name)(n, **kwargs), getattr(torch.fft, name)(n, **theirs)
        assert str(got.dtype) == str(want.dtype)[6:]
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dim", [None, 0, (0, -1)])
@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
def test_shifts(name, dim):
    for kind in ("real", "odd"):
        agree(lambda F, a: getattr(F.fft, name)(a, dim), KINDS[kind])


REFUSED = {
    "half": (lambda F, a: F.fft.fft(a.half()), "dtype"),
    "n=0": (lambda F, a: F.fft.fft(a, 0), "data points"),
    "negative": (lambda F, a: F.fft.irfft(a, -2), "data points"),
    "norm": (lambda F, a: F.fft.fft(a, norm="foo"), "normalization"),
    "dim": (lambda F, a: F.fft.fft(a, dim=3), "out of range"),
    "0-d": (lambda F, a: F.fft.fft(a[0, 0]), "no dimensions"),
    "empty": (lambda F, a: F.fft.fft(a[:, :0]), "data points"),
    "complex": (lambda F, a: F.fft.rfft(a + 0j), "real"),
    "complex 2": (lambda F, a: F.fft.rfft2(a + 0j), "real"),
    "dim twice": (lambda F, a: F.fft.fftn(a, dim=(0, 0)), "unique"),
    "lengths": (lambda F, a: F.fft.fftn(a, (3, 4), (0,)), "same length"),
    "too many": (lambda F, a: F.fft.fftn(a, (3, 4, 5)), "3 values"),
    "no dims": (lambda F, a: F.fft.rfftn(a, dim=()), "at least one"),
    "frequencies": (lambda F, a: F.fft.fftfreq(5, dtype=F.int64), "floating"),
    "imag": (lambda F, a: F.imag(a), "complex"),
    "pairs": (lambda F, a: F.view_as_complex(a[:, :3]), "size 2"),
    "strides": (lambda F, a: F.view_as_complex(F.ones(2, 3).t()), "stride"),
    "integers": (lambda F, a: F.view_as_complex(F.ones(3, 2).long()), "float"),
    "real pairs": (lambda F, a: F.view_as_real(a), "complex"),
    "dtypes": (lambda F, a: F.complex(a, a.double()), "[Ee]xpected"),
    "sign": (lambda F, a: F.sign(a + 0j), "complex|not implemented"),
    "no real scalar": (lambda F, a: (F.ones(2, requires_grad=True) * 1j).sum().backward(), "real"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(what):
    call, match = REFUSED[what]
    with pytest.raises(Exception) as refused:  # noqa: B017 - whatever PyTorch raises
        call(torch, torch.ones(3, 4))
    with pytest.raises(refused.type, match=match):
        call(mytorch, mytorch.ones(3, 4))


Z, W, A, B = (normal(3, 4, dtype=d) for d in ("complex128", "complex128", "float64", "float64"))
COMPLEX = {
    "add": (lambda F, z, w: z + w * 2 - 1j, Z, W), "mul": (lambda F, z, w: z * w, Z, W),
    "mixed": (lambda F, z, a: z * a + a, Z, A), "div": (lambda F, z, w: z / w, Z, W),
    "matmul": (lambda F, z, w: z @ w.mT, Z, W), "abs": (lambda F, z: z.abs(), Z),
    "einsum": (lambda F, z, w: F.einsum("ij,kj->ik", z, w), Z, W), "exp": (lambda F, z: z.exp(), Z),
    "conj": (lambda F, z, w: z.conj() * w, Z, W), "angle": (lambda F, z: z.angle(), Z),
    "real": (lambda F, z: z.real * 2 + F.real(z), Z), "imag": (lambda F, z: z.imag + F.imag(z) ** 2, Z),
    "polar": (lambda F, a, b: F.polar(a, b), np.abs(A), B),
    "complex": (lambda F, a, b: F.complex(a, b), A, B),
    "of a row": (lambda F, a, b: F.complex(a, b[0]), A, B), "pow": (lambda F, z: z**3, Z),
    "as real": (lambda F, z: F.view_as_real(z) ** 2, Z), "angle of reals": (lambda F, a: F.angle(a) + a, A),
    "as complex": (lambda F, a: F.view_as_complex(a.reshape(3, 2, 2)), A), "sum": (lambda F, z: z.sum(0), Z),
    "index": (lambda F, z: z[1:, [0, 2, 0]], Z), "cat": (lambda F, z, w: F.cat([z, w.conj()]), Z, W),
    "stack": (lambda F, z, w: F.stack([z, w]).unbind(1)[1], Z, W),
    "where": (lambda F, z: z.real.abs() + z.imag, Z),
    "real of a real": (lambda F, a: F.real(a) * F.conj(a), A), "prod": (lambda F, z: z[0] * z[1] / z[2], Z),
    "cast": (lambda F, a: a.to(F.complex128) * (1 + 2j), A), "sqrt": (lambda F, z: z.sqrt(), Z),
}


@pytest.mark.parametrize("what", COMPLEX)
def test_complex_numbers(what):
    call, *arrays = COMPLEX[what]
    agree(call, *arrays)


@pytest.mark.parametrize(
    "what", ["mul", "abs", "conj", "angle", "polar", "as real", "as complex", "imag", "pow"]
)
def test_second_gradients(what):
    call, *arrays = COMPLEX[what]
    results = []
    for F in (mytorch, torch):
        xs = [F.tensor(a, requires_grad=True) for a in arrays]
        loss = (call(F, *xs) * (0.5 + 1j)).abs().sum()
        first = F.autograd.grad(loss, xs, create_graph=True)
        results.append(F.autograd.grad(sum((g.abs() ** 2).sum() for g in first), xs))
    for g, w in zip(*results, strict=True):
        np.testing.assert_allclose(g.numpy(), w.resolve_conj().numpy(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_second_gradients_of_transforms(name):
    results = []
    for F in (mytorch, torch):
        x = F.tensor(KINDS["real"].copy(), requires_grad=True)
        loss = (getattr(F.fft, name)(x, 7).abs() ** 3).sum()
        (first,) = F.autograd.grad(loss, x, create_graph=True)
        results.append(F.autograd.grad((first**2).sum(), x)[0].numpy())
    np.testing.assert_allclose(*results, rtol=1e-8)


def test_views_share_memory():
    z = mytorch.tensor(Z)
    z.real[0] = 5
    mytorch.view_as_real(z)[1, :, 1] = 7
    assert z[0].real.tolist() == [5] * 4 and z[1].imag.tolist() == [7] * 4
    a = mytorch.zeros(3, 2)
    mytorch.view_as_complex(a)[1] = 2 + 3j
    assert a.tolist() == [[0, 0], [2, 3], [0, 0]]


def train(F, steps=5):
    x = F.tensor(np.random.default_rng(2).standard_normal((4, 9)))
    pairs = F.tensor(np.random.default_rng(3).standard_normal((5, 2)), requires_grad=True)
    optimizer, losses = F.optim.SGD([pairs], lr=0.02), []
    for _ in range(steps):
        loss = ((F.fft.irfft(F.fft.rfft(x) * F.view_as_complex(pairs), n=9) - x.roll(2, -1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_filter_is_trained():
    np.testing.assert_allclose(train(mytorch), train(torch), rtol=1e-9)


def rotated(F, q, theta=100.0):
    """Rotary embeddings as in llama's code."""
    b, t, h, d = q.shape
    freqs = 1.0 / (theta ** (F.arange(0, d, 2).float() / d))
    cis = F.polar(F.ones(t, d // 2), F.outer(F.arange(t).float(), freqs))
    pairs = F.view_as_complex(q.float().reshape(b, t, h, -1, 2))
    return F.view_as_real(pairs * cis.view(1, t, 1, d // 2)).flatten(3).type_as(q)


def test_a_filter_of_complex_numbers_gets_its_gradient():
    x, filter = KINDS["real"], normal(4, dtype="complex128")
    agree(lambda F, a, f: F.fft.irfft(F.fft.rfft(a) * f), x, filter)


def test_rotary_embeddings():
    agree(rotated, normal(2, 5, 3, 8, dtype="float32"), rtol=1e-5)


def test_a_function_of_ones_own_gets_pytorchs_gradient():
    grads = []
    for F in (mytorch, torch):

        class Twist(F.autograd.Function):
            @staticmethod
            def forward(ctx, z):
                return z * 2j

            @staticmethod
            def backward(ctx, g):
                return g * -2j

        z = F.tensor(Z, requires_grad=True)
        (Twist.apply(z) * (1 + 1j)).real.sum().backward()
        grads.append(z.grad.numpy())
    np.testing.assert_allclose(*grads)
