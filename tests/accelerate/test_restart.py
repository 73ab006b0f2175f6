"""Several ranks around one checkpoint: restarts and waiting. tests/campaigns/kills.py kills single runs."""

import pytest

from mytorch.accelerate import world
from tests.accelerate import train_and_save as program
from tests.distributed.launched import launch, needs_mpi


@needs_mpi
def test_a_restart_goes_on_from_the_last_good_one(tmp_path):
    """Two ranks are killed in the middle of a save and restarted: the losses are those of a whole run."""
    arguments = (tmp_path / "killed", 8, "no", "False", tmp_path / "whole")
    code, out, err = launch(
        "-n", 2, "--max_restarts", 1, program.__file__, *arguments, limit=400, KILLED_IN_SAVE="5"
    )
    assert code == 0 and "mytorchrun: restart 1 of 1" in err, out + err
    lines = out.splitlines()
    found, expected = lines[:9], lines[9:]
    assert [line.split()[0] for line in found] == ["1", "2", "3", "4", "5", "5", "6", "7", "8"]
    assert [line.split()[0] for line in expected] == list("12345678")
    assert found[:5] + found[6:] == expected and found[4] == found[5]


def test_the_others_wait_for_the_main_process_longer_than_for_a_collective(monkeypatch):
    waited = []
    monkeypatch.setattr(world, "rank", lambda group=None: 1)
    monkeypatch.setattr(world, "world_size", lambda group=None: 2)
    monkeypatch.setattr(world, "broadcast_object", lambda obj, src=0: ("result of rank 0", None))
    monkeypatch.setattr(world.dist, "barrier", lambda timeout=None: waited.append(timeout))
    for limit, expected in ((3.0, 600.0), (1000.0, 1000.0)):
        monkeypatch.setattr(world, "seconds", lambda limit=limit: limit)
        assert world.on_main(lambda: pytest.fail("it runs on rank 0 only")) == "result of rank 0"
        assert waited.pop() == expected
