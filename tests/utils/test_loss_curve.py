"""The picture of a training run."""

import json
import sys

import pytest

from mytorch.utils.loss_curve import draw_loss_curve


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


def test_errors(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="metrics.jsonl contains no losses"):
        draw_loss_curve(write(tmp_path, [{"iteration": 1, "lr": 1.0}]), tmp_path / "x.png")
    path = tmp_path / "metrics.jsonl"
    for line in ("{", "[]", '{"iteration": 1, "iteration": 2, "loss": 1}', '{"iteration": "a", "loss": 1}',
                 '{"loss": 1}', '{"iteration": 2, "val_loss": [1]}', "[" * 100_000):  # fmt: skip
        path.write_text('{"iteration": 1, "loss": NaN}\n' + line + "\n")
        with pytest.raises(ValueError, match="metrics.jsonl.* is damaged: "):
            draw_loss_curve(path, tmp_path / "x.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        draw_loss_curve(tmp_path / "metrics.jsonl", tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
