"""benchmarks/smoke.py: the first steps of a training, without data."""

import re

import pytest

from benchmarks import smoke


def run(monkeypatch, *options):
    monkeypatch.setattr("sys.argv", ["smoke.py", "--device", "cpu", *options])
    smoke.main()


def test_it_is_gpt2_with_124_million_parameters(monkeypatch):
    given = []
    monkeypatch.setattr(smoke, "make_accelerator", lambda args: given.append(args) or exit())
    with pytest.raises(SystemExit):
        run(monkeypatch)
    assert (given[0].model_size, given[0].context_length, given[0].batch_size) == ("base", 1024, 1)


def test_it_needs_no_data_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, "--model_size", "nano", "--context_length", "8", "--batch_size", "2")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "7,227,520 parameters, 16 tokens a step" and len(lines) == 4
    for i, line in enumerate(lines[1:], 1):
        speed = r"[\d.]+ s a step, [\d,]+ tokens/s, MFU [\d.]+%"
        pattern = rf"step {i}: loss 1\d\.\d{{4}}, {speed}, \d\.\d\d GB at the peak"
        assert re.fullmatch(pattern, line), line
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_had_costs_a_line(monkeypatch):
    monkeypatch.setattr("mytorch.nn.fused_ops.why_not", lambda kind: "there are none")
    with pytest.raises(SystemExit, match="^fused=True, but there are none$"):
        run(monkeypatch, "--fused")
