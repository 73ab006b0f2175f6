"""ZeroRedundancyOptimizer: several ranks do what one optimizer does, each with a part of its state."""

import numpy as np
import pytest

import mytorch.distributed as dist
from mytorch import optim
from mytorch.distributed.ddp import DistributedDataParallel
from tests.distributed import zero_program as program
from tests.distributed.on_ranks import results_in_threads
from tests.distributed.training import adamw, network, same, train, weights_of

WORLDS = [1, 3]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("zero"))


@pytest.fixture(scope="module", params=WORLDS)
def results(request):
    """What the cases returned on that many ranks."""
    return results_in_threads(program, request.param)


@pytest.mark.parametrize("how", program.CLIPS)
@pytest.mark.parametrize("name", program.OPTIMIZERS)
def test_it_trains_as_the_optimizer_itself(results, name, how):
    expected = program.trajectory(name, how)
    assert expected["losses"][-1] < 0.8 * expected["losses"][0]
    same(results[f"{name}, {how}"], expected, rtol=1e-4, atol=1e-5)


def oracle():
    model = network()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1]},
        {"params": [p for p in model.parameters() if p.ndim == 1], "lr": 0.02, "weight_decay": 0.0},
    ]
    optimizer = optim.AdamW(groups, lr=0.01)
    schedule, losses = optim.lr_scheduler.StepLR(optimizer, 3, 0.5), []
    for step in range(10):
        losses.append(program.train_step(model, optimizer, step))
        schedule.step()
    return model, optimizer, losses


def test_groups_a_schedule_and_the_whole_state(results):
    model, optimizer, losses = oracle()
    found = results["grouped"]
    same(found, {"losses": losses, **weights_of(model)}, rtol=1e-4, atol=1e-5)
    entries = optimizer.state_dict()["state"]
    expected = {f"state.{i}.{k}": v.numpy() for i, entry in entries.items() for k, v in entry.items()}
    same(found[:1], expected, rtol=1e-3, atol=1e-5)


def test_it_goes_on_from_a_state_of_another_number_of_ranks(results):
    model = network()
    optimizer = adamw(model.parameters())
    train(model, optimizer, 10)
    same(results["resumed"], weights_of(model), rtol=1e-4, atol=1e-5)


def padded(size):
    return -(-int(np.prod(size)) * 4 // 64) * 64


@pytest.mark.parametrize("sizes", [program.EQUAL, program.UNEQUAL, program.FEW], ids=len)
def test_the_state_is_shared_out(results, sizes):
    found = results[f"memory of {len(sizes)}"]
    whole, largest = (2 * f(map(padded, sizes)) for f in (sum, max))
    bytes_ = [int(rank["bytes"]) for rank in found]
    assert sum(bytes_) == whole
    assert max(bytes_) <= whole / len(found) + (0 if sizes is program.EQUAL else largest)
    for rank in found:  # also those without a part have all new values
        assert (rank["updated"] < 0).all() and len(rank["updated"]) == len(sizes)


def test_hooks_of_the_state_are_called(results):
    for rank in results["hooks"]:
        assert rank["seen"].tolist() == ["before saving", "after saving", "before loading", "after loading"]


ERRORS = {
    "overlap": "overlap_with_ddp=True", "no such rank": "no rank", "copy": "can't be copied",
    "not consolidated": "doesn't have the whole state", "after a step": "doesn't have the whole state",
    "other groups": "have [1] parameters, the optimizer's [5]",
}


@pytest.mark.parametrize("name", program.REFUSED)
def test_what_is_refused(results, name):
    for rank in results[name]:
        assert ERRORS[name] in str(rank["error"]), rank["error"]


@pytest.mark.parametrize("size", WORLDS)
def test_a_group_that_is_added_later_is_shared_out_and_trains(size):
    def trained(model, make, **options):
        first, *rest = model.parameters()
        optimizer = make([first], **options, lr=0.01)
        for step in range(4):
            if step == 1:
                optimizer.add_param_group({"params": rest, "lr": 0.02})
            program.train_step(model, optimizer, step)
        mine = getattr(optimizer, "optim", optimizer).param_groups
        rates = [group["lr"] for group in optimizer.param_groups]
        return weights_of(model), rates, sum(len(group["params"]) for group in mine)

    def ranks():
        dist.init_process_group()
        model = DistributedDataParallel(network())
        return trained(model, dist.ZeroRedundancyOptimizer, optimizer_class=optim.AdamW)

    weights, rates, _ = trained(network(), optim.AdamW)
    found = dist.worlds.run(size, ranks)
    same([rank[0] for rank in found], weights, rtol=1e-4, atol=1e-5)
    assert [rank[1] for rank in found] == [rates] * size
    assert sum(rank[2] for rank in found) == len(weights)
