# %% [markdown]
# # Write your own op
#
# Teach mytorch a function that it doesn't know, with a derivative that you worked out yourself. You start
# with an op of two lines, derive the backward pass of layer norm in four small steps, prove that it is
# right, and see what it saves. You need to know what a derivative is, and what a matrix is.

# %%
import time

import numpy as np

import mytorch
from mytorch import nn
from mytorch.autograd import gradcheck, gradgradcheck
from mytorch.core.op import op
from mytorch.nn.functional.composite import composite

mytorch.manual_seed(0)
device = "cuda" if mytorch.cuda.is_available() else "cpu"

# %% [markdown]
# ## An op in two lines
#
# An op takes raw arrays. It returns its result, and a function that takes the gradient of the result, `g`,
# to the gradient of the input. For $y = x^3$ that is $g \cdot 3x^2$, by the chain rule.


# %%
@op(promote="float")
def cube(x):
    return x**3, lambda g: g * 3 * x**2


x = mytorch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = cube(x)
y.sum().backward()
print(y, x.grad)
assert np.allclose(x.grad, 3 * x.numpy(force=True) ** 2)

# %% [markdown]
# `@op` adds everything else: it unwraps tensors, records the call in the graph, casts integers to floats,
# and computes half precision in float32. With two inputs there are two functions. Neither says anything of
# shapes, although the inputs are broadcast: the engine sums a gradient over the dims that were stretched.


# %%
@op(promote="common")
def times(x, y):
    return x * y, (lambda g: g * y, lambda g: g * x)


column = mytorch.ones(3, 1, requires_grad=True)
row = mytorch.ones(1, 4, requires_grad=True)
times(column, row).sum().backward()
print(cube(mytorch.tensor([1, 2])), cube(mytorch.ones(2, dtype="float16")))
assert column.grad.shape == (3, 1) and row.grad.shape == (1, 4)

# %% [markdown]
# ## Why a function of `g`, and not the derivative itself?
#
# The derivative of a function from $n$ numbers to $m$ numbers is the *Jacobian*, the matrix $J$ with
# $m \times n$ entries $\partial y_i / \partial x_j$. The chain rule multiplies such matrices. In a network
# they are far too large to be stored:

# %%
rows, width = 4096, 512
entries = (rows * width) ** 2
print(f"{rows} x {width} numbers in and out: a Jacobian of {entries:,} entries, {4 * entries / 1e12:.1f} TB")

# %% [markdown]
# But the loss is one number, so backward begins with one row, its gradient $g$. A row times a matrix is a
# row again. So an op only has to compute the product $g^T J$, and almost always there is a shortcut that
# never makes $J$. This is the *vector-Jacobian product*, the **vjp**. For `cube` it is one multiplication
# per element. Now something harder.
#
# ## Layer norm, forward
#
# Layer norm ([Ba, Kiros & Hinton, 2016](https://arxiv.org/abs/1607.06450)) takes each row to mean 0 and
# variance 1, then scales and shifts it. For a row $x$ of $n$ numbers:
#
# $$c = x - \mathrm{mean}(x), \qquad r = \frac{1}{\sqrt{\mathrm{mean}(c^2) + \varepsilon}}, \qquad
# \hat{x} = r\,c, \qquad y = w\,\hat{x} + b$$
#
# Written with tensors, these are three lines, and autograd can already differentiate them. This is the
# **reference**: everything that follows is compared with it.


# %%
def reference(x, w, b, eps=1e-5):
    c = x - x.mean(-1, keepdim=True)
    r = (c.square().mean(-1, keepdim=True) + eps).rsqrt()
    return w * (r * c) + b


x = mytorch.randn(3, 5, dtype="float64", requires_grad=True)
w = mytorch.randn(5, dtype="float64", requires_grad=True)
b = mytorch.randn(5, dtype="float64", requires_grad=True)
y = reference(x, w, b)
assert mytorch.allclose(y, nn.functional.layer_norm(x, (5,), w, b))
mytorch.debug.print_tape(y)

# %% [markdown]
# That is the graph which the reference records, from the result back to its inputs. Nine operations, and
# some keep a whole array for later. One op with a backward pass of its own could keep less.
#
# ## The derivation
#
# We write $\delta x$ for a small change of $x$, and ask which change of $y$ it causes. Then we read the
# question backwards.
#
# **Step 1: scale and shift.** $y = w\hat{x} + b$ changes by
# $\hat{x}\,\delta w + \delta b + w\,\delta\hat{x}$. So with $g$, the gradient of $y$:
#
# $$\frac{\partial L}{\partial w} = \sum_{\text{rows}} g\,\hat{x}, \qquad
# \frac{\partial L}{\partial b} = \sum_{\text{rows}} g, \qquad
# d := \frac{\partial L}{\partial \hat{x}} = g\,w$$
#
# **Step 2: the root.** $r = (v + \varepsilon)^{-1/2}$ with $v = \mathrm{mean}(c^2)$ has the derivative
# $-\tfrac{1}{2}(v + \varepsilon)^{-3/2} = -\tfrac{1}{2}r^3$, and $v$ changes by
# $2\,\mathrm{mean}(c\,\delta c)$. Together:
#
# $$\delta r = -r^3\,\mathrm{mean}(c\,\delta c)$$
#
# **Step 3: the product.** $\hat{x} = r\,c$, so by the product rule, and with $c = \hat{x}/r$:
#
# $$\delta\hat{x} = r\,\delta c + c\,\delta r = r\,\delta c - c\,r^3\,\mathrm{mean}(c\,\delta c) =
# r\,\bigl(\delta c - \hat{x}\,\mathrm{mean}(\hat{x}\,\delta c)\bigr)$$
#
# **Step 4: the mean.** $\delta c = \delta x - \mathrm{mean}(\delta x)$. The mean of $\hat{x}$ is 0, so
# $\mathrm{mean}(\hat{x}\,\delta c) = \mathrm{mean}(\hat{x}\,\delta x)$, and this is the Jacobian:
#
# $$\delta\hat{x} = r\,\bigl(\delta x - \mathrm{mean}(\delta x) -
# \hat{x}\,\mathrm{mean}(\hat{x}\,\delta x)\bigr), \qquad
# J = r\,\Bigl(I - \tfrac{1}{n}\mathbf{1}\mathbf{1}^T - \tfrac{1}{n}\hat{x}\hat{x}^T\Bigr)$$
#
# **Backwards.** $J$ is symmetric. So $d^T J$ is the same formula, with $d$ in the place of $\delta x$:
#
# $$\frac{\partial L}{\partial x} = r\,\bigl(d - \mathrm{mean}(d) - \hat{x}\,\mathrm{mean}(\hat{x}\,d)\bigr)$$
#
# It has a meaning. Adding a constant to a row doesn't change $\hat{x}$, and (but for $\varepsilon$) neither
# does stretching it. So the gradient has no component in these two directions: the two means take them out.
#
# ## In code
#
# A *composite* is a function with a reference and faster variants. `.manual` registers one with a manual
# backward. It looks like an op: arrays in; out come the result and one function for each input.


# %%
@composite
def norm_rows(input, w, b, eps=1e-5):
    return reference(input, w, b, eps)


@norm_rows.manual
def _norm_rows(x, w, b, eps):
    c = x - np.mean(x, -1, keepdims=True)
    r = 1 / np.sqrt(np.mean(c * c, -1, keepdims=True) + eps)
    x_hat = r * c

    def dx(g):
        d = g * w
        return r * (d - np.mean(d, -1, keepdims=True) - x_hat * np.mean(x_hat * d, -1, keepdims=True))

    return w * x_hat + b, (dx, lambda g: g * x_hat, lambda g: g)


print(norm_rows(x, w, b).grad_fn, "instead of", norm_rows(x, w, b, auto=True).grad_fn)
assert mytorch.allclose(norm_rows(x, w, b), y)

# %% [markdown]
# ## Is it right?
#
# The derivative has a definition that needs no algebra. Move one input by a little to both sides, and
# divide the change of the loss by the distance:
#
# $$\frac{\partial L}{\partial x_i} \approx \frac{L(x + h\,e_i) - L(x - h\,e_i)}{2h}$$
#
# Too slow for training: two forward passes for each number. But an honest judge. `gradcheck`, in the last
# line, does the same for every output and every input. It wants float64: float32 has about 7 digits, and
# the difference of two nearly equal numbers loses most of them.

# %%
weights = mytorch.randn(3, 5, dtype="float64")  # the loss: a sum of all outputs, with a weight each


def loss_of(values):
    return (norm_rows(mytorch.tensor(values), w.detach(), b.detach()) * weights).sum().item()


def by_differences(f, values, h=1e-6):
    gradient = np.zeros_like(values)
    for i in np.ndindex(values.shape):
        up, down = values.copy(), values.copy()
        up[i] += h
        down[i] -= h
        gradient[i] = (f(up) - f(down)) / (2 * h)
    return gradient


(norm_rows(x, w, b) * weights).sum().backward()
numeric = by_differences(loss_of, x.numpy(force=True))
print("manual backward:", x.grad[0])
print("differences:    ", numeric[0])
print(f"largest difference {np.abs(x.grad - numeric).max().item():.1e}")
assert np.allclose(x.grad, numeric, atol=1e-7)
assert np.allclose(x.grad.sum(axis=1), 0)  # no component along a constant
print(gradcheck(norm_rows, (x, w, b)))

# %% [markdown]
# ## What a mistake looks like
#
# A transpose too many is found by its shape, even if the gradient has as many numbers as its input:


# %%
@op
def product(x, w):
    return x @ w, (lambda g: g @ w.T, lambda g: g.T @ x)  # the second one should be x.T @ g


try:
    product(mytorch.ones(2, 3), mytorch.ones(3, 4, requires_grad=True)).sum().backward()
except RuntimeError as error:
    print(error)
else:
    raise AssertionError("the shape of the gradient should have been noticed")

# %% [markdown]
# The most common mistake has the right shape: to forget that the variance also depends on $x$. Then the last
# term is missing.


# %%
@op
def forgetful(x):
    c = x - np.mean(x, -1, keepdims=True)
    r = 1 / np.sqrt(np.mean(c * c, -1, keepdims=True) + 1e-5)
    return r * c, lambda g: r * (g - np.mean(g, -1, keepdims=True))


try:
    gradcheck(forgetful, x)
except RuntimeError as error:
    print(error)
else:
    raise AssertionError("gradcheck should have found the mistake")

# %% [markdown]
# The element of the Jacobian at which they differ first is named, with its value by differences and by your
# derivative. The count is a hint, too. The three rows don't influence each other, so of the 225 entries 150
# are 0 in any case. All others are wrong: a term is missing everywhere. If only a few differ, it is a
# special case that you forgot, such as an edge or a tie.
#
# Would training have shown it? Here is the angle between the wrong gradient and the right one:

# %%
(right,) = mytorch.autograd.grad(norm_rows(x, mytorch.ones_like(w), 0 * b), x, weights)
(wrong,) = mytorch.autograd.grad(forgetful(x), x, weights)
cosine = (right * wrong).sum() / (right.norm() * wrong.norm())
print(f"cosine of the angle: {cosine.item():.2f}")
assert 0 < cosine.item() < 0.999

# %% [markdown]
# The wrong gradient still points downhill. A network would learn with it, only worse, and you might never
# know why. Always check.
#
# ## What you got for free
#
# The same lines work in float16, with gradients of gradients (mytorch then differentiates the reference),
# and on a GPU. And if someone overwrites an array that your backward pass needs, the engine finds it in
# your closure and raises.

# %%
half = norm_rows(x.detach().half(), w.detach().half(), b.detach().half())
print(half.dtype, "with an error of", f"{(half.double() - y).abs().max().item():.4f}")
print("second derivatives:", gradgradcheck(norm_rows, (x, w, b)))

scale = w.detach().clone().requires_grad_()
z = norm_rows(x, scale, b)
with mytorch.no_grad():
    scale += 1  # dx needs it as it was
try:
    z.sum().backward()
except RuntimeError as error:
    print(error)
else:
    raise AssertionError("the overwritten scale should have been noticed")

# %% [markdown]
# ## What it saves
#
# First the memory. The reference keeps two large arrays, $c$ and $r\,c$ (`square` and the first `mul` keep
# the same $c$). Ours keeps $\hat{x}$, and one number per row.

# %%
X = mytorch.randn(rows, width, device=device, requires_grad=True)
W = mytorch.ones(width, device=device, requires_grad=True)
B = mytorch.zeros(width, device=device, requires_grad=True)

print("reference:")
mytorch.debug.print_tape(norm_rows(X, W, B, auto=True))
print("manual backward:")
mytorch.debug.print_tape(norm_rows(X, W, B))

# %% [markdown]
# Then the time, of a forward and a backward pass, for a small and for a large input. The third line is
# mytorch's own layer norm. `fused=True` demands its kernel, which Numba compiles for a CPU and Triton for a
# GPU. At the first call on a machine that takes a while.


# %%
def milliseconds(f, g, repeats=10):
    """The shortest time of a forward and a backward pass."""
    times = []
    for _ in range(repeats):
        mytorch.cuda.synchronize() if device == "cuda" else None
        started = time.perf_counter()
        f().backward(g)
        mytorch.cuda.synchronize() if device == "cuda" else None
        times.append(1e3 * (time.perf_counter() - started))
    return min(times)


variants = {
    "reference": lambda x: norm_rows(x, W, B, auto=True),
    "manual backward": lambda x: norm_rows(x, W, B),
    "F.layer_norm": lambda x: nn.functional.layer_norm(x, (width,), W, B, fused=True),
}
try:
    variants["F.layer_norm"](X)
except RuntimeError as error:
    print(f"{error}. Without it F.layer_norm runs its manual backward.")
    variants["F.layer_norm"] = lambda x: nn.functional.layer_norm(x, (width,), W, B)
for n in (16, rows):
    print(f"{n} rows of {width}:")
    for name, f in variants.items():
        part = X[:n].detach().requires_grad_()
        print(f"  {name:16} {milliseconds(lambda f=f, part=part: f(part), mytorch.ones_like(part)):8.2f} ms")

# %% [markdown]
# For a small input the number of operations decides, and one is fewer than nine. For a large one, time goes
# into moving numbers between memory and processor. Each NumPy call reads and writes the whole array, so a
# manual backward in NumPy calls has to move nearly as much as the reference. What helps there is a *fused*
# kernel, which takes each row through all steps while it is in the cache. It is registered as
# `@norm_rows.fused("cpu")`, with the same contract. The notebook about speed writes such a kernel.
#
# ## Where it is
#
# | file | what is in it |
# |---|---|
# | [`core/op.py`](../mytorch/core/op.py) | `@op`: unwrap, promote, compute, record |
# | [`nn/functional/composite.py`](../mytorch/nn/functional/composite.py) | `@composite` |
# | [`nn/functional/normalization.py`](../mytorch/nn/functional/normalization.py) | mytorch's layer norm |
# | [`autograd/gradcheck.py`](../mytorch/autograd/gradcheck.py) | differences against derivatives |
# | [`core/closure.py`](../mytorch/core/closure.py) | what a vjp keeps, found in its closure |
#
# The page [How an op is written](../docs/ops.md) has the rules.
#
# ## Try
#
# 1. RMS norm subtracts no mean: $y = x / \sqrt{\mathrm{mean}(x^2) + \varepsilon}$. Which term of the
#    gradient goes away? Write it as an op, and let gradcheck decide.
# 2. Write `leaky_relu(x, slope)` as an op. Where does gradcheck fail, even though your derivative is right?
#    Why?
# 3. Our manual backward keeps `x_hat`, and `w` for `dx`. Could it keep `x` instead? What would it have to
#    compute again?
