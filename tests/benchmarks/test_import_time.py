"""The import benchmark runs and says what it measured; nothing here asserts a time."""

import re
import subprocess

import pytest

from benchmarks import import_time


def test_prints_both_times_and_their_difference(capsys):
    import_time.main(["--runs", "1"])
    said = capsys.readouterr().out
    sentence = r"import numpy (\d+) ms, import mytorch (\d+) ms: (-?\d+) ms beyond NumPy \(.* 1\)\n"
    found = re.fullmatch(sentence, said)
    assert found, said
    base, module, beyond = map(int, found.groups())
    assert abs(module - base - beyond) <= 1  # each is rounded by itself


def test_an_import_that_fails_is_an_error():
    with pytest.raises(subprocess.CalledProcessError):
        import_time.compare(1, base="sys", module="no_such_module")


def test_no_runs_is_an_error(capsys):
    with pytest.raises(SystemExit):
        import_time.main(["--runs", "0"])
    assert "--runs must be at least 1; got 0" in capsys.readouterr().err
