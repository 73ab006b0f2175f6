"""The engine: the traps that a backward pass can fall into."""

import functools
import gc
import threading
import weakref

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, no_grad
from mytorch.core.op import op


def leaf(*values, dtype="float64"):
    return Tensor(np.array(values, dtype), requires_grad=True)


# Gradients that several paths bring to one place.


def test_a_tensor_used_twice_gets_the_sum():
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (((a + b) + a) * 2.0).backward(np.ones(2))
    assert a.grad.tolist() == [4, 4] and b.grad.tolist() == [2, 2]
    a = leaf(1.0, 2.0)
    (a + a).backward(np.ones(2))
    assert a.grad.tolist() == [2, 2]


def test_gradients_never_share_memory():
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    seed = np.ones(2)
    (a + b).backward(seed)
    a.grad *= 5
    assert b.grad.tolist() == [1, 1] and seed.tolist() == [1, 1]
    x = leaf(1.0, 2.0)
    y = x + 0.0
    y.retain_grad()
    y.backward(seed)
    y.grad *= 5
    assert x.grad.tolist() == [1, 1]


def test_the_accumulated_sum_is_not_written_into_a_gradient_that_others_hold():
    a, b = leaf(1.0), leaf(1.0)
    s = a + b  # both get the same array from the engine; the second path to `a` must not change that of `b`
    (s + a + a).backward(np.ones(1))
    assert a.grad.tolist() == [3] and b.grad.tolist() == [1]


@pytest.mark.parametrize("width", [2, 5])
def test_a_node_waits_for_all_its_consumers(width):
    x = leaf(1.5)
    calls = []
    h = x * 2.0
    h.register_hook(lambda g: calls.append(g.item()))
    total = h * 1.0
    for k in range(1, width):  # diamonds of different depths
        branch = h
        for _ in range(k):
            branch = branch * 1.0
        total = total + branch
    total.backward(np.ones(1))
    assert calls == [width] and x.grad.tolist() == [2 * width]


def test_chains_of_diamonds_are_walked_in_linear_time():
    x = leaf(1.0)
    y = x
    for _ in range(200):  # 2 ** 200 paths
        y = (y + y) * 0.5
    y.backward(np.ones(1))
    assert x.grad.item() == 1


def test_deep_chains_need_no_recursion():
    x = leaf(1.0)
    y = x
    for _ in range(50_000):
        y = y + 1.0
    y.backward(np.ones(1))
    assert x.grad.item() == 1 and y.item() == 50_001
    del y  # nor does freeing the graph


def test_a_deep_chain_that_was_never_walked_can_be_freed():
    y = leaf(1.0)
    for _ in range(50_000):
        y = y * 1.0
    assert y.item() == 1
    del y
    gc.collect()


# What is kept and what is freed.


def test_a_spent_graph_says_so():
    x = leaf(2.0)
    y = x * x
    y.backward()
    with pytest.raises(RuntimeError, match="second time.*retain_graph=True"):
        y.backward()


def test_retain_graph_adds_up_and_keeps_intermediate_gradients():
    x = leaf(1.0, 2.0)
    h = x * 3.0
    y = h * h
    y.backward(np.ones(2), retain_graph=True)
    assert h.grad.tolist() == [6, 12] and x.grad.tolist() == [18, 36]
    y.backward(np.ones(2))
    assert x.grad.tolist() == [36, 72]
    h = x * 3.0
    (h * h).backward(np.ones(2))
    assert h.grad is None


def test_retain_grad_keeps_one():
    x = leaf(1.0)
    h, k = x * 3.0, x * 4.0
    h.retain_grad()
    (h + k).backward()
    assert h.grad.tolist() == [1] and k.grad is None
    with pytest.raises(RuntimeError, match="requires_grad=False"):
        Tensor([1.0]).retain_grad()


def test_what_backward_needs_no_longer_is_freed():
    x = leaf(*range(5))
    y = x.exp()
    saved = weakref.ref(y.node.vjp)
    z = y * 1.0
    z.backward(np.ones(5))
    assert saved() is None


def test_an_input_without_gradient_is_not_held():
    w = leaf(1.0, dtype="float32")
    z = w * Tensor([2.0])
    assert z.node.vjp[1] is None and z.node.parents[1] is None
    assert (Tensor([1.0]) * 2.0).node is None


# Starting points and wrong calls.


def test_backward_needs_a_scalar_or_a_gradient():
    y = leaf(1.0, 2.0) * 2.0
    with pytest.raises(RuntimeError, match=r"scalar outputs, got shape \(2,\)"):
        y.backward()
    with pytest.raises(RuntimeError, match=r"shape \(3,\).*\(2,\)"):
        y.backward(np.ones(3))
    with pytest.raises(RuntimeError, match="does not require grad"):
        Tensor([1.0]).backward()


def test_backward_into_chosen_inputs_only():
    a, b = leaf(1.0), leaf(2.0)
    (a * b).backward(inputs=[a])
    assert a.grad.item() == 2 and b.grad is None


def test_backward_of_a_leaf_itself():
    x = leaf(3.0)
    x.backward()
    assert x.grad.item() == 1


def test_gradients_come_back_in_the_inputs_shape_and_dtype():
    x = Tensor(np.ones((3, 1), "float32"), requires_grad=True)
    y = Tensor(np.ones((2, 1, 4), "float64"), requires_grad=True)
    out = x * y
    assert out.dtype == np.float64 and out.shape == (2, 3, 4)
    out.backward(np.ones((2, 3, 4)))
    assert x.grad.dtype == np.float32 and x.grad.shape == (3, 1) and x.grad.tolist() == [[8], [8], [8]]
    assert y.grad.shape == (2, 1, 4) and y.grad.numpy().max() == 3


def test_half_precision_gradients_are_summed_in_float32():
    x = Tensor(np.ones(1, "float16"), requires_grad=True)
    (x * Tensor(np.ones(4096, "float16"))).backward(np.ones(4096, "float16"))
    assert x.grad.tolist() == [4096] and x.grad.dtype == np.float16


# Overwritten arrays.


def test_overwriting_what_backward_needs_raises():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    z = y * y
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*mul.*version 0.*version 1"):
        z.backward(np.ones(2))


def test_overwriting_a_result_that_backward_needs_raises():
    y = leaf(1.0).exp()
    z = y * 1.0
    with no_grad():
        y.add_(1.0)
    with pytest.raises(RuntimeError, match="exp"):
        z.backward()


def test_overwriting_what_backward_does_not_need_is_fine():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    z = y + 3.0
    y.mul_(5.0)
    (z + y).backward(np.ones(2))
    assert x.grad.tolist() == [6, 6]


def test_writing_through_a_detached_tensor_is_noticed():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.detach().mul_(2.0)
    with pytest.raises(RuntimeError, match="inplace"):
        y.backward(np.ones(2))


@pytest.mark.parametrize("how", ["closure", "default", "partial", "inner function"])
def test_whatever_way_a_vjp_holds_an_array_overwriting_it_raises(how):
    @op
    def double(x):
        def scaled(g):
            return g * (x / x) * 2

        ways = {
            "closure": lambda g: scaled(g),
            "default": lambda g, kept=x: g * (kept / kept) * 2,
            "partial": functools.partial(lambda kept, g: g * (kept / kept) * 2, x),
            "inner function": scaled,
        }
        return x * 2, ways[how]

    h = leaf(1.0, 2.0) * 1.0
    y = double(h)
    h.zero_()
    with pytest.raises(RuntimeError, match="double"):
        y.backward(np.ones(2))


# Hooks.


def test_tensor_hooks_see_and_replace_the_gradient():
    def run(lib, x):
        seen = []
        h = x * 3
        h.register_hook(lambda g: seen.append(g.tolist()))
        handle = h.register_hook(lambda g: g * 100)
        x.register_hook(lambda g: g * 2)
        removed = h.register_hook(lambda g: g * 0)
        removed.remove()
        (h * h).backward(lib(np.ones(2)))
        handle.remove()
        (x * 3).backward(lib(np.ones(2)))
        return seen, x.grad.tolist()

    ours = run(lambda a: a, leaf(1.0, 2.0))
    theirs = run(torch.from_numpy, torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True))
    assert ours == theirs


def test_hooks_are_checked():
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(RuntimeError, match=r"size of value \(was \[2\], got \[3\]\)"):
        (x * 2.0).backward(np.ones(2))
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        Tensor([1.0]).register_hook(print)


def test_post_accumulate_hooks_run_after_the_gradient_is_there():
    x, calls = leaf(1.0), []
    x.register_post_accumulate_grad_hook(lambda t: calls.append(t.grad.item()))
    (x * 2.0 + x).backward()
    (x * 2.0).backward()
    assert calls == [3, 5]
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 2.0).register_post_accumulate_grad_hook(print)


def test_threads_differentiate_independently():
    results = {}

    def work(k):
        with no_grad() if k % 2 else mytorch.enable_grad():
            x = leaf(float(k))
            for _ in range(50):
                y = x * x
            results[k] = y.requires_grad
            if y.requires_grad:
                y.backward()
                results[k] = x.grad.item()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == {k: (False if k % 2 else 2.0 * k) for k in range(6)}


def test_a_write_counts_for_the_memory_written_not_for_what_lies_between():
    """A bias is written, moved to other memory and written again; the weight between the two is unchanged."""
    memory = np.ones(30)
    weight = Tensor(memory[10:20].reshape(2, 5), requires_grad=True)
    bias = Tensor(memory[:2], requires_grad=True)
    with no_grad():
        bias += 1
    bias.data = mytorch.Array(memory[25:27])
    loss = mytorch.nn.functional.linear(leaf(1, 2, 3, 4, 5), weight, bias).sum()
    with no_grad():
        bias += 1
    loss.backward()
    assert weight.grad.tolist() == [[1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize("moves", [1, 40])
def test_a_write_before_the_memory_was_exchanged_is_noticed(moves):
    x = leaf(1.0, 2.0)
    y = x * 1.0
    loss = (y * y).sum()
    with no_grad():
        y += 1
        for _ in range(moves):
            y.data = mytorch.Array(np.zeros(2))
            y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
