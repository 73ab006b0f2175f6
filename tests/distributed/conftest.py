"""What several of the tests here need."""

import pytest

import mytorch.distributed as dist
from mytorch.distributed import environment


@pytest.fixture
def alone(monkeypatch):
    """No launcher's variables; a group that the test makes is gone afterwards."""
    for name in ("WORLD_SIZE", "RANK", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", environment.TIMEOUT_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
