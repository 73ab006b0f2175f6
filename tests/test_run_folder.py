"""The folder of a training run: samples of a model's text, and the picture of the losses."""

import json
import math
import sys

import pytest
from matplotlib.figure import Figure

import mytorch
from mytorch.models import GPT2, GPT2Config
from mytorch.tokenizers import CharTokenizer
from run_folder import draw_loss_curve, sample_text, save_loss_curve


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


def write(folder, lines):
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_picture_is_a_png_of_the_losses(tmp_path):
    train = [{"iteration": i, "loss": 4 - i / 10, "lr": 1e-3} for i in range(1, 21)]
    val = [{"iteration": 10, "val_loss": 3.1}, {"iteration": 20, "val_loss": 2.2}]
    pictures = []
    for name, lines in (
        ("both", train + val),
        ("train", train),
        ("later", [*train, *val, {**val[1], "val_loss": 2.0}]),
    ):
        draw_loss_curve(write(tmp_path, lines), tmp_path / f"{name}.png", "a run")
        pictures.append((tmp_path / f"{name}.png").read_bytes())
        assert pictures[-1].startswith(b"\x89PNG\r\n") and len(pictures[-1]) > 5000
    assert len(set(pictures)) == 3  # a later value for the same iteration counts, too
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".jsonl"}


def test_the_norm_of_the_gradients_is_below(tmp_path, monkeypatch):
    """In a figure of its own axes, where it was logged; inf, of a step that fp16 skipped, is left out."""
    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k)))
    lines = [{"iteration": i, "loss": 2.0, "grad_norm": x} for i, x in ((1, 3.0), (2, math.inf), (3, 1.0))]
    for shown in (lines, [{"iteration": 1, "loss": 2.0}]):
        draw_loss_curve(write(tmp_path, shown), tmp_path / "x.png")
    losses, norms = drawn[0].axes
    (line,) = norms.lines
    assert line.get_xydata().tolist() == [[1, 3.0], [2, math.inf], [3, 1.0]]
    assert norms.get_ylim()[0] == 0 and 3 < norms.get_ylim()[1] < 4 and not losses.get_xlabel()
    assert len(drawn[1].axes) == 1 and drawn[1].axes[0].get_xlabel() == norms.get_xlabel() == "iteration"


def test_losses_that_are_not_finite(tmp_path, monkeypatch):
    """As the jsonl tracker writes them, and as it wrote them before."""
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: drawn.append(self))
    path = tmp_path / "metrics.jsonl"
    for loss in ("NaN", 'null, "loss_nonfinite": "NaN"'):
        path.write_text(f'{{"iteration": 1, "loss": 2.0}}\n{{"iteration": 2, "loss": {loss}}}\n')
        draw_loss_curve(path, tmp_path / "x.png")
    before, now = (str(figure.axes[0].lines[0].get_ydata()) for figure in drawn)
    assert before == now == "[ 2. nan]"


def test_errors(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="metrics.jsonl contains no losses"):
        draw_loss_curve(write(tmp_path, [{"iteration": 1, "lr": 1.0}]), tmp_path / "x.png")
    path = tmp_path / "metrics.jsonl"
    for line in ("{", "[]", '{"iteration": 1, "iteration": 2, "loss": 1}', '{"iteration": "a", "loss": 1}',
                 '{"loss": 1}', '{"iteration": 2, "val_loss": [1]}', '{"iteration": 2, "loss": 1e308}',
                 "[" * 100_000):
        path.write_text('{"iteration": 1, "loss": NaN}\n' + line + "\n")
        with pytest.raises(ValueError, match="metrics.jsonl.* is damaged: "):
            draw_loss_curve(path, tmp_path / "x.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        draw_loss_curve(tmp_path / "metrics.jsonl", tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


def test_a_run_without_matplotlib_says_so(tmp_path, monkeypatch, capsys):
    write(tmp_path, [{"iteration": 1, "loss": 2.0}])
    save_loss_curve(tmp_path)
    picture = tmp_path / "loss.png"
    assert picture.exists() and capsys.readouterr().out == f"loss curve: {picture}\n"
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    save_loss_curve(tmp_path)
    assert "pip install matplotlib" in capsys.readouterr().out
