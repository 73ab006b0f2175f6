"""The table of functions by mathematics: along a dim that a function keeps, the result of a part is the part
of the result; of a dim that is reduced the results of parts add up."""

import ast
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mytorch
from mytorch.backends.functions import TABLE, arrays_in, flops_of, kept_dims, kinds, labels_of, row_of
from mytorch.backends.meta import like, methods
from mytorch.backends.meta.functions import DATA_DEPENDENT, FUNCTIONS, OF_DTYPES, SHAPES, VIEWS
from mytorch.compiler.tracing.tracing_array import METHODS, PROPERTIES, name_of
from tests.backends.functions_cases import CASES, Source

RESHAPES = {"reshape", ".reshape", "broadcast_to"}  # a part has another shape
WITHOUT_CASE = {"frombuffer", "from_dlpack"}  # of things that are no arrays
UFUNCS = sorted([name for name, f in vars(np).items() if isinstance(f, np.ufunc) and f.signature is None])


def call(name, args, kwargs, keep=False):
    if name == ".getitem":
        result = args[0][args[1]]
    elif name in (".T", ".mT", ".real", ".imag"):
        result = getattr(args[0], name[1:])
    elif name.startswith("."):
        result = getattr(args[0], name[1:])(*args[1:], **kwargs)
    else:
        function = np
        for part in name.split("."):
            function = getattr(function, part)
        with np.errstate(all="ignore"):
            result = function(*args, **kwargs)
    results = result if isinstance(result, (tuple, list)) else [result]
    return results if keep else [np.asarray(y) for y in results]


def cut(x, dims, part, blocks):
    for d in dims:
        n = x.shape[d] // blocks
        x = np.take(x, np.arange(part[0] * n, part[1] * n), d)
    return x


def with_arrays(nested, arrays):
    """The same arguments with other arrays, in the order of `arrays_in`."""
    if isinstance(nested, (np.ndarray, np.generic)):
        return next(arrays)
    if isinstance(nested, (list, tuple)):
        return type(nested)([with_arrays(x, arrays) for x in nested])
    return nested


def assert_cuts(name, args, kwargs, choose):
    """Cuts the call along one of the labels, and compares."""
    labels, whole = labels_of(name, *args, **kwargs), call(name, args, kwargs)
    arrays = [*arrays_in(args, kwargs)]
    assert [len(dims) for dims in labels.inputs] == [x.ndim for x in arrays]
    assert [len(dims) for dims in labels.outputs] == [y.ndim for y in whole]
    known = {label for dims in labels.inputs for label in dims} - {None}
    assert {label for dims in labels.outputs for label in dims} - {None} <= known
    for label in known:
        pairs = [*zip(labels.inputs, arrays, strict=True), *zip(labels.outputs, whole, strict=True)]
        blocks = math.gcd(*[x.shape[d] for dims, x in pairs for d, own in enumerate(dims) if own == label])
        first = choose(blocks)
        parts = [part for part in ((0, first), (first, blocks)) if part[0] < part[1]]
        results = labels.results_of_parts(label)
        found = []
        for part in parts:
            small = [
                cut(x, [d for d, own in enumerate(dims) if own == label], part, blocks)
                for dims, x in zip(labels.inputs, arrays, strict=True)
            ]
            given = with_arrays(args, iter(small))
            if name in RESHAPES:
                given = (small[0], cut(np.empty(whole[0].shape), [results[0]], part, blocks).shape)
            found.append(call(name, given, kwargs))
        for k, (y, how) in enumerate(zip(whole, results, strict=True)):
            if isinstance(how, str):
                y_parts = [made[k] for made in found]
                combined = y_parts[0] if len(parts) == 1 else getattr(np, how)(*y_parts)
                assert_same(name, combined, y)
            else:
                for part, made in zip(parts, found, strict=True):
                    assert_same(name, made[k], cut(y, [how], part, blocks))


def assert_same(name, x, y):
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    if not name.startswith("empty"):
        np.testing.assert_allclose(x, y, 1e-9, 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_the_result_of_a_part_is_the_part_of_the_result(name):
    @settings(max_examples=25)
    @given(st.data())
    def check(data):
        args, kwargs = CASES[name](Source(data.draw))
        assert_cuts(name, tuple(args), kwargs, lambda blocks: data.draw(st.integers(0, blocks)))

    check()


def test_each_row_has_a_case():
    without = {row.name for row in TABLE.values() if row.dims is not None} - CASES.keys() - WITHOUT_CASE
    assert not without, "add them to CASES"


@pytest.mark.parametrize("name", UFUNCS)
def test_elementwise_functions(name):
    ufunc = getattr(np, name)
    kinds = {"?": bool, "b": np.int64, "d": float}
    kind = next(k for k in ("d", "b", "?", "M") if any([t.startswith(k) for t in ufunc.types]))
    if kind == "M":
        return  # of dates
    x = np.arange(1, 13).reshape(4, 3)
    args = [(x / 13 if kind == "d" else x).astype(kinds[kind]), np.arange(1, 4).astype(kinds[kind])]
    args = args[: ufunc.nin]
    if name == "ldexp":
        args[1] = np.arange(3)
    assert row_of(name).dims is not None
    assert_cuts(name, tuple(args), {}, lambda blocks: 1)


# What has to be kept: a rule that knows nothing would pass, too.
KEPT = {
    "sum": (((4, 3, 2), 1), {}, "a c"),
    "max": (((4, 3, 2),), {"axis": (0, 2), "keepdims": True}, "- b -"),
    "matmul": (((5, 1, 2, 3), (4, 3, 6)), {}, "a A c C"),
    "concatenate": (([(2, 3), (2, 4)], 1), {}, "aA -"),
    "reshape": (((4, 6, 5), (24, 5)), {}, "a c"),
    ".reshape": (((24, 5), (4, 6, -1)), {}, "a - b"),
    "transpose": (((2, 3, 4), (2, 0, 1)), {}, "c a b"),
    "take": (((7, 5), (3, 2)), {"axis": 0}, "A B b"),
    "linalg.solve": (((2, 3, 3), (2, 3, 4)), {}, "aA - C"),
    "diagonal": (((2, 3, 3), 0, 1, 2), {}, "a -"),
    "lib.stride_tricks.sliding_window_view": (((2, 9), 3, 1), {}, "a - -"),
    "repeat": (((2, 3), 2, 1), {}, "a b"),
}


@pytest.mark.parametrize("name", KEPT)
def test_dims_that_are_kept(name):
    args, kwargs, text = KEPT[name]
    is_shape = lambda x: isinstance(x, tuple) and x  # noqa: E731
    arrays = {"take": 2, "matmul": 2, "linalg.solve": 2}.get(name, 1)
    first = [np.empty(x, int) if is_shape(x) else [np.empty(y) for y in x] for x in args[:arrays]]
    (found,) = kept_dims(name, *first, *args[arrays:], **kwargs)
    letters = ["".join([chr(ord("aA"[k]) + d) for k, d in places]) or "-" for places in found]
    assert " ".join(letters) == text


PACKAGE = Path(mytorch.__file__).parent
FOLDERS = ("core", "ops", "nn", "optim", "autograd", "amp", "random", "fft", "linalg")
# What makes or describes no array of a program: it is read once, printed, or a number of Python's.
NO_ARRAY = {
    "lib.array_utils.byte_bounds", "lib.stride_tricks.as_strided", "polynomial.legendre.leggauss",
    "random.default_rng", "random.seed", "random.get_state", "random.set_state", "printoptions",
}


def functions_used(path):
    """The functions of NumPy that a file names, as `linalg.svd`."""
    for node in ast.walk(ast.parse(path.read_text())):
        head, _, name = ast.unparse(node).partition(".") if isinstance(node, ast.Attribute) else ("", "", "")
        found = np
        for part in name.split(".") if head in ("np", "xp") else ():
            found = getattr(found, part, None)
        if found is not np and callable(found) and not isinstance(found, type):
            yield name


def test_each_function_that_ops_use_has_a_row():
    patterns = [f"{name}{end}" for name in FOLDERS for end in (".py", "/**/*.py")]
    files = [path for pattern in patterns for path in PACKAGE.glob(pattern)]
    files = [path for path in files if "fused_ops" not in path.parts]
    used = {name: path.name for path in files for name in functions_used(path)}
    assert len(used) > 150
    missing = {name: file for name, file in used.items() if name not in NO_ARRAY and row_of(name) is None}
    assert not missing, "add a row to mytorch/backends/functions/table.py"


def test_each_function_of_meta_arrays_has_a_row():
    """So each that a captured program may call: capturing refuses a function without a rule."""
    names = {name_of(f) for f in (*SHAPES, *FUNCTIONS, *VIEWS, *OF_DTYPES, *DATA_DEPENDENT)}
    names |= {f".{name.strip('_')}" for name in (*METHODS, *PROPERTIES)}
    assert not {name for name in names if row_of(name) is None}


OF_META = {name_of(f) for f in (*SHAPES, *FUNCTIONS, *VIEWS)} | {f".{name.strip('_')}" for name in METHODS}


CONVERSIONS = {"array", "asarray", "asanyarray", "ascontiguousarray", "lexsort"}  # NumPy doesn't ask


@pytest.mark.parametrize("name", sorted((OF_META | {*vars(np)}).intersection(CASES) - CONVERSIONS))
def test_meta_arrays_have_the_shapes_of_the_same_calls(name):
    """The cases of the table are cases of the rules of meta arrays."""

    @settings(max_examples=10)
    @given(st.data())
    def check(data):
        args, kwargs = CASES[name](Source(data.draw))
        arrays = [*arrays_in(args, kwargs)]
        wanted = call(name, tuple(args), kwargs)
        try:
            found = call(name, with_arrays(tuple(args), map(like, arrays)), kwargs, keep=True)
        except NotImplementedError:  # it depends on the elements, or has no rule
            assert name in (".getitem", "bincount", "repeat") or name not in OF_META
            return
        assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in wanted]

    check()


def test_methods_share_the_row_of_their_function():
    assert {name for name in methods.FUNCTIONS if row_of("." + name) is not row_of(name)} == set()
    assert row_of(".partition").kind == "writing" != row_of("partition").kind


def test_what_has_no_row():
    assert row_of("made_up") is row_of("matmul.reduce") is row_of("kernel") is None
    assert labels_of("made_up") is kept_dims("sort_of", np.ones(2)) is None


@pytest.mark.parametrize("name, args, kwargs", [
    ("where", (np.ones(3),), {}), ("diff", (np.ones((2, 3)),), {"prepend": np.ones((2, 1))}),
    (".getitem", (np.ones(3), True), {}), (".getitem", (np.ones(3), (None, np.True_)), {}),
    ("matmul", (np.ones((2, 2)), np.ones((2, 2))), {"axes": [(0, 1), (1, 0), (0, 1)]}),
    ("vecdot", (np.ones((2, 2)), np.ones((2, 2))), {"axis": 0}),
    ("dot", (np.ones((2, 2)), np.ones((2, 2, 2))), {}),
    ("einsum", ("ij,jk", np.ones((2, 2)), np.ones((2, 2))), {}),
    ("sum", (np.ones((2, 2)),), {"where": np.ones((2, 2), bool)}),
    ("sum", (np.ones(2), 0, None, None, True), {}),
])
def test_calls_of_which_nothing_is_known(name, args, kwargs):
    assert labels_of(name, *args, **kwargs) is None


def test_a_dtype_is_no_array():
    labels = labels_of("sum", np.ones((2, 3)), axis=0, dtype=np.dtype(np.float32))
    assert labels == labels_of("sum", np.ones((2, 3)), axis=0) and labels.combine == "add"


def test_flops():
    x, y = np.ones((5, 2, 3)), np.ones((3, 7))
    assert flops_of("matmul", x, y) == flops_of("einsum", "bik,kj->bij", x, y) == 2 * 5 * 2 * 3 * 7
    assert flops_of("multiply", x, 2.0, result=x.shape) == x.size
    assert flops_of("multiply.outer", x, y, result=(5, 2, 3, 3, 7)) == x.size * y.size
    assert flops_of("exp", x, result=x.shape) == flops_of("linalg.inv", x) == 0


@pytest.mark.parametrize("name", [name for name in CASES if (row := row_of(name)) and row.linear])
def test_of_what_is_linear(name):
    """Zeros make zeros: of all arrays, of each, or of the first."""

    @settings(max_examples=10)
    @given(st.data())
    def check(data):
        args, kwargs = CASES[name](Source(data.draw))
        arrays = [*arrays_in(args, kwargs)]
        places = range(len(arrays))
        zero = {"together": [places], "first": [[0]], "each": [[k] for k in places]}
        for zeros in zero[row_of(name).linear]:
            given_ = [x * 0 if k in zeros else x for k, x in enumerate(arrays)]
            for y in call(name, with_arrays(tuple(args), iter(given_)), kwargs):
                assert not y.any()

    check()


@pytest.mark.parametrize("name", [name for name in CASES if (row := row_of(name)) and row.is_new])
def test_what_is_new_shares_no_memory(name):
    @settings(max_examples=10)
    @given(st.data())
    def check(data):
        args, kwargs = CASES[name](Source(data.draw))
        made = call(name, tuple(args), kwargs)
        assert not any([np.shares_memory(x, y) for x in arrays_in(args, kwargs) for y in made])

    check()


def test_kinds_of_ops_say_nothing_that_the_table_says():
    for kind, names in kinds._OF_OPS.items():
        for name in filter(str.isidentifier, names.split("|")):
            row = row_of(name)
            assert row is None or kinds._OF_CLASSES.get(row.kind) != kind, name
