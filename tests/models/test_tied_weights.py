"""The output layer and the token embedding share one weight, whatever happens to the model."""

import copy

import numpy as np
import pytest

import mytorch
from mytorch.models import GPT2, GPT2Config, Llama, LlamaConfig

GPT2_CONFIG = GPT2Config(31, 16, 2, 2, 8)
LLAMA_CONFIG = LlamaConfig(31, 16, 40, 2, 4, max_position_embeddings=16, tie_word_embeddings=True)
MODELS = {
    "gpt2": (GPT2, GPT2_CONFIG, "transformer.wte"),
    "llama": (Llama, LLAMA_CONFIG, "model.embed_tokens"),
}
IDX = mytorch.tensor(np.random.default_rng(0).integers(0, 31, (2, 9)))


@pytest.fixture(params=MODELS)
def tied(request):
    """(a model, its class, the name of its embedding)."""
    kind, config, name = MODELS[request.param]
    return kind(config), kind, name


def is_tied(model, name):
    """Whether both are one parameter, which is listed once and learns from both."""
    names = dict(model.named_parameters())
    if model.lm_head.weight is not model.get_submodule(name).weight or "lm_head.weight" in names:
        return False
    before = model.lm_head.weight.detach().cpu().numpy().copy()
    idx = IDX.to(model.lm_head.weight.device)
    model(idx, idx)[1].backward()
    mytorch.optim.SGD(model.parameters(), lr=1.0).step()
    after = model.lm_head.weight.detach().cpu().numpy()
    assert (before != after).any()
    return (model.get_submodule(name).weight.detach().cpu().numpy() == after).all()


MOVES = {
    "as it is": lambda model: model,
    "to a dtype": lambda model: model.to(mytorch.float64),
    "to a device": lambda model: model.to("cuda:0"),
    "there and back": lambda model: model.to("cuda:0").to("cpu"),
    "half and float": lambda model: model.half().float(),
    "a copy": copy.deepcopy,
    "training": lambda model: model.eval().train(),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_after_moving(move, tied, fake_cuda):
    model, _, name = tied
    assert is_tied(move(model), name)


def test_state_dict(tied, tmp_path):
    """It has both names, as PyTorch's; either way to load it leaves the weight shared."""
    model, kind, name = tied
    state = model.state_dict()
    assert {"lm_head.weight", f"{name}.weight"} <= {*state}
    for assign in (False, True):
        again = kind(model.config)
        again.load_state_dict(copy.deepcopy(state), assign=assign)
        assert mytorch.equal(again(IDX), model(IDX))
        assert assign or is_tied(again, name)
    mytorch.save(state, tmp_path / "model.safetensors")
    again = kind(model.config)
    again.load_state_dict(mytorch.load(tmp_path / "model.safetensors"))
    assert mytorch.equal(again(IDX), model(IDX)) and is_tied(again, name)


def test_pretrained_files(tied, tmp_path):
    model, kind, name = tied
    model.save_pretrained(tmp_path)
    again = kind.from_pretrained(tmp_path)
    assert mytorch.equal(again(IDX), model.eval()(IDX)) and is_tied(again, name)
    assert "lm_head.weight" not in mytorch.load(tmp_path / "model.safetensors")
