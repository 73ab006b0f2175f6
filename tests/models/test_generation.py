"""The loop of generation: sampling as in transformers, ends of texts, batches, errors."""

import itertools

import numpy as np
import pytest
import torch
from transformers.generation import logits_process

import mytorch
from mytorch.models import GPT2, GPT2Config, Llama, LlamaConfig, Sampler
from mytorch.models.beam import Search
from mytorch.models.generation import common_end, stream_text


class Letters:
    """A tokenizer of bytes: the text's UTF-8."""

    def decode(self, ids):
        return self.decode_bytes(ids).decode(errors="replace")

    def decode_bytes(self, ids):
        return bytes(ids)


def tiny(kind=Llama, **changes):
    mytorch.manual_seed(0)
    sizes = {"vocab_size": 256, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.5}
    if kind is GPT2:
        sizes, heads = {"vocab_size": 256, "context_length": 64}, {"n_layer": 2, "n_head": 2, "n_embd": 16}
    return kind(kind.config_class(**sizes | heads | changes)).eval()


@pytest.mark.parametrize("options", [
    {"top_k": 5}, {"top_p": 0.6}, {"top_p": 1e-9}, {"min_p": 0.3}, {"temperature": 0.5},
    {"temperature": 2.0, "top_k": 20, "top_p": 0.8, "min_p": 0.1},
], ids=str)
def test_probabilities_are_those_of_transformers(options):
    logits = np.random.default_rng(0).normal(0, 2, (4, 50)).astype(np.float32)
    want = torch.tensor(logits)
    warpers = {"temperature": "Temperature", "top_k": "TopK", "top_p": "TopP", "min_p": "MinP"}
    for name, warper in warpers.items():
        if name in options:
            want = getattr(logits_process, f"{warper}LogitsWarper")(options[name])(None, want)
    found = Sampler(**options).probabilities(mytorch.tensor(logits)).numpy()
    np.testing.assert_allclose(found, want.softmax(-1).numpy(), rtol=1e-5, atol=1e-9)


def test_the_repetition_penalty_is_that_of_transformers():
    rng = np.random.default_rng(1)
    logits, previous = rng.normal(0, 2, (3, 20)).astype(np.float32), rng.integers(0, 20, (3, 6))
    want = logits_process.RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor(previous), torch.tensor(logits))
    sampler = Sampler(repetition_penalty=1.7)
    padded = mytorch.tensor(np.concatenate([np.full((3, 2), -1), previous], 1))
    found = sampler._penalized(mytorch.tensor(logits), padded)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-6)
    assert (Sampler(0, repetition_penalty=1e9)(mytorch.tensor(logits).abs(), padded) != padded).all()


def test_drawn_tokens_are_among_the_kept_and_follow_the_seed():
    model, prompt = tiny(), mytorch.tensor([[5, 6]] * 50)
    first = model.generate(prompt, 1, top_k=3, seed=7)
    with mytorch.no_grad():
        best = model(prompt[:1])[0, -1].topk(3).indices.tolist()
    assert set(first[:, 2].tolist()) == set(best)
    assert (model.generate(prompt, 1, top_k=3, seed=7) == first).all()
    assert not (model.generate(prompt, 1, top_k=3, seed=8) == first).all()


@pytest.mark.parametrize("kind", [GPT2, Llama])
@pytest.mark.parametrize("options", [{"temperature": 0}, {"top_p": 0.9, "seed": 3}], ids=str)
def test_a_full_context_goes_on_with_its_last_tokens(kind, options):
    model = tiny(kind)
    rows = [model.generate([[1, 2], [3, 4, 5, 6]], 80, use_cache=use, **options) for use in (True, False)]
    assert rows[0] == rows[1] and [len(row) for row in rows[0]] == [82, 84]


def test_a_window_rolls_in_its_memory():
    model = tiny(sliding_window=8)
    cache = model.new_cache(1)
    memory = [t.numpy().ctypes.data for layer in cache.layers for t in layer]
    idx = mytorch.randint(0, 256, (1, 60))
    with mytorch.no_grad():
        whole = model(idx)
        ends = itertools.pairwise([0, 3, 5, 17, 18, 19, 30, 60])
        parts = [model(idx[:, a:b], cache=cache) for a, b in ends]
    assert cache.layers[0][0].shape[2] == 8 and cache.length == 60
    assert [t.numpy().ctypes.data for layer in cache.layers for t in layer] == memory
    np.testing.assert_allclose(mytorch.cat(parts, 1).numpy(), whole.numpy(), rtol=1e-3, atol=1e-4)


def test_stop_tokens_end_rows_one_by_one():
    model, prompts = tiny(), [[1], [2, 3], [4]]
    free = model.generate(prompts, 20, temperature=0)
    stop = free[1][6]  # of the second row
    rows = model.generate(prompts, 20, temperature=0, stop_tokens=[stop])
    for row, whole, prompt in zip(rows, free, prompts, strict=True):
        new = whole[len(prompt) :]
        end = new.index(stop) + 1 if stop in new else 20
        assert row == whole[: len(prompt) + end]
    assert len(rows[1]) <= 7
    tensor = model.generate(mytorch.tensor([[2, 3]]), 20, temperature=0, stop_tokens=[stop])
    assert tensor[0].tolist() == rows[1]
    yielded = list(model.stream(prompts, 20, temperature=0, stop_tokens=[stop]))
    assert yielded[-1][1].item() == stop
    assert len(yielded) == max(len(r) - len(p) for r, p in zip(rows, prompts, strict=True))


def test_a_first_token_that_stops_is_the_only_one():
    model, prompts = tiny(), [[1], [2, 3]]
    first = model.generate(prompts, 1, temperature=0)
    for row, prompt in zip(first, prompts, strict=True):
        found = model.generate(prompts, 5, temperature=0, stop_tokens=[row[-1]])
        assert found[prompts.index(prompt)] == row
        assert model.generate([prompt], 5, temperature=0, stop_tokens=[row[-1]]) == [row]


def log_probabilities(model, prompt, size, length):
    """Those of all texts of 1 to `length` tokens of `size` after a prompt."""
    texts = list(itertools.product(range(size), repeat=length))
    logits = model(mytorch.tensor([[*prompt, *text] for text in texts]))[:, len(prompt) - 1 : -1]
    each = logits.log_softmax(-1).gather(2, mytorch.tensor(texts)[:, :, None])[:, :, 0]
    sums = each.cumsum(1).tolist()
    return {text[:n]: row[n - 1] for text, row in zip(texts, sums, strict=True) for n in range(1, length + 1)}


@pytest.mark.parametrize("prompts", [[[1, 2]], [[1], [2, 3, 4]]])
def test_as_many_beams_as_texts_find_the_best_of_all(prompts):
    """Also behind padding, and with a stop token."""
    model = tiny(vocab_size=5)
    with mytorch.no_grad():
        rows = model.generate(prompts, 3, num_beams=25, length_penalty=0.0)
        stopped = model.generate(prompts, 3, num_beams=25, length_penalty=1.0, stop_tokens=[3])
        for prompt, row, ended in zip(prompts, rows, stopped, strict=True):
            found = log_probabilities(model, prompt, 5, 3)
            assert row == [*prompt, *max((t for t in found if len(t) == 3), key=found.get)]
            ends = [t for t in found if 3 not in t[:-1] and (len(t) == 3 or t[-1] == 3)]
            assert ended == [*prompt, *max(ends, key=lambda t: found[t] / len(t))]


def test_a_search_ends_when_no_beam_can_become_better():
    for last, is_over in ((-1.0, True), (-0.5, False)):
        search = Search(num_beams=1, length_penalty=0.0, stop_tokens={0})
        search.ended.append((-1.0, [0]))
        assert search.step(mytorch.tensor([[-9.0, last, -3.0]])) == [(0, 1)]
        assert search.is_over == is_over and search.best() == ([0] if is_over else [1])
        assert search.step(mytorch.tensor([[-9.0, -1.0, -3.0]])) == [(0, 0 if is_over else 1)]


def test_a_text_that_ends_is_set_aside_if_it_is_among_the_best():
    """As many as there are beams, as in transformers; the beams are of those that go on."""
    for stop, ended in ((-1.0, [(-1.0, [0])]), (-2.5, [])):
        search = Search(num_beams=1, length_penalty=0.0, stop_tokens={0})
        assert search.step(mytorch.tensor([[stop, -2.0, -3.0]])) == [(0, 1)]
        assert search.ended == ended and search.beams == [(-2.0, [1])] and search.is_over == bool(ended)


def test_positions_of_rows_with_padding():
    """Each row counts from its first token; what padding has is of no use."""
    cache = tiny().new_cache(3, 8, [2, 0, 1])
    assert cache.positions(4).tolist() == [[0, 0, 0, 1], [0, 1, 2, 3], [0, 0, 1, 2]]
    cache.length = 4
    assert cache.positions(2).tolist() == [[2, 3], [4, 5], [3, 4]]
    cache.reorder(mytorch.tensor([2, 2, 0]))
    assert cache.positions(1).tolist() == [[3], [3], [2]]
    with pytest.raises(ValueError, match="9 tokens exceed the 8 of the cache"):
        cache.positions(5)
    plain = tiny().new_cache(3, 8)
    plain.reorder(mytorch.tensor([2, 2, 0]))
    assert plain.positions(4) == slice(0, 4)


def test_new_weights_are_smaller_where_layers_add_up():
    for layers in (2, 8):
        model = tiny(vocab_size=64, num_hidden_layers=layers, hidden_size=64, initializer_range=0.1)
        stds = {"q_proj": [], "o_proj": [], "up_proj": [], "down_proj": [], "embed_tokens": [], "lm_head": []}
        for name, p in model.named_parameters():
            if (kind := name.split(".")[-2]) in stds:
                stds[kind].append(p.detach().square().mean().item())
        residual = 0.1 / (2 * layers) ** 0.5
        expected = {kind: residual if kind in ("o_proj", "down_proj") else 0.1 for kind in stds}
        found = {kind: np.mean(values) ** 0.5 for kind, values in stds.items()}
        assert found == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("name", ["head_dim", "sliding_window", "vocab_size", "num_key_value_heads"])
def test_a_configuration_has_positive_sizes(name):
    for wrong, message in ((-1, f"{name} must be at least 1"), (2.5, f"{name} must be an int, got 2.5")):
        with pytest.raises(ValueError, match=message):
            LlamaConfig(**{"num_attention_heads": 1, name: wrong})


def test_stop_strings_end_a_row():
    model, tokenizer = tiny(vocab_size=128), Letters()  # ASCII alone
    whole = model.generate([[1, 2]], 20, temperature=0)[0]
    text = tokenizer.decode(whole[6:8])
    row = model.generate([[1, 2]], 20, temperature=0, stop_strings=[text], tokenizer=tokenizer)[0]
    assert row == whole[: len(row)] and tokenizer.decode(row[2:]).endswith(text) and len(row) <= 8
    with pytest.raises(ValueError, match="need the tokenizer"):
        next(model.stream([[1, 2]], 20, stop_strings=[text]))


class Scripted:
    """A model that continues any prompt with given bytes."""

    def __init__(self, content):
        self.content = content

    def stream(self, prompts, max_new_tokens, **options):
        for byte in self.content[:max_new_tokens]:
            yield mytorch.tensor([[byte]])


@pytest.mark.parametrize(("content", "stop", "want"), [
    ("häß 🙂!", [], "häß 🙂!"), ("one two three", ["two"], "one "), ("a\nUs b", ["\nUser:"], "a\nUs b"),
    ("a\nUser: b", ["\nUser:", "b"], "a"), ("ends with th", ["this"], "ends with th"), ("", ["x"], ""),
    ("ababac", ["abac"], "ab"), ("before\0after", [], "before"),
])
def test_text_comes_in_whole_characters_up_to_its_end(content, stop, want):
    pieces = list(stream_text(Scripted(content.encode()), Letters(), [1], 99, stop, stop_tokens=[0]))
    assert "".join(pieces) == want
    for string in stop:  # nothing that could have become the end was shown too early
        for piece in itertools.accumulate(pieces):
            assert string not in piece and want.startswith(piece)


def test_broken_characters_are_replaced():
    assert "".join(stream_text(Scripted(b"a\xf0\x9f"), Letters(), [1], 99)) == "a\ufffd"
    assert [common_end("abcab", s) for s in ("abx", "x", "cab", "abcab")] == [2, 0, 3, 5]


@pytest.mark.parametrize(("prompts", "options", "message"), [
    ([[1] * 65], {}, "prompt of 65 tokens exceeds the context length of 64"),
    ([], {}, "at least one token"), ([[]], {}, "at least one token"), ([[1], []], {}, r"\[1, 0\]"),
    ([[1]], {"temperature": -1}, "temperature must be at least 0, got -1"),
    ([[1]], {"top_k": 0}, "top_k must be at least 1, got 0"),
    ([[1]], {"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
    ([[1]], {"min_p": 1.5}, r"min_p must be in \[0, 1\], got 1.5"),
    ([[1]], {"repetition_penalty": 0}, "repetition_penalty must be positive, got 0"),
    ([[1]], {"seed": 1, "generator": mytorch.Generator()}, "either a generator or a seed"),
    ([[1]], {"num_beams": 2}, "1 \\+ 70 tokens exceed the context length of 64"),
])
def test_errors(prompts, options, message):
    with pytest.raises(ValueError, match=message):
        tiny().generate(prompts, 70, **options)


def test_counts():
    gpt, llama = tiny(GPT2), tiny()
    assert gpt.flops_per_token(10) == 6 * (2 * 12 * 16 * 16 + 256 * 16) + 12 * 2 * 16 * 10
    block = 4 * 16 * 16 + 3 * 16 * 24
    assert llama.flops_per_token() == 6 * (2 * block + 256 * 16) + 12 * 2 * 16 * 64
    assert llama.num_parameters() == 2 * (block + 2 * 16) + 2 * 256 * 16 + 16
    assert GPT2Config.of_size("gpt2-xl") == GPT2Config.of_size("xl")
    assert GPT2Config.of_size("gpt2") == GPT2Config()


def test_configurations_are_json(tmp_path):
    for config in (LlamaConfig.of_size("1b"), GPT2Config.of_size("gpt2", activation="gelu_new")):
        config.save(tmp_path / "config.json")
        assert type(config).load(tmp_path / "config.json") == config
    with pytest.raises(ValueError, match="is no configuration of a GPT-2: .*hidden_size"):
        LlamaConfig.of_size("15m").save(tmp_path / "config.json")
        GPT2Config.load(tmp_path / "config.json")
