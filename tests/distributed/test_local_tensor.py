"""Ranks in lockstep: arrays that hold an array for each rank."""

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch import nn, optim
from mytorch.core.tensor import raw_of
from mytorch.distributed.local_tensor import LocalTensorMode, reconcile
from mytorch.models import GPT2, GPT2Config
from tests.every import every

SIZE = 4


def numbers(rank):
    return mytorch.arange(8.0).view(4, 2) * (rank + 1)


def results_of(tensor):
    return [x.tolist() for x in tensor._local_tensors.values()]


def reduce_scatter():
    x, out = yield numbers, lambda rank: mytorch.zeros(1, 2)
    dist.reduce_scatter_tensor(out, x)
    yield out


def all_gather():
    x, out = yield numbers, lambda rank: mytorch.zeros(16, 2)
    dist.all_gather_into_tensor(out, x)
    yield out


def all_to_all():
    x, out = yield numbers, lambda rank: mytorch.zeros(4, 2)
    dist.all_to_all_single(out, x)
    yield out


def all_reduce():
    (x,) = yield (numbers,)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    yield x


def broadcast():
    (x,) = yield (numbers,)
    dist.broadcast(x, 2)
    yield x


def in_the_columns():
    (x,) = yield (numbers,)
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    dist.all_reduce(x, group=mesh.get_group("dp"))
    yield x


def in_the_rows():
    (x,) = yield (numbers,)
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    y = (x * x).sum(0)
    dist.all_reduce(y, group=mesh.get_group("tp"))
    yield y


CASES = [reduce_scatter, all_gather, all_to_all, all_reduce, broadcast, in_the_columns, in_the_rows]


@pytest.mark.parametrize("case", CASES)
def test_each_rank_has_what_it_has_in_a_world(case):
    def rank():
        dist.init_process_group()
        run = case()
        return run.send([make(dist.get_rank()) for make in next(run)]).tolist()

    with LocalTensorMode(SIZE) as mode:
        run = case()
        found = results_of(run.send([mode.rank_map(make) for make in next(run)]))
    assert found == dist.worlds.run(SIZE, rank)


def test_ddp_trains_a_gpt_as_one_process():
    def train(scatter, wrap, losses_of=lambda loss: [loss]):
        mytorch.manual_seed(0)
        model = GPT2(GPT2Config.of_size("nano", vocab_size=65, context_length=16, bias=False))
        wrapped, optimizer, found = wrap(model), optim.AdamW(model.parameters(), lr=1e-3), []
        for step in range(2):
            tokens = np.random.default_rng(step).integers(0, 65, (SIZE, 17))
            x = scatter(tokens)
            loss = wrapped(x[:, :-1], x[:, 1:])[1]
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            found.append((np.mean([x.item() for x in losses_of(loss)]), norm.item()))
        return found

    with mytorch.use_fused(False):
        wanted = train(mytorch.from_numpy, lambda model: model)
    with LocalTensorMode(SIZE) as mode:
        found = train(
            lambda tokens: mode.rank_map(lambda rank: mytorch.from_numpy(tokens[rank : rank + 1])),
            nn.parallel.DistributedDataParallel, lambda loss: loss._local_tensors.values(),
        )
    np.testing.assert_allclose(found, wanted, rtol=2e-5)


def test_what_python_needs_is_the_same_on_all_ranks_or_an_error():
    with LocalTensorMode(2) as mode:
        same = mode.rank_map(lambda rank: mytorch.tensor(3.0))
        other = mode.rank_map(lambda rank: mytorch.tensor(float(rank)))
        assert same.item() == 3.0 and reconcile(same).tolist() == 3.0
        for ask in (other.item, lambda: bool(other > 0), other.numpy, lambda: reconcile(other)):
            with pytest.raises((RuntimeError, TypeError), match=r"worlds\.run\(\)"):
                ask()
        doubled = mode.tensor_map(other, lambda rank, x: x * 2 + rank)
        assert results_of(doubled) == [0.0, 3.0]
        with pytest.raises(RuntimeError, match=r"one shape.*\n?"):
            mode.rank_map(lambda rank: mytorch.zeros(rank + 1))
        with pytest.raises(RuntimeError, match=r"gather\(\) is not the same on all ranks.*worlds\.run"):
            dist.gather(other, [mytorch.zeros(()), mytorch.zeros(())])


def test_the_group_of_the_block():
    assert not dist.is_initialized()
    with LocalTensorMode(3):
        assert dist.get_world_size() == 3 and mytorch.ones(2)._local_tensors.keys() == {0, 1, 2}
    assert not dist.is_initialized()
    dist.init_process_group("fake", rank=1, world_size=4)
    with pytest.raises(ValueError, match="has 4 ranks"), LocalTensorMode(3):
        pass
    with LocalTensorMode(4) as mode:
        uneven = mode.rank_map(numbers)
        with pytest.raises(RuntimeError, match="don't have each of 4 ranks once"):
            dist.all_reduce(uneven, group=dist.new_group([0, 1, 3]))
    assert dist.is_initialized()
    dist.destroy_process_group()
    with pytest.raises(AttributeError, match="LocalTensorMode"):
        mytorch.ones(1)._local_tensors  # noqa: B018
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match="positive number of ranks"):
            LocalTensorMode(wrong)


def test_writes_to_a_ranks_tensor_are_seen():
    with LocalTensorMode(2) as mode:
        x = mode.rank_map(numbers)
        x._local_tensors[1].zero_()
        x += 1
        assert every((raw_of(x).parts[1] == 1).ravel()) and x._local_tensors[0][3, 1].item() == 8
