"""A training step of an ordinary model is one program, without a graph break, and stays it."""

import contextlib
import dataclasses
import functools
import logging

import pytest

import mytorch
from mytorch import nn, optim
from mytorch.compiler.guards.bytecode import attribute_loads_in
from mytorch.compiler.guards.reachable import Reachable
from mytorch.models import GPT2, GPT2Config, Llama, LlamaConfig
from mytorch.nn import functional as F


@dataclasses.dataclass
class Config:
    rate: float = 1e-3
    clip: float = 1.0
    autocast: bool = False
    options: dict = dataclasses.field(default_factory=lambda: {"betas": (0.9, 0.95)})


class Convnet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(4 * 4 * 4, classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(11, 8), nn.LSTM(8, 8), nn.Linear(8, 11)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


def tokens(*size):
    return mytorch.randint(0, 11, size)


def gpt():
    return GPT2(GPT2Config(vocab_size=11, context_length=8, n_embd=8, n_layer=2, n_head=2))


def llama():
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return Llama(LlamaConfig(vocab_size=11, max_position_embeddings=8, **sizes))


MODELS = {
    "GPT": (gpt, lambda: (tokens(2, 8), tokens(2, 8))),
    "Llama": (llama, lambda: (tokens(2, 8), tokens(2, 8))),
    "convnet": (Convnet, lambda: (mytorch.randn(2, 1, 8, 8), mytorch.randint(0, 3, (2,)))),
    "LSTM": (Recurrent, lambda: (tokens(8, 2), tokens(8, 2))),
}


class Trainer:
    def __init__(self, model, config):
        self.model, self.config, self.steps, self.log = model, config, 0, []
        self.optimizer = optim.AdamW(model.parameters(), lr=config.rate, **config.options)
        self.schedule = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 100)
        cast = functools.partial(mytorch.autocast, "cpu", dtype=mytorch.bfloat16)
        self.context = cast() if config.autocast else contextlib.nullcontext()

    def loss(self, x, y):
        with self.context:
            logits = self.model(x)
            logits = getattr(logits, "logits", logits)
            return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.schedule.step()
        return loss, norm


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_step(name, autocast):
    make, batch = MODELS[name]
    mytorch.manual_seed(0)
    trainer = Trainer(make(), Config(autocast=autocast))
    step = mytorch.compile(trainer.step, fullgraph=True)
    for _ in range(4):
        step(*batch())
        trainer.steps += 1
        trainer.log.append("a line")
    assert not step.parts() and len(step.history) == 2  # without and with a .grad before


class Logged(nn.Module):
    """A module with what no program can hold, which no name or number in the computation depends on."""

    def __init__(self):
        super().__init__()
        self.logger, self.act = logging.getLogger("tests"), "gelu"
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return getattr(F, self.act)(self.linear(x)) + getattr(nn, self.act.upper())()(x)


class Mixed(Logged):
    def forward(self, x):
        return getattr((F, self)[1], self.act[:0] + "linear")(x)


def test_getattr_of_a_module_finds_no_attributes_of_objects():
    logged = Logged()
    step = mytorch.compile(lambda x: logged(x), fullgraph=True)
    for _ in range(2):
        step(mytorch.ones(2, 4))
    assert len(step.history) == 1
    with pytest.raises(RuntimeError, match="a program can't hold what getattr may find: logger"):
        mytorch.compile(Mixed(), fullgraph=True)(mytorch.ones(2, 4))


LOOKS = {
    "a name": (lambda x: getattr(F, x), True),
    "an attribute": (lambda x: getattr(nn.functional, x.name), True),
    "a computed name": (lambda x: getattr(F, x(F, 1) + f"_{x}".lower(), None), True),
    "one of two": (lambda x: getattr((F, x)[1], x.name), False),
    "what a call of three gives": (lambda x: getattr([F, x(1, 2, 3)][1], x.name), False),
    "what a function gives": (lambda x: getattr(x(F), x.name), False),
    "an attribute of a function": (lambda x: getattr(F.relu, x.name), False),
    "either": (lambda x: getattr(F or x, x.name), False),
    "by condition": (lambda x: getattr(F if x else x, x.name), False),
    "of another": (lambda x: getattr(x, F.relu(x)), False),
    "twice": (lambda x: getattr(F, getattr(x, x.name)), False),
    "arguments in a list": (lambda x: getattr(F, *x), False),
    "as a value": (lambda x: (getattr, F, x), False),
}


@pytest.mark.parametrize("name", LOOKS)
def test_where_the_object_of_getattr_is_a_module(name):
    function, is_module = LOOKS[name]
    loads = [*attribute_loads_in(function.__code__, Reachable(function).modules)]
    assert (not [text for _, text, _ in loads if text == "getattr"]) == is_module
