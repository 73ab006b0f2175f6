"""Windows of micro-batches, counted without models and processes."""

import itertools
from types import SimpleNamespace

from mytorch import nn, optim
from mytorch.accelerate.gradient_state import GradientState
from mytorch.accelerate.optimizer import AcceleratedOptimizer
from mytorch.accelerate.scheduler import AcceleratedScheduler
from tests.each import each


def batch_of(number, is_last=False):
    """A loader at one of its batches."""
    return SimpleNamespace(num_yielded=number, end_of_dataloader=is_last, even_batches=True, duplicates=0)


@each("num_steps, windows", [(1, [1] * 5), (2, [2, 2, 1]), (3, [3, 2]), (9, [5])])
def test_a_forward_pass_knows_whether_its_backward_pass_ends_the_window(num_steps, windows):
    state, ends = GradientState(num_steps), []
    for number in range(5):
        state.loaders = [batch_of(number, number == 4)]
        expected = state.completes_next()
        for _ in range(2):  # of one batch: one micro-batch
            state.count_backward()
            assert state.sync_gradients == state.completes_next() == expected
        ends.append(expected)
    assert [n for n, end in enumerate(ends, 1) if end] == [*itertools.accumulate(windows)]
    assert state.windows == len(windows)


def test_without_a_loader_each_backward_pass_counts():
    state = GradientState(3)
    for expected in (False, False, True) * 2:
        assert state.completes_next() == expected
        state.count_backward()
        assert state.sync_gradients == expected


def test_tokens_are_weights_of_the_micro_batches():
    """The mean over 10 + 30 and 20 tokens; a window that is cut short has fewer terms."""
    state = GradientState(2)
    assert state.factor(10) == 0.5 and state.correction() == 1.0  # of no micro-batch
    for counts, correction in (([10, 30], 2.0), ([20, 20], 2.0), ([5], 0.25), ([10, 10], 1.0)):
        for count in counts:
            state.begin_micro_batch()
            assert state.factor(count) == count / 10 / 2
        assert state.correction() == correction
        state.sync_gradients = True
        state.step = 0
    state.begin_micro_batch()
    assert state.factor(None) == 0.5 and state.correction() == 0.5


def test_a_schedule_waits_for_the_end_of_the_window():
    layer = nn.Linear(1, 1)
    inner = optim.SGD(layer.parameters(), lr=1.0)
    state = GradientState(2)
    optimizer = AcceleratedOptimizer(inner, state)
    waits = AcceleratedScheduler(optim.lr_scheduler.StepLR(inner, 1, 0.5), [optimizer], state)
    rates = []
    for _ in range(4):
        state.begin_micro_batch()
        layer(layer.weight.detach()).sum().backward()
        optimizer.step()
        waits.step()
        rates += waits.get_last_lr()
    assert rates == [1.0, 0.5, 0.5, 0.25]


def test_the_state_of_the_wrapped_optimizer():
    layer = nn.Linear(2, 1)
    inner = [optim.SGD(layer.parameters(), lr) for lr in (1.0, 0.5)]
    one, other = (AcceleratedOptimizer(optimizer, GradientState(1)) for optimizer in inner)
    one.load_state_dict(other.state_dict())
    assert one.param_groups[0]["lr"] == one.optimizer.param_groups[0]["lr"] == 0.5
