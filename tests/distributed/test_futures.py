"""Work.result(), Work.get_future() and Future.then(), as communication hooks use them, on two ranks."""


import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.distributed import DistributedDataParallel, comm_hooks
from tests.distributed import futures_program as program
from tests.distributed.on_ranks import results_in_threads

WRITTEN = {  # by rank 0 and by rank 1, whose tensors are ones and twos
    "all_reduce": ([3, 3], [3, 3]),
    "broadcast": ([2, 2], [2, 2]),
    "reduce": ([3, 3], [2, 2]),
    "all_gather": ([1, 1, 2, 2], [1, 1, 2, 2]),
    "all_gather_into_tensor": ([1, 1, 2, 2], [1, 1, 2, 2]),
    "gather": ([1, 1, 2, 2], []),
    "scatter": ([1, 1], [5, 5]),
    "reduce_scatter": ([3, 3], [15, 15]),
    "reduce_scatter_tensor": ([3, 3], [3, 3]),
    "all_to_all": ([1, 1, 2, 2], [5, 5, 10, 10]),
    "all_to_all_single": ([1, 2], [1, 2]),
    "barrier": ([], []),
    "irecv": (None, [1, 1]),
}
TENSORS = {"all_gather": (2, 2), "gather": (2, 0), "all_to_all": (2, 2), "barrier": (0, 0)}


@pytest.fixture
def results():
    return results_in_threads(program, 2)


@pytest.mark.parametrize("name", WRITTEN)
def test_results_are_the_tensors_that_were_written(results, name):
    for rank, expected in enumerate(WRITTEN[name]):
        if expected is not None:
            count = TENSORS.get(name, (1, 1))[rank]
            assert results["results"][rank][name].tolist() == [count, count, 1, 1, *expected]


@pytest.mark.parametrize("name", ["documented", "chained"])
def test_a_hook_may_return_a_future(results, name):
    for averaged, expected in zip(results[name], results["none"], strict=True):
        assert averaged.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(averaged[key], value, rtol=1e-6)


def test_bfloat16_keeps_two_digits(results):
    for averaged, expected in zip(results["bfloat16"], results["none"], strict=True):
        for key, value in expected.items():
            np.testing.assert_allclose(averaged[key], value, rtol=0, atol=2**-7 * np.abs(value).max())
            assert np.array_equal(averaged[key], results["bfloat16"][0][key])
            low = averaged[key].view(np.uint32) & 0xFFFF
            assert not low.any()  # what bfloat16 can't hold


def test_an_error_in_the_function_ends_backward(results):
    assert [str(one["error"]) for one in results["error"]] == ["in the function"] * 2


@pytest.mark.parametrize("name, dtype", [("fp16", "float16"), ("bf16", "bfloat16")])
def test_compression_on_a_gpu(name, dtype, alone, fake_cuda):
    dist.init_process_group("single")
    module = nn.Linear(3, 2).to("cuda")
    model, x = DistributedDataParallel(module), mytorch.full((1, 3), 1 / 3).to("cuda")
    model.register_comm_hook(None, getattr(comm_hooks, f"{name}_compress_hook"))
    model(x).sum().backward()
    assert module.weight.grad.device.type == "cuda"
    rounded = mytorch.full((2, 3), 1 / 3).to(dtype).float()
    assert module.weight.grad.cpu().tolist() == rounded.tolist()
