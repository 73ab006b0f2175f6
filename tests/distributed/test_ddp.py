"""DistributedDataParallel and ZeroRedundancyOptimizer: several ranks do what one process does."""

from pathlib import Path

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch import optim
from mytorch.distributed.ddp import DistributedDataParallel
from tests.distributed import ddp_program as program
from tests.distributed.on_ranks import results_of

pytest.importorskip("mpi4py")
WORLDS = [1, 2, 3, 4]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(params=WORLDS)
def results(request, folder):
    """What the cases returned on that many ranks."""
    return results_of(Path(program.__file__), request.param, folder)


def single(make=program.network):
    model = make()
    return model, program.adamw(model.parameters())


def same(found, expected, rtol=1e-5, atol=1e-6):
    """Every rank has these arrays."""
    for rank in found:
        for name, value in expected.items():
            np.testing.assert_allclose(rank[name], value, rtol=rtol, atol=atol, err_msg=name)


def grads_of_steps(steps, make=program.network, **options):
    model = make(**options)
    for step in steps:
        program.loss_of(model, step).backward()
    return program.grads_of(model)


GRADIENTS = ["gradients", "gradients_in_the_optimizers_vector", "gradients_of_ones_own", "small_buckets"]


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_are_those_of_the_whole_batch(results, case):
    same(results[case], grads_of_steps([0]))


def test_gradients_lie_in_the_optimizers_vector_and_follow_it(results):
    for rank in results["gradients_in_the_optimizers_vector"]:
        assert rank["in_place"] and rank["same"]


def test_training_gives_the_same_losses(results):
    model, optimizer = single()
    losses = program.train(model, optimizer)
    assert losses[-1] < 0.7 * losses[0]
    same(results["training"], {"losses": losses}, rtol=1e-4)
    for rank in results["training"][1:]:  # and the ranks never part
        for name, value in rank.items():
            assert (value == results["training"][0][name]).all(), name


def test_no_sync_adds_up(results):
    found = results["no_sync"]
    same(found, grads_of_steps([0, 1, 2]))
    if len(found) > 1:
        assert (found[0]["alone"] != found[1]["alone"]).any()


def test_unused_parameters(results):
    found = results["unused"]
    ranks = len(found)
    model, expected = program.Branches(), {}
    x, y = program.whole_batch(1)
    for rank in range(ranks):
        part = [mytorch.tensor(a[rank::ranks].copy()) for a in (x, y)]
        (((model(part[0], rank % 2 == 0) - part[1]) ** 2).mean() / ranks).backward()
    expected = program.grads_of(model)
    same(found, expected)
    for rank in found:
        assert set(rank) == set(expected) and "never.weight" not in rank


def test_parameters_that_no_rank_used_have_no_gradient(results):
    for rank in results["unused_everywhere"]:
        assert set(rank) == {"left.weight", "left.bias"}


ERRORS = {
    "unfinished": ["no gradient to", "right.weight", "find_unused_parameters=True"],
    "twice": ["left.", "twice in one backward"],
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_backward_that_does_not_fit_says_so(results, case):
    for rank in results[case]:
        assert all(text in str(rank["error"]) for text in ERRORS[case]), rank["error"]


def test_different_models_are_refused_on_all_ranks(results):
    found = results["different_models"]
    expected = "rank 0: ('0.weight', (19, 5), 'float32', True), on rank 1: ('0.weight', (20, 5)"
    for rank in found:
        assert (expected in str(rank["error"])) == (len(found) > 1), rank["error"]


def test_the_values_of_rank_0_are_sent_to_all(results):
    same(results["different_values"], program.weights_of(program.network(0)), rtol=0, atol=0)


def test_tied_weights(results):
    model, optimizer = single(program.Tied)
    losses = program.train(model, optimizer, 5)
    same(results["tied"], {"losses": losses, **program.weights_of(model)})


def test_buffers_are_those_of_rank_0(results):
    found = results["buffers"]
    if len(found) > 1:
        assert (found[0]["mine"] != found[1]["mine"]).any()
        moved = [rank["next"] - 0.9 * found[0]["mine"] for rank in found]  # next = 0.9 mine + 0.1 mean
        for rank, step in zip(found, moved, strict=True):
            np.testing.assert_allclose(step, rank["mine"], rtol=1e-4, atol=1e-6)  # mine = 0.1 mean


def test_buckets_begin_at_the_end_and_before_backward_is_over(results):
    for rank in results["small_buckets"]:
        seen = rank["seen"]
        assert len(seen) > 2 and seen[:, 0].tolist() == list(range(len(seen)))
        assert seen[:, 1].tolist() == [0] * (len(seen) - 1) + [1]
        assert (seen[0, 3] < seen[:, 3].max()) and (np.diff(seen[:, 3]) >= 0).all()


def test_compression_keeps_three_digits(results):
    expected = grads_of_steps([0])
    same(results["compressed"], expected, rtol=2e-3, atol=1e-5)
    assert (results["compressed"][0]["2.weight"] != expected["2.weight"]).any()


def zero_oracle():
    model = program.network()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1]},
        {"params": [p for p in model.parameters() if p.ndim == 1], "lr": 0.02, "weight_decay": 0.0},
    ]
    optimizer = optim.AdamW(groups, lr=0.01)
    schedule, losses = optim.lr_scheduler.StepLR(optimizer, 3, 0.5), []
    for step in range(20):
        losses.append(program.train_step(model, optimizer, step))
        schedule.step()
    return model, optimizer, losses


def test_zero_trains_as_the_optimizer_itself(results):
    model, optimizer, losses = zero_oracle()
    found = results["zero"]
    same(found, {"losses": losses, **program.weights_of(model)}, rtol=1e-4, atol=1e-5)
    entries = optimizer.state_dict()["state"]
    expected = {f"state.{i}.{k}": v.numpy() for i, entry in entries.items() for k, v in entry.items()}
    same(found[:1], expected, rtol=1e-3, atol=1e-5)


def test_zero_shares_the_memory_out(results):
    found = [int(rank["bytes"]) for rank in results["zero"]]
    whole = sum(p.nbytes for p in program.network().parameters()) * 2
    largest = max(p.nbytes for p in program.network().parameters()) * 2
    assert sum(found) == whole and max(found) <= max(largest, whole / len(found) + largest)
    assert len(found) == 1 or max(found) < whole


def test_zero_goes_on_from_a_state_of_another_number_of_ranks(results):
    model, optimizer = single()
    program.train(model, optimizer, 10)
    same(results["zero_resumed"], program.weights_of(model), rtol=1e-4, atol=1e-5)


def test_one_rank_with_an_inf_makes_all_skip(results):
    assert all(rank["value"] == 1 and rank["scale"] == 2 for rank in results["scaler_alone"])
    found = results["mixed_precision"]
    for rank in found:
        assert rank["scales"].tolist() == [256, 256, 128, 128, 128, 128, 256, 256]
        for name, value in rank.items():
            assert (value == found[0][name]).all() and np.isfinite(value).all(), name


WRONG = {
    "devices": ({"device_ids": [0, 1]}, ValueError, "single element"),
    "bucket": ({"bucket_cap_mb": 0}, ValueError, "must be positive, got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    options, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        DistributedDataParallel(program.network(), **options)


def test_without_a_process_group_or_parameters():
    assert not dist.is_initialized()
    with pytest.raises((RuntimeError, ValueError)):
        DistributedDataParallel(program.network())
    with pytest.raises(RuntimeError, match="no parameter requires a gradient"):
        DistributedDataParallel(program.network().requires_grad_(False))
