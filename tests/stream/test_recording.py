"""What is recorded: every operation of a step, with inputs, outputs, phase and module; nothing when off."""

import threading

import numpy as np
import pytest

import mytorch
from mytorch import distributed, nn, optim
from mytorch.core.grad_mode import _state
from mytorch.nn import functional as F
from mytorch.nn.functional.composite import REGISTRY, Unsupported, composite
from mytorch.stream import flops, is_recording, kind_of, record, recorder, start, stop
from mytorch.utils.checkpoint import checkpoint
from mytorch.utils.data import DataLoader, TensorDataset
from tests.every import every


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        for layer in self.h:
            x = x + layer(x)
        return self.norm(x)


def names(instructions, phase=None):
    return [i.name for i in instructions if phase in (None, i.phase)]


def test_a_training_step_is_recorded(device):
    model = Block().to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(mytorch.randn(2, 4)), batch_size=2)
    with record() as instructions:
        for (x,) in loader:
            model(x.to(device)).sum().backward()
            optimizer.step()
    loads = [i for i in instructions if i.phase == "data" and i.parent is None]
    assert names(loads) == ["DataLoader", "DataLoader"] and loads[0].outputs[0].shape == (2, 4)
    assert names(instructions, "forward")[-6:] == ["linear", "add", "linear", "add", "layer_norm", "sum"]
    assert names(instructions, "backward")[:3] == ["sum_backward", "layer_norm_backward", "add_backward"]
    assert names(instructions, "backward").count("linear_backward.1") == 2  # weights, straight into .grad
    assert names(instructions, "optimizer") == ["SGD.step"]
    modules = {i.name: i.module for i in instructions if i.phase != "data"}
    assert (modules["linear"], modules["linear_backward"]) == ("h.1", "h.0")  # the last of each
    assert [i.module for i in instructions if i.name == "linear_backward.1"] == ["h.1", "h.0"]
    assert modules["add"] == modules["add_backward"] == "Block" and modules["sum"] == ""
    assert every(i.duration >= i.self_time >= 0 and not i.failed for i in instructions)
    on_gpu = {a.device for i in instructions for a in i.inputs if i.name == "linear"}
    assert on_gpu == {str(device)}


def test_arrays_keep_their_number_and_operators_name_their_sides():
    a, b = mytorch.randn(2, 3), mytorch.randn(3, dtype=mytorch.float64)
    with record() as instructions:
        c = a * b
        d = c + a
        d.sum()
    mul, add, total = instructions
    assert mul.named["left"].number == add.named["right"].number
    assert mul.outputs == (add.named["left"],) and total.inputs == add.outputs
    assert (mul.outputs[0].shape, mul.outputs[0].dtype, mul.outputs[0].nbytes) == ((2, 3), np.float64, 48)
    assert mul.nbytes == 24 + 24 + 48 and [i.number for i in instructions] == [1, 2, 3]
    assert repr(add).startswith("#2 %4:float64[2,3] = add left=%3:float64[2,3] right=%1:float32[2,3]")


def test_numbers_begin_with_1():
    """Those of operations and of arrays, each time that nothing else records."""
    for _ in range(2):
        with record() as instructions:
            (mytorch.ones(2) + mytorch.zeros(2)).exp()
        assert [(i.number, i.name) for i in instructions] == [(1, "add"), (2, "exp")]
        assert [[a.number for a in (*i.inputs, *i.outputs)] for i in instructions] == [[1, 2, 3], [3, 4]]


def test_arrays_that_are_gone_are_forgotten(monkeypatch):
    """Those that are there keep their numbers."""
    monkeypatch.setattr(recorder, "_PURGE", 4)
    made, kept = recorder.Recorder(), np.ones(2)
    made.attach(())
    assert made.operand(kept).number == 1
    many = [np.ones(2) for _ in range(20)]
    assert [made.operand(array).number for array in many + many] == [*range(2, 22)] * 2
    del many
    made._purge()
    assert len(made._references) == 1 and made.operand(kept).number == 1
    assert [made.operand(np.ones(2)).number for _ in range(3)] == [22, 23, 24]


@pytest.mark.parametrize("place", ["cpu", "cuda:0", "cuda:1"])
def test_an_array_is_recorded_with_its_device(place, fake_cuda):
    x = mytorch.ones(2, 3, device=place)
    with record() as instructions:
        x.exp()
    (operand,), (result,) = instructions[0].inputs, instructions[0].outputs
    assert operand[1:] == result[1:] == ((2, 3), np.dtype("float32"), place, 24)


def test_all_arrays_of_an_op_with_any_number_of_them_are_shown():
    x, y = mytorch.ones(2, 3), mytorch.ones(2, 3)
    with record() as instructions:
        mytorch.cat([x, y], dim=1)
        mytorch.einsum("ij,kj->ik", x, y)
    for i in instructions:
        assert len(i.inputs) == 2 and set(i.inputs) < set(i.named.values())
        assert every(str(a) in repr(i) for a in i.inputs)
    assert instructions[0].named["dim"] == 1 and instructions[1].named["equation"] == "ij,kj->ik"


def test_attributes_are_plain_and_keep_nothing_alive():
    x = mytorch.randn(2, 3)
    with record() as instructions:
        x.sum(1, keepdim=True)
        x[:, mytorch.tensor([0, 2])]
        x.reshape(mytorch.ones(3, 2).shape)
        x * np.float32(2)
        x.double()
    assert instructions[-3].attributes == {"sizes": (3, 2)}
    assert type(instructions[-2].named["right"]) is float
    assert instructions[0].attributes["keepdim"] is True
    assert instructions[-1].attributes["dtype"] == "float64"
    for i in instructions:
        for value in (*i.arguments, *i.keywords.values()):
            assert not isinstance(value, (np.ndarray, mytorch.Tensor, list))


def test_batches_of_parameters_and_arrays_are_operands():
    batch = {"a": nn.Parameter(mytorch.ones(2)), "b": [np.ones(3), mytorch.ones(4).data], "c": "text"}
    with record() as instructions:
        next(iter(DataLoader([batch], batch_size=None, collate_fn=lambda x: x)))
    assert [a.shape for a in instructions[-1].outputs] == [(2,), (3,), (4,)]


def test_writes_are_recorded():
    x = mytorch.zeros(3)
    with record() as instructions:
        x[1] = 2.0
        x += 1
    assert names(instructions) == ["__setitem__", "add", "__iadd__"]
    assert instructions[0].outputs[0].number == instructions[1].inputs[0].number


def test_a_failure_is_recorded_and_leaves_the_nesting_right():
    with record() as instructions:
        with pytest.raises(RuntimeError):
            mytorch.ones(2) + mytorch.ones(3)
        mytorch.ones(2) + mytorch.ones(2)
    assert [i.failed for i in instructions] == [True, False]
    assert every(i.parent is None for i in instructions)


def test_a_kernel_that_refuses_is_told_from_the_variant_that_computes():
    @composite
    def refused(input):
        return input * 2

    @refused.fused("cpu")
    def kernel(x):
        raise Unsupported("never")

    try:
        with record() as instructions:
            refused(mytorch.ones(2))
    finally:
        del REGISTRY["refused"]
    assert names(instructions) == ["refused (unsupported)", "mul"]
    assert [i.failed for i in instructions] == [True, False]


def test_what_a_checkpoint_recomputes_is_inside_the_backward_pass():
    layer, x = nn.Linear(3, 3), mytorch.randn(2, 3, requires_grad=True)
    with record() as instructions:
        checkpoint(lambda x: layer(x).relu(), x).sum().backward()
    again = [i for i in instructions if i.name == "linear"]
    assert [i.phase for i in again] == ["forward", "backward"]
    assert again[1].parent is not None and again[1].parent.inside >= again[1].duration


def test_collectives_have_their_group_and_number():
    distributed.init_process_group("single")
    try:
        with record() as instructions:
            distributed.all_reduce(mytorch.ones(3))
            distributed.broadcast(mytorch.ones(2), 0)
    finally:
        distributed.destroy_process_group()
    assert [(i.name, i.keywords["seq"]) for i in instructions] == [("all_reduce", 1), ("broadcast", 2)]
    assert every(i.phase == i.kind == "communication" and i.duration is not None for i in instructions)
    assert every(__file__ in i.site for i in instructions)


def test_the_line_of_the_program_on_demand():
    with record(with_site=True) as instructions:
        mytorch.ones(2).exp()
    assert instructions[0].site.startswith(f"{__file__}:")


def test_all_threads_and_several_sinks():
    with record() as outer, record() as inner:
        thread = threading.Thread(target=lambda: mytorch.ones(2).exp())
        thread.start()
        thread.join()
    assert names(outer) == names(inner) == ["exp"] and outer[0].thread != threading.get_ident()


def test_off_is_off():
    assert not is_recording() and _state.stream is None
    with record() as instructions:
        assert is_recording()
        stop(instructions)
        mytorch.ones(2).exp()
        start(instructions)
    assert not instructions and _state.stream is None
    with pytest.raises(ValueError, match="doesn't record"):
        stop(instructions)


def test_vjps_have_no_underscores_of_names_that_are_not_public():
    x = mytorch.ones(3, requires_grad=True) * 2
    x[0] = 1
    with record() as instructions:
        x.sort()[0].sum().backward()
    names = [i.name for i in instructions if i.phase == "backward"]
    assert names == ["sum_backward", "sort_backward", "setitem_backward", "mul_backward"]


def test_recording_changes_no_result():
    def step():
        mytorch.manual_seed(0)
        model, x = Block(), mytorch.randn(2, 4)
        F.cross_entropy(model(x), mytorch.tensor([0, 1])).backward()
        return [p.grad.numpy().copy() for p in model.parameters()]

    expected = step()
    with record():
        found = step()
    assert every(map(np.array_equal, found, expected))


KINDS = {
    "matmul": "product", "linear_backward.1": "product", "_conv2d": "convolution",
    "self_attention": "attention", "add_layer_norm": "normalization", "cross_entropy": "loss",
    "embedding": "embedding", "slice_at": "view", "sum": "reduction", "summary": "elementwise",
    "clone": "copy", "tanh": "elementwise", "mul": "elementwise", "total": "elementwise",
    "lstm_steps": "product", "solve_matrices": "product", "_other_qr": "product", "linalg.eigh": "product",
    "_irfft": "product", "fft.fft": "product", "det": "product", "_slogdet": "product", "_pinv": "product",
    "_logits_nll": "loss", "__setitem__": "copy", "setitem_backward": "copy", ".astype": "copy",
    "slice_scatter": "copy", "_diagonal_copy": "copy", "flip": "copy", "concatenate": "copy",
    "_topk": "reduction", "argsort": "reduction", "add.reduce": "reduction", "_vector_norm": "reduction",
    "linalg.norm": "reduction", "all": "reduction", "diagonal": "view", "t": "view", "_imag": "view",
    "tanh_backward": "elementwise", "sortish": "elementwise", "linalg.eigvalsh": "product", "vdot": "product",
    "ravel": "view", "matrix_transpose": "view", ".mT": "view", "nanmax": "reduction", "trace": "reduction",
    "put_along_axis": "copy", "cumsum_backward.1": "reduction", "multiply": "elementwise",
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name):
    assert kind_of(name) == KINDS[name]


class Scaled(mytorch.autograd.Function):
    @staticmethod
    def forward(x, factor=2):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        (ctx.factor,) = inputs[1:] or (2,)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, *[None] * (len(ctx.needs_input_grad) - 1)


class linear(mytorch.autograd.Function):  # noqa: N801 - the name of an op, with other arguments
    @staticmethod
    def forward(ctx, x):
        return Scaled.apply(x, 3)

    @staticmethod
    def backward(ctx, g):
        return Scaled.apply(g)


class Scale(nn.Module):
    def forward(self, x):
        return linear.apply(x)


def test_custom_functions():
    """Their forward pass is an instruction, too, with those of the functions within it."""
    x = mytorch.ones(2, requires_grad=True)
    with record() as instructions:
        nn.Sequential(Scale())(x).sum().backward()
    found = sorted(instructions, key=lambda i: i.number)
    assert [(i.name, i.phase, i.module, i.parent and i.parent.name) for i in found] == [
        ("linear", "forward", "0", None), ("Scaled", "forward", "0", "linear"),
        ("mul", "forward", "0", "Scaled"), ("sum", "forward", "", None),
        ("sum_backward", "backward", "", None),
        ("linear_backward", "backward", "0", None), ("Scaled", "backward", "", "linear_backward"),
        ("mul", "backward", "", "Scaled"),
    ]
    assert found[5].origin is found[0] and found[0].outputs == found[3].inputs
    assert found[0].named == {"x": found[0].inputs[0]} and found[1].attributes == {"factor": 3}
    assert [flops(i) for i in found] == [0, 0, 2, 0, 0, 0, 0, 2]


def test_a_custom_function_that_fails():
    class Fails(mytorch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            raise ArithmeticError

    with record() as instructions, pytest.raises(ArithmeticError):
        Fails.apply(mytorch.ones(2))
    assert [(i.name, i.failed) for i in instructions] == [("Fails", True)]
