"""NumPy's functions on Tensors give the values and gradients of PyTorch's function of the same meaning."""

import ast
import operator
import pathlib

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Array, Tensor, numpy_protocol
from tests.each import each
from tests.oracle import check

RNG = np.random.default_rng(0)
X = RNG.uniform(0.2, 0.9, (3, 4))
Y = RNG.uniform(0.2, 0.9, (3, 4))
SIGNED = RNG.uniform(-2, 2, (3, 4))
SQUARE = RNG.uniform(-1, 1, (3, 3))
ROW, OTHER = RNG.uniform(0.2, 0.9, 4), RNG.uniform(0.2, 0.9, 4)
CUBE = RNG.uniform(-1, 1, (2, 3, 4))
I, J = np.array([[6, 3], [5, 12]]), np.array([[3, 2], [4, 5]])  # noqa: E741
BITS, MASK = np.array([True, False, True]), np.array([True, True, False])
COLUMNS = np.array([[1, 0], [3, 3], [2, 1]])


def words(text):
    return text.split()


# NumPy's function, PyTorch's, and the arguments; what is written differently is a lambda.
UFUNCS = {
    **{
        name: (getattr(torch, name), (X,))
        for name in words(
            "exp exp2 expm1 log log2 log10 log1p sqrt square reciprocal sin cos tan tanh sinh cosh arcsin "
            "arccos arctan arcsinh arctanh deg2rad rad2deg"
        )
    },
    **{
        name: (getattr(torch, name), (SIGNED,))
        for name in words("negative absolute positive sign signbit floor ceil trunc isnan isinf isfinite")
    },
    **{
        name: (getattr(torch, name), (X, Y))
        for name in words(
            "add subtract multiply divide maximum minimum fmax fmin remainder fmod float_power copysign "
            "arctan2 hypot logaddexp logaddexp2 "
            "not_equal less less_equal greater greater_equal"
        )
    },
    **{
        name: (getattr(torch, name), (I, J))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "floor_divide")
    },
    **{name: (getattr(torch, name), (BITS, MASK)) for name in ("logical_and", "logical_or", "logical_xor")},
    "power": (torch.pow, (X, Y)),
    "conjugate": (torch.conj, (X,)),
    "equal": (torch.eq, (X, Y)),
    "rint": (torch.round, (SIGNED,)),
    "fabs": (torch.abs, (SIGNED,)),
    "arccosh": (torch.acosh, (X + 1,)),
    "degrees": (torch.rad2deg, (X,)),
    "radians": (torch.deg2rad, (X,)),
    "left_shift": (torch.bitwise_left_shift, (I, J)),
    "right_shift": (torch.bitwise_right_shift, (I, J)),
    "logical_not": (torch.logical_not, (BITS,)),
    "invert": (torch.bitwise_not, (I,)),
    "matmul": (torch.matmul, (X, Y.T)),
}

UFUNC_METHODS = {
    "add.reduce": [(lambda x: torch.sum(x, 0), (X,)), (lambda x, axis: torch.sum(x, axis), (X, 1))],
    "multiply.reduce": [(lambda x: torch.prod(x, 0), (X,))],
    "maximum.reduce": [(lambda x: torch.amax(x, 0), (X,)), (lambda x, axis: torch.amax(x, axis), (X, 1))],
    "minimum.reduce": [(lambda x: torch.amin(x, 0), (X,))],
    "add.accumulate": [(lambda x: torch.cumsum(x, 0), (X,)), (lambda x, axis: torch.cumsum(x, axis), (X, 1))],
}

# name: (PyTorch's function, arguments, keywords of NumPy's function)
FUNCTIONS = {
    "sum": [
        (torch.sum, (X,), {}),
        (lambda x: x.sum(1, True), (X,), {"axis": 1, "keepdims": True}),
        (lambda x: x.sum((0, 2)), (CUBE,), {"axis": (0, 2)}),
        (lambda x: x.sum(dtype=torch.float32), (X,), {"dtype": "float32"}),
    ],
    "prod": [(torch.prod, (X,), {}), (lambda x: x.prod(1, True), (X,), {"axis": 1, "keepdims": True})],
    "mean": [(torch.mean, (X,), {}), (lambda x: x.mean((0, -1)), (CUBE,), {"axis": (0, -1)})],
    "var": [
        (lambda x: x.var(correction=0), (X,), {}),
        (lambda x: x.var(1, correction=1), (X,), {"axis": 1, "ddof": 1}),
    ],
    "std": [(lambda x: x.std(correction=0), (X,), {}), (lambda x: x.std(0, correction=0), (X,), {"axis": 0})],
    "max": [(torch.amax, (X,), {}), (lambda x: x.amax(1, True), (X,), {"axis": 1, "keepdims": True})],
    "min": [(torch.amin, (X,), {}), (lambda x: x.amin((0, 1)), (CUBE,), {"axis": (0, 1)})],
    "amax": [(torch.amax, (X,), {})],
    "amin": [(torch.amin, (X,), {})],
    "cumsum": [(lambda x: x.ravel().cumsum(0), (X,), {}), (lambda x: x.cumsum(1), (X,), {"axis": 1})],
    "cumprod": [(lambda x: x.ravel().cumprod(0), (X,), {}), (lambda x: x.cumprod(1), (X,), {"axis": 1})],
    "linalg.norm": [
        (torch.linalg.vector_norm, (X,), {}),
        (lambda x: x.norm(dim=1), (X,), {"axis": 1}),
        (lambda x: x.norm(1, dim=0, keepdim=True), (X,), {"ord": 1, "axis": 0, "keepdims": True}),
        (lambda x, ord: torch.linalg.norm(x, ord), (X, "nuc"), {}),
        (lambda x: torch.linalg.norm(x, 1, (0, 2)), (CUBE,), {"ord": 1, "axis": (0, 2)}),
    ],
    "linalg.svd": [(lambda x: torch.linalg.svd(x, full_matrices=False), (X,), {"full_matrices": False})],
    "linalg.inv": [(torch.linalg.inv, (SQUARE,), {})],
    "linalg.solve": [(torch.linalg.solve, (SQUARE, SQUARE[0]), {})],
    "linalg.det": [(torch.linalg.det, (SQUARE,), {})],
    "linalg.slogdet": [(torch.linalg.slogdet, (SQUARE,), {})],
    "linalg.cholesky": [(torch.linalg.cholesky, (SQUARE @ SQUARE.T + 3 * np.eye(3),), {})],
    "linalg.qr": [(torch.linalg.qr, (SQUARE,), {})],
    "linalg.eigh": [(torch.linalg.eigh, (SQUARE,), {})],
    "linalg.eigvalsh": [(torch.linalg.eigvalsh, (SQUARE,), {})],
    "linalg.matrix_power": [(torch.linalg.matrix_power, (SQUARE, 3), {})],
    "clip": [
        (torch.clamp, (SIGNED, -0.5, 0.5), {}),
        (lambda x: x.clamp(min=0), (SIGNED,), {"min": 0.0}),
        (torch.clamp, (SIGNED, -X, X), {}),
    ],
    "round": [(torch.round, (SIGNED,), {}), (lambda x: x.round(decimals=1), (SIGNED,), {"decimals": 1})],
    "around": [(torch.round, (SIGNED,), {})],
    "where": [(torch.where, (SIGNED > 0, X, Y), {}), (torch.where, (SIGNED > 0, X, 0.0), {})],
    "reshape": [(torch.reshape, (X, (2, 6)), {}), (torch.reshape, (X, (-1,)), {})],
    "ravel": [(torch.ravel, (X,), {})],
    "transpose": [(lambda x: x.permute(2, 1, 0), (CUBE,), {}), (torch.permute, (CUBE, (1, 0, 2)), {})],
    "swapaxes": [(torch.swapaxes, (CUBE, 0, 2), {})],
    "moveaxis": [(torch.moveaxis, (CUBE, 0, -1), {})],
    "squeeze": [
        (torch.squeeze, (CUBE[:1, :, :1],), {}),
        (lambda x: x.squeeze(0), (CUBE[:1, :, :1],), {"axis": 0}),
    ],
    "expand_dims": [
        (torch.unsqueeze, (X, 1), {}),
        (torch.unsqueeze, (X, -1), {}),
        (lambda x, _: x[None, :, None], (X, (0, 2)), {}),
    ],
    "broadcast_to": [(torch.broadcast_to, (ROW, (3, 4)), {})],
    "concatenate": [
        (torch.cat, ([X, Y],), {}),
        (lambda xs: torch.cat(xs, 1), ([X, Y],), {"axis": 1}),
        (lambda xs: torch.cat([x.ravel() for x in xs]), ([X, ROW],), {"axis": None}),
    ],
    "stack": [(torch.stack, ([X, Y],), {}), (lambda xs: torch.stack(xs, -1), ([X, Y],), {"axis": -1})],
    "hstack": [(torch.hstack, ([X, Y],), {})],
    "vstack": [(torch.vstack, ([X, ROW],), {})],
    "split": [
        (lambda x, n: torch.split(x, 2, 1), (X, 2), {"axis": 1}),
        (torch.tensor_split, (X, [1, 2]), {}),
    ],
    "array_split": [(torch.tensor_split, (X, 2), {})],
    "tile": [(torch.tile, (X, (2, 1)), {}), (lambda x, n: torch.tile(x, (n,)), (X, 2), {})],
    "repeat": [
        (torch.repeat_interleave, (X, 2), {}),
        (lambda x, n: x.repeat_interleave(n, 1), (X, 2), {"axis": 1}),
    ],
    "flip": [(lambda x: x.flip(0, 1), (X,), {}), (lambda x, axis: x.flip(axis), (X, 1), {})],
    "roll": [(torch.roll, (X, 2), {}), (torch.roll, (X, 1, 0), {})],
    "tril": [(torch.tril, (SQUARE,), {}), (torch.tril, (SQUARE, -1), {})],
    "triu": [(torch.triu, (SQUARE, 1), {})],
    "diag": [(torch.diag, (ROW,), {}), (torch.diag, (SQUARE, 1), {})],
    "diagonal": [(torch.diagonal, (SQUARE,), {}), (torch.diagonal, (CUBE, 0, 1, 2), {})],
    "trace": [(torch.trace, (SQUARE,), {})],
    "copy": [(torch.clone, (X,), {})],
    "full_like": [(lambda x, v: v.expand(3, 4) + 0 * x, (X, np.array(2.5)), {})],
    "take": [
        (lambda x, i: x.ravel()[i], (X, COLUMNS), {}),
        (lambda x, i: x[:, i], (X, COLUMNS), {"axis": 1}),
    ],
    "take_along_axis": [(torch.take_along_dim, (X, COLUMNS, 1), {})],
    "diff": [(torch.diff, (X,), {}), (lambda x: x.diff(2, 0), (X,), {"n": 2, "axis": 0})],
    "lib.stride_tricks.sliding_window_view": [
        (lambda x: x.unfold(1, 2, 1), (X,), {"window_shape": 2, "axis": 1}),
        (lambda x: x.unfold(0, 2, 1).unfold(2, 3, 1), (CUBE,), {"window_shape": (2, 3), "axis": (0, -1)}),
    ],
    "sort": [
        (lambda x: x.sort(-1).values, (X,), {}),
        (lambda x: x.ravel().sort().values, (X,), {"axis": None}),
    ],
    "dot": [(torch.dot, (ROW, OTHER), {}), (torch.matmul, (X, ROW), {}), (torch.mul, (X, np.array(2.5)), {})],
    "outer": [(torch.outer, (ROW, OTHER), {})],
    "einsum": [(torch.einsum, ("ij,kj->ik", X, Y), {})],
}


def test_every_function_in_the_tables_has_a_case():
    assert {getattr(np, name) for name in UFUNCS} == set(numpy_protocol.UFUNCS)
    methods = {(getattr(np, name), method) for name, method in (key.split(".") for key in UFUNC_METHODS)}
    assert methods == set(numpy_protocol.UFUNC_METHODS)
    assert {operator.attrgetter(name)(np) for name in FUNCTIONS} == set(numpy_protocol.FUNCTIONS)


def compare(ours, theirs, args, kwargs=None):
    """Also where a list of arrays is one argument."""
    if isinstance(args[0], list):
        check(lambda *xs: ours(list(xs), **(kwargs or {})), lambda *xs: theirs(list(xs)), *args[0])
    else:
        check(lambda *xs: ours(*xs, **(kwargs or {})), theirs, *args)


@each("name", UFUNCS)
def test_ufuncs(name):
    theirs, args = UFUNCS[name]
    compare(getattr(np, name), theirs, args)


@pytest.mark.parametrize("name", UFUNC_METHODS)
def test_ufunc_methods(name):
    for theirs, args in UFUNC_METHODS[name]:
        compare(operator.attrgetter(name)(np), theirs, args)


@each("name", FUNCTIONS)
def test_functions(name):
    for theirs, args, kwargs in FUNCTIONS[name]:
        compare(operator.attrgetter(name)(np), theirs, args, kwargs)


@each("name", FUNCTIONS)
def test_on_a_gpu(name, fake_cuda):
    def on_gpu(x):
        if isinstance(x, np.ndarray):
            return mytorch.tensor(x, device="cuda:1")
        return [on_gpu(item) for item in x] if isinstance(x, list) and isinstance(x[0], np.ndarray) else x

    for _, args, kwargs in FUNCTIONS[name]:
        function = operator.attrgetter(name)(np)
        got, want = function(*map(on_gpu, args), **kwargs), function(*args, **kwargs)
        for g, w in zip(*((got, want) if isinstance(want, (list, tuple)) else ([got], [want])), strict=True):
            assert isinstance(g, Tensor) and g.device == "cuda:1"
            np.testing.assert_allclose(g.cpu().numpy(), w, rtol=1e-6)


# Mixed operands.


def leaf(x=X):
    return mytorch.tensor(x, requires_grad=True)


@pytest.mark.parametrize("kind", [lambda x: x, Array, mytorch.tensor], ids=["ndarray", "Array", "Tensor"])
@pytest.mark.parametrize("name", words("add sub mul truediv pow mod matmul lt le gt ge eq ne"))
def test_operators_with_arrays_on_either_side(name, kind):
    op, x, other = getattr(operator, name), leaf(), kind(Y.T.copy() if name == "matmul" else Y)
    theirs, their_other = (
        torch.tensor(X, requires_grad=True),
        torch.tensor(Y.T.copy() if name == "matmul" else Y),
    )
    for ours, want in ((op(x, other), op(theirs, their_other)), (op(other, x), op(their_other, theirs))):
        assert type(ours) is Tensor and ours.requires_grad == want.requires_grad
        np.testing.assert_allclose(ours.detach().numpy(), want.detach().numpy(), rtol=1e-12)
        if want.requires_grad and want.grad_fn is not None:
            x.grad = theirs.grad = None
            ours.sum().backward()
            want.sum().backward()
            np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-12)


def test_a_numpy_scalar_counts_as_a_number():
    x = mytorch.tensor([1.0, 2.0])
    for y in (np.float64(2) * x, x * np.float64(2), np.float32(2) + x, np.int64(3) - x):
        assert type(y) is Tensor and y.dtype == "float32"


def test_arrays_first():
    """NumPy's function gets something else first, and a Tensor later."""
    x = leaf()
    for y in (
        np.where(SIGNED > 0, x, 0),
        np.clip(X, x, 2.0),
        np.concatenate([Y, x]),
        np.stack([Y, x]),
        np.outer(ROW, x),
        np.dot(SQUARE, x),
        np.einsum("ij,jk->ik", SQUARE, x),
        np.vstack([Y, x]),
        np.add(Array(Y), x),
        np.hstack([Array(Y), x]),
    ):
        assert type(y) is Tensor and y.requires_grad
    indices = mytorch.tensor(COLUMNS)
    assert np.take(X, indices).tolist() == np.take(X, COLUMNS).tolist()
    assert np.take_along_axis(X, indices, 1).tolist() == np.take_along_axis(X, COLUMNS, 1).tolist()


def test_under_no_grad():
    with mytorch.no_grad():
        y = np.exp(leaf())
        assert type(y) is Tensor and not y.requires_grad
        assert np.cbrt(leaf()).tolist() == np.cbrt(X).tolist()


# What is in no table.


def test_without_a_derivative_it_runs_if_no_gradient_is_wanted():
    x = mytorch.tensor(X)
    for function in (np.cbrt, np.arctan, np.cumprod, np.ptp, np.median):
        y = function(x)
        assert type(y) is Tensor
        np.testing.assert_allclose(y.numpy(), function(X), rtol=1e-12)
    values, vectors = np.linalg.eigh(mytorch.tensor(SQUARE + SQUARE.T))
    assert type(values) is Tensor and vectors.shape == (3, 3)
    assert np.multiply.outer(x, x).shape == (3, 4, 3, 4) and type(np.divmod(x, 2.0)[1]) is Tensor


NO_DERIVATIVE = {
    "ufunc": (lambda x: np.cbrt(x), "np.cbrt.*detach"),
    "function": (lambda x: np.ptp(x), "np.ptp.*detach"),
    "submodule": (lambda x: np.linalg.eigvals(x[:, :3]), r"np.linalg.eigvals.*detach"),
    "method": (lambda x: np.multiply.outer(x, x), "np.multiply.outer.*detach"),
    "in a list": (lambda x: np.dstack([x, X]), "np.dstack.*detach"),
    "out= another": (lambda x: np.add(x, 1.0, out=np.zeros((3, 4))), "np.add.*detach"),
    "in-place on an array": (lambda x: operator.iadd(np.zeros((3, 4)), x), "np.add.*detach"),
    "out= itself": (lambda x: np.exp(x, out=x), "np.exp: can't write into a Tensor"),
    "out= of a function": (lambda x: np.sum(x, axis=0, out=mytorch.zeros(4)), "np.sum: can't write"),
    "at": (lambda x: np.add.at(x, 0, 1.0), "np.add.at: can't write"),
    "copyto": (lambda x: np.copyto(x, 1.0), "np.copyto: can't write"),
    "fill_diagonal": (lambda x: np.fill_diagonal(x, 1.0), "np.fill_diagonal: can't write"),
    "keyword of a ufunc": (lambda x: np.exp(x, where=BITS), "where"),
    "keyword": (lambda x: np.sum(x, initial=1.0), "np.sum.*initial"),
    "order": (lambda x: np.reshape(x, (4, 3), order="F"), "order 'C', got 'F'"),
    "dot": (lambda x: np.dot(x, mytorch.ones(2, 4, 2)), "3 dims"),
}


@pytest.mark.parametrize("what", NO_DERIVATIVE)
def test_never_loses_a_gradient_silently(what):
    call, message = NO_DERIVATIVE[what]
    with pytest.raises(TypeError, match=message):
        call(leaf())


def test_functions_without_gradient_take_a_leaf():
    x = leaf()
    assert np.shape(x) == (3, 4) and np.ndim(x) == 2 and np.size(x) == 12
    assert np.argmax(x, axis=1).tolist() == np.argmax(X, axis=1).tolist() and type(np.argmax(x)) is Tensor
    assert np.argsort(x).tolist() == np.argsort(X).tolist() and np.allclose(x, X) and np.array_equal(x, X)
    assert np.zeros_like(x).tolist() == np.zeros_like(X).tolist() and not np.ones_like(x).requires_grad
    assert [i.tolist() for i in np.nonzero(x > 0.5)] == [i.tolist() for i in np.nonzero(X > 0.5)]


def test_writing_into_an_array_without_a_gradient():
    x, array, ours = mytorch.tensor(X), np.zeros((3, 4)), Array(np.zeros((3, 4)))
    before = array, ours
    array += x
    ours += x
    assert (array is before[0], ours is before[1]) == (True, True)
    assert array.tolist() == ours.tolist() == X.tolist()
    out = np.zeros((3, 4))
    assert np.multiply(x, 2.0, out=out) is out and out.tolist() == (2 * X).tolist()


def test_a_result_that_is_a_view_counts_writes_with_its_base():
    w, x = leaf(), mytorch.tensor(X.copy())
    y = w * x
    view = np.atleast_3d(x)
    assert np.shares_memory(view.numpy(), x.numpy())
    view += 1
    with pytest.raises(RuntimeError, match="in-?place"):
        y.sum().backward()


def test_factories_like_a_tensor(fake_cuda):
    for device in ("cpu", "cuda:1"):
        x = mytorch.ones(2, device=device, requires_grad=True)
        for made, want in (
            (np.zeros((2, 3), "float32", like=x), np.zeros((2, 3), "float32")),
            (np.arange(3, like=x), np.arange(3)),
            (np.full((2,), 7, like=x), np.full((2,), 7)),
            (np.eye(2, like=x), np.eye(2)),
            (np.empty((0,), like=x), np.empty((0,))),
        ):
            assert type(made) is Tensor and made.device == device and made.dtype == want.dtype
            assert made.tolist() == want.tolist() and not made.requires_grad


def test_asarray_is_the_way_out():
    x = mytorch.tensor(X)
    assert type(np.asarray(x)) is np.ndarray and np.asarray(x) is x.numpy()
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(leaf())


# An op's body may run on Tensors too, for a graph of the gradient. So what the ops call must be known here.

FACTORIES = {"arange", "zeros", "ones", "empty", "full", "eye"}  # they get like=, or count sizes
NOT_ON_TENSORS = {
    "asarray",
    "ascontiguousarray",
    "broadcast_shapes",
    "promote_types",
    "multiply.outer",
    "polynomial.legendre.leggauss",
    "from_dlpack",
    "frombuffer",
    "add.at",
    "add.reduceat",
    "unique",
}


def test_the_tables_cover_what_the_ops_use():
    package = pathlib.Path(mytorch.__file__).parent
    used = {
        name
        for folder in ("ops", "nn/functional")
        for path in (package / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and (name := name_in_numpy(node)) and is_function(name)
    }
    known = {f"{f.__name__}.{method}" for f, method in numpy_protocol.UFUNC_METHODS}
    for table in (numpy_protocol.UFUNCS, numpy_protocol.FUNCTIONS, numpy_protocol.WITHOUT_GRADIENT):
        known |= {name for name in used if any(operator.attrgetter(name)(np) is f for f in table)}
    assert used - known - FACTORIES - NOT_ON_TENSORS == set()


def name_in_numpy(node):
    """`linalg.norm` of the expression np.linalg.norm; None if it isn't one of np's."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed(parts)) if isinstance(node, ast.Name) and node.id == "np" else None


def is_function(name):
    value = operator.attrgetter(name)(np)
    return callable(value) and not isinstance(value, type)


def test_objects_beside_a_tensor_stay_numpys():
    x, names, nothing = np.broadcast_arrays(mytorch.ones(2), np.array(["a"]), None)
    assert isinstance(x, mytorch.Tensor) and x.tolist() == [1, 1]
    assert type(names) is np.ndarray and names.tolist() == ["a", "a"] and nothing.tolist() == [None, None]


def test_transpose_takes_the_order_of_all_dims():
    x = mytorch.ones(2, 3, 4, requires_grad=True)
    y = mytorch.transpose(x, (2, 0, 1))
    assert y.shape == (4, 2, 3) and y.data_ptr() == x.data_ptr()
    y.sum().backward()
    assert x.grad.shape == (2, 3, 4)
    with pytest.raises(TypeError, match="expected two dims, or all of them in a tuple, got 1"):
        x.transpose(1)


def test_writing_a_tensor_with_history_into_an_array():
    """`p.data += tensor` changes p, which gets no history: as with PyTorch's `.data`."""
    p, x = mytorch.ones(2, requires_grad=True), mytorch.full((2,), 2.0, requires_grad=True)
    p.data += x * 3
    p.data *= x
    assert p.tolist() == [14.0, 14.0] and p.is_leaf and p.requires_grad
