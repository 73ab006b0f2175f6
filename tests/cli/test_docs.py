"""The commands that docs/distributed.md shows exist, with their options."""

import re
from pathlib import Path

import pytest

from mytorch.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")
SHOWN = sorted(
    {" ".join(found.split()) for found in re.findall(r"(?:^|`)mytorchrun ([a-z][^`#]+?)(?:`|$)", PAGE, re.M)}
)


def test_all_commands_are_shown():
    assert {command.split()[0] for command in SHOWN} == {"config", "env", "estimate-memory", "launch", "test"}


@pytest.mark.parametrize("command", SHOWN)
def test_the_options_exist(command, capsys):
    name, *arguments = command.split()
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    script = next((i for i, word in enumerate(arguments) if word.endswith(".py")), len(arguments))
    for option in [word for word in arguments[:script] if word.startswith("--")]:
        assert re.search(rf"{option}\b", text), f"{name} has no {option}"
