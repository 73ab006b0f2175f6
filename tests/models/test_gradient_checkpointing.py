"""`gradient_checkpointing_enable`: the same loss and gradients, also with dropout, from less memory."""

import copy
import gc
import tracemalloc

import numpy as np
import pytest

import mytorch
from mytorch.models import GPT2, GPT2Config, Llama, LlamaConfig

MODELS = {
    "gpt2": lambda layers=3: GPT2(GPT2Config(31, 40, layers, 2, 64, dropout_p=0.2)),
    "llama": lambda layers=3: Llama(LlamaConfig(31, 64, 160, layers, 4, 2, max_position_embeddings=40)),
}
EACH = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
IDX = np.random.default_rng(0).integers(0, 31, (4, 40))


def step(model, device="cpu"):
    """The loss and all gradients of a step, from one seed."""
    mytorch.manual_seed(7)
    model.zero_grad()
    idx = mytorch.tensor(IDX, device=device)
    loss = model(idx, idx)[1]
    loss.backward()
    return [loss.item(), *(p.grad.cpu().numpy().copy() for p in model.parameters())]


def blocks_run(model):
    """The number of times that a block runs in a step."""
    runs = []
    blocks = model.transformer.h if isinstance(model, GPT2) else model.model.layers
    handles = [block.register_forward_hook(lambda *_: runs.append(1)) for block in blocks]
    step(model)
    for handle in handles:
        handle.remove()
    return len(runs)


@EACH
def test_gradients_are_the_same(make, device):
    model = make().to(device)
    want = step(model, device)
    model.gradient_checkpointing_enable()
    for a, b in zip(step(model, device), want, strict=True):
        np.testing.assert_array_equal(a, b)


@EACH
def test_blocks_run_twice_in_training_only(make):
    model = make()
    assert blocks_run(model) == 3
    model.gradient_checkpointing_enable()
    assert blocks_run(model) == 6 and blocks_run(copy.deepcopy(model)) == 6
    assert blocks_run(model.eval()) == 3
    model.train().gradient_checkpointing_disable()
    assert blocks_run(model) == 3


@EACH
def test_less_memory_is_held_for_the_backward_pass(make):
    """Counted in bytes that each further layer holds between the forward and the backward pass."""

    def held(layers, saving):
        model, idx = make(layers), mytorch.tensor(IDX)
        if saving:
            model.gradient_checkpointing_enable()
        model(idx, idx)[1].backward()  # what is made once, is made now
        gc.collect()
        tracemalloc.start()
        loss = model(idx, idx)[1]
        bytes_held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert loss.requires_grad
        return bytes_held

    plain, saving = (held(6, saving) - held(2, saving) for saving in (False, True))
    inputs = 4 * IDX.size * 64 * 4  # of four layers, in bytes
    assert plain > 9 * inputs and saving < 3 * inputs  # GPT-2's blocks have two, x and the stream


@EACH
def test_generating_is_the_same(make):
    """Also while training: without a gradient, and with a cache, nothing is checkpointed."""
    model = make().eval()
    prompt = mytorch.tensor(IDX[:1, :5])
    want = model.generate(prompt, 10, temperature=0)
    model.gradient_checkpointing_enable()
    assert (model.generate(prompt, 10, temperature=0) == want).all()
    model.train()
    with mytorch.no_grad():
        assert model(prompt, cache=model.new_cache()).shape == (1, 5, 31)
