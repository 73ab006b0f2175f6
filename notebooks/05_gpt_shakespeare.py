# %% [markdown]
# # A GPT that writes Shakespeare
#
# From an empty cell to a model that writes: fetch the text, turn it into numbers, build a GPT, train it,
# and read what it writes before, during and after. It is the training of `bash train_gpt2.sh shakespeare`,
# step by step. A GPU is not needed.

# %%
import os
import urllib.request
from pathlib import Path

import numpy as np

import mytorch
from mytorch import nn
from mytorch.nn import functional as F
from mytorch.tokenizers import CharTokenizer

SHORT = bool(os.environ.get("MYTORCH_NOTEBOOK_SHORT"))
ITERATIONS = int(os.environ.get("MYTORCH_NOTEBOOK_ITERATIONS", 24 if SHORT else 2000))
TEXT = os.environ.get("MYTORCH_NOTEBOOK_TEXT")  # a text file of your own; None takes Tiny Shakespeare
DATA = Path(os.environ.get("MYTORCH_NOTEBOOK_DATA", Path.home() / ".cache" / "mytorch"))  # keeps the download

device = "cuda" if mytorch.cuda.is_available() else "cpu"
mytorch.manual_seed(1337)
print(f"mytorch {mytorch.__version__} on {device}")

# %% [markdown]
# ## 1. A text
#
# Tiny Shakespeare is a megabyte of his plays, in one file. Without a network the model learns from Python's
# own help pages, which are on every computer that has Python: another language, but the same story.

# %%
URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"


def read_text():
    if TEXT:
        return Path(TEXT).read_text(encoding="utf-8")
    if SHORT:
        return "".join(f"{n} times {m} is {n * m}.\n" for n in range(30) for m in range(30))
    path = DATA / "tinyshakespeare.txt"
    try:
        if not path.exists():
            with urllib.request.urlopen(URL, timeout=20) as response:
                content = response.read()
            DATA.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        print(f"no Tiny Shakespeare ({error}): the model learns from Python's help pages instead")
        from pydoc_data.topics import topics

        return "\n".join(topics[name] for name in sorted(topics))


text = read_text()
print(f"{len(text):,} characters; it begins:\n\n{text[:200]}")

# %% [markdown]
# ## 2. Text to numbers
#
# A model computes with numbers. The simplest way there: every character gets one. Nine tenths of the text
# are for training. The rest, the *validation split*, is never trained on: it shows whether the model has
# learned the language, or only this text by heart.

# %%
tokenizer = CharTokenizer.from_text(text)
tokens = tokenizer.encode_to_numpy(text).astype(np.int64)
train, val = np.split(tokens, [int(0.9 * len(tokens))])

print(f"{len(train):,} characters to train on, {len(val):,} to validate")
print(f"{tokenizer.vocab_size} different ones: {tokenizer.characters!r}")
print(train[:20], "is", repr(tokenizer.decode(train[:20])))

# %% [markdown]
# ## 3. What is a good loss?
#
# A language model gives every character a probability of being the next one. Its loss is the mean of
# -log(probability of the character that came), the *cross entropy*, in nats. A model that knows nothing
# gives every character the same probability. Two models need no training, only counting: how often each
# character occurs, and how often it follows the one before it. They are what the GPT has to beat.

# %%
pairs = np.ones((tokenizer.vocab_size, tokenizer.vocab_size))  # 1, not 0: what never came may still come
np.add.at(pairs, (train[:-1], train[1:]), 1)
single = pairs.sum(0) / pairs.sum()  # the probability of each character
following = pairs / pairs.sum(1, keepdims=True)  # row: the character before

YARDSTICKS = {
    "knows nothing": np.log(tokenizer.vocab_size),
    "counts characters": -np.log(single[val]).mean(),
    "counts pairs": -np.log(following[val[:-1], val[1:]]).mean(),
}
for name, value in YARDSTICKS.items():
    print(f"{name:18} {value:6.3f} nats a character")

# %% [markdown]
# ## 4. Gradients
#
# Training means: compute a *loss*, ask how it changes with each parameter (the gradient), and step
# downhill. Every operation on a tensor records a node that computes its gradient. Here is the graph of a
# small expression, from the loss down to its inputs. `h` is used twice, so `mul` appears twice: it is one
# node with two consumers.

# %%
x = mytorch.tensor(2.0, requires_grad=True)
w = mytorch.tensor(3.0, requires_grad=True)
h = x * w
loss = h.square() + h


def show(node, depth=0):
    print("    " * depth + node.name)
    for parent in node.parents:
        show(parent, depth + 1)


show(loss.grad_fn)
loss.backward()
print(f"d loss / d x = {x.grad.item()}, analytically (2xw + 1) w = {(2 * 2 * 3 + 1) * 3}")
assert x.grad.item() == (2 * 2 * 3 + 1) * 3

# %% [markdown]
# The model below has some 800,000 parameters instead of two, and `backward()` is the same call. [Notebook
# 2](02_autograd.ipynb) takes it apart.
#
# ## 5. The model
#
# A GPT reads up to 64 characters and says for each position which one comes next. Each of its blocks has
# two parts: *attention*, in which every position collects what it needs from the positions before it, and
# an *MLP*, which computes with what has been collected, at each position alone. Both only add to the stream
# `x` that runs through the model, so the gradient reaches every block undamped.

# %%
CONTEXT, BATCH, LAYERS, HEADS, WIDTH = 64, 12, 4, 4, 128


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        # what I look for, what I have, what I tell: (B, heads, T, C / heads) each
        q, k, v = (t.view(B, T, HEADS, C // HEADS).transpose(1, 2) for t in self.qkv(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # causal: no position sees the future
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm_1 = Attention(), nn.LayerNorm(WIDTH, bias=False)
        self.norm_2 = nn.LayerNorm(WIDTH, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        )

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.characters = nn.Embedding(vocab_size, WIDTH)  # which character
        self.positions = nn.Embedding(CONTEXT, WIDTH)  # and where it stands
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, vocab_size, bias=False)
        self.head.weight = self.characters.weight  # reading and writing a character share one table
        for name, p in self.named_parameters():
            if p.ndim == 2:
                std = 0.55 / WIDTH**0.5 if name.startswith("blocks") else 0.02
                adds_to_stream = name.endswith(("proj.weight", "mlp.2.weight"))
                nn.init.normal_(p, std=std / (2 * LAYERS) ** 0.5 if adds_to_stream else std)

    def forward(self, tokens):  # (B, T)
        positions = mytorch.arange(tokens.shape[1], device=tokens.device)
        x = self.characters(tokens) + self.positions(positions)  # (B, T, C)
        return self.head(self.norm(self.blocks(x)))  # (B, T, vocab_size)


model = GPT(tokenizer.vocab_size).to(device)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters")

# %% [markdown]
# Does *causal* hold? Change the last character that the model sees: no prediction before it may change. A
# model that fails this test would learn to copy the answer, reach a wonderful loss, and write nonsense.

# %%
seen = mytorch.tensor(train[:CONTEXT], device=device).unsqueeze(0)  # (1, T)
changed = seen.clone()
changed[0, -1] = (seen[0, -1] + 1) % tokenizer.vocab_size
with mytorch.no_grad():
    before, after = model(seen), model(changed)
assert mytorch.allclose(before[:, :-1], after[:, :-1], atol=1e-5)
assert not mytorch.allclose(before[:, -1], after[:, -1], atol=1e-5)
print("the past doesn't depend on the future")

# %% [markdown]
# ## 6. Writing
#
# The model gives a probability to every character. Draw one, append it, ask again. A temperature below 1
# makes likely characters likelier: fewer mistakes, fewer surprises. The generator has a seed of its own, so
# that all samples in this notebook are drawn with the same dice, and differ by the model alone.


# %%
@mytorch.no_grad()
def write(prompt, length=500, temperature=0.8):
    dice = mytorch.Generator(device=device).manual_seed(1)
    tokens = mytorch.tensor([tokenizer.encode(prompt)], device=device)  # (1, T)
    for _ in range(length):
        logits = model(tokens[:, -CONTEXT:])[:, -1]  # (1, vocab_size), of the last position
        new = mytorch.multinomial((logits / temperature).softmax(-1), 1, generator=dice)  # (1, 1)
        tokens = mytorch.cat([tokens, new], dim=1)
    return tokenizer.decode(tokens[0].tolist())


print(write("\n", 100))

# %% [markdown]
# ## 7. Training
#
# A batch is 12 random pieces of the text. The target of each character is the one after it, so one piece
# gives 64 lessons at once.

# %%
rng = np.random.default_rng(1337)


def batch(tokens):
    starts = rng.integers(len(tokens) - CONTEXT, size=BATCH)
    rows = mytorch.from_numpy(np.stack([tokens[s : s + CONTEXT + 1] for s in starts])).to(device)
    return rows[:, :-1], rows[:, 1:]  # what it sees, what comes next: (B, T) each


def loss_of(tokens, targets):
    logits = model(tokens)
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


@mytorch.no_grad()
def validate(batches=20):
    return sum(loss_of(*batch(val)).item() for _ in range(batches)) / batches


# %% [markdown]
# The optimizer is AdamW. The learning rate rises for 100 steps and then falls along a cosine: big steps
# while there is much to learn, small ones to settle. Clipping bounds the step that one odd batch can cause:
# if the *norm* of all gradients, as one long vector, is above 1, they are scaled down to 1.

# %%
matrices = [p for p in model.parameters() if p.ndim == 2]
vectors = [p for p in model.parameters() if p.ndim < 2]
optimizer = mytorch.optim.AdamW(
    [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.99)
)


def learning_rate(step, highest=1e-3, lowest=1e-4):
    warmup = min(100, ITERATIONS // 10)
    if step < warmup:
        return highest * (step + 1) / (warmup + 1)
    return lowest + (highest - lowest) * (1 + np.cos(np.pi * (step - warmup) / (ITERATIONS - warmup))) / 2


# %% [markdown]
# While it trains, the model writes at four moments. Before, it drew letters; watch how long the words and
# lines become, when a line with a colon, the speaker, gets lines of its own, and when the first words are
# English.

# %%
samples = {ITERATIONS * share // 20: "" for share in (1, 5, 10, 20)}  # 100, 500, 1000 and 2000 of 2000
losses, norms, val_losses = [], [], {0: validate()}
print(f"iteration 0: validation {val_losses[0]:.3f}")
for step in range(ITERATIONS):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
    loss = loss_of(*batch(train))
    loss.backward()
    norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    if (step + 1) % max(1, ITERATIONS // 8) == 0:
        val_losses[step + 1] = validate()
        print(f"iteration {step + 1}: training {loss.item():.3f}, validation {val_losses[step + 1]:.3f}")
    if step + 1 in samples:
        samples[step + 1] = write("\n", 100)
        print(f"    after {step + 1} iterations it writes:", *samples[step + 1].splitlines(), sep="\n    | ")

# %% [markdown]
# Has it beaten the counters? A table of all pairs has 65² numbers, one of all pieces of 64 characters could
# never be stored. The GPT replaces it.

# %%
reached = min(val_losses.values())
for name, value in [*YARDSTICKS.items(), ("this GPT", reached)]:
    print(f"{name:18} {value:6.3f} nats: as unsure as between {np.exp(value):4.1f} equally likely characters")
assert reached < YARDSTICKS["knows nothing"] - 0.5
if ITERATIONS >= 1000:
    assert reached < YARDSTICKS["counts pairs"]

# %% [markdown]
# The two curves that every training should be judged by. The loss falls, fast at first. Training ends
# somewhat below validation: the model begins to know this text better than the language. Where that gap
# widens while validation rises, it only learns by heart, and it is time to stop. Below is the norm of the
# gradients: a jump in it would show the step in which a training went wrong.

# %%
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("without matplotlib (pip install matplotlib) there is no picture of the losses")
else:
    figure, (top, bottom) = plt.subplots(2, figsize=(8, 6), sharex=True, height_ratios=(3, 1))
    top.plot(range(1, ITERATIONS + 1), losses, color="#8fb0d9", linewidth=0.8, label="training, one batch")
    top.plot(val_losses.keys(), val_losses.values(), color="#b3261e", marker="o", label="validation")
    top.axhline(YARDSTICKS["counts pairs"], color="gray", linestyle=":", label="counting pairs")
    top.set(ylabel="cross entropy, nats a character")
    top.legend()
    bottom.plot(range(1, ITERATIONS + 1), norms, color="#5b8c5a", linewidth=0.8)
    bottom.set(xlabel="iteration", ylabel="gradient norm", ylim=(0, None))
    plt.show()

# %% [markdown]
# ## What next
#
# - Try: another temperature, 0.3 or 1.5. Where do the mistakes come from, and where the repetitions?
# - Try: `LAYERS = 1`, or `WIDTH = 32`. How much of the loss is the size of the model?
# - Try: another text, `TEXT = "mine.txt"`, or more iterations until training and validation part.
#
# [`gpt2.py`](../mytorch/models/gpt2.py) is this model with a cache that makes writing faster,
# [`train_gpt2.py`](../train_gpt2.py) this training with checkpoints, and
# [`language_model.py`](../mytorch/models/language_model.py) has `generate`. Now it may write for longer:

# %%
print(write("\n", length=min(500, 5 * ITERATIONS)), end="")
