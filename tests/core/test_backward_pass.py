"""What hooks may know of the backward pass that called them."""

import pytest

import mytorch
from mytorch.core.engine import current_backward_pass


def test_a_walk_knows_where_it_goes_and_says_when_it_is_over():
    x, y, z = (mytorch.tensor([2.0], requires_grad=True) for _ in range(3))
    said = []

    def seen(p):
        walk = current_backward_pass()
        said.append([q.node in walk.nodes for q in (x, y, z)])
        walk.at_end.append(lambda: said.append((x.grad.item(), y.grad.item())))

    x.register_post_accumulate_grad_hook(seen)
    (x * y * 3).sum().backward()
    assert said == [[True, True, False], (6.0, 6.0)]
    assert current_backward_pass() is None


def test_a_walk_inside_another_has_its_own_end():
    x, y = (mytorch.tensor([1.0], requires_grad=True) for _ in range(2))
    said = []

    def inner(p):
        current_backward_pass().at_end.append(lambda: said.append("inner"))

    def outer(p):
        current_backward_pass().at_end.append(lambda: said.append("outer"))
        (y * 2).sum().backward()
        said.append("still in the outer one")

    x.register_post_accumulate_grad_hook(outer)
    y.register_post_accumulate_grad_hook(inner)
    (x * 2).sum().backward()
    assert said == ["inner", "still in the outer one", "outer"]


def test_an_error_is_no_end():
    x, said = mytorch.tensor([1.0], requires_grad=True), []

    def fails(p):
        current_backward_pass().at_end.append(lambda: said.append("end"))
        raise ZeroDivisionError

    x.register_post_accumulate_grad_hook(fails)
    with pytest.raises(ZeroDivisionError):
        (x * 2).sum().backward()
    assert said == [] and current_backward_pass() is None
