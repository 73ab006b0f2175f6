"""DistributedDataParallel: several ranks do what one process does."""

import numpy as np
import pytest
import torch

import mytorch
import mytorch.distributed as dist
from mytorch import nn, optim
from mytorch.distributed.ddp import DistributedDataParallel
from tests.distributed import ddp_program as program
from tests.distributed import training
from tests.distributed.on_ranks import results_in_threads
from tests.distributed.training import same
from tests.every import every

WORLDS = [1, 3]  # 3: odd, and not a divisor of the sizes


@pytest.fixture(scope="module", params=WORLDS)
def results(request):
    """What the cases returned on that many ranks."""
    return results_in_threads(program, request.param)


def test_sync_batch_norm_has_the_statistics_of_all_ranks(results, monkeypatch):
    found = results["sync_batch_norm"]
    ranks = len(found)
    monkeypatch.setattr(program, "world", lambda: ranks)
    steps = []
    for step in range(2):  # the whole batch on one process, in PyTorch
        shares = []
        for rank in range(ranks):
            monkeypatch.setattr(program, "rank", lambda rank=rank: rank)
            shares.append(program.images(step).detach().numpy())
        steps.append(torch.tensor(np.concatenate(shares), requires_grad=True))
    model = torch.nn.Sequential(
        torch.nn.BatchNorm2d(3, momentum=None), torch.nn.Sequential(torch.nn.Tanh(), torch.nn.BatchNorm2d(3))
    )
    model.load_state_dict({k: torch.tensor(v.numpy()) for k, v in program.norm().state_dict().items()})
    for x in steps:
        model.zero_grad()
        (model(x) ** 3).sum().backward()
    want = {f"{name}.grad": p.grad for name, p in model.named_parameters()} | model.state_dict()
    want["evaluated"], want["x.grad"] = model.eval()(steps[0]), steps[1].grad
    for name, value in want.items():
        split = name in ("evaluated", "x.grad")
        got = np.concatenate([one[name] for one in found]) if split else found[0][name]
        np.testing.assert_allclose(got, value.detach().numpy(), rtol=2e-4, atol=2e-5, err_msg=name)


def single(make=training.network):
    model = make()
    return model, training.adamw(model.parameters())


def grads_of_steps(steps, make=training.network, **options):
    model = make(**options)
    for step in steps:
        training.loss_of(model, step).backward()
    return training.grads_of(model)


GRADIENTS = ["gradients", "gradients_in_the_optimizers_vector", "gradients_assigned_before", "small_buckets"]


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_are_those_of_the_whole_batch(results, case):
    same(results[case], grads_of_steps([0]))


def test_gradients_lie_in_the_optimizers_vector_and_follow_it(results):
    for rank in results["gradients_in_the_optimizers_vector"]:
        assert rank["in_place"] and rank["same"]


def test_a_compiled_model(results):
    same(results["compiled"], results["training"][0], rtol=1e-5)


def test_training_gives_the_same_losses(results):
    model, optimizer = single()
    losses = training.train(model, optimizer)
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
    x, y = training.whole_batch(1)
    for rank in range(ranks):
        part = [mytorch.tensor(a[rank::ranks].copy()) for a in (x, y)]
        (((model(part[0], rank % 2 == 0) - part[1]) ** 2).mean() / ranks).backward()
    expected = training.grads_of(model)
    same(found, expected)
    for rank in found:
        assert set(rank) == set(expected) and "never.weight" not in rank


def test_parameters_that_no_rank_used_have_no_gradient(results):
    for rank in results["unused_everywhere"]:
        assert set(rank) == {"left.weight", "left.bias"}


ERRORS = {
    "unfinished": ["no gradient for", "right.weight", "find_unused_parameters=True"],
    "twice": ["left.", "twice in one backward"],
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_backward_that_does_not_fit_says_so(results, case):
    for rank in results[case]:
        assert every(text in str(rank["error"]) for text in ERRORS[case]), rank["error"]


def test_different_models_are_refused_on_all_ranks(results):
    found = results["different_models"]
    expected = "rank 0: ('0.weight', (19, 5), 'float32', True), on rank 1: ('0.weight', (20, 5)"
    for rank in found:
        assert (expected in str(rank["error"])) == (len(found) > 1), rank["error"]


def test_the_values_of_rank_0_are_sent_to_all(results):
    same(results["different_values"], training.weights_of(training.network(0)), rtol=0, atol=0)


def test_tied_weights(results):
    model, optimizer = single(program.Tied)
    losses = training.train(model, optimizer, 5)
    same(results["tied"], {"losses": losses, **training.weights_of(model)})


def test_buffers_are_those_of_rank_0(results):
    found = results["buffers"]
    if len(found) > 1:
        assert (found[0]["mine"] != found[1]["mine"]).any()
        moved = [rank["next"] - 0.9 * found[0]["mine"] for rank in found]  # next = 0.9 mine + 0.1 mean
        for rank, step in zip(found, moved, strict=True):
            np.testing.assert_allclose(step, rank["mine"], rtol=1e-4, atol=1e-6)  # mine = 0.1 mean


@pytest.mark.parametrize("case", ["small_buckets", "small_buckets_unused"])
def test_buckets_begin_at_the_end_and_before_backward_is_over(results, case):
    for rank in results[case]:
        seen = rank["seen"]
        assert len(seen) > 2 and seen[:, 0].tolist() == list(range(len(seen)))
        assert seen[:, 1].tolist() == [0] * (len(seen) - 1) + [1]
        assert (seen[0, 3] < seen[:, 3].max()) and (np.diff(seen[:, 3]) >= 0).all()


def test_compression_keeps_three_digits(results):
    expected = grads_of_steps([0])
    same(results["compressed"], expected, rtol=2e-3, atol=1e-5)
    assert (results["compressed"][0]["2.weight"] != expected["2.weight"]).any()


def test_every_backward_is_averaged(results):
    """PyTorch leaves all after the first to each rank, without a word."""
    for case in ("many_backwards", "many_backwards_unused"):
        same(results[case], grads_of_steps([0, 1, 0]))


def test_rank_0_may_evaluate_alone(results):
    found = results["evaluated_alone"]
    assert set(found[0]) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    same(found, found[0], rtol=0, atol=0)


def test_buffers_may_be_each_ranks_own(results):
    for rank, found in enumerate(results["own_buffers"]):
        assert found["mine"].tolist() == [rank] * (rank + 1)


def test_a_custom_hook(results):
    same(results["own_hook"], grads_of_steps([0]))
    for rank in results["own_hook"]:
        assert rank["seen"].all()


REFUSED = {
    "failing_hook": "the last backward didn't finish",
    "wrong_hook": "wait() that returns a Tensor of shape", "wrong_result": "got shape (2,)",
    "wrong_buffer": "and dtype float32, got", "unfrozen": "0.bias required no gradient",
    "copy_with_hook": "can't be copied", "join_skips": "skip_all_reduce_unused_params",
    "join_groups": "different process groups", "join_nothing": "at least one joinable",
    "one_in_no_sync": "rank 0 is in no_sync(), rank 1 averages gradients",
}


@pytest.mark.parametrize("case", program.REFUSED)
def test_what_is_refused(results, case):
    for rank in results[case]:
        fits = len(results[case]) > 1 or case != "one_in_no_sync"  # one rank agrees with itself
        assert (REFUSED[case] in str(rank["error"])) == fits, rank["error"]


def test_one_rank_with_an_inf_makes_all_skip(results):
    assert every(rank["value"] == 1 and rank["scale"] == 2 for rank in results["scaler_alone"])
    found = results["mixed_precision"]
    for rank in found:
        assert rank["scales"].tolist() == [256, 256, 128, 128, 128, 128, 256, 256]
        for name, value in rank.items():
            assert (value == found[0][name]).all() and np.isfinite(value).all(), name


WRONG = {
    "devices": ({"device_ids": [0, 1]}, ValueError, "single element"),
    "device": ({"device_ids": [0]}, ValueError, "for a model on one GPU, this one is on cpu"),
    "bucket": ({"bucket_cap_mb": 0}, ValueError, "must be positive, got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    options, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        DistributedDataParallel(training.network(), **options)


def test_without_a_process_group_or_parameters():
    assert not dist.is_initialized()
    with pytest.raises((RuntimeError, ValueError)):
        DistributedDataParallel(training.network())
    with pytest.raises(RuntimeError, match="no parameter requires a gradient"):
        DistributedDataParallel(training.network().requires_grad_(False))


@pytest.mark.parametrize("sends, by_world", [(True, True), (False, True), (True, False)])
def test_a_rank_without_more_data_takes_part_in_sending_buffers(sends, by_world):
    """Rank 0 has one batch, rank 1 has three: gradients are halves of sums, buffers in the end rank 1's."""
    x = mytorch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32))
    batches = [list(x[0, :1]), list(x[1])]

    def model():
        mytorch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))

    def ranks():
        dist.init_process_group()
        wrapped = DistributedDataParallel(model(), broadcast_buffers=sends)
        optimizer = optim.SGD(wrapped.parameters(), lr=0.1)
        with wrapped.join(divide_by_initial_world_size=by_world):
            for batch in batches[dist.get_rank()]:
                optimizer.zero_grad()
                (wrapped(batch) ** 3).sum().backward()
                optimizer.step()
        return {name: value.numpy().copy() for name, value in wrapped.module.state_dict().items()}

    alone = model()
    optimizer, statistics = optim.SGD(alone.parameters(), lr=0.1), nn.BatchNorm1d(3)
    for step in range(3):
        optimizer.zero_grad()
        for batch in [part[step] for part in batches if step < len(part)]:
            ((alone(batch) ** 3).sum() / (2 if by_world or step == 0 else 1)).backward()
        statistics(alone[0](batch))
        optimizer.step()
    found = dist.worlds.run(2, ranks)
    for name, value in alone.named_parameters():
        for rank in found:
            np.testing.assert_allclose(rank[name], value.detach().numpy(), rtol=1e-4, atol=1e-5)
    for name, value in statistics.state_dict().items():
        if name.startswith("running"):
            for rank in found if sends else found[1:]:
                np.testing.assert_allclose(rank[f"1.{name}"], value.numpy(), rtol=1e-4, atol=1e-5)
    assert [int(rank["1.num_batches_tracked"]) for rank in found] == ([3, 3] if sends else [1, 3])
