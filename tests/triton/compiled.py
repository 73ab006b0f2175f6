"""The registers and memory of all Triton kernels, compiled; test_kernels.py runs it in its own process."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mytorch.nn.fused_ops.triton import attention_backward, attention_parts
from mytorch.nn.fused_ops.triton.attention_configs import configs_of
from mytorch.nn.fused_ops.triton.chips import CHIPS
from tests.triton.cases import COMPILED, DTYPES, EVERYTHING, FUNCTIONS, OTHER_GPUS, case, empty
from tests.triton.compile import compiling, products
from tests.triton.harness import arguments, gradients, kernel

# Products on tensor cores are compiled in half precision, the others in float32, which needs more registers.
HALF = {"scaled_dot_product_attention", "cached_attention", "conv2d"}


def chosen():
    for name in COMPILED:
        for dtype in DTYPES if EVERYTHING else ["float16" if name in HALF else "float32"]:
            for capability in CHIPS if EVERYTHING else [90, *OTHER_GPUS.get(name, [])]:
                yield name, dtype, capability


@pytest.mark.parametrize(("name", "dtype", "capability"), [*chosen()])
def test_resources(name, dtype, capability, monkeypatch):
    monkeypatch.setattr(attention_backward, "has_five_products", lambda *_, **__: False)  # they have a test
    for row in COMPILED[name] if EVERYTHING or capability == 90 else COMPILED[name][:1]:
        raws = arguments(name, row, dtype)
        with compiling(capability) as reports:
            call(name, raws)
        assert reports, "nothing was launched"
        for report in reports:
            print(report)
        assert not [(report, report.problems()) for report in reports if report.problems()]


@pytest.mark.parametrize(("capability", "causal", "kv_heads", "window"), [
    (90, True, 12, None), (90, False, 12, None), (90, True, 4, 256), (100, True, 12, None),
])
def test_five_products(capability, causal, kv_heads, window):
    q, k = (np.zeros((64, heads, 1024, 64), "float16") for heads in (12, kv_heads))
    dropout = (SimpleNamespace(seed=1), 0.1) if window else None
    scalars, meta = attention_parts.settings(q, k, k, causal, 0.125, window, dropout)
    with compiling(capability) as reports:
        attention_backward.backward([q, k, k, None, q, q], np.zeros(q.shape[:3], "f"), None, scalars, meta)
    assert [report.kernel for report in reports] == ["head_backward"]
    (report,), config = reports, dict(reports[0].config)
    print(report)
    assert report.problems() == []
    if capability == 90 and not dropout:  # small tiles have less than 64 queries, for which dq isn't there
        groups = config["num_warps"] // 4
        assert products(report.cubin) * groups == 5 * config["BLOCK_Q"] * config["BLOCK_K"] * 64


@pytest.mark.parametrize("options", [{}, {"dropout_p": 0.1}])
@pytest.mark.parametrize("features", [64, 128])
def test_the_tiles_of_attention_have_64_rows_on_hopper(features, options):
    """Fewer would not go to its tensor cores."""
    row = case(*[empty(1, 1, 256, features)] * 3, **options)
    q, k, v, *_ = arguments("scaled_dot_product_attention", row, "float16")
    call_of = {"BLOCK_E": features, "BLOCK_EV": features, "group": 1, "q_ptr": q, "mask_ptr": None}
    call_of |= {"window": None, "seed": options.get("dropout_p")}
    for kernel_name, rows in (("forward", "BLOCK_Q"), ("queries", "BLOCK_Q"), ("keys", "BLOCK_K")):
        first, *_ = configs_of(kernel_name)(call_of, CHIPS[90])
        assert first[rows] >= 64, (kernel_name, first)


def call(name, raws):
    """The kernel, and its backward; what they compute with doesn't matter."""
    result = kernel(name)(*raws)
    if name not in FUNCTIONS:
        result, vjp = result
        outputs = list(result) if isinstance(result, tuple) else [result]
        gradients(name, vjp, [np.empty_like(y, order="C") for y in outputs], len(raws))


def test_pytorch_is_not_imported():
    assert "torch" not in sys.modules
