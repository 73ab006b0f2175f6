"""Worlds: ranks that are threads of one process, of which one runs at a time."""

import contextlib
import io
import itertools
import os
import random
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch import nn, optim
from mytorch.accelerate import Accelerator
from mytorch.distributed import worlds
from mytorch.models import GPT2, GPT2Config
from mytorch.stream import record
from mytorch.utils.data import DataLoader, Dataset
from tests.distributed import training
from tests.every import every

SIZE = 4


def begun():
    """This rank, in a world that has begun."""
    dist.init_process_group()
    return dist.get_rank()


def test_a_rank_runs_until_it_waits_and_always_in_the_same_order():
    def ranks():
        rank = begun()
        for step in range(2):
            for _ in range(3):
                seen.append((step, rank))
                time.sleep(0.001)  # another thread would run now
            work = dist.all_reduce(mytorch.ones(2), async_op=True)
            seen.append((step, rank))
            work.wait()

    runs = []
    for _ in range(2):
        seen = []
        worlds.run(3, ranks)
        runs.append(seen)
    turns = [turn for turn, _ in itertools.groupby(runs[0])]
    assert runs[0] == runs[1] == [turn for turn in turns for _ in range(4)]  # four in a row
    assert sorted(turns) == [(step, rank) for step in range(2) for rank in range(3)]


def test_what_each_rank_has_for_itself():
    def ranks():
        rank = begun()
        mytorch.manual_seed(rank)
        np.random.seed(rank)
        random.seed(rank)
        if rank == 1:
            mytorch.set_default_dtype(mytorch.float64)
            mytorch.use_fused(False)
        dist.barrier()
        return settings(), draws()

    def settings():
        names = "RANK", "WORLD_SIZE", "LOCAL_RANK"
        return mytorch.get_default_dtype(), mytorch.is_grad_enabled(), *map(os.environ.get, names)

    def draws():
        return mytorch.rand(1).item(), np.random.rand(), random.random()

    def seed(value):
        np.random.seed(value), mytorch.manual_seed(value), random.seed(value)

    before = settings()
    seed(9)
    found = worlds.run(3, ranks)
    drawn = draws()
    seed(9)
    assert drawn == draws() and before == settings() and not dist.is_initialized()
    for rank, (own, numbers) in enumerate(found):
        assert own == ("float64" if rank == 1 else "float32", True, str(rank), "3", str(rank))
        seed(rank)
        if rank != 1:  # which draws float64
            assert numbers == draws()


def test_blocks_that_set_something_of_the_process_hold_for_their_rank():
    def ranks():
        rank, text = begun(), io.StringIO()
        module = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        os.environ["OF_A_RANK"] = str(rank)
        mytorch.set_printoptions(precision=rank)
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(text):
            with nn.utils.parametrize.cached():
                warnings.simplefilter("always", UserWarning)
                before = module.weight
                dist.barrier()  # the last rank goes on first, and the others are in their blocks
                print("of rank", rank)
                warnings.warn(f"warning of rank {rank}", stacklevel=1)
                assert module.weight is before
            is_cached = module.weight is before
        return text.getvalue(), [*map(str, (w.message for w in caught))], is_cached, *mine()

    def mine():
        return os.environ.get("OF_A_RANK"), str(mytorch.tensor(1.23456))

    def process():
        shown = warnings.showwarning, warnings._showwarnmsg_impl
        return sys.stdout, warnings.filters[:], *shown, {**os.environ}

    before = process(), mine()
    found = worlds.run(3, ranks)
    assert (process(), mine()) == before
    for rank, results in enumerate(found):
        number = f"tensor({1.23456:.{rank}f})" if rank else "tensor(1.)"
        assert results == (f"of rank {rank}\n", [f"warning of rank {rank}"], False, str(rank), number)


class Draws(Dataset):
    """Samples that are random numbers."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return mytorch.rand(1).item(), np.random.rand(), random.random()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_draws_what_it_draws_alone(num_workers):
    def drawn(rank):
        mytorch.manual_seed(rank), np.random.seed(rank), random.seed(rank)
        batches = []
        for batch in DataLoader(Draws(), 2, shuffle=True, num_workers=num_workers):
            batches.append([x.tolist() for x in batch])
            if dist.is_initialized():
                dist.barrier()
        return batches, mytorch.rand(1).item(), np.random.rand(), random.random()

    assert worlds.run(2, lambda: drawn(begun())) == [drawn(rank) for rank in range(2)]


def test_a_rank_records_its_own_operations():
    def ranks():
        rank = begun()
        with record() as mine:
            x = mytorch.ones(2) * 2
            dist.barrier()
            for _ in range(rank):
                x = x + 1
            dist.barrier()
        return [instruction.name for instruction in mine]

    expected = [["mul", "barrier", *["add"] * rank, "barrier"] for rank in range(3)]
    assert worlds.run(3, ranks) == expected
    with record() as everything:
        worlds.run(3, ranks)
    assert [instruction.name for instruction in everything].count("add") == 3


def test_who_can_not_call_collectives():
    groups, errors = {}, []

    def ranks():
        rank = begun()
        groups[rank] = dist.group.WORLD
        if rank == 0:
            for call in ((dist.barrier,), (worlds.run, 1, begun)):
                thread = threading.Thread(target=lambda: errors.append(error_of(*call)))  # noqa: B023
                thread.start(), thread.join()
        dist.barrier()
        if rank == 1:
            errors.append(error_of(dist.barrier, groups[2]))

    worlds.run(3, ranks)
    errors.append(error_of(dist.barrier, groups[0]))
    threads = "a rank of a world calls collectives in its own thread, while the world runs"
    another = "worlds.run(): another thread runs a world, and a process has one at a time"
    assert errors == [threads, another, "rank 1 can't use a group that rank 2 has made for itself", threads]


def error_of(function, *args):
    with pytest.raises(dist.DistError) as caught:
        function(*args)
    return str(caught.value)


DEADLOCKS = {
    "both receive": (
        lambda rank: dist.recv(mytorch.zeros(1), src=1 - rank),
        r"rank 0: recv\(from 1\).*test_worlds.py:\d+: waiting\n  rank 1: recv\(from 0\)",
    ),
    "one has ended": (
        lambda rank: rank or dist.barrier(), r"rank 0: barrier.*: waiting\n  rank 1 has ended"
    ),
    "another group": (
        lambda rank: dist.barrier(dist.new_group([0, 1])) if rank == 0 else dist.new_group([0, 1]),
        r"rank 0: barrier.*group 1 at .*: waiting\n  rank 1 has ended",
    ),
}


@pytest.mark.parametrize("name", DEADLOCKS)
def test_ranks_that_wait_for_each_other_are_an_error(name):
    call, text = DEADLOCKS[name]
    with pytest.raises(dist.DistError, match=f"no rank can go on:\n  {text}"):
        worlds.run(2, lambda: call(begun()))


def test_different_collectives_are_an_error():
    def ranks():
        rank, x = begun(), mytorch.zeros(2)
        dist.all_reduce(x) if rank else dist.broadcast(x, 0)

    with pytest.raises(dist.DistMismatch, match=r"rank 0: broadcast.*\n.*ranks 1, 2: all_reduce"):
        worlds.run(3, ranks)


def test_the_first_error_of_a_rank_ends_all():
    ended = []

    def ranks():
        rank = begun()
        try:
            if rank == 1:
                raise KeyError("of rank 1")
            dist.barrier()
        except dist.DistError as error:
            ended.append((rank, str(error)))
            raise

    with pytest.raises(KeyError, match="of rank 1"):
        worlds.run(3, ranks)
    assert sorted(ended) == [(rank, "rank 1 has failed: KeyError('of rank 1')") for rank in (0, 2)]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rank ")]


def test_a_rank_may_exit_as_a_process():
    def ranks(code):
        rank = begun()
        dist.barrier()
        if rank == 1:
            sys.exit(code)
        return rank

    for code in (0, None):
        assert worlds.run(3, ranks, code) == [0, None, 2]
    for code in (2, "reason"):
        with pytest.raises(SystemExit) as caught:
            worlds.run(3, ranks, code)
        assert caught.value.code == code


def test_asking_whether_it_is_over_lets_others_run():
    def ranks():
        begun()
        x = mytorch.ones(1)
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            pass
        return x.item()

    assert worlds.run(3, ranks) == [3.0] * 3


def test_what_can_not_be_run():
    for size in (0, -1, 2.0, "2"):
        with pytest.raises(ValueError, match="positive number of ranks"):
            worlds.run(size, begun)
    with pytest.raises(dist.DistError, match="can't begin another"):
        worlds.run(1, lambda: worlds.run(1, begun))
    with pytest.raises(ValueError, match="rank=-1, world_size=5 on rank 0 of 2"):
        worlds.run(2, lambda: dist.init_process_group(world_size=5))


def test_of_what_kind_it_is():
    for backend in (None, "mpi", "nccl", "cpu:mpi,cuda:nccl"):
        ranks = lambda b=backend: dist.init_process_group(b) or dist.get_backend()  # noqa: E731
        assert worlds.run(2, ranks) == ["threads"] * 2
    fake = {"backend": "fake", "rank": 3, "world_size": 9}
    assert worlds.run(2, lambda: dist.init_process_group(**fake) or dist.get_rank()) == [3, 3]
    with pytest.raises(ValueError, match="unknown backend 'threads'"):
        dist.init_process_group("threads")


def test_messages_come_in_the_order_of_the_receives():
    def ranks():
        rank, x, y = begun(), mytorch.zeros(1), mytorch.zeros(1)
        if rank == 0:
            first, second = dist.irecv(x, 1), dist.irecv(y)  # the second one from any rank
            dist.send(x, 1)
            assert second.wait() and first.wait()
            return x.item(), y.item(), first.source_rank(), second.source_rank()
        dist.recv(x, 0)  # both wait by now
        dist.send(x + 1, 0), dist.send(x + 2, 0)

    assert worlds.run(2, ranks)[0] == (1.0, 2.0, 1, 1)


def stages(rank):
    """Two halves of a model on two ranks; the loss is the second one's."""
    mytorch.manual_seed(0)
    layers = [nn.Linear(4, 8), nn.Linear(8, 2)]
    x, losses = mytorch.arange(12.0).view(3, 4) / 12, []
    optimizer = optim.SGD(layers[rank].parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        if rank == 0:
            y = layers[0](x).tanh()
            dist.send(y.detach(), 1)
            grad = mytorch.zeros(3, 8)
            dist.recv(grad, 1)
            y.backward(grad)
        else:
            y = mytorch.zeros(3, 8)
            dist.recv(y, 0)
            loss = (layers[1](y.requires_grad_()) ** 2).mean()
            loss.backward()
            dist.send(y.grad, 0)
            losses.append(loss.item())
        optimizer.step()
    return losses


def test_a_pipeline_of_two_stages():
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer, losses = optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(mytorch.arange(12.0).view(3, 4) / 12) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(worlds.run(2, lambda: stages(begun()))[1], losses, rtol=1e-6)


def gpt(zero, wrap):
    """The losses and norms of three steps of a GPT, each rank with its part of the batch."""
    mytorch.manual_seed(0)
    model = GPT2(GPT2Config.of_size("nano", vocab_size=65, context_length=16, bias=False))
    make = optim.AdamW if not zero else lambda p, lr: dist.ZeroRedundancyOptimizer(p, optim.AdamW, lr=lr)
    wrapped, optimizer, results = wrap(model), make(model.parameters(), lr=1e-3), []
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    for step in range(3):
        tokens = mytorch.from_numpy(np.random.default_rng(step).integers(0, 65, (8, 17)))
        part = tokens[rank * 8 // size : (rank + 1) * 8 // size]
        loss = wrapped(part[:, :-1], part[:, 1:])[1]
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach().clone()
        if size > 1:
            dist.all_reduce(loss, dist.ReduceOp.AVG)
        results.append((loss.item(), norm.item()))
    return results


@pytest.mark.parametrize("zero", [False, True])
def test_a_gpt_trains_as_on_one(zero):
    def ranks():
        begun()
        mytorch.use_fused(False)
        return gpt(zero, nn.parallel.DistributedDataParallel)

    with mytorch.use_fused(False):
        wanted = gpt(False, lambda model: model)
    for found in worlds.run(SIZE, ranks):
        np.testing.assert_allclose(found, wanted, rtol=2e-5)


def test_a_model_that_is_wrapped_twice_has_the_mean_of_the_gradients():
    def ranks():
        rank, model, grads = begun(), training.network(), []
        for _ in range(3):
            wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-5)  # a bucket a parameter
            model.zero_grad()
            wrapped(mytorch.ones(2, 5) * (rank + 1)).sum().backward()
            grads.append([p.grad.tolist() for p in model.parameters()])
        return grads

    for first, *others in worlds.run(3, ranks):
        for grads in others:
            for found, wanted in zip(grads, first, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_same_script_runs_alone_and_with_an_accelerator():
    def script():
        accelerator = Accelerator(cpu=True)
        model = training.network()
        model, optimizer = accelerator.prepare(model, optim.SGD(model.parameters(), lr=0.1))
        x = mytorch.ones(2, 5) * (accelerator.process_index + 1)
        accelerator.backward(model(x).sum())
        optimizer.step()
        ranks = accelerator.gather(mytorch.tensor([float(accelerator.process_index)])).tolist()
        count = accelerator.num_processes
        accelerator.end_training()
        return ranks, count

    assert script() == ([0.0], 1)
    assert worlds.run(3, script) == [([0.0, 1.0, 2.0], 3)] * 3


def test_each_rank_has_a_gpu_of_its_own(fake_cuda):
    def ranks():
        rank = begun()
        x = mytorch.arange(2.0, device=f"cuda:{rank}") + 10 * rank
        total, mean, first, rows = x.clone(), x.clone(), x.clone(), mytorch.empty(4, device=x.device)
        dist.all_reduce(total)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        dist.broadcast(first, 0)
        dist.all_gather_into_tensor(rows, x)
        assert every(y.device == x.device for y in (total, mean, first, rows))
        return total.tolist(), mean.tolist(), first.tolist(), rows.tolist()

    expected = [10.0, 12.0], [5.0, 6.0], [0.0, 1.0], [0.0, 1.0, 10.0, 11.0]
    assert worlds.run(2, ranks) == [expected] * 2
