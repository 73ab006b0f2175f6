# %% [markdown]
# # Mixed precision
#
# Half the bits are half the memory and, on a GPU, many times the speed. But float16 can't hold small
# numbers, and gradients are small. You see what is lost, look at the histogram of a network's gradients,
# watch a training that stands still because all of them became zero, and save it with one multiplication.

# %%
import os
from itertools import pairwise

import numpy as np

import mytorch
from mytorch import nn
from mytorch.accelerate import Accelerator
from mytorch.nn import functional as F

SHORT = bool(os.environ.get("MYTORCH_NOTEBOOK_SHORT"))
STEPS = 60 if SHORT else 300

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
    print("without ml_dtypes (pip install ml_dtypes) there is no bfloat16: it is left out")
try:
    import matplotlib.pyplot as plt
except ImportError:
    plt = None
    print("without matplotlib (pip install matplotlib) there are histograms of text, and no curves")

# %% [markdown]
# ## 1. What float16 can hold
#
# A floating-point number is sign · 1.fraction · 2^exponent. float32 has 8 bits for the exponent and 23 for
# the fraction, float16 has 5 and 10. Fewer bits of fraction: numbers lie farther apart. Fewer bits of
# exponent: the range is smaller. The smallest exponent is -14; below it the leading 1 is given up, digit by
# digit (*subnormal* numbers), down to 2^-24. Half of that, 2^-25, is zero.

# %%
for dtype in (np.float32, np.float16):
    info = np.finfo(dtype)
    print(
        f"{info.dtype}: {info.smallest_subnormal:.3g} to {info.max:.3g}, all digits from {info.tiny:.3g} on"
    )
    for x in (1, 1000):
        print(f"    the next number after {x} is {np.spacing(dtype(x)):.2g} away")

small = 2.0 ** np.arange(-13, -27, -1)
print("\n".join(f"2^{int(np.log2(x))} is {np.float16(x):.4g}" for x in small[[0, 1, 2, 10, 11, 12, 13]]))
assert np.float16(2.0**-24) > 0 and np.float16(2.0**-25) == 0

# %% [markdown]
# Two things can go wrong in a training.
#
# *Updates get lost.* A weight near 1 can't change by less than half the spacing there. So the optimizer
# keeps the weights in float32 (the *masters*), and the model gets them rounded.

# %%
weight = np.float16(1)
for _ in range(1000):
    weight = np.float16(weight - np.float16(1e-4))
master = np.float32(1)
for _ in range(1000):
    master -= np.float32(1e-4)
print(f"1 - 1000 · 0.0001: in float16 {weight}, from a float32 master {np.float16(master):.4f}")
assert weight == 1 and abs(master - 0.9) < 1e-3

# %% [markdown]
# *Gradients become zero.* That is the rest of this notebook.
#
# ## 2. A network with small gradients
#
# The mean squared error of a batch is a mean over all of its outputs, so the gradient of one output is 2 ·
# error / (number of outputs). Here a network predicts 32 small movements, tenths of a millimetre, in
# metres. You would scale them before; in the middle of a deep network you can't, and there small gradients
# are as common.

# %%
rng = np.random.default_rng(0)
BATCH = 256
inputs = rng.uniform(-1, 1, (4096, 8)).astype(np.float32)
targets = (1e-4 * np.sin(inputs @ rng.standard_normal((8, 32)) / 2)).astype(np.float32)  # metres
inputs, targets = mytorch.from_numpy(inputs), mytorch.from_numpy(targets)


def build():
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 32))
    nn.init.zeros_(model[-1].weight)  # its outputs begin as small as the targets are
    nn.init.zeros_(model[-1].bias)
    return model


def train(precision, steps=STEPS, watch=None, **scaler):
    """Trains in "no", "fp16" or "bf16"; returns the model, the losses and the Accelerator."""
    model = build()
    optimizer = mytorch.optim.Adam(model.parameters(), lr=2e-4, eps=1e-15)  # eps far below the gradients
    accelerator = Accelerator(mixed_precision=precision, cpu=True, scaler_kwargs=scaler)
    model, optimizer = accelerator.prepare(model, optimizer)
    batches, losses = np.random.default_rng(1), []
    for step in range(steps):
        rows = mytorch.from_numpy(batches.integers(len(inputs), size=BATCH))
        loss = F.mse_loss(model(inputs[rows]), targets[rows])
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
        if watch:
            watch(step, accelerator)
        if step < steps - 1:  # the last gradients stay, to be looked at
            optimizer.zero_grad()
    return model, losses, accelerator


def gradients(model):
    return np.concatenate([p.grad.numpy().astype(np.float32).ravel() for p in model.parameters()])


model, losses, _ = train("no", 30)
grads = gradients(model)
print(f"{len(grads):,} gradients after {len(losses)} steps in float32, median {np.median(abs(grads)):.1e}")

# %% [markdown]
# ## 3. The histogram
#
# How large are they? The exponent says it. The bars left of 2^-25 become zero in float16. Those from there
# to 2^-14 lose digits.


# %%
def histogram(grads):
    exponents = np.floor(np.log2(abs(grads[grads != 0]))).astype(int)
    edges = [-41, -37, -33, -29, -25, -22, -18, -14, -10, -6, -2, 2]
    for low, high in pairwise(edges):
        share = np.mean((exponents >= low) & (exponents < high))
        kind = "zero" if high <= -25 else "subnormal" if high <= -14 else "normal"
        print(f"2^{low:3} … 2^{high:3} {kind:9} {share:4.0%} {'#' * round(50 * share)}")


def share_of_zeros(grads, dtype=np.float16):
    """Returns which share of the gradients that aren't zero becomes zero in this dtype."""
    grads = grads[grads != 0]
    return np.mean(grads.astype(dtype) == 0)


histogram(grads)
print(f"{share_of_zeros(grads):.0%} of the gradients become zero in float16")
assert share_of_zeros(grads) > 0.5

# %% [markdown]
# ## 4. Loss scaling
#
# On the right there is much space: the largest float16 is nearly 2^16, and no gradient is near it. The
# backward pass is linear: multiply the loss by 65536, and every gradient in it is multiplied by 65536, 16
# powers of two to the right. Before the update, in float32, they are divided again. Powers of two change
# the exponent alone, so nothing is rounded by it.

# %%
SCALE = 2.0**16
histogram(grads * SCALE)
print(f"{share_of_zeros(grads * SCALE):.1%} of the scaled gradients become zero in float16")
assert share_of_zeros(grads * SCALE) < share_of_zeros(grads) / 10
assert not np.isinf((grads * SCALE).astype(np.float16)).any()

# %%
if plt:
    figure, axes = plt.subplots(figsize=(8, 4))
    for values, color, label in ((grads, "#b3261e", "gradients"), (grads * SCALE, "#3b6ea5", "times 65536")):
        axes.hist(np.log2(abs(values[values != 0])), bins=range(-50, 18), color=color, alpha=0.6, label=label)
    axes.axvspan(-50, -25, color="black", alpha=0.15, label="zero in float16")
    axes.axvspan(-25, -14, color="black", alpha=0.05, label="loses digits")
    axes.axvline(np.log2(65504), color="black", linestyle=":", label="largest float16")
    axes.set(xlabel="log2 |gradient|", ylabel="how many", xlim=(-50, 18))
    axes.legend(fontsize=8)
    plt.show()

# %% [markdown]
# ## 5. Three trainings
#
# float32; float16 with a scale that stays at 1; float16 with the scale 65536.
# `Accelerator(mixed_precision="fp16")` casts the model, keeps masters, scales the loss and unscales the
# gradients.

# %%
curves = {}
_, curves["float32"], _ = train("no")
model, curves["float16, unscaled"], _ = train("fp16", init_scale=1.0, growth_interval=10**9)
unscaled = gradients(model)
_, curves["float16, scaled"], _ = train("fp16", init_scale=SCALE)
for name, losses in curves.items():
    print(f"{name:18} loss {losses[0]:.2e} → {np.mean(losses[-10:]):.2e}")
print(f"unscaled: {np.mean(unscaled == 0):.1%} of the gradients are zero")

ends = {name: np.mean(losses[-10:]) for name, losses in curves.items()}
assert abs(ends["float16, scaled"] / ends["float32"] - 1) < 0.1
assert ends["float16, unscaled"] > 3 * ends["float32"]

# %% [markdown]
# No error, no warning, no NaN: without scaling the network learns nothing. With scaling float16 follows
# float32. (Adam's first steps are as long as the learning rate, however small the gradients are: they
# overshoot, and the loss rises before it falls.)

# %%
if plt:
    figure, axes = plt.subplots(figsize=(8, 4))
    for name, losses in curves.items():
        axes.plot(losses, label=name, linestyle="--" if name == "float16, scaled" else "-")
    axes.set(yscale="log", xlabel="iteration", ylabel="mean squared error, m²")
    axes.legend()
    plt.show()

# %% [markdown]
# ## 6. Which scale?
#
# Too small, and gradients become zero; too large, and they become inf. The right one changes while the
# network learns. So it is looked for, all the time: an inf or NaN among the gradients halves the scale, and
# the update is *skipped*; after some good steps in a row it is doubled. A skipped step now and then costs
# little, an inf in the weights would cost all of them. We start far too high, and grow after 10 good steps
# instead of 2000.


# %%
def show_scale(step, accelerator):
    scales.append(accelerator.scaler.get_scale())
    skipped.append(accelerator.optimizer_step_was_skipped)
    if step < 12 or skipped[-1]:
        result = "skipped: a gradient is inf" if skipped[-1] else "updated"
        print(f"step {step:3}: {result:26} next scale 2^{np.log2(scales[-1]):.0f}")


scales, skipped = [], []
HIGH = {"init_scale": 2.0**40, "max_scale": 2.0**48, "growth_interval": 10}
_, losses, _ = train("fp16", STEPS, show_scale, **HIGH)
print(f"{sum(skipped)} of {len(skipped)} steps skipped, loss {losses[0]:.2e} → {losses[-1]:.2e}")
assert skipped[0] and scales[0] == 2.0**39  # the first step overflows, the scale is halved
assert not all(skipped) and losses[-1] < losses[0]

# %% [markdown]
# What does a skipped step leave behind? Nothing: the weights are what they were before it.

# %%
model = build()
optimizer = mytorch.optim.SGD(model.parameters(), lr=1.0)
scaler = mytorch.amp.GradScaler(init_scale=1024.0)
before = [p.detach().numpy().copy() for p in model.parameters()]
scaler.scale(model(inputs[:4]).sum() * float("inf")).backward()
scaler.step(optimizer)
scaler.update()
assert all((p.detach().numpy() == old).all() for p, old in zip(model.parameters(), before, strict=True))
assert scaler.get_scale() == 512
print("an inf: no weight has changed, and the scale went from 1024 to", scaler.get_scale())

# %% [markdown]
# ## 7. bfloat16
#
# bfloat16 divides its 16 bits otherwise: 8 for the exponent, as float32 has, and 7 for the fraction. Its
# range needs no scaling. Its numbers lie 8 times as far apart as those of float16, so masters in float32
# matter even more.

# %%
if ml_dtypes:
    info = ml_dtypes.finfo(ml_dtypes.bfloat16)
    largest, smallest, spacing = (float(x) for x in (info.max, info.tiny, info.eps))
    print(f"bfloat16: largest {largest:.3g}, normal from {smallest:.3g}, after 1 comes {1 + spacing}")
    print(f"{share_of_zeros(grads, ml_dtypes.bfloat16):.0%} of the gradients become zero in bfloat16")
    assert share_of_zeros(grads, ml_dtypes.bfloat16) == 0
    for dtype in (np.float16, ml_dtypes.bfloat16):
        scaled = grads * SCALE
        error = abs(scaled - scaled.astype(dtype).astype(np.float32)).sum() / abs(scaled).sum()
        print(f"{np.dtype(dtype).name:8} rounds the scaled gradients by {error:.1e} of their size")
    _, losses, _ = train("bf16")
    print(f"training in bfloat16, without a scale: loss {losses[0]:.2e} → {np.mean(losses[-10:]):.2e}")
    assert np.mean(losses[-10:]) < ends["float16, unscaled"] / 2

# %% [markdown]
# So: float16 where the hardware has nothing else, with a scale; bfloat16 where there is hardware for it,
# without one. On a CPU neither is faster: products are computed in float32, and numbers are cast before and
# after.
#
# ## What next
#
# - Try: targets of a millimetre (`1e-3`), and of a centimetre. Where does float16 begin to learn without a
#   scale?
# - Try: the histogram of a GPT, from the [notebook before the last](05_gpt_shakespeare.ipynb). Does it need a
#   scale?
# - Try: `init_scale=1.0` with the default growth, and `growth_interval=5`. After how many steps does it
#   learn?
#
# The real ones: [`loss_scale.py`](../mytorch/amp/loss_scale.py),
# [`mixed_precision.py`](../mytorch/amp/mixed_precision.py) with the masters,
# [`autocast_mode.py`](../mytorch/amp/autocast_mode.py) with PyTorch's
# `autocast`, and `bash train_gpt2.sh shakespeare --mixed_precision` for a GPT. The method is that of
# [Micikevicius et al., 2018](https://arxiv.org/abs/1710.03740).
