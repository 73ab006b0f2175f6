"""Numbers that are none, on the command line."""

import pytest

from mytorch.cli import main

CALLS = [
    ["launch", "--num_processes", "two", "x.py"],
    ["launch", "--num_gpus", "1.5", "x.py"],
    ["launch", "--nnodes", "", "x.py"],
    ["estimate-memory", "--batch_size", "x"],
]


@pytest.mark.parametrize("arguments", CALLS, ids=lambda arguments: arguments[1])
def test_a_number_that_is_none_is_named(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert f"{arguments[1]}" in (err := capsys.readouterr().err)
    assert f"expected a positive number, got {arguments[2]}" in err
