"""Models in Hugging Face's files: what its transformers library makes of them is the oracle, both ways."""

import json

import numpy as np
import pytest
import torch
import transformers

import mytorch
from mytorch.models import GPT2, Llama, LlamaConfig

SMALL = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
CASES = {
    "gpt2": (GPT2, "GPT2", {"vocab_size": 97, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128,
                            "bos_token_id": 0, "eos_token_id": 1}),
    "llama": (Llama, "Llama", SMALL),
    "llama3": (Llama, "Llama", SMALL | {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}}),
    "yarn": (Llama, "Llama", SMALL | {"rope_parameters": YARN | {"rope_theta": 1e4}}),
    "linear": (Llama, "Llama", SMALL | {"rope_parameters": {"rope_type": "linear", "factor": 2.0,
                                                            "rope_theta": 1e4}}),
    "smollm2": (Llama, "Llama", SMALL | {"tie_word_embeddings": True, "rms_norm_eps": 1e-5}),
    "biases": (Llama, "Llama", SMALL | {"attention_bias": True, "mlp_bias": True, "head_dim": 16}),
    "mistral": (Llama, "Mistral", SMALL | {"sliding_window": 8}),
    "qwen2": (Llama, "Qwen2", SMALL),
    "qwen2 window": (Llama, "Qwen2", SMALL | {"use_sliding_window": True, "sliding_window": 8,
                                              "max_window_layers": 0}),
    "qwen3": (Llama, "Qwen3", SMALL | {"head_dim": 16}),
}  # fmt: skip
IDX = np.random.default_rng(0).integers(3, 97, (2, 20))


@pytest.fixture(scope="module", params=CASES)
def models(request, tmp_path_factory):
    """(the model in mytorch, that in transformers, its folder)."""
    ours, name, options = CASES[request.param]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**options)
    theirs = getattr(transformers, f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")(config)
    with torch.no_grad():
        for p in theirs.parameters():  # biases and norms, too; far from uniform logits
            p.add_(torch.randn(p.shape) * (0.2 if p.ndim > 1 else 0.05))
    folder = tmp_path_factory.mktemp("model")
    theirs.eval().save_pretrained(folder)
    return ours.from_pretrained(folder), theirs, folder


def their_logits(model, idx, **options):
    with torch.no_grad():
        return model(torch.tensor(idx), **options).logits.numpy()


def test_logits(models):
    ours, theirs, _ = models
    want = their_logits(theirs, IDX)
    with mytorch.no_grad():
        found = ours(mytorch.tensor(IDX)).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_logits_with_a_cache_in_parts(models):
    ours, theirs, _ = models
    with mytorch.no_grad():
        cache = ours.new_cache(2)
        parts = [(0, 3), (3, 4), (4, 15), *((i, i + 1) for i in range(15, 20))]
        found = mytorch.cat([ours(mytorch.tensor(IDX[:, a:b]), cache=cache) for a, b in parts], 1).numpy()
    want = their_logits(theirs, IDX)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_greedy_tokens_of_a_batch_of_different_lengths(models):
    ours, theirs, _ = models
    prompts = [IDX[0, :3].tolist(), IDX[0].tolist(), IDX[1, :11].tolist()]
    rows = ours.generate(prompts, 64, temperature=0, stop_tokens=[1])
    for prompt, row in zip(prompts, rows, strict=True):
        n = len(prompt)
        best = their_logits(theirs, [row])[0].argmax(-1)[n - 1 : -1].tolist()
        assert row[:n] == prompt and row[n:] == best
        assert len(best) == 64 or best.index(1) == len(best) - 1
    assert ours.generate(prompts[:1], 64, temperature=0, stop_tokens=[1], use_cache=False) == rows[:1]


@pytest.mark.parametrize("stop", [[], [1, 50, 60]])
@pytest.mark.parametrize("models", ["gpt2", "mistral"], indirect=True)
def test_beam_search(models, stop):
    ours, theirs, _ = models
    prompts = [IDX[0, :5].tolist(), IDX[1, :9].tolist()]
    rows = ours.generate(prompts, 8, num_beams=3, length_penalty=0.7, stop_tokens=stop)
    theirs.generation_config.eos_token_id = stop or None
    options = {"max_new_tokens": 8, "num_beams": 3, "length_penalty": 0.7, "pad_token_id": 2}
    for prompt, row in zip(prompts, rows, strict=True):
        assert row == theirs.generate(torch.tensor([prompt]), do_sample=False, **options)[0].tolist()


def test_what_is_saved_here_loads_there(models, tmp_path):
    ours, theirs, _ = models
    ours.save_pretrained(tmp_path)
    again, info = type(theirs).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert (their_logits(again, IDX) == their_logits(theirs, IDX)).all()
    with mytorch.no_grad():
        idx = mytorch.tensor(IDX)
        assert (type(ours).from_pretrained(tmp_path)(idx).numpy() == ours(idx).numpy()).all()


def test_weights_in_several_files(models, tmp_path):
    ours, theirs, _ = models
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    index = tmp_path / "model.safetensors.index.json"
    files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    assert len(files) > 1
    for (name, a), (_, b) in zip(
        ours.named_parameters(), type(ours).from_pretrained(tmp_path).named_parameters(), strict=True
    ):
        assert (a.detach().numpy() == b.detach().numpy()).all(), name
    (tmp_path / files[0]).unlink()
    with pytest.raises(FileNotFoundError, match=files[0]):
        type(ours).from_pretrained(tmp_path)


@pytest.mark.parametrize(("size", "parameters"), [
    ("15m", 15_191_712), ("135m", 134_515_008), ("1b", 1_235_814_400), ("7b", 6_738_415_616),
])  # fmt: skip
def test_published_sizes(size, parameters):
    config = LlamaConfig.of_size(size)
    kind = transformers.LlamaConfig(**config.to_hugging_face())
    with torch.device("meta"):
        theirs = transformers.LlamaForCausalLM(kind)
    assert sum(p.numel() for p in theirs.parameters()) == parameters
    with mytorch.nn.init.skipped():
        if size != "7b":  # 27 GB
            ours = Llama(config)
            assert ours.num_parameters() == parameters
            shapes = {name: tuple(p.shape) for name, p in ours.named_parameters()}
            assert shapes == {name: tuple(p.shape) for name, p in theirs.named_parameters()}
