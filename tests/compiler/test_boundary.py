"""What compiled functions get and return besides tensors is what they would get and return eagerly."""

from collections import OrderedDict
from dataclasses import dataclass, field

import pytest

import mytorch

pytestmark = pytest.mark.filterwarnings("ignore:mytorch.compile")


class Result:
    def __init__(self, value):
        self.value = value


SHARED = []


def an_object_that_it_makes(x):
    return Result(x * 2)


def a_list_that_it_makes(x):
    return [x * 2, {"a": x}]


def a_list_that_was_there(x):
    SHARED[:] = SHARED or [x]
    return SHARED


def a_list_that_it_gets(x, items):
    items.append(x * 2)
    return items


def a_leaf_with_a_gradient(x):
    y = x * 2
    return y if x.grad is None else y + x.grad


def a_history(x, w):
    x.mul_(w)
    return x.sum()


def test_each_call_returns_new_objects():
    x = mytorch.ones(2)
    for function in (an_object_that_it_makes, a_list_that_it_makes):
        compiled = mytorch.compile(function)
        first, second = compiled(x), compiled(x * 3)
        assert first is not second
    assert mytorch.compile(an_object_that_it_makes)(x).value.tolist() == [2, 2]
    assert second[1] is not first[1] and first[0].tolist() == [2, 2] and second[0].tolist() == [6, 6]
    with pytest.raises(RuntimeError, match="it returns an object that it makes: a Result"):
        mytorch.compile(an_object_that_it_makes, fullgraph=True)(x)
    assert mytorch.compile(a_list_that_it_makes, fullgraph=True)(x)[0].tolist() == [2, 2]


@dataclass(frozen=True)
class Output:
    logits: mytorch.Tensor
    loss: mytorch.Tensor | None = None
    hidden: list = field(default_factory=list)
    inner: object = None


KEPT = Output(mytorch.ones(2))


def test_dataclasses_and_ordered_dicts_are_made_anew():
    def forward(x, w):
        y = (x * w).tanh()
        return OrderedDict(b=Output(y, y.sum(), [x, y], Output(y + 1)), a=KEPT, c="text")

    x, weights = mytorch.ones(2), [mytorch.full((2,), 2.0, requires_grad=True) for _ in range(2)]
    compiled = mytorch.compile(forward, fullgraph=True)
    first, second, want = compiled(x, weights[0]), compiled(x * 3, weights[0]), forward(x * 3, weights[1])
    found, expected = second["b"], want["b"]
    assert [*second] == ["b", "a", "c"] and second["a"] is first["a"] is KEPT and found is not first["b"]
    assert type(second) is OrderedDict and type(found) is type(found.inner) is Output
    assert found.inner.loss is None
    assert found.hidden[1] is found.logits and found.hidden is not first["b"].hidden
    for result in (found, expected):
        (result.loss + result.inner.logits.sum()).backward()
    assert mytorch.allclose(found.logits, expected.logits)
    assert mytorch.allclose(weights[0].grad, weights[1].grad)
    with pytest.raises(RuntimeError, match="it returns an object that it makes: a Output"):
        mytorch.compile(lambda x: [Output(x)] * 2, fullgraph=True)(x)


def test_lists_stay_themselves():
    x, items = mytorch.ones(2), []
    compiled = mytorch.compile(a_list_that_it_gets)
    assert compiled(x, items) is items and compiled(x, items) is items and len(items) == 2
    assert items[0].tolist() == [2, 2]
    compiled = mytorch.compile(a_list_that_was_there)
    assert compiled(x) is SHARED and compiled(x) is SHARED


def test_gradients_and_histories_of_arguments():
    x, compiled = mytorch.ones(2, requires_grad=True), mytorch.compile(a_leaf_with_a_gradient)
    for _ in range(3):
        y = compiled(x)
        assert mytorch.equal(y, a_leaf_with_a_gradient(x))
        y.sum().backward()
    w, compiled = mytorch.full((2,), 3.0, requires_grad=True), mytorch.compile(a_history)
    for _ in range(2):
        y = mytorch.ones(2)
        compiled(y, w)
        assert y.requires_grad


def test_a_graph_behind_the_state_stays():
    w = mytorch.ones(2, requires_grad=True)
    h = w * 2
    y = mytorch.compile(lambda x: x * h, fullgraph=True)(mytorch.ones(2))
    y.sum().backward()
    assert w.grad.tolist() == [2, 2]
