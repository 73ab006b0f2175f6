"""Programs are saved and loaded without a change; any other file gives one ValueError."""

import copy
import math
import random
import re
from typing import NamedTuple

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.compiler import capture, load
from mytorch.compiler.program.instruction import Instruction
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves
from tests.compiler.test_capture import network
from tests.every import every

X = (6, 10)


class Both(NamedTuple):
    first: mytorch.Tensor
    second: mytorch.Tensor


def views(x):
    y = x.clone()
    y[1:3] = y[2:4] * 2
    z = y[:, ::2]
    z += 1
    return y, z.sum(), x.t(), x.view(-1), x.double().cumsum(1)


def transposed_state():
    w, total = mytorch.randn(20, 10).t()[:, ::2], mytorch.zeros(10)

    def step(x):
        total.add_(x.sum(0))
        return x @ w, w.reshape(-1) * 2, total * 1

    return step


FUNCTIONS = {
    "softmax": lambda: lambda x: F.softmax(x, -1) * float("inf") + x.sum(),
    "views": lambda: views,
    "outputs": lambda: lambda x: {"a": [x + 1, 1.5, -math.inf], 3: (None, "text", x.max(1)), "b": Both(x, x)},
    "masks": lambda: lambda x: (x.masked_fill(x > 0, 3.0), (x > 0) & (x < 1), x.half() * 2),
    "state": transposed_state,
    "network": network,
    "columns": lambda: lambda x: (x * 2 - x.tanh()).sum(0),
    "elements": lambda: lambda x: F.log_softmax(x, -1).gather(1, x[:, :1].abs().long()),
    "a view of a constant": lambda: lambda x: x + mytorch.arange(7).view(7, 1).expand(7, 10_000).sum(),
    "attention": lambda: lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "dropout": lambda: lambda x: F.scaled_dot_product_attention(*[F.dropout(x)[None]] * 3, None, 0.5),
    "lstm": lambda: nn.LSTM(10, 5),
    "windows": lambda: lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 2)) * 1,
    "convolution": lambda: lambda x: F.max_pool2d(F.conv2d(x[None, None], x[None, None, :3, :3]), 2),
}


def captured(name, optimized=True):
    mytorch.manual_seed(0)
    program = capture(FUNCTIONS[name](), mytorch.randn(*X))
    return program.optimized() if optimized else program


def results(program):
    """The bytes of all results of two calls, and of the state after them."""
    mytorch.manual_seed(1)
    x, found = mytorch.randn(*X), []
    with F.use_fused(False):
        for _ in range(2):
            y = program(x)
            assert every(isinstance(z, (mytorch.Tensor, float, str, type(None))) for z in leaves(y))
            found += [z.numpy().tobytes() if isinstance(z, mytorch.Tensor) else z for z in leaves(y)]
    return found + [raw.tobytes() for raw in program.state.values()]


def printed(program):
    """The text, without what is another way to say the same: types as dtypes, other views as bases."""
    return re.sub(r"  # view of %\d+", "", str(program).replace("<class 'numpy.int64'>", "int64"))


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_loaded_program_computes_the_same(name, optimized, tmp_path):
    program = captured(name, optimized)
    program.save(tmp_path / "p.safetensors")
    loaded = load(tmp_path / "p.safetensors")
    assert printed(loaded) == printed(program)
    assert [x.strides for x in loaded.state] == [raw.strides for raw in loaded.state.values()]
    assert not any(np.may_share_memory(a, b) for a in loaded.state.values() for b in program.state.values())
    assert results(loaded) == results(program)
    assert len(loaded.optimized().instructions) == len(program.optimized().instructions)


def test_outputs_keep_their_fields(tmp_path):
    captured("outputs").save(tmp_path / "p.safetensors")
    found = load(tmp_path / "p.safetensors")(mytorch.ones(X))
    assert found["b"]._fields == Both._fields and type(found["b"]).__name__ == "Both"
    assert found[3][2].indices.tolist() == [0] * 6 and found["a"][2] == -math.inf


@pytest.mark.parametrize("mode", [None, "max-autotune"])
def test_the_mode_is_kept(mode, tmp_path):
    captured("softmax", False).optimized(mode).save(tmp_path / "p.safetensors")
    assert load(tmp_path / "p.safetensors").is_tuned is (mode is not None)


def test_files_without_a_mode(tmp_path):
    content = content_of("softmax", tmp_path / "p.safetensors")
    del content["is_tuned"]
    mytorch.save(content, tmp_path / "p.safetensors")
    assert not load(tmp_path / "p.safetensors").is_tuned


def test_what_is_not_saved(tmp_path):
    path = tmp_path / "p.safetensors"
    program = captured("softmax")
    i = program.instructions[-1]
    program.instructions.append(Instruction("host.else", (), {}, ()))
    with pytest.raises(NotImplementedError, match=r"can't save the instruction host.else\(\): there is no"):
        program.save(path)
    program.instructions[-1] = Instruction("add", (object(), i.outputs[0]), {}, ())
    with pytest.raises(NotImplementedError, match="the instruction add.* holds a object"):
        program.save(path)
    program = captured("attention")
    (saved,) = [i.outputs[-1] for i in program.instructions if i.name == "kernel"]
    program.outputs = [saved]
    with pytest.raises(NotImplementedError, match="can't save the outputs: .* saved for a vjp"):
        program.save(path)
    program.inputs, program.outputs = (saved,), None
    with pytest.raises(NotImplementedError, match=r"can't save .*: %.* was saved for a vjp"):
        program.save(path)
    far = mytorch.randn(1000, 100)[:, 0]
    with pytest.raises(NotImplementedError, match=r"its strides are \(400,\)"):
        capture(lambda x: x * far, mytorch.ones(1000)).save(path)
    assert not path.exists()


# Damage. What `serialization` refuses is tested with it; here its content is changed.


def content_of(name, path):
    captured(name).save(path)
    return mytorch.load(path)


def changed(content, place, value):
    content = copy.deepcopy(content)
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return content


def number_of(content, name):
    return [i["name"] for i in content["instructions"]].index(name)


@pytest.mark.parametrize("name", ["add.at", "divide.at", "logical_or.at"])
def test_what_a_file_says_is_written_is_known(name, tmp_path):
    """All that writes, not only what ops call."""
    place = mytorch.tensor([0, 1, 0, 2, 1, 0])
    program = capture(lambda x: x.clone().index_add(0, place, x), mytorch.ones(X))
    program.save(tmp_path / "p.safetensors")
    content = mytorch.load(tmp_path / "p.safetensors")
    number = number_of(content, "add.at")
    mytorch.save(changed(content, ["instructions", number, "name"], name), tmp_path / "p.safetensors")
    i = load(tmp_path / "p.safetensors").instructions[number]
    assert i.name == name and i.written == (i.args[0].storage,)


ATTACKS = [
    ("views", "multiply", ["name"], "load", "no instruction is named 'load'"),
    ("views", "multiply", ["name"], "add; import os", "no instruction is named"),
    ("views", "multiply", ["name"], "lib.stride_tricks.as_strided", "no instruction is named"),
    ("views", "multiply", ["name"], ".tofile", "no instruction is named"),
    ("views", "multiply", ["name"], ".__class__", "no instruction is named"),
    ("views", "multiply", ["name"], "host.step", "step"),
    ("views", "multiply", ["name"], "host.written_by", "no instruction is named"),
    ("views", "multiply", ["name"], "host._like", "no instruction is named"),
    ("views", "multiply", ["kwargs"], {"x=print()": 1}, "no arguments have the names"),
    ("views", "multiply", ["kwargs"], {"nonsense": 1}, "instruction"),
    ("views", "multiply", ["args", 0], {"value": 99}, "KeyError"),
    ("views", "multiply", ["args", 0], {"code": "print()"}, "KeyError"),
    ("views", "multiply", ["outputs", 0, "shape"], [6, 11], r"gives float32\[2, 10\], the file says float32"),
    ("views", "multiply", ["outputs", 0, "shape"], [1 << 62, 10], "it gives"),
    ("views", "multiply", ["outputs", 0, "shape"], [1] * 13, "has shape"),
    ("views", "multiply", ["outputs", 0, "dtype"], "O", "unknown dtype"),
    ("views", "multiply", ["outputs", 0, "of"], 0, "is a view of None"),
    ("softmax", "loop", ["kwargs", "rows"], 7, "instruction"),
    ("softmax", "loop", ["kwargs", "rows"], 60, "instruction"),
    ("softmax", "loop", ["kwargs", "n"], 11, "instruction"),
    ("softmax", "loop", ["kwargs", "rows"], True, "a loop is over True rows of 10"),
    ("softmax", "loop", ["kwargs", "n"], 10.0, r"a loop is over 6 rows of 10\.0"),
    ("softmax", "loop", ["outputs", 0, "strides"], [4, 24], "not those of C order"),
    ("softmax", "loop", ["kwargs", "loop", "loop", "inputs"], ["rows"], "instruction"),
    ("softmax", "loop", ["kwargs", "loop", "loop", "steps", 0, 1], [None], "neither a name nor a number"),
    ("softmax", "loop", ["kwargs", "loop", "loop", "steps", 0, 0], "add; x", "no step of a loop is named"),
    ("softmax", "loop", ["kwargs", "loop", "loop", "steps", 0, 2], "column", "isn't for each column"),
    ("softmax", "loop", ["kwargs", "loop", "loop", "steps", 0, 2], "full", "isn't for each full"),
    ("softmax", "loop", ["kwargs", "loop", "loop", "steps", 1, 1], ["x0", "v9"], "KeyError"),
    ("softmax", "loop", ["kwargs", "loop", "loop", "steps", 1, 1], ["x0[9]", "v0"], "KeyError"),
    ("softmax", "loop", ["kwargs", "loop", "loop", "steps", 1, 3], "float64", "doesn't give float64"),
    ("softmax", "loop", ["kwargs", "loop", "loop", "outputs"], [3], "isn't what step 3 gives"),
    ("columns", "loop", ["kwargs", "loop", "loop", "steps", -1, 0], "max", "isn't for each column"),
    ("columns", "loop", ["kwargs", "loop", "loop", "steps", -1, 1], [1.0], "isn't for each column"),
    ("columns", "loop", ["kwargs", "loop", "loop", "outputs"], [], "with all columns, got"),
    ("elements", "loop", ["args", 1], {"value": 1}, "instruction"),
    ("views", ".setitem", ["args", 2], "text", "a meta array holds numbers, got 'text'"),
    ("views", ".setitem", ["args", 2], {"ellipsis": None}, "a meta array holds numbers"),
    ("views", "cumsum", ["args", 0], 2, "none of its arguments is an array"),
    ("views", "cumsum", ["kwargs", "dtype"], "object", "its dtype is 'object'"),
    ("views", "multiply", ["outputs", 0, "strides"], [0, 0], r"of strides \(40, 4\), the file says \(0, 0\)"),
    ("views", ".T", ["outputs", 0, "strides"], [24, 4], r"of strides \(4, 40\), the file says \(24, 4\)"),
    ("network", "kernel", ["outputs", 0, "strides"], [0, 4], r"has shape \(\) and strides \(0, 4\)"),
    ("network", "kernel.vjp", ["outputs", 0, "strides"], [0, 4], "don't lie in memory without gaps"),
    ("elements", "loop", ["kwargs", "loop", "loop", "steps", -1, 1], ["v5", "v0"], "isn't for each row"),
    ("columns", None, ["instructions", 0, "name"], ".astype", "instruction"),
    ("state", "matmul", ["name"], ".astype", "a dtype is no array"),
    ("lstm", "kernel", ["args", 6], (1, 1, -1, 1, 1, 1), r"steps of \[1, 1, -1, 1, 1, 1\] rows, of 6 in all"),
    ("lstm", "kernel", ["args", 6], (2, 2, 2), r"steps of \[2, 2, 2\] rows, of 6 in all, for 1 sequences"),
    ("attention", "kernel", ["args", 6], 1, "is_causal is 1, which is no bool"),
    ("dropout", "kernel", ["args", 3], "1", "instruction"),
    ("network", "kernel", ["args", 0], "matmul", "no kernel is named"),
    ("network", "kernel", ["args", 2], {"value": 3}, "instruction"),
    ("network", "kernel.vjp", ["args", 0], {"value": 3}, "KeyError"),
    ("network", "kernel.vjp", ["args", 1], None, "no gradient of its results is given"),
    ("network", "kernel.vjp", ["outputs", 0, "shape"], [6, 11], "it gives"),
    ("network", "kernel.vjp", ["outputs", 0, "dtype"], "float64", "it gives"),
    ("network", "kernel.vjp", ["kwargs", "dtypes"], ({"dtype": "float64"},), "have the dtypes"),
    ("network", "kernel.vjp", ["kwargs", "wanted"], {"dict": {0: (6, 11)}}, "don't have the shapes"),
    ("outputs", None, ["outputs", "dict", "b", "fields", 0], "np", "a namedtuple has the name"),
    ("outputs", None, ["outputs", "dict", "b", "fields", 1], {"a b": 1}, "the outputs"),
    ("outputs", None, ["outputs"], {"value": 1 << 80}, "the outputs"),
    ("state", None, ["arrays"], {}, "the state"),
    ("state", None, ["arrays", "%99"], np.ones(3), "no values have the arrays"),
    ("state", None, ["state", 0, "strides"], [1 << 40], "has strides"),
    ("state", None, ["state", 0, "strides"], [0], r"%\d: float32\[10\] .*its elements overlap: \(0,\)"),
    ("state", None, ["state", 1, "strides"], [0, 0], r"strides \(0, 0\), for which its elements overlap"),
    ("state", None, ["state", 0, "shape"], [9], "has another array"),
    ("state", None, ["inputs", 0, "shape"], [1 << 62, 10], "too large"),
    ("state", None, ["inputs", 0, "shape"], [6, True], "has shape"),
    ("state", None, ["is_tuned"], 1, "is_tuned is 1"),
    ("state", None, ["program"], 1, "another version than 3"),
]


@pytest.mark.parametrize(("name", "instruction", "place", "value", "message"), ATTACKS)
def test_attacks(name, instruction, place, value, message, tmp_path):
    path = tmp_path / "p.safetensors"
    content = content_of(name, path)
    if instruction is not None:
        place = ["instructions", number_of(content, instruction), *place]
    mytorch.save(changed(content, place, value), path)
    with pytest.raises(ValueError, match=message) as error:
        load(path)
    assert str(error.value).startswith(f"can't load {path}: ")


def places(x, place=()):
    """Yields the keys that lead to each part of a nested structure."""
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    for key, item in items:
        yield (*place, key)
        yield from places(item, (*place, key))


STRANGE = [
    None, 0, -1, 1 << 70, 0.5, math.nan, "", "x0", "add", "loop", "kernel", [], [0], {}, True, (1, 2),
    {"value": 0}, {"value": 2}, {"slice": [None] * 3}, {"dtype": "float64"}, np.ones(2), np.float32(1), 40,
]


def programs_of_damaged_files(content, everywhere, strange, path, count):
    """Puts strange values in random places; yields the programs that are read: the others are refused."""
    rng = random.Random(0)
    for _ in range(count):
        damaged = content
        for place in rng.sample(everywhere, rng.choice([1, 1, 2])):
            try:
                damaged = changed(damaged, place, rng.choice(strange))
            except (KeyError, TypeError, IndexError, AttributeError):  # its place has been changed
                continue
        mytorch.save(damaged, path)
        try:
            program = load(path)
        except ValueError as error:
            assert str(error).startswith(f"can't load {path}: ")
            continue
        assert str(program.optimized()) and program.optimized().source()
        yield program


@pytest.mark.parametrize("name", ["softmax", "views", "network", "outputs", "state"])
def test_random_damage(name, tmp_path):
    """Each is refused, or it is another program, which is printed and optimized as any."""
    path, read = tmp_path / "p.safetensors", 0
    content = content_of(name, path)
    for program in programs_of_damaged_files(content, list(places(content)), STRANGE, path, 60):
        read += 1
        with F.use_fused(False):
            program(*[np.zeros(x.shape, x.dtype) for x in program.inputs])
    assert read < 40
