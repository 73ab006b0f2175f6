"""Whole programs as PyTorch's users write them, run by both: the same losses, step by step.

Each is a function of the framework: `torch` is mytorch in one of the two runs.
"""

import numpy as np
import pytest
import torch

import mytorch

RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.standard_normal((8, 3, 12, 12)), RNG.integers(0, 5, 8)
POINTS, NOISE = RNG.standard_normal((16, 2)), RNG.standard_normal((6, 16, 4))
TOKENS, LENGTHS = RNG.integers(1, 20, (4, 9)), [9, 7, 4, 2]


def data(m, x):
    return m.tensor(np.asarray(x))


def loaded(module, state):
    """The module with PyTorch's initial values, which come as NumPy arrays."""
    own = module.state_dict()
    tensor = torch.tensor if isinstance(module, torch.nn.Module) else mytorch.tensor
    module.load_state_dict({key: tensor(state[key]) for key in own})
    return module


def initial(build):
    """The initial values of a program's modules, as PyTorch draws them."""
    torch.manual_seed(0)
    return [{k: v.numpy().copy() for k, v in module.state_dict().items()} for module in build(torch)]


def residual_network(torch):
    nn = torch.nn
    F = torch.nn.functional

    class Block(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, padding="same", bias=False)
            self.bn2 = nn.BatchNorm2d(out)
            self.skip = nn.Conv2d(channels, out, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x):
            out = F.relu(self.bn1(self.conv1(x)), inplace=True)
            out = self.bn2(self.conv2(out))
            out += self.skip(x)
            return F.leaky_relu_(out, 0.1)

    model = nn.Sequential(
        nn.Conv2d(3, 6, 5, padding=2), nn.MaxPool2d(2, ceil_mode=True), Block(6, 6, 1), Block(6, 8, 2),
        nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten(), nn.Linear(16, 5),
    )

    def train(model):
        decay = [p for p in model.parameters() if p.dim() > 1]
        rest = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest}]
        optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], gamma=0.5)
        x, y = data(torch, IMAGES), data(torch, LABELS)
        for _ in range(6):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            yield loss.item()
        model.eval()
        with torch.no_grad():
            yield F.cross_entropy(model(x), y).item()

    return [model], train


def gradient_penalty(torch):
    """A critic whose gradient is kept near length 1 (WGAN-GP): the loss holds a gradient."""
    nn = torch.nn
    critic = nn.Sequential(nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 1))
    generator = nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 2))

    def train(critic, generator):
        real = data(torch, POINTS)
        for_critic = torch.optim.RMSprop(critic.parameters(), lr=0.01)
        for_generator = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.9))
        for z in data(torch, NOISE):
            fake = generator(z).detach()
            between = torch.lerp(real, fake, 0.3).requires_grad_()
            (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
            for_critic.zero_grad()
            loss.backward()
            for_critic.step()
            for_generator.zero_grad()
            (-critic(generator(z)).mean()).backward()
            for_generator.step()
            yield loss.item()

    return [critic, generator], train


def autoencoder(torch):
    nn = torch.nn
    F = torch.nn.functional
    encoder = nn.Sequential(nn.Conv2d(3, 4, 4, 2, 1), nn.GroupNorm(2, 4), nn.Mish(), nn.Flatten())
    heads = nn.ModuleDict({"mean": nn.Linear(144, 4), "logvar": nn.Linear(144, 4)})
    decoder = nn.Sequential(
        nn.Linear(4, 72), nn.Unflatten(1, (8, 3, 3)), nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.PReLU(4),
        nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"),
    )

    def train(encoder, heads, decoder):
        parameters = [p for module in (encoder, heads, decoder) for p in module.parameters()]
        optimizer = torch.optim.NAdam(parameters, lr=3e-3)
        x = torch.sigmoid(data(torch, IMAGES))
        for z in data(torch, NOISE[:, :8]):
            h = encoder(x)
            mean, logvar = heads["mean"](h), heads["logvar"](h)
            out = decoder(mean + z * (0.5 * logvar).exp())
            divergence = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
            loss = F.binary_cross_entropy_with_logits(out, x, reduction="sum") + divergence
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 5.0)
            optimizer.step()
            yield loss.item()

    return [encoder, heads, decoder], train


def transformer(torch):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    parts = [
        nn.Embedding(20, 8, padding_idx=0),
        nn.TransformerEncoder(layer, 2, nn.LayerNorm(8)),
        nn.Linear(8, 20),
    ]

    def train(embedding, encoder, head):
        parameters = [p for module in (embedding, encoder, head) for p in module.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=0.01, amsgrad=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=6)
        tokens = data(torch, TOKENS)
        padding = torch.arange(9)[None, :] >= data(torch, LENGTHS)[:, None]
        tokens = tokens.masked_fill(padding, 0)
        causal = nn.Transformer.generate_square_subsequent_mask(8)
        for _ in range(6):
            hidden = encoder(
                embedding(tokens[:, :-1]), mask=causal != 0, src_key_padding_mask=padding[:, :-1]
            )
            logits = head(hidden).transpose(1, 2)
            loss = nn.functional.cross_entropy(logits, tokens[:, 1:], ignore_index=0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            yield loss.item()

    return parts, train


def tagger(torch):
    """Sequences of several lengths through a packed bidirectional GRU; an average of the weights beside."""
    nn = torch.nn
    parts = [nn.Embedding(20, 6), nn.GRU(6, 5, 2, bidirectional=True, batch_first=True), nn.Bilinear(5, 5, 3)]

    def train(embedding, gru, head):
        parameters = [p for module in (embedding, gru, head) for p in module.parameters()]
        optimizer = torch.optim.Adagrad(parameters, lr=0.05)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
        average = torch.optim.swa_utils.AveragedModel(
            head, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        tokens = data(torch, TOKENS)
        for _ in range(6):
            packed = nn.utils.rnn.pack_padded_sequence(embedding(tokens), LENGTHS, batch_first=True)
            out, _ = nn.utils.rnn.pad_packed_sequence(gru(packed)[0], batch_first=True)
            forward, backward = out.chunk(2, dim=-1)
            scores = head(forward.contiguous(), backward.contiguous()).log_softmax(-1)
            loss = nn.functional.nll_loss(scores.flatten(0, 1), (tokens % 3).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            plateau.step(loss.item())
            average.update_parameters(head)
            yield loss.item() + average.module.weight.sum().item()

    return parts, train


def meta_learning(torch):
    """Good initial weights for one step of learning (MAML): a gradient through a step of gradient descent."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1))

    def train(model):
        optimizer = torch.optim.Adamax(model.parameters(), lr=0.01)
        x = data(torch, POINTS)
        for task in range(5):
            target = torch.sin(x.sum(1, keepdim=True) + task)
            weights = dict(model.named_parameters())
            inner = nn.functional.mse_loss(torch.func.functional_call(model, weights, (x[:8],)), target[:8])
            slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            adapted = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), slopes, strict=True)}
            loss = nn.functional.huber_loss(torch.func.functional_call(model, adapted, (x[8:],)), target[8:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()

    return [model], train


PROGRAMS = [residual_network, gradient_penalty, autoencoder, transformer, tagger, meta_learning]
COMPILED = [residual_network, autoencoder, transformer, tagger]  # the others differentiate twice


@pytest.fixture
def doubles():
    """float64 by default in both, so that rounding doesn't grow with the steps."""
    before = torch.get_default_dtype(), mytorch.get_default_dtype()
    torch.set_default_dtype(torch.float64), mytorch.set_default_dtype(mytorch.float64)
    yield
    torch.set_default_dtype(before[0]), mytorch.set_default_dtype(before[1])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_both_have_the_same_losses(doubles, program):
    states = initial(lambda m: program(m)[0])
    losses = []
    for framework in (torch, mytorch):
        modules, train = program(framework)
        losses.append(list(train(*map(loaded, modules, states))))
    theirs, mine = losses
    np.testing.assert_allclose(mine, theirs, rtol=1e-8)
    assert len(set(theirs)) == len(theirs), "it learns nothing: the losses don't change"


@pytest.mark.parametrize("program", COMPILED, ids=lambda f: f.__name__)
def test_compiled_models_have_the_same_losses(doubles, program):
    states = initial(lambda m: program(m)[0])
    losses = []
    for compiling in (lambda model: model, mytorch.compile):
        modules, train = program(mytorch)
        for k, module in enumerate(map(loaded, modules, states)):
            modules[k] = module if isinstance(module, mytorch.nn.ModuleDict) else compiling(module)
        losses.append(list(train(*modules)))
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-8)
