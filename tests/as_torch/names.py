"""A character-level model of names: counts of pairs, then a network with batch normalization by hand."""

import torch
import torch.nn.functional as F
from mount import numbers

WORDS = [
    "anna", "bela", "carla", "dora", "elena", "fabio", "greta", "hugo", "ida", "jonas", "karla", "lena",
    "maria", "nora", "oskar", "paula", "rosa", "tim",
]


def dataset(stoi, block_size):
    X, Y = [], []
    for w in WORDS:
        context = [0] * block_size
        for ch in w + ".":
            ix = stoi[ch]
            X.append(context)
            Y.append(ix)
            context = context[1:] + [ix]
    return torch.tensor(X), torch.tensor(Y)


def bigrams(stoi):
    """Counts as probabilities, and the mean negative log-likelihood of the words."""
    N = torch.zeros((len(stoi), len(stoi)), dtype=torch.int32)
    for w in WORDS:
        chs = ["."] + list(w) + ["."]
        for ch1, ch2 in zip(chs[:-1], chs[1:], strict=True):
            N[stoi[ch1], stoi[ch2]] += 1
    P = (N + 1).float()
    P /= P.sum(1, keepdims=True)
    log_likelihood, n = 0.0, 0
    for w in WORDS:
        for ch1, ch2 in zip("." + w, w + ".", strict=True):
            log_likelihood += torch.log(P[stoi[ch1], stoi[ch2]])
            n += 1
    return -log_likelihood.item() / n


def linear_bigrams(stoi):
    """The same, learned: one-hot vectors times a matrix."""
    xs, ys = dataset(stoi, 1)
    xenc = F.one_hot(xs[:, 0], num_classes=len(stoi)).float()
    W = numbers(len(stoi), len(stoi), seed=3).requires_grad_()
    for _ in range(4):
        counts = (xenc @ W).exp()
        probs = counts / counts.sum(1, keepdim=True)
        loss = -probs[torch.arange(len(ys)), ys].log().mean() + 0.01 * (W**2).mean()
        W.grad = None
        loss.backward()
        W.data += -20 * W.grad
        yield loss.item()


def losses():
    chars = sorted(set("".join(WORDS)))
    stoi = {s: i + 1 for i, s in enumerate(chars)}
    stoi["."] = 0
    yield bigrams(stoi)
    yield from linear_bigrams(stoi)

    vocab_size, block_size, n_embd, n_hidden = len(stoi), 3, 6, 24
    X, Y = dataset(stoi, block_size)
    C = numbers(vocab_size, n_embd)
    W1 = numbers(n_embd * block_size, n_hidden, seed=2) * (5 / 3) / ((n_embd * block_size) ** 0.5)
    W2, b2 = numbers(n_hidden, vocab_size, seed=3) * 0.01, numbers(vocab_size, seed=4) * 0
    bngain, bnbias = torch.ones((1, n_hidden)), torch.zeros((1, n_hidden))
    bnmean_running, bnstd_running = torch.zeros((1, n_hidden)), torch.ones((1, n_hidden))
    parameters = [C, W1, W2, b2, bngain, bnbias]
    for p in parameters:
        p.requires_grad = True
    for i in range(12):
        ix = torch.arange(i * 7, i * 7 + 32) % X.shape[0]
        Xb, Yb = X[ix], Y[ix]
        emb = C[Xb]
        embcat = emb.view(emb.shape[0], -1)
        hpreact = embcat @ W1
        bnmeani, bnstdi = hpreact.mean(0, keepdim=True), hpreact.std(0, keepdim=True)
        hpreact = bngain * (hpreact - bnmeani) / bnstdi + bnbias
        with torch.no_grad():
            bnmean_running = 0.9 * bnmean_running + 0.1 * bnmeani
            bnstd_running = 0.9 * bnstd_running + 0.1 * bnstdi
        h = torch.tanh(hpreact)
        logits = h @ W2 + b2
        loss = F.cross_entropy(logits, Yb)
        for p in parameters:
            p.grad = None
        loss.backward()
        lr = 0.1 if i < 8 else 0.01
        for p in parameters:
            p.data += -lr * p.grad
        yield loss.item()
    with torch.no_grad():
        hpreact = bngain * (C[X].view(X.shape[0], -1) @ W1 - bnmean_running) / bnstd_running + bnbias
        logits = torch.tanh(hpreact) @ W2 + b2
        yield F.cross_entropy(logits, Y).item()
        probs = F.softmax(logits[:1], dim=1)
        ix = torch.multinomial(probs, num_samples=1).item()
        assert 0 <= ix < vocab_size
