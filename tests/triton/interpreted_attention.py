"""Attention's backward with five products, when it is chosen, and tiles that are hidden; test_kernels.py
runs it by itself."""

import numpy as np
import pytest
from triton.runtime.interpreter import InterpreterBuilder

from mytorch.nn.fused_ops.triton import attention_backward, attention_parts, launch
from mytorch.nn.fused_ops.triton.attention_configs import SMALL, TILES
from mytorch.nn.fused_ops.triton.chips import CHIPS
from tests.nn.functional.cases import case, normal
from tests.nn.functional.test_one_key import ATTENTION, LENGTH
from tests.triton import interpreter
from tests.triton.cases import CASES
from tests.triton.harness import arguments, kernel
from tests.triton.interpreted import Twice, check, strict  # noqa: F401 - a fixture

NAME = "scaled_dot_product_attention"


def several_tiles():
    """Several tiles of queries and of keys, none of which ends where these do."""
    yield case(normal(1, 2, 150, 64), *[normal(1, 1, 200, 64)] * 2, is_causal=True, enable_gqa=True)
    yield case(normal(1, 1, 170, 40), *[normal(1, 1, 300, 40)] * 2, is_causal=True, sliding_window=30)
    yield case(normal(1, 1, 70, 128), normal(1, 1, 150, 128), normal(1, 1, 150, 24))
    far = [sign * np.abs(normal(1, 1, n, 16)) for sign, n in ((4, 70), (-4, 150))]
    yield case(*far, normal(1, 1, 150, 16))  # a key of zeros past the last would have all the weight
    yield case(normal(1, 1, 200, 16), *[normal(1, 1, 140, 16)] * 2, is_causal=True, dropout_p=0.3)


ROWS = [CASES[NAME][i] for i in (0, 9, 10)]  # without a mask
CALLS = [(row, "float32") for row in [*ROWS, *several_tiles()]]
CALLS += zip(several_tiles(), ("float16", "bfloat16"), strict=False)


class Recorded(Twice):
    """Keeps the names of the kernels that are launched."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def launch(self, kernel, grid, pointers, meta):
        self.names.add(kernel.__name__)
        super().launch(kernel, grid, pointers, meta)


@pytest.mark.parametrize(("row", "dtype"), CALLS)
def test_five_products_against_float64(row, dtype, monkeypatch):
    monkeypatch.setattr(attention_backward, "has_five_products", lambda *_, **__: True)
    for table in (TILES, SMALL):  # float32 and wide heads aren't chosen, but right
        (tiles,) = table["head"][2].values()
        monkeypatch.setitem(table, "head", {2: {64: tiles}, 4: {64: tiles, 128: tiles}})
    raws = arguments(NAME, row, dtype)
    with launch.in_mode(Recorded()):
        check(NAME, raws, dtype)
        names = launch.mode().names
    assert names == {"_forward", "head_backward"}


@pytest.mark.parametrize("five", [False, True])
@pytest.mark.parametrize("name", ATTENTION)
def test_a_query_that_sees_one_key(name, five, monkeypatch):
    options, heads, keys, alone = ATTENTION[name]
    if five and "attn_mask" in options:
        return
    monkeypatch.setattr(attention_backward, "has_five_products", lambda *_, **__: five)
    for table in (TILES, SMALL):
        monkeypatch.setitem(table, "head", {4: {64: [(80, (64, 64, 8, 1, 64))]}})
    qkv = [50 * normal(1, h, n, 24) for h, n in ((4, LENGTH), (heads, keys), (heads, keys))]
    with launch.in_mode(Twice()):
        y, vjp = kernel(NAME)(*arguments(NAME, case(*qkv, **options), "float32"))
        g = np.zeros_like(y)
        g[:, :, alone] = 50 * normal(*g[:, :, alone].shape)
        dq, dk, dv, *dmask = vjp(g)
    assert not dq.any() and not dk.any() and dv.any()
    assert not any(d.array().any() for d in dmask)


# what is called: shape of the queries, heads of keys, window, capability -> whether it is one kernel
CHOICES = {
    "GPT-2 124M": ((64, 12, 1024, 64), 12, None, 90, True),
    "2 waves, the second of which is half full": ((16, 12, 1024, 64), 12, None, 90, True),
    "2 waves, the second of which has fewer": ((15, 12, 1024, 64), 12, None, 90, False),
    "a wave that is three quarters full": ((8, 12, 1024, 64), 12, None, 90, True),
    "fewer": ((7, 12, 1024, 64), 12, None, 90, False),
    "shared keys": ((64, 12, 1024, 64), 1, None, 90, False),
    "another GPU": ((64, 12, 1024, 64), 12, None, 100, True),
    "small tiles": ((64, 12, 1024, 64), 12, None, 80, False),
    "wide heads": ((64, 12, 1024, 80), 12, None, 90, False),
    "a window": ((64, 12, 1024, 64), 12, 256, 90, True),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_kernels_of_backward(name, monkeypatch):
    shape, kv_heads, window, capability, one = CHOICES[name]
    assert kernels_of(monkeypatch, shape, kv_heads, window, capability) == (
        ["head_backward"] if one else ["queries_backward", "keys_backward"]
    )


@pytest.mark.parametrize("options", [
    {"dtype": "float32"}, {"mask": True}, {"keys": 0}, {"keys": 1000, "window": 20},
])
def test_what_five_products_are_not_for(options, monkeypatch):
    found = kernels_of(monkeypatch, (64, 12, 1024, 64), **options)
    assert found == ["queries_backward", "keys_backward"]


def kernels_of(
    monkeypatch, shape, kv_heads=12, window=None, capability=90, dtype="float16", mask=False, keys=1024
):
    """The kernels that a backward pass launches; none of these arrays has any memory."""
    names = []
    keep = lambda kernel, *_, **__: names.append(kernel.kernel.__name__)  # noqa: E731
    monkeypatch.setattr(attention_parts, "launch", keep)
    monkeypatch.setattr(attention_backward, "chip", lambda: CHIPS[capability])
    monkeypatch.setattr(np, "empty", lambda shape, dtype, like: np.broadcast_to(np.zeros((), dtype), shape))
    q, k = (np.broadcast_to(np.zeros((), dtype), s) for s in (shape, (shape[0], kv_heads, keys, shape[3])))
    bias = np.broadcast_to(np.uint8(1), (*shape[:3], keys)) if mask else None
    scalars, meta = attention_parts.settings(q, k, k, window is not None, 0.125, window)
    lse = np.zeros(1, "float32")
    attention_backward.backward([q, k, k, bias, q, q], lse, None, scalars, meta)
    return names


class Counted(interpreter.Interpret):
    """Counts the products of tiles in each launch: [(name, BLOCK_Q, BLOCK_K, number)]."""

    def __init__(self, monkeypatch):
        self.found, self.dots = [], 0
        interpreter.patch()
        multiply = InterpreterBuilder.create_dot

        def create_dot(*args):
            self.dots += 1
            return multiply(*args)

        monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)

    def launch(self, kernel, grid, pointers, meta):
        self.dots = 0
        super().launch(kernel, grid, pointers, meta)
        self.found.append((kernel.__name__, meta["BLOCK_Q"], meta["BLOCK_K"], self.dots))


PRODUCTS = {"_forward": 2, "queries_backward": 3, "keys_backward": 4, "head_backward": 5}  # of a tile


@pytest.mark.parametrize("five", [False, True])
@pytest.mark.parametrize("window", [1, 64, 100, None])
def test_tiles_that_a_window_hides_are_not_computed(window, five, monkeypatch):
    monkeypatch.setattr(attention_backward, "has_five_products", lambda *_, **__: five)
    for table in (TILES, SMALL):
        monkeypatch.setitem(table, "head", {4: {64: [(80, (64, 64, 8, 1, 64))]}})
    row = case(*[normal(1, 1, 256, 16) for _ in range(3)], is_causal=True, sliding_window=window)
    mode = Counted(monkeypatch)
    with launch.in_mode(mode):
        y, vjp = kernel(NAME)(*arguments(NAME, row, "float32"))
        vjp(y)
    assert [name for name, *_ in mode.found] == ["_forward", *(
        ["head_backward"] if five else ["queries_backward", "keys_backward"]
    )]
    sees = np.tril(np.ones((256, 256), bool))
    sees &= True if window is None else ~np.tril(sees, -window)
    for name, rows, columns, dots in mode.found:
        tiles = sees.reshape(256 // rows, rows, 256 // columns, columns).any((1, 3))
        assert dots == PRODUCTS[name] * tiles.sum(), name
        assert window is None or not tiles[-1, 0]  # there are hidden ones
