"""Programs that run while operations are recorded: their instructions are in logs and profiles."""

import pytest

import mytorch
from mytorch import nn
from mytorch.stream import flops, record
from mytorch.stream.log import LogWriter, read_log
from mytorch.stream.recording import start, stop
from tests.every import every


def trained():
    """Returns a model, a training step of it, and its argument."""
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 200), nn.GELU(), nn.LayerNorm(200), nn.Linear(200, 64))
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step, mytorch.randn(300, 64)


def recorded(call, *args):
    with record() as instructions:
        result = call(*args)
    return result, [*instructions]


def test_the_instructions_of_a_step():
    _, step, x = trained()
    step = mytorch.compile(step, fullgraph=True)
    for _ in range(2):
        step(x)
    _, found = recorded(step, x)
    names = [i.name for i in found]
    assert names[:4] == ["linear", "gelu", "layer_norm", "linear"] and names[-1] == "AdamW.step"
    assert names.index("linear_backward") < names.index("layer_norm_backward") < names.index("gelu_backward")
    assert [i.module for i in found[:4]] == ["0", "1", "2", "3"]
    assert {i.phase for i in found} == {"forward", "backward", "optimizer"}
    assert found[0].outputs[0].shape == (300, 200) and found[2].named["eps"] == 1e-5
    assert every(type(operand.shape) is tuple for i in found for operand in (*i.inputs, *i.outputs))
    assert every(operand.dtype.kind != "O" for i in found for operand in i.outputs)


def test_as_many_operations_are_counted_as_eagerly():
    counts = []
    for compile in (lambda step: step, mytorch.compile):
        _, step, x = trained()
        step = compile(step)
        for _ in range(2):
            step(x)
        _, found = recorded(step, x)
        counts.append(sum(flops(i) for i in found if i.name.startswith("linear")))
    assert counts[0] == counts[1] == 5 * 2 * 300 * 64 * 200


def test_recording_changes_no_number():
    losses = []
    for is_recorded in (False, True):
        _, step, x = trained()
        step = mytorch.compile(step, fullgraph=True)
        losses.append([(recorded(step, x)[0] if is_recorded else step(x)).item() for _ in range(4)])
    assert losses[0] == losses[1] and losses[0][0] > losses[0][-1]


def test_a_module_with_a_later_backward_pass():
    model, _, x = trained()
    compiled = mytorch.compile(model, fullgraph=True)
    compiled(x)
    result, found = recorded(compiled, x)
    _, later = recorded(result.sum().backward)
    assert [i.name for i in found][:4] == ["linear", "gelu", "layer_norm", "linear"]
    inside = [i for i in later if i.parent is not None and i.parent.name == "compiled_backward"]
    assert len(inside) >= 4 and {i.phase for i in inside} == {"backward"}


def test_state_that_got_another_array_is_used():
    w = mytorch.ones(3)
    scale = mytorch.compile(lambda x: x * w, fullgraph=True)
    x = mytorch.ones(3)
    assert recorded(scale, x)[0].tolist() == [1] * 3
    w.data = mytorch.full((3,), 5.0)
    assert recorded(scale, x)[0].tolist() == [5] * 3


def test_the_log_ends_with_what_fails(tmp_path):
    table = mytorch.arange(4.0)
    look_up = mytorch.compile(lambda index: (table * 2)[index] + 1, fullgraph=True)
    look_up(mytorch.tensor([0, 3]))
    writer = LogWriter(tmp_path / "ops.log")
    start(writer)
    try:
        with pytest.raises(IndexError):
            look_up(mytorch.tensor([0, 4]))
    finally:
        stop(writer)
    last = [*read_log(tmp_path / "ops.log")][-1]
    assert last.name == "take" and last.failed


def test_sums_after_a_vjp_have_its_module():
    """Those that make the gradient of a bias have its shape, and those into `.grad`."""
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 10))
    target = mytorch.arange(300) % 10

    def step(x):
        nn.functional.cross_entropy(model(x), target).backward()

    step, x = mytorch.compile(step, fullgraph=True), mytorch.randn(300, 64)
    for _ in range(2):
        step(x)
    _, found = recorded(step, x)
    after = found[1 + [i.name for i in found].index("cross_entropy_backward") :]
    assert "sum" in {i.name for i in after} and {i.phase for i in after} == {"backward"}
    assert {i.module for i in after} == {"0", "1"}


def test_phases_and_modules_of_fused_loops():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

    def step(x, y):
        model.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    program = mytorch.capture(step, mytorch.ones(8, 64), mytorch.ones(8, 64))
    origins = [i.origin for i in program.optimized().instructions]
    first = next(k for k, origin in enumerate(origins) if origin.startswith("backward"))
    last = next(k for k, origin in enumerate(origins) if origin == "0, 1")
    assert last < first and {o.split(" ")[0] for o in origins[first:] if o} == {"backward"}
    assert not any(["backward" in origin.removeprefix("backward") for origin in origins])
