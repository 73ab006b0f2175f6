"""The rows of ops in the table of functions, by mathematics, as those of NumPy's functions."""

import math

import numpy as np
import pytest

import mytorch
from mytorch import numpy_protocol
from mytorch.backends.functions import COMPOSITES, Call, labels_of_composite, row_of
from mytorch.backends.functions.table import functions_of
from mytorch.compiler.codegen.loop import EXPRESSIONS, REDUCTIONS
from mytorch.compiler.passes import domain, grouping
from mytorch.compiler.program.kernels import KERNELS, KERNELS_IN_HALF
from mytorch.compiler.program.raising import _INDICES, SOLVERS
from mytorch.nn import functional as F
from mytorch.nn.functional.composite import REGISTRY
from tests.backends.test_functions import cut


def array(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


ATTENTION = array(4, 2, 6, 8), array(4, 2, 6, 8), array(4, 2, 6, 8)
CALLS = {
    "linear": [(array(4, 6, 5), array(2, 5), array(2)), (array(5), array(2, 5))],
    "linear_activation": [(array(4, 6, 5), array(2, 5), array(2))],
    "conv1d": [(array(4, 2, 8), array(6, 2, 3), array(6))],
    "conv2d": [(array(4, 2, 5, 6), array(4, 2, 3, 3), array(4), 2)],
    "conv3d": [(array(4, 2, 3, 4, 5), array(2, 2, 2, 2, 2), None)],
    "scaled_dot_product_attention": [ATTENTION, (*ATTENTION, None, 0.0, True), [x[0, 0] for x in ATTENTION],
                                     (array(4, 4, 6, 8), *ATTENTION[1:], None, 0.0, False, None, True)],
    "self_attention": [(array(4, 6, 12), 2), (array(4, 6, 12), 2, None, 0.0, True)],
    "layer_norm": [(array(4, 6, 5), (5,), array(5), array(5)), (array(4, 6, 5), (6, 5)), (array(6), (6,))],
    "rms_norm": [(array(4, 6, 5), (5,), array(5))],
    "add_layer_norm": [(array(4, 6, 5), array(4, 6, 5), (5,), array(5), array(5))],
    "group_norm": [(array(4, 6, 5), 2, array(6), array(6))],
    "embedding": [(np.arange(12).reshape(4, 3), array(12, 6))],
    "rotary_embedding": [(array(4, 2, 6, 8), array(6, 4), array(6, 4))],
    "softmax": [(array(4, 6), 1), (array(4, 6), 0)],
    "log_softmax": [(array(4, 6), -1)],
    "swiglu": [(array(4, 6), -1), (array(4, 6), 0)],
    "geglu": [(array(4, 6), -1)],
    **dict.fromkeys(("gelu", "sigmoid", "silu", "relu", "leaky_relu", "squared_relu"), [(array(4, 6),)]),
}


def call(name, args):
    with mytorch.no_grad():
        made = getattr(F, name)(*[mytorch.tensor(x) if isinstance(x, np.ndarray) else x for x in args])
    return [y.numpy() for y in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("name", CALLS)
def test_the_result_of_a_part_is_the_part_of_the_result(name):
    cuts = 0
    for args in CALLS[name]:
        labels, outputs = labels_of_composite(name, *args), call(name, args)
        arrays = [x for x in args if isinstance(x, np.ndarray)]
        assert [len(dims) for dims in labels.inputs] == [x.ndim for x in arrays]
        assert [len(dims) for dims in labels.outputs] == [y.ndim for y in outputs]
        for label in {label for dims in labels.inputs for label in dims} - {None}:
            pairs = [*zip(labels.inputs, arrays, strict=True), *zip(labels.outputs, outputs, strict=True)]
            blocks = math.gcd(*[x.shape[dims.index(label)] for dims, x in pairs if label in dims])
            parts = iter([cut(x, [d for d, own in enumerate(dims) if own == label], (1, blocks), blocks)
                          for dims, x in zip(labels.inputs, arrays, strict=True)])
            found = call(name, [next(parts) if isinstance(x, np.ndarray) else x for x in args])
            for y, part, dim in zip(outputs, found, labels.results_of_parts(label), strict=True):
                np.testing.assert_allclose(part, cut(y, [dim], (1, blocks), blocks), 1e-5, 1e-6)
            cuts += blocks > 1
    assert cuts


def test_each_row_has_a_call():
    known = {name for name, row in COMPOSITES.items() if row.dims is not None}
    assert known - {"quantized_linear"} == {*CALLS}


def test_each_op_that_programs_keep_has_a_row():
    assert {*KERNELS, *KERNELS_IN_HALF} <= COMPOSITES.keys()
    assert {name for name, row in COMPOSITES.items() if row.dims is not None} <= REGISTRY.keys()


def test_flops_of_ops():
    x, w, y = array(4, 6, 5), array(2, 5), array(4, 6, 2)
    assert COMPOSITES["linear"].flops(Call((x, w), (y,), (x, w))) == 2 * 4 * 6 * 5 * 2
    flops = COMPOSITES["scaled_dot_product_attention"].flops(Call(ATTENTION, ATTENTION[:1], ATTENTION))
    assert flops == 2 * 2 * 4 * 2 * 6 * 6 * 8


def test_tables_of_programs_name_rows():
    """What loops compute, and what raises, by the classes of the table."""
    assert {row_of(name).kind for name in EXPRESSIONS if name != ".copy"} == {"elementwise"}
    assert {row_of(name).kind for name in (*REDUCTIONS, *domain.REDUCTIONS)} == {"reduction"}
    assert {row_of(name).kind for name in grouping._ALIASES} == {"view"}
    assert {row_of(name).kind for name in SOLVERS - {"linalg.lstsq"}} == {"contraction"}
    assert {row_of(name).kind for name in _INDICES} == {"indexing", "writing"}
    assert functions_of("writing") == numpy_protocol.WRITERS
