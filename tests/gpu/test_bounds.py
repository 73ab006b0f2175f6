"""Index errors for real: the kernels that CuPy compiles, and the memory of the CPU that they write to."""

import pytest

import mytorch
from mytorch import nn
from mytorch.accelerate.finite import check_finite
from mytorch.backends.device import device_count
from mytorch.cuda import graphs
from mytorch.nn import functional as F
from tests.device.test_bounds import CASES, called

pytestmark = pytest.mark.skipif(device_count() < 1, reason="there is no GPU")
PLACE = "cuda:0"


@pytest.mark.parametrize("case", CASES)
def test_the_next_wait_raises(case):
    *_, text, size = CASES[case]
    result = called(case, PLACE)
    with pytest.raises((IndexError, RuntimeError)) as error:
        mytorch.cuda.synchronize(PLACE)
    assert text in str(error.value) and size in str(error.value)
    result.tolist()


def test_a_cuda_graph_checks_in_each_replay():
    table, index = mytorch.arange(12.0, device=PLACE).reshape(4, 3), mytorch.tensor([0, 3], device=PLACE)
    graph = graphs.CUDAGraph()
    F.embedding(index, table).sum().item()
    with graphs.graph(graph):
        y = F.embedding(index, table)
    for wanted in ([1, 2], [0, 4], [3, 0]):
        index.copy_(mytorch.tensor(wanted, device=PLACE))
        graph.replay()
        if max(wanted) < 4:
            assert y.tolist() == table.cpu()[mytorch.tensor(wanted)].tolist()
        else:
            with pytest.raises(IndexError, match="index out of range in self: 4, of 4 rows"):
                y.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_weights_that_are_not_finite(dtype):
    model = nn.Sequential(nn.Linear(2, 3), nn.Conv2d(1, 2, 3)).to(PLACE).to(dtype)
    check_finite([model], 1.0, True, True)
    with mytorch.no_grad():
        model[1].weight[0, 0, 1, 2] = float("inf")
    with pytest.raises(FloatingPointError, match=r"^1 of 4 weights are inf or NaN, the first is 1\.weight$"):
        check_finite([model], 1.0, True, True)
