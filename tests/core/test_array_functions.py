"""What NumPy and CuPy both have works on an Array, on either device. CuPy is the strict stand-in here."""

import operator

import numpy as np

from tests.array_parity import BITS, CUBE, HOLES, INDEX, MIXED, ROW, SQUARE, I, J, X, Y, agree, arrays, words
from tests.each import each

# name: positional arguments, and keywords in a dict at the end.
FUNCTIONS = {
    **dict.fromkeys(
        words(
            "abs absolute arccos arcsin arcsinh arctan arctanh cbrt ceil conjugate cos cosh deg2rad "
            "degrees exp exp2 expm1 fabs floor isfinite isinf isnan log log10 log1p log2 negative "
            "positive rad2deg radians reciprocal rint sign signbit sin sinh sqrt square tan tanh trunc "
            "sinc nan_to_num fix real imag angle i0 isneginf isposinf"
        ),
        (X,),
    ),
    "arccosh": (X + 1,),
    **dict.fromkeys(
        words(
            "add arctan2 copysign divide equal floor_divide fmax fmin fmod greater greater_equal hypot "
            "less less_equal logaddexp logaddexp2 maximum minimum mod multiply nextafter not_equal "
            "power remainder subtract true_divide float_power heaviside logical_and logical_or "
            "logical_xor isclose allclose array_equal inner vdot"
        ),
        (X, Y),
    ),
    **dict.fromkeys(words("bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd lcm ldexp"), (I, J)),
    "invert": (I,),
    "logical_not": (BITS,),
    "divmod": (X, Y),
    "modf": (MIXED,),
    "frexp": (X,),
    # reductions
    "sum": (X, {"axis": 1, "keepdims": True}),
    "prod": (X, {"axis": 0}),
    "mean": (X, {"axis": (0, 1)}),
    "std": (X, {"ddof": 1}),
    "var": (X, {"axis": -1}),
    "max": (X,),
    "min": (X, {"axis": 0}),
    "amax": (X,),
    "amin": (X,),
    "argmax": (X, {"axis": 1}),
    "argmin": (X,),
    "all": (BITS,),
    "any": (BITS, {"axis": 0}),
    "ptp": (X,),
    "median": (X, {"axis": 1}),
    "percentile": (X, 30.0),
    "quantile": (X, 0.3),
    "average": (X, {"axis": 1}),
    "count_nonzero": (BITS,),
    "cumsum": (X, {"axis": 1}),
    "cumprod": (X, {"axis": 0}),
    "diff": (X, {"axis": 1}),
    "nansum": (HOLES,),
    "nanprod": (HOLES,),
    "nanmean": (HOLES, {"axis": 0}),
    "nanstd": (HOLES,),
    "nanvar": (HOLES,),
    "nanmax": (HOLES,),
    "nanmin": (HOLES,),
    "nanmedian": (HOLES,),
    "nancumsum": (HOLES,),
    "nanargmax": (HOLES,),
    "nanargmin": (HOLES,),
    # products
    "dot": (X, SQUARE),
    "matmul": (X, SQUARE),
    "outer": (ROW, ROW),
    "tensordot": (X, SQUARE, {"axes": 1}),
    "kron": (X, SQUARE),
    "einsum": ("ij,jk->ik", X, SQUARE),
    "trace": (SQUARE,),
    "cross": (ROW, SQUARE[0]),
    "linalg.norm": (X,),
    "linalg.inv": (SQUARE,),
    "linalg.solve": (SQUARE, ROW),
    "linalg.det": (SQUARE,),
    "linalg.eigh": (SQUARE,),
    "linalg.svd": (SQUARE,),
    "linalg.qr": (SQUARE,),
    "linalg.cholesky": (SQUARE,),
    "linalg.pinv": (X,),
    "linalg.slogdet": (SQUARE,),
    "linalg.matrix_power": (SQUARE, 3),
    "linalg.matrix_rank": (SQUARE,),
    "convolve": (ROW, SQUARE[0]),
    "correlate": (ROW, SQUARE[0]),
    "cov": (X,),
    "corrcoef": (X,),
    # shape
    "reshape": (X, (3, 2)),
    "ravel": (X,),
    "transpose": (CUBE, (2, 0, 1)),
    "swapaxes": (CUBE, 0, 2),
    "moveaxis": (CUBE, 0, -1),
    "rollaxis": (CUBE, 2),
    "squeeze": (CUBE[:1],),
    "expand_dims": (X, 1),
    "broadcast_to": (ROW, (2, 3)),
    "atleast_1d": (X,),
    "atleast_2d": (ROW,),
    "atleast_3d": (X,),
    "concatenate": ([X, Y], {"axis": 1}),
    "stack": ([X, Y],),
    "hstack": ([X, Y],),
    "vstack": ([X, Y],),
    "dstack": ([X, Y],),
    "column_stack": ([ROW, ROW],),
    "split": (X, 3, {"axis": 1}),
    "array_split": (ROW, 2),
    "hsplit": (X, 3),
    "vsplit": (X, 2),
    "dsplit": (CUBE, 2),
    "tile": (X, (2, 1)),
    "repeat": (X, 2, {"axis": 1}),
    "flip": (X,),
    "fliplr": (X,),
    "flipud": (X,),
    "roll": (X, 1),
    "rot90": (X,),
    "tril": (SQUARE,),
    "triu": (SQUARE, 1),
    "diag": (ROW,),
    "diagflat": (ROW,),
    "diagonal": (SQUARE,),
    "pad": (X, 1),
    "append": (X, Y),
    "delete": (ROW, 1),
    "broadcast_arrays": (X, ROW),
    "meshgrid": (ROW, SQUARE[0]),
    "vander": (ROW,),
    "trim_zeros": (np.array([0.0, 1.0, 0.0]),),
    # indices, order, choice
    "where": (BITS, X, Y),
    "take": (X, INDEX, {"axis": 1}),
    "take_along_axis": (X, I % 3, {"axis": 1}),
    "choose": (I % 2, [X, Y]),
    "compress": (INDEX > 0, ROW),
    "extract": (BITS, X),
    "nonzero": (BITS,),
    "flatnonzero": (BITS,),
    "argwhere": (BITS,),
    "searchsorted": (np.sort(ROW), Y),
    "sort": (X,),
    "argsort": (X,),
    "lexsort": (X,),
    "partition": (ROW, 1),
    "argpartition": (ROW, 1),
    "unique": (I,),
    "bincount": (INDEX,),
    "digitize": (X, np.sort(ROW)),
    "histogram": (X, 3, (0.0, 1.0)),
    "isin": (I, J),
    "clip": (X, 0.3, 0.6),
    "round": (X, 2),
    "around": (X, 1),
    "interp": (ROW, np.sort(ROW), SQUARE[0]),
    "select": ([BITS, ~BITS], [X, Y]),
    "ravel_multi_index": ((INDEX, INDEX), (3, 3)),
    "unravel_index": (INDEX, (2, 3)),
    "gradient": (ROW,),
    # like another
    "zeros_like": (X,),
    "ones_like": (X,),
    "full_like": (X, 2.5),
    "copy": (X,),
    # about arrays
    "shape": (X,),
    "ndim": (X,),
    "size": (X,),
    "result_type": (X, I),
    "iscomplexobj": (X,),
    "isrealobj": (X,),
    "iscomplex": (X,),
    "isreal": (X,),
}


@each("name", FUNCTIONS)
def test_numpy_functions(name, device):
    *args, last = FUNCTIONS[name]
    kwargs = last if isinstance(last, dict) else {}
    args = args if isinstance(last, dict) else [*args, last]
    function = operator.attrgetter(name)(np)
    agree(function(*arrays(args, device), **kwargs), function(*args, **kwargs), device)
