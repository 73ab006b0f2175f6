"""Compiled functions and the graph: where the backward pass goes, what it needs, and hooks on its way."""

import pytest

import mytorch
from mytorch import nn, optim


def test_the_backward_pass_goes_where_gradients_go():
    total = mytorch.zeros(())

    @mytorch.compile
    def double(x):
        unused = x + total  # noqa: F841 - its history is not that of the result
        return x * 2

    leaf = mytorch.ones(2, requires_grad=True)
    total = (leaf * leaf).sum()
    total.backward()  # which frees what its history saved
    x = mytorch.ones(2, requires_grad=True)
    double(x).sum().backward()
    assert x.grad.tolist() == [2, 2] and leaf.grad.tolist() == [2, 2]


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_result_of_a_leaf_that_it_makes_needs_gradients(requires_grad):
    @mytorch.compile
    def product(x):
        return (x.detach() * mytorch.ones(2, requires_grad=True)).sum()

    y = product(mytorch.ones(2, requires_grad=requires_grad))
    assert y.requires_grad
    y.backward()


def test_what_it_writes_to_an_argument_may_be_saved_for_the_backward_pass():
    @mytorch.compile
    def scaled(x, scale):
        scale.mul_(2)
        return x * scale

    x, scale = mytorch.ones(2, requires_grad=True), mytorch.ones(2)
    scaled(x, scale).sum().backward()
    assert x.grad.tolist() == [2, 2]
    y = scaled(x, scale)
    scale.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_elements_that_rounding_decides():
    @mytorch.compile
    def centered(x):
        return x * 1 if (x - x.mean(-1, keepdim=True)).sum() > 0 else -x

    for seed in range(10):
        x = mytorch.randn(8, 100, generator=mytorch.Generator().manual_seed(seed))
        assert centered(x).abs().tolist() == x.abs().tolist()


@pytest.mark.filterwarnings("ignore:mytorch.compile")
def test_hooks_of_tensors_run_once():
    model = nn.Linear(2, 1, bias=False)
    model.weight.register_hook(lambda grad: grad * 3)

    def product(x):
        x.register_hook(lambda grad: grad * 5)
        return x * 2

    for run, hooked in ((model, product), (mytorch.compile(model), mytorch.compile(product))):
        model.zero_grad()
        leaf = mytorch.ones(1, 2, requires_grad=True)
        x = leaf * 1
        x.register_hook(lambda grad: grad * 7)
        (run(x).sum() + hooked(x).sum()).backward()
        assert model.weight.grad.tolist() == [[3, 3]]
        want = (model.weight + 2) * 35
        assert leaf.grad.tolist() == want.tolist()


def test_a_loss_whose_backward_pass_has_run_needs_gradients():
    model = nn.Linear(2, 1)

    def step(x):
        model.zero_grad()
        loss = model(x).mean()
        loss.backward()
        return loss

    single, double = mytorch.compile(step), mytorch.compile(lambda x: {"loss": step(x), "x": x * 2})
    for loss in (single(mytorch.ones(4, 2)), double(mytorch.ones(4, 2))["loss"]):
        assert loss.requires_grad and not loss.is_leaf and loss.device.type == "cpu"
        with pytest.raises(RuntimeError, match="a second time"):
            (loss * 2).backward()
    with mytorch.no_grad():
        assert not mytorch.compile(lambda x: model(x).mean())(mytorch.ones(4, 2)).requires_grad


def test_a_state_beside_the_loss():
    def losses(compile):
        mytorch.manual_seed(0)
        model = nn.GRU(2, 3)
        optimizer = optim.SGD(model.parameters(), 0.1)

        @compile
        def step(x, state):
            optimizer.zero_grad()
            y, state = model(x, state)
            loss = y.pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss, state

        state = mytorch.zeros(1, 4, 3)
        for _ in range(3):
            loss, state = step(mytorch.ones(5, 4, 2), state)
            assert state.requires_grad
            with pytest.raises(RuntimeError, match="a second time"):
                state.sum().backward()
            state = state.detach()
            yield loss.item(), state.tolist()

    assert [*losses(mytorch.compile(fullgraph=True))] == [*losses(lambda step: step)]
