"""Gradients that an op's backward or a hook returns in another shape, dtype or device, against PyTorch."""

import itertools

import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.autograd import Function
from mytorch.core.op import op
from mytorch.nn.functional.composite import REGISTRY, composite
from mytorch.utils.checkpoint import checkpoint

SHAPES = [
    (), (1,), (3,), (6,), (1, 3), (2, 3), (3, 2), (6, 1), (1, 1), (4, 2, 3), (1, 2, 3), (2, 1, 3), (0,),
    (2, 0),
]


def apply(lib, base, given, shape, create_graph=False):
    """The gradient of an input of a shape whose Function returns ones of another one; or the error."""

    class Lin(base):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, g):
            return lib.ones(given)

    x = lib.zeros(shape, requires_grad=True)
    try:
        return lib.autograd.grad(Lin.apply(x), x, create_graph=create_graph)[0].tolist()
    except RuntimeError as error:
        return str(error).replace("LinBackward", "Lin")


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_a_function_may_return(shape, create_graph):
    for given in SHAPES:
        ours = apply(mytorch, Function, given, shape, create_graph)
        assert ours == apply(torch, torch.autograd.Function, given, shape, create_graph), given


class Written(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        return None, g.mT @ ctx.saved_tensors[0]  # the transpose of the right one


@op
def each(x, w):
    return x @ w, (None, lambda g: g.T @ x)


@op
def all_at_once(x, w):
    return x @ w, lambda g: (None, g.T @ x)


@op(outputs=True)
def of_several(x, w):
    return (x @ w, x), lambda grads: (None, grads[0].T @ x)


def adds_to_grad(x, w):
    """As in the original: a backward function that sets `.grad`."""
    out = Tensor(x.data @ w.data, requires_grad=True, grad_fn_name="<Lin>", grad_fn=lambda g: wrong(g))

    def wrong(g):
        w.grad = (g.T @ x.data).reshape(4, 3)

    out._add_parents(w)
    return out


@composite
def product(x: "Tensor", w: "Tensor"):
    return x @ w


@product.manual
def _product(x, w):
    return x @ w, (None, lambda g: g.T @ x)


@product.fused("cpu")
def _product_cpu(x, w):
    return x @ w, lambda g: (None, (g.T @ x).reshape(12))


del REGISTRY["product"]  # the tests of all composites are not for it

WRITTEN = {
    "Function": (Written.apply, "Written returned an invalid gradient at index 1 - got [4, 3]"),
    "checkpoint": (lambda x, w: checkpoint(each, x, w), "each returned an invalid gradient at index 1"),
    "vjps": (each, "each returned an invalid gradient at index 1 - got [4, 3]"),
    "vjp": (all_at_once, "all_at_once returned an invalid gradient at index 1 - got [4, 3]"),
    "several outputs": (lambda x, w: of_several(x, w)[0], "of_several returned an invalid gradient"),
    "sets .grad": (adds_to_grad, "a gradient has its tensor's shape (3, 4)"),
    "manual": (lambda x, w: product(x, w, fused=False), "product returned an invalid gradient at index 1"),
    "fused": (lambda x, w: product(x, w, fused=True), "invalid gradient at index 1 - got [12]"),
}


@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("call, message", WRITTEN.values(), ids=WRITTEN)
def test_the_transpose_of_the_right_gradient(call, message, is_leaf):
    w = mytorch.ones(3, 4, requires_grad=True)
    out = call(mytorch.arange(6.0).reshape(2, 3), w if is_leaf else w * 2)
    with pytest.raises(RuntimeError) as error:
        out.sum().backward()
    assert message in str(error.value)
    assert w.grad is None
    if "got" in message:
        assert str(error.value).endswith("but expected shape compatible with [3, 4]")


def test_a_gradient_of_the_broadcast_shape_is_summed():
    @op
    def add(x, y):
        return x + y, (lambda g: g, lambda g: g)

    for shapes in itertools.permutations([(), (3,), (2, 3), (1, 3), (2, 1), (1, 1)], 2):
        ours = [mytorch.ones(s, requires_grad=True) for s in shapes]
        theirs = [torch.ones(s, requires_grad=True) for s in shapes]
        add(*ours).sum().backward()
        (theirs[0] + theirs[1]).sum().backward()
        assert [x.grad.tolist() for x in ours] == [x.grad.tolist() for x in theirs]


CHANGES = {  # name: what a hook returns for a gradient of shape (2, 3)
    "another dtype": lambda g: g.double(),
    "an integer dtype": lambda g: g.long(),
    "half precision": lambda g: g.half(),
    "another shape": lambda g: g.reshape(3, 2),
    "a shape that could be summed": lambda g: g.expand(4, 2, 3),
    "one row": lambda g: g[:1],
    "another device": lambda g: g.to("meta"),
    "a number": lambda g: 3.0,
    "nothing": lambda g: None,
    "other strides": lambda g: (g.mT.contiguous() * 2).mT,
}


def with_tensor_hook(lib, change, create_graph, is_leaf):
    x = lib.ones((2, 3), requires_grad=True)
    y = x if is_leaf else x * 2
    y.register_hook(change)
    return lib.autograd.grad((y * 3).sum(), x, create_graph=create_graph)[0]


def with_module_hook(lib, change, create_graph, is_leaf):
    class Scale(lib.nn.Module):
        def forward(self, x):
            return x * 3

    scale = Scale()
    scale.register_full_backward_hook(lambda module, grad_input, grad_output: (change(grad_input[0]),))
    x = lib.ones((2, 3), requires_grad=True)
    out = scale(x if is_leaf else x * 2)
    (gradient,) = lib.autograd.grad(out.sum(), x, create_graph=create_graph, allow_unused=True)
    return gradient


def outcome(run, lib, *args):
    """The gradient, or the error's type and text, without the name of the hook and what we add to it."""
    try:
        gradient = run(lib, *args)
        return None if gradient is None else (str(gradient.dtype).removeprefix("torch."), gradient.tolist())
    except (RuntimeError, TypeError) as error:
        changed = str(error).partition("changed")[2] if "of value" in str(error) else ""
        return type(error), changed.partition("(")[0].strip()


@pytest.mark.parametrize("run", [with_tensor_hook, with_module_hook])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_hook_may_return(run, change):
    for args in itertools.product([False, True], repeat=2):
        ours, theirs = outcome(run, mytorch, change, *args), outcome(run, torch, change, *args)
        assert ours == theirs, args


def test_the_errors_of_hooks_name_what_they_changed():
    for change, text in (
        ("another dtype", "has changed the type of value (was float32 on cpu, got float64 on cpu)"),
        ("another device", "has changed the type of value (was float32 on cpu, got float32 on meta)"),
        ("another shape", "has changed the size of value (was [2, 3], got [3, 2])"),
        ("a number", "must return a Tensor or None, got float"),
    ):
        with pytest.raises((RuntimeError, TypeError)) as error:
            with_tensor_hook(mytorch, CHANGES[change], False, True)
        assert str(error.value) == f"hook '<lambda>' {text}"


def test_a_hook_returns_an_array():
    assert with_tensor_hook(mytorch, lambda g: g.data * 2, False, True).tolist() == [[6.0] * 3] * 2
    assert with_tensor_hook(mytorch, lambda g: g.data * 2, True, True).tolist() == [[6.0] * 3] * 2


@pytest.mark.parametrize(
    "returned, message",
    [
        (lambda g: (g[0],), "got 1, but expected 2"),
        (lambda g: (*g, g[0]), "got 3, but expected 2"),
        (lambda g: (g[0].double(), g[1]), "changed the type of value"),
        (lambda g: [g[0] * 2, None], None),
    ],
)
def test_the_gradients_of_a_module_of_two_inputs(returned, message):
    def run(lib):
        class Add(lib.nn.Module):
            def forward(self, x, y):
                return x + y

        add = Add()
        add.register_full_backward_hook(lambda module, grad_input, grad_output: returned(grad_input))
        x, y = lib.ones(2, requires_grad=True), lib.ones(2, requires_grad=True)
        add(x, y).sum().backward()
        return [None if z.grad is None else z.grad.tolist() for z in (x, y)]

    if message is None:
        assert run(mytorch) == run(torch)
        return
    for lib in (mytorch, torch):
        with pytest.raises(RuntimeError, match=message):
            run(lib)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_a_module_hook_without_gradients_of_inputs_can_t_replace_them():
    for lib in (mytorch, torch):
        layer, seen = lib.nn.Linear(3, 2), []
        handle = layer.register_full_backward_hook(lambda m, grads, g, seen=seen: seen.append(grads))
        layer(lib.ones(2, 3)).sum().backward()
        handle.remove()
        layer.register_full_backward_hook(lambda m, grad_input, g, lib=lib: (lib.ones(2, 3),))
        with pytest.raises(RuntimeError, match="no input requires gradient should always return None"):
            layer(lib.ones(2, 3)).sum().backward()
        assert seen == [(None,)]


def test_module_hooks_in_a_second_derivative():
    def run(lib):
        class Cube(lib.nn.Module):
            def forward(self, x):
                return x * x * x

        cube, calls = Cube(), []
        cube.register_full_backward_hook(lambda m, grad_input, g: calls.append(1) or (grad_input[0] * 2,))
        x = lib.tensor([1.0, 2.0], requires_grad=True)
        (first,) = lib.autograd.grad(cube(x).sum(), x, create_graph=True)
        (second,) = lib.autograd.grad(first.sum(), x)
        return first.tolist(), second.tolist(), len(calls)

    assert run(mytorch) == run(torch)


def test_post_accumulate_hooks_return_none():
    for lib in (mytorch, torch):
        x = lib.ones(2, requires_grad=True)
        x.register_post_accumulate_grad_hook(lambda p: p.grad * 2)
        with pytest.raises(RuntimeError, match="Tensor post accumulate grad hooks should return None"):
            (x * 3).sum().backward()


def test_the_gradient_of_an_output_is_not_complex_where_that_is_real():
    for lib in (mytorch, torch):
        x = lib.ones(2, requires_grad=True)
        with pytest.raises(RuntimeError, match=r"complex64.*float32"):
            lib.autograd.grad(x * 2, x, lib.ones(2, dtype=lib.complex64))


def with_vjp(*vjps):
    """An op of two inputs whose vjp is this."""

    @op
    def times(x, y):
        return x * y, vjps

    return times


@pytest.mark.parametrize(("vjps", "message"), [
    ((lambda g: g,), "Function times returned 1 gradients for its 2 inputs"),
    ((lambda g: g, lambda g: 2.0), "returned an invalid gradient at index 1 - got a float"),
    ((lambda g: mytorch.ones(3), lambda g: g), "returned an invalid gradient at index 0 - got a Tensor"),
    ((lambda g: [1, 2, 3], lambda g: g), "returned an invalid gradient at index 0 - got a list"),
])
def test_the_vjps_of_an_op_are_as_many_as_its_inputs_and_return_arrays(vjps, message):
    x, y = (mytorch.ones(3, requires_grad=True) for _ in range(2))
    with pytest.raises((RuntimeError, TypeError), match=message):
        with_vjp(*vjps)(x, y).sum().backward()


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_a_complex_gradient_of_a_real_input_is_an_error(dtype, create_graph):
    outcomes = []
    for lib in (mytorch, torch):

        class Turned(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 1j

        x = lib.ones(3, dtype=getattr(lib, dtype), requires_grad=True)
        try:
            lib.autograd.grad(Turned.apply(x), x, lib.ones_like(x), create_graph=create_graph)
            outcomes.append(True)
        except RuntimeError:
            outcomes.append(False)
    assert outcomes == [dtype == "complex64"] * 2
