# %% [markdown]
# # Real digits: an MLP, then a convnet
#
# Train a network to read handwritten digits, with a training loop that you write line by line. Then look at
# what it gets wrong, find out that it doesn't know what "one pixel to the right" means, and build a network
# that does. The images come with scikit-learn, so nothing is downloaded.

# %%
import os

import numpy as np

import mytorch
from mytorch import nn
from mytorch.nn import functional as F

try:
    import matplotlib.pyplot as plt
except ImportError:
    plt = None
    print("There is no matplotlib (pip install matplotlib): images are made of characters, curves left out.")

SHORT = bool(os.environ.get("MYTORCH_NOTEBOOK_SHORT"))  # a run of seconds, for the tests
device = "cuda" if mytorch.cuda.is_available() else "cpu"
mytorch.manual_seed(0)
rng = np.random.default_rng(0)

# %% [markdown]
# ## The data
#
# 1,797 images of 8 x 8 pixels, each written by a person, with the digit that was meant. (Where scikit-learn
# is missing, the function `drawn_digits` draws digits as a pocket calculator shows them, in noise.)


# %%
def drawn_digits(count=1800):
    """Returns noisy images of digits of seven segments, and the digits."""
    segments = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg"]
    places = {"a": np.s_[1, 2:6], "b": np.s_[1:4, 5], "c": np.s_[4:7, 5], "d": np.s_[6, 2:6]}
    places |= {"e": np.s_[4:7, 2], "f": np.s_[1:4, 2], "g": np.s_[3, 2:6]}
    labels = rng.integers(0, 10, count)
    images = 0.4 * rng.random((count, 8, 8))
    for image, label in zip(images, labels, strict=True):
        for segment in segments[label]:
            image[places[segment]] += rng.uniform(0.3, 0.8)
    return images.clip(0, 1), labels


try:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16  # pixels from 0 to 1
except ImportError:
    images, labels = drawn_digits()
    print("There is no scikit-learn (pip install scikit-learn): the digits are drawn instead.")

print(f"{len(images)} images of {images.shape[1:]} pixels, the labels of the first ten: {labels[:10]}")


# %%
def show(images, titles, columns=10):
    """Shows images in rows, with a title above each."""
    if plt is None:
        for image, title in zip(images[:2], titles, strict=False):
            print(title, *("".join(" .:-=+*#%@"[int(9 * p)] * 2 for p in line) for line in image), sep="\n")
        return
    rows = max(1, -(-len(images) // columns))
    figure, axes = plt.subplots(rows, columns, figsize=(columns, 1.3 * rows), squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for axis, image, title in zip(axes.flat, images, titles, strict=False):
        axis.imshow(image, cmap="gray_r")
        axis.set_title(title, fontsize=9)
    plt.show()


show(images[:20], labels[:20])

# %% [markdown]
# ## Train on some, judge by others
#
# A network with enough parameters can learn its examples by heart. So a quarter of the images is put aside,
# the *validation split*. The network is never trained on it, and how well it reads these is what counts.
# The images are shuffled first, so that both parts are alike.

# %%
order = rng.permutation(len(images))
images, labels = images[order].astype("float32"), labels[order].astype("int64")
cut = 3 * len(images) // 4

x_train, x_val = (mytorch.tensor(part[:, None], device=device) for part in (images[:cut], images[cut:]))
y_train, y_val = (mytorch.tensor(part, device=device) for part in (labels[:cut], labels[cut:]))
print("train", tuple(x_train.shape), "validate", tuple(x_val.shape))  # (N, channels, height, width)

# %% [markdown]
# ## A network before it has learned anything
#
# A *multi-layer perceptron* (MLP): all 64 pixels go into 64 numbers, negative ones become 0, and these go
# into 10 scores, one for each digit. The *cross entropy* turns the scores into probabilities and says how
# surprised the network is by the right answer: $-\log p(\text{label})$.

# %%
mlp = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
print(f"{sum(p.numel() for p in mlp.parameters()):,} parameters")


@mytorch.no_grad()
def judge(model, x, y):
    """Returns loss and accuracy."""
    model.eval()
    scores = model(x)
    model.train()
    return F.cross_entropy(scores, y).item(), (scores.argmax(1) == y).float().mean().item()


loss, accuracy = judge(mlp, x_val, y_val)
print(f"loss {loss:.2f}, accuracy {accuracy:.0%}; guessing gives a loss of {np.log(10):.2f} and 10%")
assert abs(loss - np.log(10)) < 0.3

# %% [markdown]
# Check the first loss always. Far above that of guessing, something is wrong: the scale of the inputs, the
# initialization, or the labels.
#
# ## The training loop
#
# All of deep learning is in these lines. Take a few images, compute the loss, ask for the gradient of each
# parameter, and move the parameter a little against it.


# %%
def train_epoch(model, step, batch=32):
    """Goes through all images once, in random order; returns the mean loss."""
    total = 0.0
    shuffled = mytorch.tensor(rng.permutation(len(x_train)), device=device)
    for chosen in shuffled.split(batch):
        loss = F.cross_entropy(model(x_train[chosen]), y_train[chosen])
        loss.backward()  # fills p.grad
        step()
        total += loss.item() * len(chosen)
    return total / len(x_train)


@mytorch.no_grad()
def descend(lr=0.1):
    """Stochastic gradient descent."""
    for p in mlp.parameters():
        p -= lr * p.grad
        p.grad = None  # gradients add up, until they are cleared


def train(model, step, epochs):
    """Returns a list of (training loss, validation loss, validation accuracy)."""
    history = []
    for epoch in range(1, epochs + 1):
        history.append((train_epoch(model, step), *judge(model, x_val, y_val)))
        if epoch in (1, epochs) or epoch % 10 == 0:
            print("epoch {:3}  loss {:.3f}  validation {:.3f}  accuracy {:.1%}".format(epoch, *history[-1]))
    return history


mlp_history = train(mlp, descend, epochs=4 if SHORT else 60)
assert mlp_history[-1][1] < 0.7 * loss  # it has learned


# %%
def draw_curves(histories):
    """Draws the losses and the accuracies of several trainings."""
    if plt is None:
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3))
    for (name, history), colour in zip(histories.items(), ("tab:blue", "tab:orange"), strict=False):
        epochs = range(1, len(history) + 1)
        training, validation, accuracy = zip(*history, strict=True)
        left.plot(epochs, training, color=colour, linestyle="--", label=f"{name}, training")
        left.plot(epochs, validation, color=colour, label=f"{name}, validation")
        right.plot(epochs, accuracy, color=colour, label=name)
    left.set(xlabel="epoch", ylabel="loss", yscale="log")
    right.set(xlabel="epoch", ylabel="validation accuracy")
    left.legend()
    right.legend()
    plt.show()


draw_curves({"MLP": mlp_history})

# %% [markdown]
# Watch the two losses. As long as both fall, the network learns something about digits. When the dashed
# line falls on and the other one doesn't, it learns the training images by heart: *overfitting*.
#
# ## What it gets wrong
#
# The accuracy doesn't say what happens. Look at the mistakes: each title has the digit that was meant, and
# after the arrow the one that the network reads.

# %%
with mytorch.no_grad():
    predicted = mlp(x_val).argmax(1).numpy(force=True)
meant = y_val.numpy(force=True)
wrong = np.flatnonzero(predicted != meant)
print(f"{len(wrong)} of {len(meant)} are wrong")
show(x_val.numpy(force=True)[wrong[:20], 0], [f"{meant[i]} → {predicted[i]}" for i in wrong[:20]])

# %%
confusion = np.zeros((10, 10), dtype=int)
np.add.at(confusion, (meant, predicted), 1)  # row: what was meant; column: what was read
print("     " + " ".join(f"{digit:3}" for digit in range(10)))
for digit, counts in enumerate(confusion):
    print(f"{digit:3}: " + " ".join(f"{count:3}" if count else "  ." for count in counts))
assert confusion.sum() == len(meant) and np.trace(confusion) == len(meant) - len(wrong)

# %% [markdown]
# ## One pixel to the right
#
# A person reads a digit as easily when it stands one pixel further to the right. And the network?


# %%
def shifted(x):
    """The images one pixel further to the right."""
    return mytorch.cat([mytorch.zeros_like(x[..., :1]), x[..., :-1]], dim=-1)


mlp_shifted = judge(mlp, shifted(x_val), y_val)[1]
print(f"accuracy {mlp_history[-1][2]:.1%}, with shifted images {mlp_shifted:.1%}")
show(shifted(x_val[:10, 0]).numpy(force=True), meant[:10])

# %% [markdown]
# It falls apart. To an MLP the 64 pixels are 64 unrelated numbers. Nothing in it says that pixels 10 and 11
# are neighbours, and what it has learned about one place it doesn't know about the next.
#
# ## A convnet
#
# A *convolution* looks at 3 x 3 pixels at a time, with the same 9 weights at every place. A stroke is found
# wherever it is. Several layers of these see larger and larger parts, pooling makes the place less exact,
# and the mean over all places at the end forgets it.

# %%
convnet = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),  # (N, 16, 8, 8)
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),  # (N, 32, 4, 4)
    nn.Conv2d(32, 32, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),  # (N, 32, 1, 1)
    nn.Flatten(),
    nn.Linear(32, 10),
).to(device)
print(mytorch.summary(convnet, (1, 1, 8, 8)))

# %% [markdown]
# The loop is the same. Only the step is another one: AdamW, which gives every parameter a step size of its
# own ([Loshchilov & Hutter, 2017](https://arxiv.org/abs/1711.05101)).

# %%
optimizer = mytorch.optim.AdamW(convnet.parameters(), lr=3e-3)


def adamw():
    optimizer.step()
    optimizer.zero_grad()


conv_history = train(convnet, adamw, epochs=4 if SHORT else 40)
draw_curves({"MLP": mlp_history, "convnet": conv_history})

conv_shifted = judge(convnet, shifted(x_val), y_val)[1]
print(f"{'':8} accuracy  shifted by a pixel")
print(f"{'MLP':8} {mlp_history[-1][2]:8.1%} {mlp_shifted:19.1%}")
print(f"{'convnet':8} {conv_history[-1][2]:8.1%} {conv_shifted:19.1%}")
if not SHORT:
    assert mlp_history[-1][2] > 0.9 and conv_history[-1][2] > 0.9
    assert conv_shifted > mlp_shifted + 0.1

# %% [markdown]
# The convnet has never seen a shifted image. That it reads more of them comes from how it is built.
#
# ## What does it look for?
#
# The weights of the first layer are 16 images of 3 x 3 pixels. Blue is positive, red negative. Several find
# an edge of one direction: positive on one side, negative on the other. Below them is what each makes of
# one digit.

# %%
filters = convnet[0].weight.numpy(force=True)[:, 0]  # (16, 3, 3)
with mytorch.no_grad():
    maps = convnet[:2](x_val[:1]).numpy(force=True)[0]  # (16, 8, 8)

if plt is None:
    print(filters[0].round(2))
else:
    figure, axes = plt.subplots(2, 16, figsize=(14, 2))
    for i in range(16):
        axes[0, i].imshow(filters[i], cmap="RdBu", vmin=-abs(filters).max(), vmax=abs(filters).max())
        axes[1, i].imshow(maps[i], cmap="gray_r")
    for axis in axes.flat:
        axis.axis("off")
    plt.show()
assert filters.shape == (16, 3, 3) and maps.min() >= 0

# %% [markdown]
# ## Where it is
#
# | file | what is in it |
# |---|---|
# | [`nn/layers/linear.py`](../mytorch/nn/layers/linear.py) | the linear layer |
# | [`nn/layers/conv.py`](../mytorch/nn/layers/conv.py) | the convolutional layers |
# | [`nn/functional/cross_entropy.py`](../mytorch/nn/functional/cross_entropy.py) | the loss |
# | [`nn/functional/convolution.py`](../mytorch/nn/functional/convolution.py) | convolutions |
# | [`optim/adamw.py`](../mytorch/optim/adamw.py) | AdamW |
# | [`examples/digits.py`](../examples/digits.py) | the same with DataLoader, BatchNorm and a schedule |
#
# ## Try
#
# 1. Shift every training image by a random pixel (`np.roll`) in `train_epoch`. What does the MLP learn now?
# 2. Replace `descend` by one with momentum: $v \leftarrow 0.9\,v + g$, and $p \leftarrow p - \eta\,v$. How
#    many epochs does it save?
# 3. Take the ReLU out of the MLP. How far does it get, and why is it no better with more layers?
