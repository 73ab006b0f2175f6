# %% [markdown]
# # Make it fast
#
# Where does the time of a training step go, and what can be done about it? You profile a small network,
# find an operation that computes little and takes long, write a kernel for it in Numba and in Triton, and
# see on a *roofline* why the kernel can't become faster still. At the end `mytorch.compile` writes the
# kernel itself.

# %%
import math
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np

os.environ.setdefault("MYTORCH_COMPILE", "wait")  # time kernels, not NumPy while they are compiled
import mytorch
from mytorch import nn, stream
from mytorch.nn import functional as F
from mytorch.profiler import profile

SHORT = bool(os.environ.get("MYTORCH_NOTEBOOK_SHORT"))
ROWS, WIDTH = (256, 256) if SHORT else (4096, 768)
SECONDS = 0.02 if SHORT else 1.0  # for each measurement

try:
    import numba
except ImportError:
    numba = None
    print("without Numba (pip install numba) the kernels of sections 3 and 5 are left out")

else:
    numba.set_num_threads(mytorch.get_num_threads())

mytorch.manual_seed(0)
rng = np.random.default_rng(0)
print(f"mytorch {mytorch.__version__}, {mytorch.get_num_threads()} threads")

# %% [markdown]
# ## 1. Profile
#
# Here is an MLP with a layer norm, the half of a transformer's block that isn't attention. Layer norm and
# GELU are written as their formulas say, with one operation of mytorch for each sign. (mytorch has kernels
# for both. For this notebook we pretend that it hasn't.)


# %%
def layer_norm(x, weight, bias, eps=1e-5):
    """(x - mean) / sqrt(variance + eps), for each row; then a weight and a bias for each column."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * (variance + eps).rsqrt() * weight + bias


def gelu(x):
    return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh())


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(mytorch.ones(width)), nn.Parameter(mytorch.zeros(width))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(gelu(self.up(layer_norm(x, self.weight, self.bias))))


model = MLP(WIDTH // 4)
optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-3)
inputs, targets = mytorch.randn(ROWS // 4, WIDTH // 4), mytorch.randn(ROWS // 4, WIDTH // 4)


def train_step(inputs, targets):
    optimizer.zero_grad()
    loss = F.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


for _ in range(2):
    train_step(inputs, targets)  # the first steps allocate, and may compile
with profile(with_flops=True) as prof:
    for _ in range(10):
        train_step(inputs, targets)
print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=8))

# %% [markdown]
# The products (`linear` and its backward) are expected there. What do the others want? `stream.record` has
# each operation as data: its time, its floating-point operations (FLOP), and the bytes that it reads and
# writes.

# %%
seconds, flops, traffic = Counter(), Counter(), Counter()
with stream.record() as instructions:
    train_step(inputs, targets)
for i in instructions:
    kind = "product" if i.kind == "product" else "everything else"
    seconds[kind] += i.self_time
    flops[kind] += stream.flops(i)
    traffic[kind] += i.nbytes
for name, counter in (("time", seconds), ("FLOP", flops), ("bytes", traffic)):
    shares = ", ".join(f"{kind} {n / sum(counter.values()):.0%}" for kind, n in sorted(counter.items()))
    print(f"{name:5}: {shares}")
assert traffic["everything else"] > traffic["product"] and flops["product"] > 10 * flops["everything else"]

# %% [markdown]
# The products do nearly all of the arithmetic. The rest computes next to nothing, and moves most of the
# bytes: each operation reads its arrays from memory, does one addition or multiplication with every number,
# and writes the result back, only for the next operation to read it again. That is what a kernel changes.
#
# ## 2. One operation under the lens
#
# Layer norm on a matrix. How many bytes *must* move? Each number is read once and written once. How many do
# move?

# %%
x, weight, bias = (rng.standard_normal(s, dtype=np.float32) for s in ((ROWS, WIDTH), WIDTH, WIDTH))
tensors = [mytorch.from_numpy(a) for a in (x, weight, bias)]
expected = F.layer_norm(tensors[0], (WIDTH,), *tensors[1:]).numpy()

with stream.record() as instructions:
    layer_norm(*tensors)
for i in instructions:
    print(f"{i.name:6} {i.nbytes / 1e6:6.1f} MB")
moved, needed = sum(i.nbytes for i in instructions), 2 * x.nbytes
print(f"all    {moved / 1e6:6.1f} MB, {moved / needed:.1f} times the {needed / 1e6:.1f} MB that are needed")
assert moved > 4 * needed

# %% [markdown]
# And what does it cost? To measure, take the fastest of many runs: other programs only ever make a run
# slower. The yardstick is a copy, on all threads: it reads every number once, writes it once, and computes
# nothing. A layer norm can't be faster than that.

# %%
results = {}  # what: milliseconds


def measure(what, call):
    call()  # the first call may compile
    times, end = [], time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    results[what] = 1e3 * min(times)
    print(f"{results[what]:8.3f} ms  {what}")


threads = mytorch.get_num_threads()
pool, out = ThreadPoolExecutor(threads), np.empty_like(x)
halves = [np.array_split(array, threads) for array in (out, x)]
measure("copy", lambda: list(pool.map(np.copyto, *halves)))
measure("layer norm, one operation at a time", lambda: layer_norm(*tensors))

# %% [markdown]
# ## 3. A kernel in Numba
#
# Numba compiles a Python function to machine code. The loop over rows is shared out to the threads
# (`prange`). A row of some kilobytes fits into the cache that is nearest to the core: it comes from memory
# once, and the second and third loop find it there. Intermediate results stay in registers, they are never
# arrays.


# %%
def numba_layer_norm(x, weight, bias, eps, out):
    for i in numba.prange(x.shape[0]):
        row, total, squares = x[i], np.float32(0), np.float32(0)
        n = np.float32(row.size)
        for j in range(row.size):
            total += row[j]
        mean = total / n
        for j in range(row.size):
            squares += (row[j] - mean) * (row[j] - mean)
        rstd = np.float32(1) / np.sqrt(squares / n + eps)
        for j in range(row.size):
            out[i, j] = (row[j] - mean) * rstd * weight[j] + bias[j]


eps = np.float32(1e-5)
if numba:
    in_order = numba.njit(parallel=True)(numba_layer_norm)
    measure("layer norm in Numba", lambda: in_order(x, weight, bias, eps, out))
    assert np.allclose(out, expected, atol=1e-4)

# %% [markdown]
# One pass instead of nine. But there is more to gain: `total += row[j]` asks for the sum *in this order*,
# one addition after the other, each waiting for the one before it. Floating-point sums depend on the order,
# so the compiler may not choose another. We allow it (`reassoc`), and it keeps 8 or 16 partial sums in one
# wide register. The other permissions are as harmless. The full `fastmath=True` is not: it also assumes
# that there are no NaN and no inf.

# %%
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}
if numba:
    any_order = numba.njit(parallel=True, fastmath=FASTMATH)(numba_layer_norm)
    measure("layer norm in Numba, sums in any order", lambda: any_order(x, weight, bias, eps, out))
    assert np.allclose(out, expected, atol=1e-4)
    broken = x.copy()
    broken[0, 0] = np.nan  # must spread to its row, and no further
    any_order(broken, weight, bias, eps, out)
    assert np.isnan(out[0]).all() and not np.isnan(out[1:]).any()

# %% [markdown]
# Compare it with the copy: where the two take about the same time, the kernel costs what its memory traffic
# costs, and the arithmetic is free.
#
# ### A kernel that doesn't win
#
# GELU is another chain of small operations, so the same recipe should do. Try it.


# %%
def numpy_gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def numba_gelu(x, out):
    half, one, a, b = np.float32(0.5), np.float32(1), np.float32(0.7978845608), np.float32(0.044715)
    for i in numba.prange(x.shape[0]):
        for j in range(x.shape[1]):
            v = x[i, j]
            out[i, j] = half * v * (one + math.tanh(a * (v + b * v * v * v)))


measure("GELU in NumPy", lambda: numpy_gelu(x))
if numba:
    naive = numba.njit(parallel=True, fastmath=FASTMATH)(numba_gelu)
    measure("GELU in Numba, naive", lambda: naive(x, out))
    assert np.allclose(out, numpy_gelu(x), atol=1e-4)
measure("tanh alone in NumPy", lambda: np.tanh(x))
measure("GELU in mytorch", lambda: F.gelu(tensors[0], approximate="tanh"))

# %% [markdown]
# The kernel has one pass where NumPy has nine, and is usually *slower*. `math.tanh` calls the C library,
# for one number at a time. NumPy's `tanh` is written for wide registers. So one pass isn't all: what is in
# it must be sums and products, which compilers know how to do 16 at a time. mytorch's kernel therefore
# computes `exp` as a polynomial ([`approximations.py`](../mytorch/nn/fused_ops/numba/approximations.py)),
# and tanh from it. Measure before you believe, your own kernels first.
#
# ## 4. The same kernel in Triton
#
# On a GPU the language is Triton. A kernel is written for a *block* of numbers, here for a row, and
# thousands of its programs run at once, each with another `program_id`. `tl.load` brings a row into
# registers, and everything up to `tl.store` happens there. Numbers behind the row's end are masked: a block
# has a power of two of them.
#
# Without a GPU, Triton's interpreter runs the same source on NumPy arrays, one program after the other:
# slow, but it shows whether the kernel is right.

# %%
on_gpu = mytorch.cuda.is_available()
if not on_gpu:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when a kernel is defined
try:
    import triton
    import triton.language as tl

    from mytorch.core.tensor import raw_of
    from mytorch.nn.fused_ops.triton.launch import launch, pointers_of
except ImportError as error:
    triton = None
    print(f"without Triton (pip install triton, on Linux) this kernel isn't run: {error}")

if triton:

    @triton.jit
    def triton_layer_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
        row, column = tl.program_id(0), tl.arange(0, BLOCK)
        inside = column < n
        x = tl.load(x_ptr + row * n + column, mask=inside, other=0.0)
        mean = tl.sum(x, axis=0) / n
        centred = tl.where(inside, x - mean, 0.0)
        rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
        weight = tl.load(weight_ptr + column, mask=inside)
        bias = tl.load(bias_ptr + column, mask=inside)
        tl.store(out_ptr + row * n + column, centred * rstd * weight + bias, mask=inside)


def run_triton(x, weight, bias):
    """Returns the layer norm of NumPy arrays, by the kernel on the GPU or in the interpreter."""
    rows, n = x.shape
    block = 1 << (n - 1).bit_length()  # the next power of two
    if not on_gpu:
        out = np.empty_like(x)
        triton_layer_norm[(rows,)](*pointers_of([x, weight, bias, out]), n, 1e-5, BLOCK=block)
        return out
    arrays = [mytorch.from_numpy(a).cuda() for a in (x, weight, bias)]
    out = mytorch.empty_like(arrays[0])
    launch(triton_layer_norm, (rows,), *map(raw_of, (*arrays, out)), n, 1e-5, BLOCK=block)
    return out.cpu().numpy()


if triton:
    few, n = 8, 100  # no power of two: the mask matters
    small = np.ascontiguousarray(x[:few, :n]), weight[:n], bias[:n]
    wanted = F.layer_norm(mytorch.from_numpy(small[0]), (n,), *map(mytorch.from_numpy, small[1:])).numpy()
    assert np.allclose(run_triton(*small), wanted, atol=1e-5)
    print("Triton's kernel is right:", "on the GPU" if on_gpu else "in the interpreter")

# %% [markdown]
# Both kernels are the same thought: a row is read once, all of the computing happens close to the
# arithmetic, the result is written once.
#
# ## 5. The roofline
#
# When is a kernel fast *enough*? Two limits belong to the machine: how many numbers a second it multiplies
# and adds, and how many bytes a second its memory moves. The first is measured with a product of large
# matrices, the second with the copy from above.

# %%
SIDE = 256 if SHORT else 1536
a, b = (mytorch.from_numpy(rng.standard_normal((SIDE, SIDE), dtype=np.float32)) for _ in range(2))
measure("product", lambda: a @ b)
peak_flops = 2 * SIDE**3 / results["product"] * 1e3
bandwidth = 2 * x.nbytes / results["copy"] * 1e3
ridge = peak_flops / bandwidth
print(f"{peak_flops / 1e9:.0f} GFLOP/s and {bandwidth / 1e9:.0f} GB/s: {ridge:.1f} FLOP for each byte")

# %% [markdown]
# The *intensity* of an operation is its FLOP for each byte that must move. Below the ratio of the two
# limits memory is what it waits for, and the best that it can reach is intensity · bandwidth. Above it, the
# arithmetic is the limit. Drawn over the intensity, the two limits look like a roof.
#
# Where do our operations stand? Layer norm has about 8 FLOP for each number, and 8 bytes: one read, one
# written.

# %%
points = {}  # name: intensity in FLOP per byte, FLOP/s


def place(what, flops, nbytes):
    if what in results:
        points[what] = flops / nbytes, flops / results[what] * 1e3


other = x + 1
measure("addition", lambda: np.add(x, other, out=out))
skinny = a[:8]  # 8 rows, as when a model writes text
measure("product with 8 rows", lambda: skinny @ b)
place("addition", x.size, 3 * x.nbytes)
for name in ("one operation at a time", "in Numba", "in Numba, sums in any order"):
    if name.startswith("one") or numba:
        place(f"layer norm{', ' if name.startswith('one') else ' '}{name}", 8 * x.size, 2 * x.nbytes)
place("product with 8 rows", 2 * 8 * SIDE**2, 4 * (SIDE**2 + 2 * 8 * SIDE))
place("product", 2 * SIDE**3, 4 * 3 * SIDE**2)
for name, (intensity, reached) in points.items():
    roof = min(peak_flops, intensity * bandwidth)
    print(f"{intensity:8.2f} FLOP/B {reached / 1e9:8.1f} GFLOP/s, {reached / roof:5.0%} of the roof: {name}")

# %%
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("without matplotlib (pip install matplotlib) there is no picture of the roofline")
else:
    figure, axes = plt.subplots(figsize=(8, 5))
    intensities = np.geomspace(0.05, 4 * max(i for i, _ in points.values()), 100)
    axes.plot(intensities, np.minimum(peak_flops, intensities * bandwidth) / 1e9, color="black")
    for name, (intensity, reached) in points.items():
        axes.plot(intensity, reached / 1e9, "o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="intensity, FLOP per byte", ylabel="GFLOP/s")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    plt.show()

# %% [markdown]
# A point far below the roof can become faster by a better kernel. One at the roof can't: it needs less
# traffic, or a faster machine. (Somewhat above it is possible, too: the copy was measured on a busy
# machine, or a matrix was still in the processor's cache.) NumPy's addition uses one thread, however many
# there are. And the product with 8 rows is far to the left of the large product: it reads the whole matrix
# for few rows. Generating text is such a product, and waits for memory.
#
# ## 6. Let the compiler do it
#
# What we did by hand follows rules: operations that go through the same rows become one loop.
# `mytorch.capture` runs a function on arrays without elements and notes the instructions; `optimized` makes
# loops of them.

# %%
program = mytorch.capture(layer_norm, *tensors)
print(program)
print(program.optimized())

# %% [markdown]
# Twelve instructions have become one loop over rows. Here is the source that is generated for the CPU, and
# for a GPU. Compare them with ours.

# %%
fused = program.optimized()
print(fused.source())
try:
    print(fused.source("cuda"))
except ImportError as error:
    print(error)
assert np.allclose(fused(*tensors).numpy(), expected, atol=1e-4)
measure("layer norm, captured", lambda: fused(*tensors))
measure("layer norm, mytorch's own kernel", lambda: F.layer_norm(tensors[0], (WIDTH,), *tensors[1:]))

# %% [markdown]
# `mytorch.compile` does this for a whole training step, forward, backward and all, when it is first called.
# The values stay the same; how the time changes is printed.

# %%
compiled = mytorch.compile(train_step)
for _ in range(3):
    assert np.isfinite(compiled(inputs, targets).item())
measure("training step, one operation at a time", lambda: train_step(inputs, targets))
measure("training step, compiled", lambda: compiled(inputs, targets))
print(mytorch.compiler.explain(compiled))

# %% [markdown]
# ## What next
#
# - Try: `WIDTH = 100_000` with fewer rows. A row no longer fits into the nearest cache. What does the
#   roofline say?
# - Try: a kernel for `x * x * (x > 0)`, the squared ReLU. Predict its time from the bandwidth before you
#   measure.
# - Try: `x**3` instead of `x * x * x` in `numpy_gelu`. Explain what you see.
#
# The real ones: layer norm in [Numba](../mytorch/nn/fused_ops/numba/layer_norm.py) and in
# [Triton](../mytorch/nn/fused_ops/triton/layer_norm.py), forward and backward; all kernels with their times
# in [kernels.md](../docs/kernels.md); how programs are captured and fused in
# [programs.md](../docs/programs.md); the profiler, a timeline, and what a running job does in
# [stream.md](../docs/stream.md).
