"""Ranks that end in a way that says little: what the root cause is then."""

from mytorch.distributed import root_cause
from tests.distributed.launched import launch, needs_mpi

LEFT = """prterun has exited due to process rank 1 with PID 15325 on node vm exiting
improperly. There are three reasons this could occur:
"""


def test_a_rank_that_leaves_with_code_0(tmp_path):
    cause = root_cause.find_root_cause(tmp_path, LEFT, 1)
    assert (cause.text, cause.code) == ("rank 1 ended with exit code 0, without an error report (os._exit?)", 1)


@needs_mpi
def test_a_rank_that_really_leaves(tmp_path):
    script = tmp_path / "leaves.py"
    script.write_text(
        "import os\n"
        "import mytorch\n"
        "import mytorch.distributed as dist\n"
        "dist.init_process_group()\n"
        "if dist.get_rank() == 1:\n"
        "    os._exit(0)\n"
        "dist.all_reduce(mytorch.ones(1))\n"
    )
    code, _, err = launch("-n", 2, script)
    assert code == 1 and "rank 1 ended with exit code 0, without an error report (os._exit?)" in err
    assert "prterun" not in err


def test_an_error_that_cannot_be_printed(tmp_path):
    script = tmp_path / "mute.py"
    script.write_text(
        "class Mute(Exception):\n"
        "    def __str__(self):\n"
        "        raise RuntimeError('this is not the cause')\n"
        "\n"
        "\n"
        "raise Mute\n"
    )
    code, _, err = launch(script)
    assert code == 1 and "\nMute: <exception str() failed>\n" in err
    assert f'File "{script}", line 6' in err and "this is not the cause" not in err
