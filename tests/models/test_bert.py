"""BERT in Hugging Face's files: what its transformers library makes of them is the oracle, both ways."""

import json

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

import mytorch
from mytorch.models import Bert, BertConfig

SMALL = {
    "vocab_size": 97, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 3, "max_position_embeddings": 32,
}
rng = np.random.default_rng(0)
IDX, TYPES = rng.integers(3, 97, (3, 20)), rng.integers(0, 2, (3, 20))
MASK = np.arange(20) < np.array([[20], [7], [1]])
MASKS = {"none": None, "end": MASK, "beginning": MASK[:, ::-1].copy(), "int": MASK.astype("int64")}


def save(kind, folder, **options):
    """A model of transformers in a folder, far from its first values."""
    torch.manual_seed(0)
    model = getattr(transformers, kind)(transformers.BertConfig(**SMALL | options))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.1)
    model.eval().save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """(the model in mytorch, that in transformers, its folder)."""
    folder = tmp_path_factory.mktemp("bert")
    theirs = save("BertModel", folder)
    return Bert.from_pretrained(folder, pooler=True), theirs, folder


def tensors(library, *arrays):
    return [None if a is None else library.tensor(a) for a in arrays]


def close(ours, theirs):
    theirs = theirs.detach().numpy()
    atol = max(1e-4 * np.abs(theirs).max(), 1e-6)  # biases of keys have no gradient but rounding errors
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("types", [None, TYPES], ids=["one text", "two texts"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_features_and_gradients(models, mask, types):
    ours, theirs, _ = models
    ours.zero_grad()
    theirs.zero_grad()
    x, (idx, seen, kinds) = ours(*tensors(mytorch, IDX, mask, types)), tensors(torch, IDX, mask, types)
    want = theirs(idx, attention_mask=seen, token_type_ids=kinds)
    close(x, want.last_hidden_state)
    close(ours.pool(x), want.pooler_output)
    (ours.pool(x).square().sum() + x.sin().sum()).backward()
    (want.pooler_output.square().sum() + want.last_hidden_state.sin().sum()).backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        close(p.grad, gradients[name.removeprefix("bert.")])


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_embeddings_are_means_over_tokens(models, mask, normalize):
    ours, theirs, _ = models
    idx, seen = tensors(torch, IDX, mask)
    features = theirs(idx, attention_mask=seen).last_hidden_state
    weights = torch.ones(3, 20) if mask is None else torch.tensor(mask.astype("float32"))
    want = torch.einsum("btc,bt->bc", features, weights / weights.sum(1, keepdim=True))
    want = torch.nn.functional.normalize(want, dim=1) if normalize else want
    close(ours.embed(*tensors(mytorch, IDX, mask), normalize=normalize), want)
    if mask is MASK:  # without the padding
        close(ours.embed(mytorch.tensor(IDX[1:2, :7]), normalize=normalize), want[1:2])


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"])
def test_files_with_heads(kind, tmp_path):
    theirs = save(kind, tmp_path)
    close(Bert.from_pretrained(tmp_path)(mytorch.tensor(IDX)), theirs.bert(torch.tensor(IDX))[0])
    if kind == "BertForMaskedLM":
        with pytest.raises(ValueError, match=r"has no tensors bert\.pooler\.dense\.bias, bert\.pooler"):
            Bert.from_pretrained(tmp_path, pooler=True)
    else:
        assert Bert.from_pretrained(tmp_path, pooler=True).config.pooler


def test_old_names(models, tmp_path):
    """Files of TensorFlow's weights call the parameters of norms gamma and beta; some have a buffer, too."""
    ours, _, folder = models
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    for end, renamed in old.items():
        tensors = {name.replace(end, renamed): array for name, array in tensors.items()}
    assert sum("gamma" in name for name in tensors) == 5
    tensors["embeddings.position_ids"] = np.arange(32)[None]
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    again = Bert.from_pretrained(tmp_path, pooler=True)
    for (name, a), b in zip(ours.named_parameters(), again.parameters(), strict=True):
        assert (a == b).all(), name


def test_what_is_saved_here_loads_there(models, tmp_path):
    ours, theirs, _ = models
    ours.save_pretrained(tmp_path)
    again, info = transformers.BertModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    for name, p in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], p), name


@pytest.mark.parametrize(("size", "name", "parameters"), [
    ("mini-lm", "sentence-transformers/all-MiniLM-L6-v2", 22_713_216),
    ("base", "google-bert/bert-base-uncased", 109_482_240),
    ("large", "google-bert/bert-large-uncased", 335_141_888),
])
def test_published_sizes(size, name, parameters):
    config = BertConfig.of_size(size, pooler=True)
    with torch.device("meta"):
        theirs = transformers.BertModel(transformers.BertConfig(**config.to_hugging_face()))
    assert sum(p.numel() for p in theirs.parameters()) == parameters, name
    with mytorch.nn.init.skipped():
        ours = Bert(config)
    shapes = {f"bert.{name}": tuple(p.shape) for name, p in theirs.named_parameters()}
    assert {name: tuple(p.shape) for name, p in ours.named_parameters()} == shapes
    assert ours.num_parameters() == parameters


def test_dropout_is_for_training(models):
    idx = mytorch.tensor(IDX)
    model = Bert(BertConfig(**SMALL))
    assert not (model(idx) == model(idx)).all() and (model.eval()(idx) == model(idx)).all()


@pytest.mark.parametrize(("options", "message"), [
    ({"model_type": "roberta"}, "model_type is 'roberta', but BertConfig is for 'bert' only"),
    ({"hidden_act": "relu"}, "hidden_act is 'relu', but BertConfig is for 'gelu' only"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
    ({"is_decoder": True}, "is_decoder is True"),
    ({"vocab_size": 98}, r"word_embeddings.weight has shape \(97, 24\), the model's has \(98, 24\)"),
    ({"num_attention_heads": 5}, "no configuration of a Bert: .*num_attention_heads=5"),
    ({"num_hidden_layers": 1}, r"has unknown tensors bert\.encoder\.layer\.1\.attention"),
])
def test_files_of_something_else(options, message, models, tmp_path):
    content = json.loads((models[2] / "config.json").read_text())
    (tmp_path / "model.safetensors").symlink_to(models[2] / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(content | options))
    with pytest.raises(ValueError, match=message):
        Bert.from_pretrained(tmp_path)


def test_wrong_calls(models):
    model, idx = models[0], mytorch.tensor(IDX)
    with pytest.raises(ValueError, match="33 tokens exceed the context length of 32"):
        model(mytorch.zeros((1, 33), dtype=int))
    with pytest.raises(ValueError, match=r"the mask's shape \(2, 20\) isn't the tokens' \(3, 20\)"):
        model(idx, mytorch.ones(2, 20))
    with pytest.raises(ValueError, match=r"all padding: the rows have \[20.0, 0.0, 20.0\] tokens"):
        model.embed(idx, mytorch.tensor([[1], [0], [1]]).expand(3, 20))
    with pytest.raises(ValueError, match="no pooler; load or make it with pooler=True"):
        Bert(BertConfig(**SMALL)).pool(mytorch.ones(1, 2, 24))
    with pytest.raises(ValueError, match="model size 'huge' is unknown; the sizes are mini-lm, base, large"):
        BertConfig.of_size("huge")


def test_on_a_gpu_and_in_half_precision(models, fake_cuda):
    folder = models[2]
    idx, mask = tensors(mytorch, IDX, MASK)
    want = models[0].embed(idx, mask).detach().numpy()
    model = Bert.from_pretrained(folder, device="cuda:0")
    found = model.embed(idx.to("cuda:0"), mask.to("cuda:0"))
    assert found.device == model.device == "cuda:0"
    np.testing.assert_allclose(found.cpu().detach().numpy(), want, rtol=1e-4, atol=1e-5)
    half = Bert.from_pretrained(folder, dtype="float16").embed(idx, mask)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half.detach().numpy(), want, atol=0.02)
