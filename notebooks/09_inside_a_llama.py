# %% [markdown]
# # Look inside a Llama
#
# What does a language model look at when it predicts the next token? You will take a Llama apart: its norm,
# its rotary positions, its shared keys. You will train a small one on a task that needs only one trick, and
# find the two attention heads that do it. Then you look for the same trick in a pretrained model, if there
# is a network.

# %%
import os
import time

import numpy as np

import mytorch
from mytorch.models import Llama, LlamaConfig
from mytorch.nn import functional as F

SHORT = bool(os.environ.get("MYTORCH_NOTEBOOK_SHORT"))
device = "cuda" if mytorch.cuda.is_available() else "cpu"
try:
    import matplotlib.pyplot as plt
except ImportError:
    plt = None
    print("matplotlib is missing, so there are no pictures: pip install matplotlib")

# %% [markdown]
# ## The model
#
# A Llama is a stack of blocks. Each token is a vector, and each block adds something to it: first what
# attention brings from earlier tokens, then what a small network makes of the result. The sum that passes
# through all of them is the *residual stream*.
#
# This one has two blocks. It is the same code that runs SmolLM2 or Llama 3; only the numbers are smaller.

# %%
mytorch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128,
)
model = Llama(config).to(device)
print(model)

# %% [markdown]
# ## The norm
#
# Before attention and before the small network, a vector is divided by the root of its mean square, and
# each feature is multiplied by a learned weight: `RMSNorm`. A layer norm would subtract the mean first; a
# Llama leaves that out ([Zhang & Sennrich, 2019](https://arxiv.org/abs/1910.07467)).

# %%
x = mytorch.randn(3, 64, device=device)
norm = model.model.norm
by_hand = x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight
assert mytorch.allclose(norm(x), by_hand, atol=1e-6)

# %% [markdown]
# ## Where is a token? Rotary positions
#
# Attention compares a query with all keys by their inner products, and an inner product knows no order. A
# Llama turns queries and keys: features are taken in pairs, and pair i of the token at position t is turned
# by the angle `t · base^(-2i / features)`. The first pairs turn fast, the last ones slowly, like the hands
# of a clock ([Su et al., 2021](https://arxiv.org/abs/2104.09864)).
#
# If a query and a key are turned by the same angle, their inner product doesn't change. So it depends on
# the distance of the two tokens alone, not on where they are.

# %%
cos, sin = (a.squeeze().cpu().numpy() for a in model.rotary.angles(slice(0, 64)))
if plt:
    plt.figure(figsize=(9, 3))
    for pair in (0, 2, 4, 7):
        plt.plot(cos[:, pair], label=f"pair {pair}")
    plt.gca().set(xlabel="position", ylabel="cosine of the angle")
    plt.legend(loc="lower left")
    plt.show()

q, k = mytorch.randn(1, 1, 1, 16), mytorch.randn(1, 1, 1, 16)


def score(query_at, key_at):
    return (
        (model.rotary(q, mytorch.tensor([query_at])) * model.rotary(k, mytorch.tensor([key_at]))).sum().item()
    )


for distance in (3, 4):
    print(f"distance {distance}:", [round(score(t, t - distance), 4) for t in (4, 10, 50)])
assert abs(score(4, 1) - score(50, 47)) < 1e-4

# %% [markdown]
# ## Shared keys and values
#
# There are four heads of queries, but two of keys and values: two heads of queries share each of them
# ([Ainslie et al., 2023](https://arxiv.org/abs/2305.13245)). The weights are smaller, and so is the cache
# of keys and values that we will need for generation.

# %%
attention = model.model["layers"][0].self_attn
for name, p in attention.named_parameters():
    print(f"{name:<15} {tuple(p.shape)}")
assert attention.k_proj.weight.shape[0] * 2 == attention.q_proj.weight.shape[0]

# %% [markdown]
# ## A task with one trick
#
# The text is a random sequence, repeated: `7 3 9 5 7 3 9 5 7 …`. The length of the sequence changes from
# row to row, and its tokens are different from each other. Nothing can be learned about single tokens. To
# know what follows the second 3, a model has to find the first 3 and look at the token after it. The loss
# counts only tokens that can be known: those after at least one token was repeated.

# %%
LENGTH = 48
rng = np.random.default_rng(0)


def batch(rows, shortest=8, longest=24):
    """Returns tokens, what follows each (-1 where that can't be known), and the length of each sequence."""
    period = rng.integers(shortest, longest + 1, rows)
    tokens = rng.random((rows, config.vocab_size)).argsort(1)  # each row is a permutation
    position = np.arange(LENGTH + 1)
    text = np.take_along_axis(tokens, position % period[:, None], 1)
    targets = np.where(position[:-1] >= period[:, None], text[:, 1:], -1)
    return mytorch.tensor(text[:, :-1], device=device), mytorch.tensor(targets, device=device), period


tokens, targets, period = batch(1)
print("period ", period[0])
print("tokens ", *tokens[0].tolist())
print("targets", *targets[0].tolist())

# %%
STEPS = 20 if SHORT else 800
optimizer = mytorch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
schedule = mytorch.optim.lr_scheduler.LinearLR(optimizer, 0.02, total_iters=50)
losses, start = [], time.time()
for _ in range(STEPS):
    tokens, targets, _ = batch(32)
    _, loss = model(tokens, targets, return_logits=False)
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} at the first step, {losses[-1]:.3f} at the last, {time.time() - start:.0f} s")

if plt:
    plt.figure(figsize=(9, 3))
    plt.plot(losses)
    plt.axhline(np.log(config.vocab_size), linestyle=":", label="a guess among all tokens")
    plt.gca().set(xlabel="step", ylabel="loss")
    plt.legend()
    plt.show()

# %% [markdown]
# For a while the loss hardly falls, and then it falls at once. What has the model found?
#
# ## The weights of attention
#
# The kernel of attention never stores its weights. But a hook sees what goes into each attention layer, and
# from that the weights follow in a few lines: project, turn, compare, softmax. Are these really the
# weights? Then their mean of the values, projected, is what the layer has returned; the loop at the end
# compares.


# %%
def weights_of(layer, x, angles):
    """Returns the weights (B, heads, queries, keys) of an attention layer for an input (B, T, C)."""
    heads, kv_heads, features = layer.num_heads, layer.num_kv_heads, layer.head_dim
    q = layer.q_proj(x).unflatten(-1, (heads, features)).transpose(1, 2)
    k = layer.k_proj(x).unflatten(-1, (kv_heads, features)).transpose(1, 2)
    q, k = F.rotary_embedding(q, *angles), F.rotary_embedding(k, *angles)
    k = k.repeat_interleave(heads // kv_heads, 1)  # shared keys
    scores = q @ k.transpose(-1, -2) / features**0.5
    future = mytorch.ones(scores.shape[-2:], dtype=bool, device=x.device).triu(1)
    return F.softmax(scores.masked_fill(future, -float("inf")), -1)


def look_inside(model, tokens):
    """Returns the weights of all layers, their calls, and the residual stream after each block."""
    weights, calls, stream, handles = [], [], [], []

    def ran(layer, args, kwargs, result):
        weights.append(weights_of(layer, *args, kwargs["angles"]))
        calls.append((layer, args[0], result))

    for block in model.model["layers"]:
        handles.append(block.self_attn.register_forward_hook(ran, with_kwargs=True))
        handles.append(block.register_forward_hook(lambda block, args, result: stream.append(result)))
    with mytorch.no_grad():
        model(tokens)
    for handle in handles:
        handle.remove()
    return weights, calls, stream


tokens, targets, period = batch(1, 12, 12)
weights, calls, stream = look_inside(model, tokens)
print("layers:", len(weights), " weights of each:", tuple(weights[0].shape))
for w, (layer, x, result) in zip(weights, calls, strict=True):
    v = layer.v_proj(x).unflatten(-1, (layer.num_kv_heads, layer.head_dim)).transpose(1, 2)
    mean = w @ v.repeat_interleave(layer.num_heads // layer.num_kv_heads, 1)
    assert mytorch.allclose(layer.o_proj(mean.transpose(1, 2).flatten(2)), result, atol=1e-4)

# %% [markdown]
# A picture for each head: a row is a token that looks, a column a token that it looks at. The sequence has
# 12 tokens, so from row 12 on everything is a repetition.

# %%
if plt:
    layers, heads = len(weights), config.num_attention_heads
    _, axes = plt.subplots(layers, heads, figsize=(12, 3.2 * layers), sharex=True, sharey=True, squeeze=False)
    for (layer, head), ax in np.ndenumerate(axes):
        ax.imshow(weights[layer][0, head].numpy(force=True), cmap="Blues", vmin=0, vmax=1)
        ax.set_title(f"layer {layer}, head {head}")
    axes[-1][0].set(xlabel="looked at", ylabel="looks")
    plt.tight_layout()
    plt.show()

# %% [markdown]
# Two kinds of lines are in these pictures, parallel to the diagonal.
#
# - In the first layer: just below the diagonal. A head looks at the *previous token*, and so writes into each
#   token's vector which token comes before it. (Two heads may share this work: one does it for some tokens,
#   the other for the rest.)
# - In the second layer: 11 below it, and again 12 and 24 further down. The head looks for a token whose
#   predecessor is the present token, and so finds what followed it last time: 12 back, one ahead. That is an
#   *induction head* ([Olsson et al., 2022](https://arxiv.org/abs/2209.11895)).
#
# A head of the second kind needs one of the first. Neither alone is of use, so the loss falls when both are
# there. Each head's weight on these two places, over many sequences:


# %%
def head_scores(model, tokens, period):
    """Returns (layers, heads) twice: the weight on the token before, and on what followed last time."""
    previous, induction = [], []
    for w in look_inside(model, tokens)[0]:
        w = w.numpy(force=True)
        at = np.arange(period, 2 * period)  # the first repetition: one place to look at
        previous.append(w[:, :, at, at - 1].mean((0, 2)))
        induction.append(w[:, :, at, at - period + 1].mean((0, 2)))
    return np.array(previous), np.array(induction)


tokens, targets, _ = batch(64, 12, 12)
previous, induction = head_scores(model, tokens, 12)
print("previous token\n", previous.round(2), "\ninduction\n", induction.round(2))
if not SHORT:
    assert previous[0].max() > 0.25 and induction[-1].max() > 0.5

# %% [markdown]
# ## Is it the cause?
#
# Looking somewhere isn't using it. So we switch heads off, one at a time: a hook sets to zero what the head
# gives to the projection behind it. What share of the predictions is right without it?


# %%
def without(layer, heads):
    """Returns the share of right predictions without these heads of a layer."""
    attention = model.model["layers"][layer].self_attn

    def switch_off(projection, args):
        x = args[0].clone()
        x.unflatten(-1, (attention.num_heads, attention.head_dim))[..., heads, :] = 0  # a view of x
        return (x,)

    handle = attention.o_proj.register_forward_pre_hook(switch_off)
    with mytorch.no_grad():
        found = model(tokens).argmax(-1)
    handle.remove()
    return (found == targets)[targets != -1].float().mean().item()


everything = without(0, [])
print(f"right with all heads: {everything:.1%}")
layers, heads = len(weights), range(config.num_attention_heads)
shares = [[without(layer, [head]) for head in heads] for layer in range(layers)]
for layer, row in enumerate(shares):
    print(f"layer {layer}, without head 0, 1, 2 or 3:", *(f"{share:.1%}" for share in row))
none = without(layers - 1, list(heads))
print(f"layer {layers - 1}, without all of them: {none:.1%}")
if not SHORT:
    assert everything > 0.95 and min(shares[0]) < 0.9 and none < 0.2

# %% [markdown]
# Without a head that looks at the previous token, many predictions are wrong. Each induction head can be
# spared, as the others of its layer do the same; without all of them nothing is left.
#
# ## The logit lens
#
# The output layer turns the last vector of the residual stream into logits. Nothing forbids to show it the
# vectors of earlier layers: what would the model say if it ended here ([nostalgebraist,
# 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens))?

# %%
counts = targets != -1
for layer, x in enumerate(look_inside(model, tokens)[2]):
    with mytorch.no_grad():
        p = F.softmax(model.lm_head(model.model.norm(x)), -1)
    right = p.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)[counts]
    print(f"after block {layer}, probability of the right token: {right.mean().item():.3f}")

# %% [markdown]
# After the first block the model has no idea: 1 of 64 is 0.016. All that it knows then is which token was
# before which; the second block makes an answer of it.
#
# ## The cache
#
# To generate a token, attention needs the keys and values of all tokens before it. They don't change, so
# they are kept: with the cache a step computes one token, without it all of them again. The tokens are the
# same.

# %%
prompt, new, found = tokens[:1, :24].tolist(), 24 if SHORT else 100, []
for use_cache in (True, False):
    model.generate(prompt, max_new_tokens=4, use_cache=use_cache)  # kernels are compiled now
    start = time.time()
    found.append(model.generate(prompt, max_new_tokens=new, temperature=0, use_cache=use_cache))
    milliseconds = 1e3 * (time.time() - start) / new
    print(f"{'with' if use_cache else 'without'} the cache: {milliseconds:.2f} ms a token")
assert found[0] == found[1]

size = 2 * np.prod(config.cache_sizes) * 4  # keys and values; layers, heads, features; float32
print(f"a token's keys and values: {size} bytes; {2 * size} if no heads shared theirs")

# %% [markdown]
# ## In a pretrained model
#
# SmolLM2 has 30 layers of 9 heads, and learned from text. It has never seen random tokens that are
# repeated. Does it have induction heads, too? The same functions look inside. (This downloads 270 MB,
# once.)

# %%
large = None
if not SHORT:
    try:
        large = Llama.from_pretrained("HuggingFaceTB/SmolLM2-135M").eval().to(device)
    except (ImportError, OSError) as error:
        print(f"no pretrained model, so this part is left out: {type(error).__name__}")
if large is not None:
    half = rng.integers(1000, 40000, (1, 40))
    text = mytorch.tensor(np.concatenate([half, half], 1), device=device)
    with mytorch.no_grad():
        rows = F.cross_entropy(large(text)[0, :-1], text[0, 1:], reduction="none").numpy(force=True)
    print(f"mean loss: first time {rows[:39].mean():.2f}, repeated {rows[40:].mean():.2f}")
    previous, induction = head_scores(large, text, 40)
    layer, head = divmod(int(induction.argmax()), induction.shape[1])
    for name, found in (("previous token", previous), ("induction", induction)):
        print(f"{name}, best head of each layer:", *found.max(1).round(2))
    if plt:
        plt.figure(figsize=(5, 5))
        weights = look_inside(large, text)[0][layer][0, head]
        plt.imshow(weights.numpy(force=True), cmap="Blues", vmin=0, vmax=1)
        plt.title(f"SmolLM2, layer {layer}, head {head}: 40 random tokens, twice")
        plt.show()

# %% [markdown]
# ## Where this is in mytorch
#
# - [`llama.py`](../mytorch/models/llama.py): the model
# - [`grouped_attention.py`](../mytorch/nn/layers/grouped_attention.py) and
#   [`rotary.py`](../mytorch/nn/functional/rotary.py): its attention and its positions
# - [`cache.py`](../mytorch/models/cache.py) and [`generation.py`](../mytorch/models/generation.py): the
#   cache, and the loop that generates
# - [docs/models.md](../docs/models.md): models that can be loaded, and how each was verified
#
# ## Try
#
# 1. Train with `num_hidden_layers=1`. Does the loss fall as far? Why not? (An assert will fail, too.)
# 2. Let all sequences have 12 tokens, also in training: `batch(32, 12, 12)`. Now one layer is enough. Which
#    head does it, and how?
# 3. Look inside after 120 steps, and after 180. Which of the two kinds of heads is there first?
