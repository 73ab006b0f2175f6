"""mytorchrun test without the package for bfloat16."""

import sys

from mytorch.backends import dtypes
from mytorch.cli import checks


def test_it_is_left_out_without_its_package(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.delitem(vars(dtypes), "bfloat16", raising=False)
    monkeypatch.setattr(checks, "CHECKS", {"one": lambda: "", checks.IN_BFLOAT16: checks.bfloat16})
    checks.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith(f"(no {checks.IN_BFLOAT16}: bfloat16 needs the package ml_dtypes")
    assert lines[3].endswith(" one") and lines[4:] == ["all 1 checks passed"]
