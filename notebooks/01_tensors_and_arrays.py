# %% [markdown]
# # Tensors and Arrays: one type, two devices
#
# What a tensor is, from the bytes in memory up to shapes without memory. You will see how one line of code
# runs on the CPU and on the GPU, what shares memory with what, and how mytorch notices that you overwrote
# something it still needs. No knowledge of deep learning is needed, only a little NumPy.

# %%
import time

import numpy as np

import mytorch

device = "cuda" if mytorch.cuda.is_available() else "cpu"
print(f"mytorch {mytorch.__version__} on NumPy {np.__version__}; this notebook runs on {device}")

# %% [markdown]
# ## Two types
#
# An `Array` holds numbers. Underneath it is one NumPy array, or one CuPy array if the numbers are on a GPU.
# It computes, and remembers nothing.
#
# A `Tensor` holds an Array, its `data`. It can also remember how it was computed, so that derivatives can
# be found later.

# %%
a = mytorch.Array([[1, 2, 3], [4, 5, 6]])
t = mytorch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)

print(a)
print(t)
print(t * 2)  # grad_fn: the operation that made it
print((t * 2).data)  # the same numbers, without a memory

# %% [markdown]
# ## `np.` works on both
#
# When you call `np.exp(x)`, NumPy first asks `x` whether it wants to do the work itself
# ([NEP 13](https://numpy.org/neps/nep-0013-ufunc-overrides.html) and
# [NEP 18](https://numpy.org/neps/nep-0018-array-function-protocol.html)). An Array answers: call the same
# function of NumPy or CuPy, whichever my numbers belong to. A Tensor answers: I have an operation of that
# name, and it can be differentiated.

# %%
x = mytorch.tensor([0.0, 1.0, 2.0], requires_grad=True, device=device)

print(np.exp(x.data))
print(np.exp(x))

total = np.sum(np.exp(x))
total.backward()
print(x.grad)
assert np.allclose(x.grad.cpu(), np.exp([0.0, 1.0, 2.0]))  # the derivative of exp is exp

# %% [markdown]
# `x.grad` is an Array: a gradient is a result, and it needs no history of its own.
#
# `np.sum(np.exp(x))` says nothing of mytorch. So a function that was written for NumPy can be
# differentiated as it is:


# %%
def softmax(x):
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


scores = [2.0, 1.0, 0.1]
print(softmax(np.array(scores)))
print(softmax(mytorch.Array(scores)))
print(softmax(mytorch.tensor(scores, requires_grad=True)))
assert np.allclose(softmax(np.array(scores)), softmax(mytorch.Array(scores)))

# %% [markdown]
# ## Dtypes
#
# A dtype says how many bytes a number takes and how they are read. mytorch uses NumPy's dtypes and
# PyTorch's rules for mixing them. The rules differ in one place that matters. NumPy makes float64 of an
# integer array and a float32 array. PyTorch stays with float32, because it takes half the memory, and
# networks don't need more digits.

# %%
integers, floats = np.array([1, 2]), np.array([0.5, 0.5], dtype="float32")
print("NumPy:  ", (integers + floats).dtype)
print("mytorch:", (mytorch.tensor(integers) + mytorch.tensor(floats)).dtype)

for dtype in ("float16", "float32", "float64"):
    third = mytorch.tensor(1.0, dtype=dtype) / 3
    print(f"{dtype}: {third.data.nbytes} bytes, 1/3 is {third.item():.17f}")

assert (mytorch.tensor([1, 2]) * 2.5).dtype == "float32"  # a Python number doesn't change float32 to float64

# %% [markdown]
# ## Views: many tensors, one memory
#
# A tensor is three things: memory, a shape, and *strides*. The stride of a dim says how many elements to
# walk in memory for one step along that dim. A transpose copies nothing. It only swaps the strides. A write
# into a view is a write into its base, and into every other view of it.

# %%
base = mytorch.arange(12.0).reshape(3, 4)
print(base)
views = {"base": base, "base.T": base.T, "base[1:, ::2]": base[1:, ::2], "base[:, 1]": base[:, 1]}
for name, view in views.items():
    print(f"{name:14} shape {tuple(view.shape)!s:8} strides {view.stride()}")
    assert np.shares_memory(view.numpy(), base.numpy())

corner = base[1:, ::2]
corner *= 10
print(base)
assert base[1, 0] == 40 and base.T[0, 1] == 40

# %% [markdown]
# The same holds between libraries. `from_numpy` shares the memory of a NumPy array. `tensor` copies it.

# %%
raw = np.zeros(3)
shared, copied = mytorch.from_numpy(raw), mytorch.tensor(raw)
raw[0] = 7
print("shared:", shared)
print("copied:", copied)

# %% [markdown]
# Between any two libraries there is [DLPack](https://dmlc.github.io/dlpack/latest/): one side says where
# its memory is and how it is laid out, the other side uses it. NumPy, CuPy, PyTorch, JAX and mytorch speak
# it. No byte is copied.

# %%
weights = mytorch.ones(3)
seen_by_numpy = np.from_dlpack(weights)
weights[0] = 5
print(seen_by_numpy)
assert mytorch.from_dlpack(seen_by_numpy)[0] == 5

# %% [markdown]
# ## Broadcasting, and back
#
# A column of shape (3, 1) and a row of shape (1, 4) make a table of shape (3, 4). A dim of size 1 is
# stretched to fit. Stretching needs no memory: its stride is 0, so each step along it stays at the same
# element.

# %%
column = mytorch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
row = mytorch.tensor([[10.0, 20.0, 30.0, 40.0]], requires_grad=True)
print(column * row)
print("strides of the stretched column:", column.expand(3, 4).stride())

# %% [markdown]
# What is the gradient of the column? Its first element was used four times, once in each number of the
# first row. Each use contributes to the derivative, so the contributions are added. *Stretching forward
# means summing backward*, and the gradient has the shape of the column again.

# %%
table = column * row
table.sum().backward()
print("gradient of the column:", column.grad.tolist())
print("gradient of the row:   ", row.grad.tolist())


def unbroadcast(gradient, shape):
    """Sums over the dims that were stretched."""
    stretched = tuple(i for i, n in enumerate(shape) if n == 1)
    return gradient.sum(axis=stretched, keepdims=True)


ones = np.ones((3, 4), dtype="float32")  # the gradient of table, since its sum is the result
assert np.allclose(column.grad, unbroadcast(ones * row.numpy(force=True), (3, 1)))
assert np.allclose(row.grad, unbroadcast(ones * column.numpy(force=True), (1, 4)))

# %% [markdown]
# mytorch does this in one place for all its operations:
# [`core/unbroadcast.py`](../mytorch/core/unbroadcast.py).
#
# ## Two devices
#
# The device is where the numbers are. Code that doesn't name a device runs on each. Mixing devices is an
# error, because a hidden copy over the bus between CPU and GPU would cost more than most operations.


# %%
def distance(p, q):
    """The lengths of the differences of rows."""
    return ((p - q) ** 2).sum(dim=1).sqrt()


for place in dict.fromkeys(["cpu", device]):
    p, q = mytorch.zeros(2, 3, device=place), mytorch.ones(2, 3, device=place)
    print(place, distance(p, q))
if device == "cpu":
    print("There is no GPU here. With one, the same function runs there, too.")

# %% [markdown]
# How? The body of an operation consists of `np.` functions on raw arrays, and CuPy answers to these.
# Numbers of a GPU therefore reach the GPU's functions without a second version of the code.
#
# ## A third device that holds nothing
#
# On the device `"meta"` a tensor has a shape, strides and a dtype, but no numbers. Everything "runs", and
# nothing is computed. So you can ask what a model costs that fits into no computer you own. Here is GPT-3,
# with 96 layers, each 12,288 wide. ([More about it](../docs/meta.md).)

# %%
from mytorch.models import GPT2, GPT2Config

started = time.perf_counter()
with mytorch.device("meta"):
    gpt3 = GPT2(GPT2Config(n_layer=96, n_head=96, n_embd=12288, context_length=2048))
    tokens = mytorch.empty(1, 2048, dtype="int64")
logits, loss = gpt3(tokens, tokens)
loss.backward()
seconds = time.perf_counter() - started

parameters = sum(p.numel() for p in gpt3.parameters())
print(f"{parameters:,} parameters, {4 * parameters / 2**30:.0f} GiB in float32")
print(f"built, run forward and backward in {seconds:.1f} seconds")
print(logits)
assert parameters > 170e9 and all(p.grad.shape == p.shape for p in gpt3.parameters())

# %% [markdown]
# Errors are the real ones, too. A wrong shape is found before any memory is spent:

# %%
narrow, wide = mytorch.empty(8, 1000, device="meta"), mytorch.empty(1024, 10, device="meta")
try:
    narrow @ wide
except RuntimeError as error:
    print(error)

# %% [markdown]
# ## What if memory changes too early?
#
# Shared memory has a danger. The derivative of `exp` at `x` is `exp(x)`, which the forward pass has just
# computed, so it is kept for the backward pass. What if you overwrite it in between?
#
# Each piece of memory has a *version*, a counter that every write in place increases. All views share it.
# An operation notes the version of what it may need. The backward pass compares. Without the counter the
# gradient would be wrong, and nothing would tell you. But the check isn't stricter than needed: an addition
# keeps nothing.

# %%
x = mytorch.tensor([0.0, 1.0], requires_grad=True)
y = x.exp()
print("version before:", y._version.count)
y += 1
print("version after: ", y._version.count)
try:
    y.sum().backward()
except RuntimeError as error:
    print(error)
else:
    raise AssertionError("the overwritten result of exp should have been noticed")

y = x + 1  # keeps nothing, so it may be overwritten
y *= 2
y.sum().backward()
print(x.grad)
assert np.allclose(x.grad, 2)

# %% [markdown]
# ## Where it is
#
# | file | what is in it |
# |---|---|
# | [`core/array.py`](../mytorch/core/array.py) | Array, and the two protocols of NumPy |
# | [`core/tensor.py`](../mytorch/core/tensor.py) | Tensor |
# | [`numpy_protocol.py`](../mytorch/numpy_protocol.py) | `np.exp(tensor)` |
# | [`core/unbroadcast.py`](../mytorch/core/unbroadcast.py) | summing what was stretched |
# | [`backends/device.py`](../mytorch/backends/device.py) | devices, and which library an array belongs to |
# | [`backends/meta/array.py`](../mytorch/backends/meta/array.py) | arrays that hold nothing |
# | [`ops/inplace.py`](../mytorch/ops/inplace.py) | the one place where a tensor's memory is written |
#
# ## Try
#
# 1. `base.T.reshape(12)` can't be a view. Why? Check with `np.shares_memory`, and look at the strides of
#    `base.T`.
# 2. Write a layer norm of rows with `np.mean`, `np.sqrt` and operators. Run it on a NumPy array, an Array
#    and a Tensor.
# 3. How large may `context_length` be before the *logits* of GPT-3 alone take more than a terabyte in
#    float32? Compute it, then let the meta device confirm it with `logits.data.nbytes`.
