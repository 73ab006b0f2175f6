"""Samples of a model's text."""

import mytorch
from mytorch.accelerate.run_folder import sample_text
from mytorch.models import GPT2, GPT2Config
from mytorch.tokenizers import CharTokenizer


def test_a_sample_draws_numbers_of_its_own(tmp_path):
    """It is reproducible, leaves the default generator and the model's mode, and has known tokens only."""
    CharTokenizer("\nab").save(tmp_path / "tokenizer.json")
    model = GPT2(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=5, context_length=4, dropout_p=0.5))
    mytorch.manual_seed(3)
    samples = [sample_text(model, tmp_path, 50, seed) for seed in (0, 0, 1)]
    drawn = mytorch.rand(3)
    mytorch.manual_seed(3)
    assert (drawn == mytorch.rand(3)).all() and model.training
    assert samples[0] == samples[1] != samples[2]
    assert set(samples[0]) == set("\nab") and 10 < len(samples[0]) < 50  # ids 3 and 4 are padding
    assert not sample_text(model.eval(), tmp_path, 0) and not model.training

    model.lm_head.weight.data[0] = float("nan")
    assert sample_text(model.train(), tmp_path, 5).startswith("(multinomial(): ") and model.training


def test_without_a_tokenizer_it_says_so_once(tmp_path, capsys):
    assert [sample_text(None, tmp_path, 5) for _ in range(2)] == ["", ""]
    assert capsys.readouterr().err.count("no samples of text: ") == 1
