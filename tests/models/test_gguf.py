"""GGUF files, written by the package gguf: what transformers makes of the same model is the oracle."""

import re

import gguf
import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import mytorch
from mytorch.models import Llama
from mytorch.models.gguf import NAMES, OUTER_NAMES

SMALL = {
    "vocab_size": 64, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_theta": 5e5,
}
IDX = np.random.default_rng(0).integers(0, 64, (2, 20))


def model_of(kind="Llama", **changes):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SMALL | changes)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.05)
    return model


def in_pairs(array, heads):
    """The order of rows in which a GGUF file has queries and keys."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def write(path, model, arch="llama", quants=(), more=lambda writer: None):
    """Writes a model as llama.cpp's converter does; tensors of `quants` {end of a name: type}."""
    writer, c = gguf.GGUFWriter(path, arch), model.config
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    names = {f"model.layers.{i}.{theirs}": f"blk.{i}.{ours}"
             for i in range(c.num_hidden_layers) for ours, theirs in NAMES.items()}
    names |= {theirs: ours for ours, theirs in OUTER_NAMES.items()}
    if c.rope_parameters["rope_type"] == "llama3":
        plain = c.rope_parameters["rope_theta"] ** (-np.arange(0, 64, 2) / 64)
        writer.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq.numpy()).astype("f4"))
    for name, p in model.state_dict().items():
        outer, _, end = name.rpartition(".")
        if outer == "lm_head" and c.tie_word_embeddings:
            continue
        array = p.numpy()
        heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}.get(outer[-6:])
        array = in_pairs(array, heads) if heads and arch == "llama" else array
        kind = next((t for e, t in dict(quants).items() if name.endswith(e)), gguf.GGMLQuantizationType.F32)
        data = array if kind.name == "F32" else gguf.quants.quantize(array, kind)
        writer.add_tensor(f"{names[outer]}.{end}", data, raw_dtype=kind)
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def same_logits(ours, theirs, tolerance=1e-4):
    with mytorch.no_grad(), torch.no_grad():
        want = theirs(torch.tensor(IDX)).logits.numpy()
        found = ours(mytorch.tensor(IDX)).numpy()
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize(("kind", "arch", "changes"), [
    ("Llama", "llama", {}), ("Llama", "llama", {"tie_word_embeddings": True}),
    ("Llama", "llama", {"rope_parameters": LLAMA3}), ("Qwen2", "qwen2", {}),
    ("Qwen3", "qwen3", {"head_dim": 64}),
], ids=["llama", "tied", "llama3", "qwen2", "qwen3"])
def test_logits(kind, arch, changes, tmp_path):
    theirs = model_of(kind, **changes)
    same_logits(Llama.from_pretrained(write(tmp_path / "a.gguf", theirs, arch)), theirs)


@pytest.mark.parametrize("name", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_quantised_weights(name, tmp_path):
    """transformers reads the same file, and undoes the order of rows, too; vectors stay float32."""
    kind = getattr(gguf.GGMLQuantizationType, name)
    path = write(tmp_path / "a.gguf", model_of(), quants={"proj.weight": kind, "embed_tokens.weight": kind})
    theirs = model_of()
    state = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=theirs)["tensors"]
    theirs.load_state_dict({name: t.float() for name, t in state.items()})
    same_logits(Llama.from_pretrained(path), theirs)


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K"])
def test_super_blocks(name, tmp_path):
    """The package can't quantise to these: random blocks, dequantised by it, are what the model must have."""
    kind = getattr(gguf.GGMLQuantizationType, name)
    theirs, rng = model_of(), np.random.default_rng(0)
    blocks = rng.integers(0, 256, (256, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
    where = slice(0, 4) if name == "Q4_K" else slice(208, 210)  # the float16 scales
    scales = rng.uniform(1e-4, 1e-3, (256, blocks[:, where].shape[1] // 2)).astype(np.float16)
    blocks[:, where] = scales.view(np.uint8)
    path, writer = tmp_path / "a.gguf", gguf.GGUFWriter
    add = writer.add_tensor

    def add_tensor(self, tensor, data, **options):
        raw = tensor == "blk.1.ffn_down.weight"
        add(self, tensor, blocks if raw else data, **{**options, **({"raw_dtype": kind} if raw else {})})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "add_tensor", add_tensor)
        write(path, theirs)
    found = Llama.from_pretrained(path).model.layers[1].mlp.down_proj.weight.detach().numpy()
    want = gguf.quants.dequantize(blocks, kind)
    np.testing.assert_array_equal(found, want)
    layer = Llama.from_pretrained(path, quantized=True).model.layers[1].mlp.down_proj
    step = np.abs(want).reshape(256, -1, 32).max(-1).repeat(32, -1) / 127
    limit = (0.5 + 127 / 2048) * step + 127 * 2**-25  # of codes, and of the float16 scale
    assert layer.format == "q8_0" and (np.abs(layer.dequantize().numpy() - want) <= 1.01 * limit).all()


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_1", "F16"])
@pytest.mark.parametrize("tied", [False, True])
def test_weights_stay_quantised(name, tied, tmp_path):
    kind = getattr(gguf.GGMLQuantizationType, name)
    quants = {"proj.weight": kind, "embed_tokens.weight": kind, "lm_head.weight": kind}
    path = write(tmp_path / "a.gguf", model_of(tie_word_embeddings=tied), quants=quants)
    dense, kept = Llama.from_pretrained(path), Llama.from_pretrained(path, quantized=True)
    layers = [m for m in kept.modules() if isinstance(m, mytorch.nn.QuantizedLinear)]
    assert len(layers) == (0 if name == "F16" else 2 * 4 + 1)  # projections of one input are joined
    assert {layer.format for layer in layers} <= {name.lower()}
    with mytorch.no_grad():
        want, found = (model(mytorch.tensor(IDX)).numpy() for model in (dense, kept))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    rows = [model.generate([[1, 2, 3]], 8, temperature=0) for model in (dense, kept)]
    assert rows[0] == rows[1]
    assert kept.flops_per_token(8) == dense.flops_per_token(8)
    assert kept.num_parameters() == dense.num_parameters()
    if name != "F16":
        with pytest.raises(ValueError, match="save the model before it is quantized: "):
            kept.save_pretrained(tmp_path / "saved")
        assert not (tmp_path / "saved").exists()


def test_damaged_files(tmp_path):
    path = write(tmp_path / "a.gguf", model_of())
    content = path.read_bytes()
    for size in (0, 3, 20, 300, 2000, len(content) // 2, len(content) - 40):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"a\.gguf"):
            Llama.from_pretrained(path)
    with pytest.raises(FileNotFoundError, match=r"none\.gguf"):
        Llama.from_pretrained(tmp_path / "none.gguf")


@pytest.mark.parametrize(("before", "after", "message"), [
    (b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama",
     b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0mamba", "architecture mamba is not supported"),
    (b"blk.1.ffn_down.weight", b"blk.1.ffn_dawn.weight", "has no tensors model.layers.1.mlp.down_proj"),
    (b"blk.0.attn_k.weight", b"blk.7.attn_k.weight", "has no tensors model.layers.0.self_attn.k_proj.weight"),
    (b"llama.block_count", b"llama.black_count", "llama.black_count is 2, which is not supported"),
])
def test_files_of_something_else(before, after, message, tmp_path):
    path = write(tmp_path / "a.gguf", model_of())
    content = path.read_bytes()
    assert content.count(before) == 1
    path.write_bytes(content.replace(before, after))
    with pytest.raises(ValueError, match=message):
        Llama.from_pretrained(path)


def options(arch, **values):
    """Returns what writes these keys of an architecture, with _ for the dot."""

    def more(writer):
        for name, value in values.items():
            key = f"{arch}.{name.replace('__', '.')}"
            kinds = {str: "string", bool: "bool", int: "uint32", list: "array", float: "float32"}
            getattr(writer, f"add_{kinds[type(value)]}")(key, value)

    return more


LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e4}
YARN_KEYS = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0,
             "rope__scaling__original_context_length": 16}


@pytest.mark.parametrize(("kind", "arch"), [("Llama", "llama"), ("Qwen2", "qwen2"), ("Qwen3", "qwen3")])
@pytest.mark.parametrize(("keys", "rope"), [
    ({"rope__scale_linear": 4.0}, LINEAR), ({"rope__scaling__factor": 4.0}, LINEAR),
    ({"rope__scaling__factor": 4.0, "rope__scale_linear": 2.0}, LINEAR),
    ({"rope__scaling__type": "linear", "rope__scale_linear": 4.0}, LINEAR),
    ({"rope__scaling__factor": 0.0}, None), ({"rope__scaling__type": "linear"}, None),
    ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, None), (YARN_KEYS, YARN),
    (YARN_KEYS | {"rope__scaling__attn_factor": 2.0},
     YARN | {"attention_factor": 2 * (1 + 0.1 * np.log(4.0))}),
    (YARN_KEYS | {"rope__scaling__original_context_length": 0},
     YARN | {"original_max_position_embeddings": 64}),
    (YARN_KEYS | {"rope__scaling__yarn_beta_fast": 8.0, "rope__scaling__yarn_beta_slow": 0.5},
     YARN | {"beta_fast": 8.0, "beta_slow": 0.5}),
    ({"rope__dimension_count": 64, "attention__value_length": 64, "rope__scaling__finetuned": True,
      "expert_count": 0, "logit_scale": 0.0, "attention__sliding_window": 0, "vocab_size": 64}, None),
    ({"attention__sliding_window": 64}, None),
])
def test_rotary_scalings_are_those_of_llama_cpp(kind, arch, keys, rope, tmp_path):
    theirs = model_of(kind, head_dim=64, rope_parameters=rope or {"rope_type": "default", "rope_theta": 1e4})
    path = write(tmp_path / "a.gguf", theirs, arch, more=options(arch, **keys))
    same_logits(Llama.from_pretrained(path), theirs)


@pytest.mark.parametrize(("keys", "message"), [
    ({"rope__dimension_count": 32}, "rope.dimension_count is 32, a head has 64"),
    ({"attention__value_length": 32}, "attention.value_length is 32, a head has 64"),
    ({"rope__scaling__attn_factor": 2.0}, "rope.scaling.attn_factor 2.0 is supported with yarn only"),
    ({"rope__scaling__type": "longrope"}, "rope.scaling.type longrope is not supported"),
    ({"rope__scaling__factor": "4"}, "rope.scaling.factor is '4'"),
    ({"rope__scaling__factor": -4.0}, "rope.scaling.factor is -4.0"),
    ({"rope__scaling__factor": float("nan")}, "rope.scaling.factor is nan"),
    (YARN_KEYS | {"rope__scaling__factor": 0.5}, "rope.scaling.factor 0.5 is not supported with yarn"),
    *(({key: value}, f"{key.replace('__', '.')} is {value}, which is not supported") for key, value in {
        "rope__scaling__yarn_log_multiplier": 0.5, "rope__scaling__alpha": 2.0, "attention__scale": 0.5,
        "rope__dimension_sections": [1, 2], "rope__freq_base_swa": 100.0, "attention__clamp_kqv": 8.0,
        "attention__sliding_window": 2,
        "attention__sliding_window_pattern": 2, "attention__causal": False, "logit_scale": 0.5,
        "residual_scale": 0.5, "embedding_scale": 12.0, "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0,
        "expert_count": 8, "expert_used_count": 2, "use_parallel_residual": True, "something_new": 1,
    }.items()),
    ({"attention__head_count_kv": [2, 1]}, "num_key_value_heads must be"),
    ({"rope__freq_base": -1.0}, "rope_theta must be a positive number, got -1.0"),
])
@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_keys_that_would_change_the_numbers_are_refused(arch, keys, message, tmp_path):
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, arch)
    given = {
        "context_length": 64, "embedding_length": 256, "block_count": 1, "feed_forward_length": 256,
        "attention__head_count": 4, "attention__layer_norm_rms_epsilon": 1e-5,
    }
    options(arch, **given | keys)(writer)
    writer.add_tensor("token_embd.weight", np.zeros((8, 256), "f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match=f"a.gguf.*{re.escape(message)}"):
        Llama.from_pretrained(path)


def test_the_keys_of_a_model_are_required(tmp_path):
    """llama.cpp has no defaults for them, and those of transformers are of another model."""
    path = write(tmp_path / "a.gguf", model_of())
    content = path.read_bytes()
    for key in ("embedding_length", "block_count", "attention.head_count", "context_length"):
        before = (len(key) + 6).to_bytes(8, "little") + b"llama." + key.encode()
        path.write_bytes(content.replace(before, before.replace(b"llama.", b"lorem.")))
        with pytest.raises(ValueError, match=f"a.gguf has no llama.{key}"):
            Llama.from_pretrained(path)


def test_llama3_s_divisors_exclude_another_scaling(tmp_path):
    theirs = model_of(rope_parameters=LLAMA3)
    more = options("llama", rope__scaling__factor=2.0)
    with pytest.raises(ValueError, match=r"rope_freqs.weight with llama.rope.scaling.\* is not supported"):
        Llama.from_pretrained(write(tmp_path / "a.gguf", theirs, more=more))
