"""DistributedSampler: shares without overlap, as PyTorch's."""

import pytest
import torch.utils.data

from mytorch.utils import data

CASES = [(size, world) for size in (1, 2, 3, 7, 8, 10, 23) for world in (1, 2, 3, 4, 8)]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("size", "world"), CASES)
def test_shares_against_pytorch(size, world, drop_last):
    options = {"shuffle": False, "drop_last": drop_last}
    for rank in range(world):
        ours = data.DistributedSampler(range(size), world, rank, **options)
        theirs = torch.utils.data.DistributedSampler(range(size), world, rank, **options)
        assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)
        assert (ours.num_samples, ours.total_size) == (theirs.num_samples, theirs.total_size)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("size", "world"), CASES)
def test_all_shares_together_are_one_shuffled_order(size, world, drop_last):
    samplers = [
        data.DistributedSampler(range(size), world, r, seed=3, drop_last=drop_last) for r in range(world)
    ]
    for epoch in (0, 1):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        order = [i for step in zip(*samplers, strict=True) for i in step]
        unique = min(size, len(order))
        assert len(set(order[:unique])) == unique  # nothing comes twice before everything came once
        assert order[size:] == (order[:size] * world)[: max(len(order) - size, 0)]
        assert {type(i) for i in order} <= {int}


def test_the_order_is_a_function_of_seed_and_epoch():
    def order(seed, epoch):
        sampler = data.DistributedSampler(range(50), 2, 0, seed=seed)
        sampler.set_epoch(epoch)
        assert list(sampler) == list(sampler)
        return tuple(sampler)

    assert len({order(seed, epoch) for seed in range(3) for epoch in range(3)}) == 9


def test_ranks_come_from_the_environment(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(
        RuntimeError, match="num_replicas is neither given nor in the environment as WORLD_SIZE"
    ):
        data.DistributedSampler(range(4))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="rank is neither given nor in the environment as RANK"):
        data.DistributedSampler(range(4))
    monkeypatch.setenv("RANK", "1")
    assert list(data.DistributedSampler(range(4), shuffle=False)) == [1, 3]


@pytest.mark.parametrize("rank", [-1, 2])
def test_wrong_rank(rank):
    with pytest.raises(ValueError, match=f"Invalid rank {rank}, rank should be in the interval .0, 1."):
        torch.utils.data.DistributedSampler(range(4), 2, rank)
    with pytest.raises(ValueError, match=f"Invalid rank {rank}, rank should be in the interval .0, 1."):
        data.DistributedSampler(range(4), 2, rank)


def test_with_a_loader():
    seen = []
    for rank in range(2):
        sampler = data.DistributedSampler(range(10), 2, rank)
        loader = data.DataLoader(range(10), 2, sampler=sampler, num_workers=1)
        loader.set_epoch(3)
        assert sampler.epoch == 3
        seen += [i for batch in loader for i in batch.tolist()]
    assert sorted(seen) == list(range(10))
