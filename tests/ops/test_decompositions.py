"""`mytorch.linalg` against PyTorch: values, gradients, dtypes, shapes and errors."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.autograd import gradcheck, gradgradcheck
from tests.each import each
from tests.every import every
from tests.oracle import check, cofactors, fails_alike, in_both

rng = np.random.default_rng(0)


def normal(*shape, dtype="float64"):
    return rng.standard_normal(shape).astype(dtype)


def square(*batch, n=3):
    return normal(*batch, n, n) + 3 * np.eye(n)


def positive(*batch, n=3):
    x = normal(*batch, n, n)
    return x @ np.swapaxes(x, -1, -2) + np.eye(n)


SINGULAR = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
SQUARES = {
    "2-d": square(), "1x1": square(n=1), "0x0": normal(0, 0), "batch": square(2, 4), "no batch": square(0),
    "transposed": np.swapaxes(square(2, n=4), -1, -2), "reversed": square(n=4)[::-1, ::-1],
}
OF_SQUARES = {
    "inv": lambda F, a: F.linalg.inv(a),
    "inverse": lambda F, a: a.inverse() + F.inverse(a),
    "det": lambda F, a: F.linalg.det(a) + a.det(),
    "slogdet": lambda F, a: F.linalg.slogdet(a),
    "logdet": lambda F, a: F.logdet(F.matmul(a, a.mT)),
    "logdet of a negative determinant": lambda F, a: F.logdet(-a),
    **{f"power {n}": lambda F, a, n=n: F.linalg.matrix_power(a, n) for n in (0, 1, 2, 3, 7, -1, -3)},
    "exp": lambda F, a: F.matrix_exp(a) + F.linalg.matrix_exp(-a) + (a / 100).matrix_exp(),
    "triangular": lambda F, a: F.linalg.solve_triangular(a, a, upper=True),
    "lower": lambda F, a: F.linalg.solve_triangular(a, a, upper=False, left=False),
    "unit": lambda F, a: F.linalg.solve_triangular(a, a, upper=True, unitriangular=True),
    "solve": lambda F, a: F.linalg.solve(a, a.mT + 1),
    "solve, right": lambda F, a: F.linalg.solve(a, a.mT + 1, left=False),
    "cholesky": lambda F, a: F.linalg.cholesky(a @ a.mT),
    "cholesky, upper": lambda F, a: F.cholesky(a @ a.mT, upper=True),
    "eigvalsh": lambda F, a: F.linalg.eigvalsh(a + a.mT),
    "eigh": lambda F, a: [x.abs() for x in F.linalg.eigh(a + a.mT)],
    "eigh U": lambda F, a: F.linalg.eigh(a + a.mT, UPLO="U").eigenvalues,
    "qr": lambda F, a: F.linalg.qr(a),
    "pinv": lambda F, a: F.linalg.pinv(a),
    "pinv hermitian": lambda F, a: F.linalg.pinv(a + a.mT, hermitian=True),
}


@each("kind", SQUARES)
@each("name", OF_SQUARES)
def test_square_matrices(name, kind):
    check(*in_both(OF_SQUARES[name]), SQUARES[kind], grad=SQUARES[kind].size > 0, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in OF_SQUARES if n != "logdet of a negative determinant"])
def test_gradients_of_square_matrices_by_finite_differences(name):
    x = Tensor(square(2), requires_grad=True)
    assert gradcheck(lambda a: OF_SQUARES[name](mytorch, a), x)
    assert gradgradcheck(lambda a: OF_SQUARES[name](mytorch, a), x)


def without_signs(usv):
    """U and V up to the signs of their columns, and their product, which has no such freedom."""
    u, s, vh = usv
    k = s.shape[-1]
    return u[..., :k] ** 2, s, vh[..., :k, :] ** 2, (u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :]


def _usvh(usv):
    u, s, v = usv
    return u, s, v.mT


WIDE = {"3x5": normal(3, 5), "5x3": normal(5, 3), "batch": normal(2, 4, 3), "0x3": normal(0, 3),
        "3x0": normal(3, 0), "transposed": normal(3, 4, 2).T, "no batch": normal(0, 2, 3)}
OF_MATRICES = {
    "svd": lambda F, a: without_signs(F.linalg.svd(a, full_matrices=False)),
    "full svd": lambda F, a: without_signs(F.linalg.svd(a)),
    "torch.svd": lambda F, a: without_signs(_usvh(a.svd())),
    "svdvals": lambda F, a: F.linalg.svdvals(a),
    "no vectors": lambda F, a: F.svd(a, compute_uv=False),
    "qr": lambda F, a: F.linalg.qr(a),
    "torch.qr": lambda F, a: a.qr(),
    "pinv": lambda F, a: F.linalg.pinv(a),
    "pinverse": lambda F, a: a.pinverse(),
    "pinv with rtol": lambda F, a: F.linalg.pinv(a, rtol=0.4),
    "rank": lambda F, a: F.linalg.matrix_rank(a),
    "rank with atol": lambda F, a: F.linalg.matrix_rank(a, atol=1.5),
}


@each("kind", WIDE)
@each("name", OF_MATRICES)
def test_matrices(name, kind):
    grad = WIDE[kind].size > 0 and name != "pinv with rtol"
    check(*in_both(OF_MATRICES[name]), WIDE[kind], grad=grad, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 3, 3)])
@pytest.mark.parametrize("name", ["svd", "full svd", "torch.svd", "qr", "pinv"])
def test_gradients_of_matrices_by_finite_differences(name, shape):
    x = Tensor(normal(*shape), requires_grad=True)
    assert gradcheck(lambda a: OF_MATRICES[name](mytorch, a), x)


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("kind", ["3x5", "5x3", "batch"])
def test_modes_of_qr(mode, kind):
    a = WIDE[kind]
    check(*in_both(lambda F, x: F.linalg.qr(x, mode)), a, grad=False)
    if mode == "r" or (mode == "complete" and a.shape[-2] > a.shape[-1]):
        for F in (mytorch, torch):
            with pytest.raises(RuntimeError, match="mode"):
                F.linalg.qr(F.tensor(a.copy(), requires_grad=True), mode).R.sum().backward()
    else:
        check(*in_both(lambda F, x: F.linalg.qr(x, mode)), a, rtol=1e-7, atol=1e-9)


LSTSQ = [((5, 3), (5, 2)), ((3, 5), (3, 2)), ((2, 5, 3), (2, 5)), ((3, 3), (3,))]


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shapes", LSTSQ)
def test_lstsq(driver, shapes):
    a, b = (normal(*shape) for shape in shapes)
    check(*in_both(lambda F, x, y: F.linalg.lstsq(x, y, driver=driver)), a, b, rtol=1e-7, atol=1e-9)


def test_lstsq_of_rank_deficient_matrices():
    b = normal(3, 2)
    check(*in_both(lambda F, x, y: F.linalg.lstsq(x, y)), SINGULAR, b, grad=False, rtol=1e-7, atol=1e-9)


SOLVE = [((3, 3), (3,)), ((2, 3, 3), (2, 3)), ((2, 3, 3), (3,)), ((3, 3), (4, 3, 2)),
         ((4, 1, 3, 3), (2, 3, 5)), ((0, 0), (0, 2)), ((3, 3), (3, 0))]


@pytest.mark.parametrize("shapes", SOLVE, ids=str)
def test_solve_broadcasts(shapes):
    a, b = square(*shapes[0][:-2], n=shapes[0][-1]), normal(*shapes[1])
    check(*in_both(lambda F, x, y: F.linalg.solve(x, y)), a, b, rtol=1e-8)


@pytest.mark.parametrize("shapes", [((2, 3), (3, 4)), ((3,), (3, 4), (4, 2), (2, 6), (6,)),
                                    ((2, 30), (30, 1), (1, 9), (9, 4))], ids=str)
def test_multi_dot(shapes):
    arrays = [normal(*shape) for shape in shapes]
    check(*in_both(lambda F, *xs: F.linalg.multi_dot(xs)), *arrays, rtol=1e-8)


@pytest.mark.parametrize("a", [SINGULAR, np.zeros((3, 3)), np.stack([SINGULAR, square()])], ids=str)
def test_the_gradient_of_a_determinant_of_zero(a):
    x = Tensor(a, requires_grad=True)
    mytorch.det(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), cofactors(a), atol=1e-12)


@each("dtype", ["float32", "complex64", "complex128", "float16", "int64", "bool"])
@each("name", ["inv", "det", "slogdet", "cholesky", "eigh", "qr", "svd", "svdvals", "pinv",
                                  "matrix_rank", "eigvalsh"])
def test_dtypes(name, dtype):
    x = positive(2).astype(dtype)
    if dtype in ("float16", "int64", "bool"):
        fails_alike(*in_both(lambda F, a: getattr(F.linalg, name)(a)), x, match="Low|Expected")
        return
    got, want = (getattr(F.linalg, name)(F.tensor(x)) for F in (mytorch, torch))
    pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
    assert every(str(g.dtype) == str(w.dtype)[6:] and g.shape == tuple(w.shape) for g, w in pairs)


def _deficient(F):
    return F.diag(F.tensor([1.0, 0.0, 0.0]))[:, :2].double()


REFUSED = {
    "not square": (lambda F, a: F.linalg.inv(a[:2]), "square"),
    "a vector": (lambda F, a: F.linalg.det(a[0]), "at least 2 dim"),
    "singular": (lambda F, a: F.linalg.inv(a * 0), "[Ss]ingular"),
    "singular system": (lambda F, a: F.linalg.solve(a * 0, a), "[Ss]ingular"),
    "singular power": (lambda F, a: F.linalg.matrix_power(a * 0, -2), "[Ss]ingular"),
    "not positive": (lambda F, a: F.linalg.cholesky(-a), "positive"),
    "shapes": (lambda F, a: F.linalg.solve(a, a[:2]), "shapes"),
    "dtypes": (lambda F, a: F.linalg.solve(a, a.float()), "dtype"),
    "left vector": (lambda F, a: F.linalg.solve(a, a[0], left=False), "left=False"),
    "mode": (lambda F, a: F.linalg.qr(a, "full"), "mode"),
    "UPLO": (lambda F, a: F.linalg.eigh(a, "X"), "UPLO"),
    "one factor": (lambda F, a: F.linalg.multi_dot([a]), "at least 2"),
    "3-d factor": (lambda F, a: F.linalg.multi_dot([a, a[None], a]), "2D"),
    "power of wide": (lambda F, a: F.linalg.matrix_power(a[:2], 2), "square"),
    "rank of a vector": (lambda F, a: F.linalg.matrix_rank(a[0]), "at least 2"),
    "driver": (lambda F, a: F.linalg.lstsq(a, a, driver="foo"), "driver"),
    "rows": (lambda F, a: F.linalg.lstsq(a, a[:2]), "rows"),
    "deficient": (lambda F, a: F.linalg.lstsq(_deficient(F), a, driver="gels"), "rank"),
    "svd of NaN": (lambda F, a: F.linalg.svd(a * np.nan), "finite"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(what):
    call, match = REFUSED[what]
    with pytest.raises(Exception) as refused:  # noqa: B017 - whatever PyTorch raises
        call(torch, torch.tensor(positive()))
    singular = isinstance(refused.value, torch.linalg.LinAlgError)
    with pytest.raises(mytorch.linalg.LinAlgError if singular else refused.type, match=match):
        call(mytorch, mytorch.tensor(positive()))


def test_a_linalg_error_is_a_runtime_error_and_numpys():
    assert every(issubclass(F.linalg.LinAlgError, RuntimeError) for F in (mytorch, torch))
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.inv(mytorch.zeros(2, 2))


@pytest.mark.parametrize("name", ["inv", "det"])
def test_gradients_of_complex_matrices(name):
    a, grads = square(2) + 1j * normal(2, 3, 3), []
    for F in (mytorch, torch):
        x = F.tensor(a, requires_grad=True)
        getattr(F.linalg, name)(x).abs().sum().backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-8)


@pytest.mark.parametrize("name", ["cholesky", "eigh", "qr", "svd", "pinv", "slogdet"])
def test_complex_gradients_that_are_missing_say_so(name):
    x = mytorch.tensor(positive() + 0j, requires_grad=True)
    y = getattr(mytorch.linalg, name)(x)
    y = y if isinstance(y, Tensor) else y[1 if name == "slogdet" else 0]
    with pytest.raises(NotImplementedError, match="complex128"):
        y.abs().sum().backward()


OPS_ON_A_GPU = {  # by the name of the op
    **{name: (lambda F, a, name=name: getattr(F, name)(a))
       for name in ("cholesky", "det", "inverse", "logdet", "pinverse")},
    "qr": lambda F, a: F.qr(a)[1], "slogdet": lambda F, a: F.slogdet(a)[1], "svd": lambda F, a: F.svd(a)[1],
    "matrix_power": lambda F, a: F.matrix_power(a, 3), "matrix_exp": lambda F, a: F.matrix_exp(a),
    "angle": lambda F, a: F.angle(a * 1j), "complex": lambda F, a: F.complex(a, a * 2).abs(),
    "conj": lambda F, a: F.conj(a * 1j).imag * 1,
    "conj_physical": lambda F, a: F.conj_physical(a * 1j).imag * 1,
    "imag": lambda F, a: F.imag(a * 1j) * 1, "polar": lambda F, a: F.polar(a * a, a).abs(),
    "real": lambda F, a: F.real(a * 1j * 1j) * 1, "resolve_conj": lambda F, a: F.resolve_conj(a * 1j).abs(),
    "view_as_complex": lambda F, a: F.view_as_complex(a[:, :2].contiguous()).abs(),
    "view_as_real": lambda F, a: F.view_as_real(a * 1j) * 1,
}
ON_A_GPU = {
    **{f"mytorch.{name}": call for name, call in OPS_ON_A_GPU.items()},
    **{name: (lambda F, a, name=name: getattr(F.linalg, name)(a))
       for name in ("inv", "det", "cholesky", "eigvalsh", "pinv", "matrix_rank", "svdvals")},
    "det of 0": lambda F, a: F.linalg.det(a * 0), "slogdet": lambda F, a: F.linalg.slogdet(a)[1],
    "qr": lambda F, a: F.linalg.qr(a)[1], "eigh": lambda F, a: F.linalg.eigh(a)[0],
    "lstsq": lambda F, a: F.linalg.lstsq(a, a)[0], "solve": lambda F, a: F.linalg.solve(a, a),
    "triangular": lambda F, a: F.linalg.solve_triangular(a, a, upper=True),
    "hermitian": lambda F, a: F.linalg.pinv(a, hermitian=True), "angle": lambda F, a: (a * 1j).angle(),
    "polar": lambda F, a: F.polar(a * a, a).abs(), "conj": lambda F, a: (a * 1j).conj().imag * 1,
    "pairs": lambda F, a: F.view_as_real(F.view_as_complex(a[:, :2].contiguous()) ** 2),
}


@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name, fake_cuda):
    a = positive()
    theirs, mine = torch.tensor(a, requires_grad=True), mytorch.tensor(a, device="cuda:0", requires_grad=True)
    got, want = ON_A_GPU[name](mytorch, mine), ON_A_GPU[name](torch, theirs)
    assert got.device == "cuda:0" and got.requires_grad == want.requires_grad
    np.testing.assert_allclose(got.detach().cpu().numpy(), want.detach().numpy(), rtol=1e-8, atol=1e-10)
    if want.requires_grad:
        got.sum().backward()
        want.sum().backward()
        np.testing.assert_allclose(mine.grad.cpu().numpy(), theirs.grad.numpy(), rtol=1e-7, atol=1e-9)
