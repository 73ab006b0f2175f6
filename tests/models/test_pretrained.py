"""Models in Hugging Face's files: what its transformers library makes of them is the oracle, both ways."""

import copy
import importlib
import inspect
import json
import re
import sys

import numpy as np
import pytest
import torch
import transformers

import mytorch
from mytorch.chat import ChatTemplate
from mytorch.models import GPT2, BertConfig, GPT2Config, Llama, LlamaConfig
from mytorch.models.gpt2_config import SECOND_NAMES
from mytorch.tokenizers import BPETokenizer, from_tokenizer_json

SMALL = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
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
}
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
])
def test_published_sizes(size, parameters):
    config = LlamaConfig.of_size(size)
    kind = transformers.LlamaConfig(**config.to_hugging_face())
    with torch.device("meta"):
        theirs = transformers.LlamaForCausalLM(kind)
    assert sum(p.numel() for p in theirs.parameters()) == parameters
    with mytorch.device("meta"):
        ours = Llama(config)
    assert ours.num_parameters() == parameters
    shapes = {name: tuple(p.shape) for name, p in ours.named_parameters()}
    assert shapes == {name: tuple(p.shape) for name, p in theirs.named_parameters()}


@pytest.fixture
def folder(tmp_path):
    """A saved Llama."""
    config = LlamaConfig(97, 32, 48, num_hidden_layers=2, num_attention_heads=4, tie_word_embeddings=True)
    Llama(config).save_pretrained(tmp_path)
    return tmp_path


def change(folder, **options):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | options))


@pytest.mark.parametrize(("options", "message"), [
    ({"model_type": "gpt2"}, r"config.json: model_type is 'gpt2'; a Llama is one of llama, mistral"),
    ({"vocab_size": 98}, r"embed_tokens.weight has shape \(97, 32\), the model's has \(98, 32\)"),
    ({"num_hidden_layers": 3}, "has no tensors model.layers.2.input_layernorm.weight, .* and 6 more"),
    ({"num_hidden_layers": 1}, "has unknown tensors model.layers.1.input_layernorm.weight, .* and 6 more"),
    ({"num_attention_heads": 5}, "config.json is no configuration of a Llama: .*num_attention_heads=5"),
    ({"hidden_act": "gelu"}, "config.json: hidden_act is 'gelu', but LlamaConfig is for 'silu' only"),
    ({"rope_parameters": {"rope_type": "longrope"}}, "rotary scaling 'longrope' is unknown"),
    ({"rope_parameters": {"rope_type": "linear"}}, "lacks 'factor'"),
    ({"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4}, "different windows"),
    ({"rope_scaling": YARN | {"alpha": 2.0}}, "rotary scaling 'yarn' has no option 'alpha'"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 2.0}}, "no option 'beta_fast'"),
    ({"rope_scaling": {"factor": 2.0}}, "rotary scaling 'default' has no option 'factor'"),
    ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, "rotary scaling 'linear': factor is '2'"),
    ({"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ({"rope_scaling": {"full_attention": YARN}}, "has no option 'full_attention'"),
    ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "high_freq_factor must be the larger one"),
    ({"partial_rotary_factor": 0.5}, "config.json: partial_rotary_factor is 0.5, which is not supported"),
    ({"logits_scaling": 8.0}, "config.json: logits_scaling is 8.0, which is not supported"),
    ({"num_local_experts": 8}, "config.json: num_local_experts is 8, which is not supported"),
    ({"quantization_config": {"bits": 4}}, "config.json: quantization_config is .*, which is not supported"),
    ({"model_type": []}, r"config.json: model_type is \[\]; a Llama is one of llama, mistral"),
    ({"rms_norm_eps": "1e-5"}, "config.json is no .*: rms_norm_eps must be float, got '1e-5'"),
    ({"num_hidden_layers": 2.0}, "num_hidden_layers must be int, got 2.0"),
    ({"tie_word_embeddings": 1}, "tie_word_embeddings must be bool, got 1"),
    ({"rope_parameters": 3}, "config.json: rope_parameters is 3, it must be a JSON object"),
    ({"rope_parameters": {"rope_theta": 0}}, "rope_theta must be a positive number, got 0"),
])
def test_files_of_something_else(options, message, folder):
    change(folder, **options)
    with pytest.raises(ValueError, match=message):
        Llama.from_pretrained(folder)


BAD = [None, True, 3, 1.5, -1, 10**12, "x", [], [[]], [None], {}, {"content": []}]


def places(content, here=()):
    """Yields the paths to all values of a JSON text, but those of long lists and vocabularies."""
    yield here
    if isinstance(content, (dict, list)):
        for key in list(content)[:20] if isinstance(content, dict) else range(min(len(content), 2)):
            yield from places(content[key], (*here, key))


def changed(content, path, value):
    if not path:
        return value
    content = copy.copy(content)
    content[path[0]] = changed(content[path[0]], path[1:], value)
    return content


def check_wrong_types(content, read):
    """Reads the content with each value replaced by those of other types: only ValueErrors are raised."""
    read(content)
    for path in places(content):
        for value in BAD:
            try:
                read(changed(content, path, value))
            except ValueError:
                pass
            except Exception as error:
                raise AssertionError(f"{path} is {value!r}") from error


@pytest.mark.parametrize("kind", ["Llama", "Mistral", "Qwen2", "Qwen3", "GPT2", "Bert"])
def test_wrong_types_in_config_json_are_value_errors(kind):
    ours = {"GPT2": GPT2Config, "Bert": BertConfig}.get(kind, LlamaConfig)
    content = json.loads(getattr(transformers, f"{kind}Config")().to_json_string(use_diff=False))
    if ours is LlamaConfig:
        rope = YARN | {"beta_fast": 32, "attention_factor": 1.0, "truncate": True, "mscale": 1.0}
        content |= {"rope_scaling": rope, "layer_types": ["full_attention"] * 32, "max_window_layers": 28}
    check_wrong_types(content, lambda content: ours.from_hugging_face(content, "config.json"))
    check_wrong_types(ours().to_dict(), lambda content: ours.from_dict(content, "config.json"))


def test_wrong_types_in_a_tokenizer_s_files_are_value_errors(tmp_path):
    tokenizer = BPETokenizer.train("hello world " * 5, 260, special_tokens=["<s>", "</s>"])
    tokenizer.save(tmp_path / "tokenizer.json")
    content = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": None, "add_bos_token": True,
               "chat_template": [{"name": "default", "template": "{{ bos_token }}"}]}

    def read(content):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(content))
        from_tokenizer_json(tmp_path)
        ChatTemplate.of_folder(tmp_path)

    check_wrong_types(content, read)
    with pytest.raises(ValueError, match=r"_config.json: add_bos_token: expected true or false, got 3"):
        read({"add_bos_token": 3})


READ_ELSEWHERE = {  # what transformers' models read of a configuration and no number of a forward depends on
    "pad_token_id", "use_cache", "attention_dropout", "num_labels", "problem_type", "classifier_dropout",
    "is_encoder_decoder", "chunk_size_feed_forward", "embd_pdrop", "attn_pdrop", "resid_pdrop",
    "hidden_dropout", "summary_last_dropout", "summary_first_dropout", "summary_use_proj",
    "summary_proj_to_labels", "initializer_range", "reorder_and_upcast_attn", "add_cross_attention",
}


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "gpt2", "bert"])
def test_every_option_that_transformers_reads_is_known(kind):
    ours = {"gpt2": GPT2Config, "bert": BertConfig}.get(kind, LlamaConfig)
    source = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    read = set(re.findall(r"config\.([a-z]\w*)", inspect.getsource(source)))
    known = {*ours.file_names.values(), *ours.file_options, *ours.file_neutral, *READ_ELSEWHERE}
    others = {"rope_parameters", "layer_types", "attention_bias"}
    known |= others if ours is LlamaConfig else SECOND_NAMES.keys()
    assert read - known == set()


def test_other_names_and_defaults_of_transformers(tmp_path):
    content = {"model_type": "gpt2", "num_attention_heads": 4, "hidden_size": 32, "num_hidden_layers": 1}
    config, theirs = GPT2Config.from_hugging_face(content, "config.json"), transformers.GPT2Config(**content)
    assert (config.n_head, config.n_embd, config.n_layer) == (theirs.n_head, theirs.n_embd, theirs.n_layer)
    assert config.activation == theirs.activation_function == "gelu_new"
    llama = {"model_type": "llama", "sliding_window": 4, "max_position_embeddings": 64,
             "rope_scaling": {"type": "yarn", "factor": 2.0, "finetuned": True}}
    config = LlamaConfig.from_hugging_face(llama, "config.json")
    assert config.sliding_window is None  # transformers' Llama has none
    wanted = transformers.LlamaConfig(**llama).rope_parameters["original_max_position_embeddings"]
    assert config.rope_scaling["original_max_position_embeddings"] == wanted == 64


def test_damaged_and_missing_files(folder, monkeypatch):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    with pytest.raises(ValueError, match=r"model\.safetensors: .* truncated"):
        Llama.from_pretrained(folder)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        Llama.from_pretrained(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../secret"}}')
    with pytest.raises(ValueError, match="a file name in it has folders"):
        Llama.from_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(ValueError, match="is a pickle"):
        Llama.from_pretrained(folder / "pytorch_model.bin")
    for name in ("none", "a/b/c", "./none", "a/none.gguf"):
        with pytest.raises(FileNotFoundError, match=name):
            Llama.from_pretrained(name)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="owner/model is no local path.*pip install huggingface_hub"):
        Llama.from_pretrained("owner/model")


def test_a_name_is_downloaded_by_the_hubs_package(folder, monkeypatch):
    import huggingface_hub

    asked = []

    def snapshot_download(name, **options):
        asked.append((name, options["revision"]))
        assert {"*.json", "*.safetensors"} <= set(options["allow_patterns"])
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    model = Llama.from_pretrained("owner/model", revision="main")
    assert asked == [("owner/model", "main")] and not model.training


def test_a_model_without_biases_is_saved_with_zeros(tmp_path):
    model = GPT2(GPT2Config.of_size("nano", vocab_size=97, context_length=32, bias=False)).eval()
    model.save_pretrained(tmp_path)
    theirs, info = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    with mytorch.no_grad():
        found, again = (m(mytorch.tensor(IDX)).numpy() for m in (model, GPT2.from_pretrained(tmp_path)))
    np.testing.assert_allclose(found, their_logits(theirs.eval(), IDX), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found, again, rtol=1e-5, atol=1e-5)


def test_the_folder_of_a_training_run(tmp_path):
    """train_gpt2.py writes mytorch's own layout, without Hugging Face's kind of model."""
    config = GPT2Config.of_size("nano", vocab_size=65, context_length=16, bias=False)
    model = GPT2(config).eval()
    config.save(tmp_path / "config.json")
    mytorch.save(model.state_dict(), tmp_path / "model.safetensors")
    again, idx = GPT2.from_pretrained(tmp_path / "model.safetensors"), mytorch.zeros((1, 3), dtype=int)
    assert again.config == config and (again(idx) == model(idx)).all()
    assert GPT2.from_pretrained(tmp_path, dtype="float16").lm_head.weight.dtype == np.float16
