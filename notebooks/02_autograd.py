# %% [markdown]
# # Autograd from a scalar to a graph
#
# To train a model is to ask how its loss changes with each of its parameters. Autograd answers that. Here
# you write an autograd of your own in 25 lines, see why a node of the graph must wait for others, and
# follow mytorch's backward pass click by click, until you can say what the next click does.

# %%
from collections import Counter

import mytorch
from mytorch import nn
from mytorch.autograd import draw, step_through
from mytorch.autograd.tape import backward_order

# %% [markdown]
# ## 1. A slope, measured
#
# Take a function of two numbers. `h` is used twice in it; that will matter. How does the result change when
# `x` grows a little? Try it: move `x` by a small step to both sides, and divide the change of the result by
# the change of `x`. This is a *finite difference*.

# %%
def f(x, w):
    h = x * w
    return h**2 + h


step = 1e-4
slope_x = (f(2.0 + step, 3.0) - f(2.0 - step, 3.0)) / (2 * step)
slope_w = (f(2.0, 3.0 + step) - f(2.0, 3.0 - step)) / (2 * step)
print(f"f = {f(2.0, 3.0)}, d f / d x = {slope_x:.6f}, d f / d w = {slope_w:.6f}")

# %% [markdown]
# 39 and 26. It works for any function, and mytorch's tests check each operation so. But it runs the function
# twice for *each* input, and a GPT-2 has 124 million parameters.
#
# ## 2. A tape
#
# There is a way to get all slopes from a single run. Each operation in `f` is simple, and its derivative is
# known: for `y = a * b`, a gradient `g` of the result becomes `g * b` for `a` and `g * a` for `b`. So while
# the function runs, we write down each operation: what its inputs were (its *parents*), and how to take a
# gradient of its result to gradients of its inputs. This second function is called the *vjp*, for
# vector-Jacobian product.

# %%
class Value:
    def __init__(self, data, parents=(), vjp=lambda g: (), name="leaf"):
        self.data, self.parents, self.vjp, self.name, self.grad = data, parents, vjp, name, 0.0

    def __add__(self, other):
        return Value(self.data + other.data, (self, other), lambda g: (g, g), "add")

    def __mul__(self, other):
        return Value(self.data * other.data, (self, other), lambda g: (g * other.data, g * self.data), "mul")

    def square(self):
        return Value(self.data**2, (self,), lambda g: (g * 2 * self.data,), "square")


def example():
    x, w = Value(2.0), Value(3.0)
    h = x * w
    return x, w, h.square() + h


x, w, loss = example()
print(loss.data, loss.name, [parent.name for parent in loss.parents])

# %% [markdown]
# `loss` is 42, and from it we can reach all that it was made of. To go *backward* is to start with the
# gradient of the loss with respect to itself, 1, and to pass gradients from each value to its parents.
#
# ## 3. Two ways to do it wrong
#
# The first idea: whenever a gradient arrives at a value, pass it on at once. Let us count the calls.

# %%
def backward_at_once(value, g):
    value.grad += g
    calls = 1
    for parent, part in zip(value.parents, value.vjp(g), strict=True):
        calls += backward_at_once(parent, part)
    return calls


x, w, loss = example()
print(f"{backward_at_once(loss, 1.0)} calls for 5 values, x.grad = {x.grad}, w.grad = {w.grad}")
assert (x.grad, w.grad) == (39.0, 26.0)

# %% [markdown]
# The gradients are right: 39 and 26, as measured. But there are 8 calls for 5 values: two gradients arrive
# at `h`, so `mul` ran twice, and each of its inputs got two gradients. Is that bad? Use a value twice, then
# the result twice, and so on:

# %%
def doubled(times):
    value = Value(1.0)
    for _ in range(times):
        value = value + value
    return value


for times in (1, 2, 4, 8, 16):
    print(f"{times:3} additions: {backward_at_once(doubled(times), 1.0):7,} calls")
assert backward_at_once(doubled(16), 1.0) == 2**17 - 1

# %% [markdown]
# Each addition doubles the number of calls. Each block of a GPT uses its stream of activations twice in two
# places, `x + attention(x)` and `x + mlp(x)`: that doubles the calls twice. With 48 blocks, the first would
# be called 2⁹⁶ times.
#
# The second idea: run each value only once, at the first gradient that arrives.

# %%
def backward_once(value, g, done):
    value.grad += g
    if value in done:
        return
    done.add(value)
    for parent, part in zip(value.parents, value.vjp(value.grad), strict=True):
        backward_once(parent, part, done)


x, w, loss = example()
backward_once(loss, 1.0, set())
print(f"x.grad = {x.grad}, w.grad = {w.grad}")
assert (x.grad, w.grad) == (36.0, 24.0)  # wrong: it is 39 and 26

# %% [markdown]
# It is fast, and wrong. `mul` ran with 12, the gradient that came through `square`. The other gradient, 1,
# came when `mul` had run already. It was never passed on: 36 = 12 · 3 is missing 1 · 3.
#
# ## 4. The gate
#
# So a value must run once, but not before *all* its gradients have arrived. How many will there be? As many
# as there are uses of the value on the way to the loss. Count them first, then give each value a *gate*
# that opens when the count is reached:

# %%
def backward(root):
    waiting, stack = Counter(), [root]  # how many gradients are still to come
    while stack:
        for parent in stack.pop().parents:
            if waiting[parent] == 0:
                stack.append(parent)
            waiting[parent] += 1
    order, ready, root.grad = [], [root], 1.0  # ready: those whose gate is open
    while ready:
        value = ready.pop()
        order.append(value)
        for parent, part in zip(value.parents, value.vjp(value.grad), strict=True):
            parent.grad += part
            waiting[parent] -= 1
            if waiting[parent] == 0:
                ready.append(parent)
    return order


x, w, loss = example()
print(" → ".join(value.name for value in backward(loss)))
print(f"x.grad = {x.grad}, w.grad = {w.grad}")
assert (x.grad, w.grad) == (39.0, 26.0)
print(f"{len(backward(doubled(16)))} steps for the 16 additions")
assert len(backward(doubled(16))) == 17

# %% [markdown]
# Five values, five steps, and the right gradients. The 16 additions take 17 steps instead of 131,071.
#
# This is the whole algorithm of [mytorch/core/engine.py](../mytorch/core/engine.py): count, gate, visit.
# What mytorch adds is arrays instead of numbers, memory that is freed on the way, hooks, and checks. Here
# is the same function on tensors:

# %%
x = mytorch.tensor(2.0, requires_grad=True)
w = mytorch.tensor(3.0, requires_grad=True)
h = x * w
loss = h.square() + h
names = {"x": x, "w": w, "h": h}

draw(loss, names=names)

# %% [markdown]
# The loss is at the bottom, the *leaves* `x` and `w`, which no operation made, are at the top. The arrows
# are the forward pass; gradients go against them. Amber operations keep something for the backward pass:
# `square` needs `h`. `mul` needs `x` and `w`, but these are there anyway. `add` needs nothing.
#
# ## 5. What does the next click do?
#
# `step_through` runs the engine on this graph and makes a page of what it did. Click *Next*, or use the
# arrow keys. The circles are the gates: ●○ says that one of two gradients has arrived.
#
# Before each click, say which node will run. There is one rule: **of the nodes whose gate is open, the one
# that opened last**. That is `ready.pop()` in the code above. A node whose gate is closed can't run,
# however long it has waited.

# %%
step_through(loss, names=names)

# %% [markdown]
# `add` runs first: it is the loss. It passes 1 to both of its parents. The gate of `square` opens; `mul`
# waits, with one gradient of two. So `square` must be next, and only when it has passed on its 12 can `mul`
# run, with 1 + 12 = 13. Then both leaves are open. `w` opened last, so it is first.
#
# Our own 25 lines visit the nodes in this very order:

# %%
_, _, own = example()
ours = [value.name for value in backward(own)]
print("ours:   ", ours)
theirs = [node.name for node in backward_order(loss.grad_fn)]
print("mytorch:", theirs)
assert ours == theirs

assert x.grad is None  # looking at the graph has not touched it
loss.backward()
print(x.grad, w.grad)
assert (x.grad.item(), w.grad.item()) == (39.0, 26.0)

# %% [markdown]
# Now one with a trap. `a` is used three times: by `b`, by `c`, and by the sum. Which node is visited last
# of all operations? Decide before you click.

# %%
a = mytorch.tensor([1.0, 2.0], requires_grad=True).exp()
b = a.sin()
c = b * a
total = (a + b + c).sum()
step_through(total, names={"a": a, "b": b, "c": c})

# %% [markdown]
# It is `exp`, whatever the order of the others: all of them pass it a gradient, directly or through
# another, so its gate is the last to open.
#
# ## 6. The topological view
#
# There is another way to say what a gate does. A *topological order* lists the nodes so that each comes
# after its parents; the forward pass is one. The backward pass needs the reverse: each node after all its
# consumers. Some libraries sort the graph first, then walk along the list. A gate gives the same guarantee
# without a list: it opens only when all the consumers have run. Check it on the order that mytorch took:

# %%
order = backward_order(total.grad_fn)
position = {node: i for i, node in enumerate(order)}
for node in order:
    for parent in node.parents:
        assert parent is None or position[node] < position[parent]
print([node.name for node in order])

# %% [markdown]
# A graph has many such orders, and all give the same gradients. Why take the gate that opened last? It goes
# deep first: the gradient that was just computed is used at once, and its memory can be freed.
#
# ## 7. A real graph
#
# Nothing changes for a real model, except that there is more of it. This is one block of a GPT, attention
# and MLP. The frames are its modules: a click on one closes it, so that you can read it from the outside
# in. The backward pass has run: beside each parameter is the norm of its gradient.

# %%
class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        normed = self.norm_1(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(self.norm_2(x))


mytorch.manual_seed(0)
block = Block(32, 4)
with mytorch.stream.record():  # notes which module runs an operation
    loss = block(mytorch.randn(2, 8, 32)).square().mean()
loss.backward(retain_graph=True)  # otherwise all that the graph keeps would be freed
draw(loss, model=block)

# %% [markdown]
# Each frame says how many bytes its operations keep for the backward pass. Training needs this memory,
# generating text does not: there each array is freed as soon as it was used.
#
# Two gates of this graph wait for more than one gradient. `split` makes queries, keys and values out of one
# array, and waits for all three. And the first `add`, the stream of activations, is used by the norm below
# it and by the second `add`.
#
# ## Try
#
# 1. Replace `ready.pop()` by `ready.pop(0)` in your `backward`. In what order do the nodes run now? Are the
#    gradients the same? Why must they be?
# 2. Give `Value` an `exp` and a `tanh`, and check both against finite differences.
# 3. Draw a graph on paper in which a gate waits for three gradients, and write down the order of the backward
#    pass. Then build it with tensors, and compare with `step_through`.
#
# ## Where it is in mytorch
#
# - [core/graph.py](../mytorch/core/graph.py): a node, with its parents, its vjp and what it saved
# - [core/op.py](../mytorch/core/op.py): how a call of an operation records a node
# - [core/engine.py](../mytorch/core/engine.py): the backward pass, your 25 lines on arrays
# - [core/grad_accumulator.py](../mytorch/core/grad_accumulator.py): how gradients are added up, safely
# - [core/closure.py](../mytorch/core/closure.py): what a vjp keeps
# - [autograd/drawing.py](../mytorch/autograd/drawing.py), [stepping.py](../mytorch/autograd/stepping.py): the
#   pictures of this notebook
#
# More in [docs/autograd.md](../docs/autograd.md): in-place operations, views, gradients of gradients.
