"""Programs of training steps are frozen, and run on elsewhere, bit for bit; damaged files are refused."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.compiler import capture, load, thaw
from mytorch.nn import functional as F
from mytorch.optim import lr_scheduler
from mytorch.utils.nested import leaves
from tests.compiler.test_saving import changed, places, programs_of_damaged_files

GENERATOR = mytorch.Generator()
X, Y = mytorch.arange(24.0).view(6, 4).sin(), mytorch.arange(6) % 3


def chained(optimizer):
    inner = [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3), lr_scheduler.StepLR(optimizer, 2)]
    return lr_scheduler.ChainedScheduler(inner)


def warmup(optimizer):
    first = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    inner = [first, lr_scheduler.CosineAnnealingLR(optimizer, 9)]
    return lr_scheduler.SequentialLR(optimizer, inner, [3])


# Each optimizer with another schedule.
STEPS = {
    "AdamW": (lambda p: optim.AdamW(p, 0.01, amsgrad=True), warmup),
    "Adam": (lambda p: optim.Adam(p, mytorch.tensor(0.01)), chained),
    "SGD": (lambda p: optim.SGD(p, 0.1, momentum=0.9), lambda o: lr_scheduler.OneCycleLR(o, 0.1, 6)),
    "Adadelta": (optim.Adadelta, lambda o: lr_scheduler.ExponentialLR(o, 0.9)),
    "Adagrad": (optim.Adagrad, lambda o: lr_scheduler.MultiStepLR(o, [2, 4])),
    "Adamax": (optim.Adamax, lambda o: lr_scheduler.ConstantLR(o, 0.5)),
    "ASGD": (optim.ASGD, lambda o: lr_scheduler.PolynomialLR(o, 9)),
    "Lion": (optim.Lion, lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3)),
    "NAdam": (optim.NAdam, lambda o: lr_scheduler.WarmupCosineLR(o, 2, 9)),
    "RAdam": (optim.RAdam, lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2, 2)),
    "RMSprop": (optim.RMSprop, lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1)),
    "Rprop": (optim.Rprop, lambda o: lr_scheduler.CosineAnnealingLR(o, 9)),
    "Muon": (lambda p: optim.Muon([x for x in p if x.ndim == 2]), lambda o: lr_scheduler.StepLR(o, 2)),
}


def training(name="AdamW"):
    """A step with all that a program can do: dropout, random numbers, buffers, clipping, groups."""
    mytorch.manual_seed(0)
    GENERATOR.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))
    params = list(model.parameters())
    if name == "AdamW":
        optimizer = optim.AdamW([{"params": params[:2], "lr": 0.05}, {"params": params[2:]}], 0.01)
    else:
        optimizer = STEPS[name][0](params)
    schedule = STEPS[name][1](optimizer)

    def step(x, y):
        loss = F.cross_entropy(model(x + 0.1 * mytorch.randn(6, 4)), y) + mytorch.rand(1, generator=GENERATOR)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(params, 0.5) if name != "SGD" else optimizer.clip_grad_norm(0.5)
        optimizer.step()
        optimizer.zero_grad(set_to_none=name != "Adam")
        schedule.step(*[1.0] * (name == "RMSprop"))
        return loss, norm

    return step


def captured(name="AdamW", optimized=False):
    step = training(name)
    if name == "Adam":  # its step begins with gradients
        with F.use_fused(False):
            step(X, Y)
    program = capture(step, X, Y)
    return program.optimized() if optimized else program


def run(program, times):
    with F.use_fused(False):
        found = [y.numpy().tobytes() for _ in range(times) for y in leaves(program(X, Y))]
    return found, weights(program)


@pytest.mark.parametrize("name", STEPS)
def test_a_thawed_program_runs_on(name, tmp_path):
    program = captured(name, optimized=name in ("AdamW", "Adam"))
    run(program, 2)
    program.freeze(tmp_path / "p.safetensors")
    want = run(program, 3)[0]
    mytorch.manual_seed(99)
    thawed = thaw(tmp_path / "p.safetensors")
    assert str(thawed).replace("<class 'numpy.int64'>", "int64").count("\n") == str(program).count("\n")
    assert [i.written for i in thawed.instructions if i.is_host and i.written] != []
    assert [[v.number for v in i.written] for i in thawed.instructions] == [
        [v.number for v in i.written] for i in program.instructions
    ]
    assert run(thawed, 3)[0] == want
    assert run(thawed, 1) != run(program, 1)  # both draw from the default generator, one after the other


def test_load_leaves_the_default_generator(tmp_path):
    captured().save(tmp_path / "p.safetensors")
    state = mytorch.get_rng_state()
    loaded = load(tmp_path / "p.safetensors")
    assert mytorch.equal(state, mytorch.get_rng_state())
    run(loaded, 1)
    assert not mytorch.equal(state, mytorch.get_rng_state())


def test_in_another_process(tmp_path):
    """N steps at once are k steps, freeze, thaw, N - k steps: losses and weights, bit for bit."""
    whole = captured()
    want = run(whole, 7)[0]
    program = captured()
    assert run(program, 3)[0] == want[:6]
    program.freeze(tmp_path / "p.safetensors")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from compiler.test_freezing import *\n"
        "program = thaw(sys.argv[2]); print([run(program, 4)[0], weights(program)])"
    )
    args = [sys.executable, "-c", code, str(Path(__file__).parents[1]), str(tmp_path / "p.safetensors")]
    found = subprocess.run(args, capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == str([want[6:], weights(whole)])


def weights(program):
    owners = {value.number: reference() for value, reference in program.owners.items()}
    kept = [(number, owner) for number, owner in sorted(owners.items()) if owner is not None]
    return {number: owner.numpy(force=True).tobytes() for number, owner in kept}


# What isn't saved.


class Mine(optim.SGD):
    pass


def with_closure():
    optimizer = optim.SGD([mytorch.ones(2, requires_grad=True)])
    return optimizer, lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)


def with_scale_fn():
    optimizer = optim.SGD([mytorch.ones(2, requires_grad=True)], momentum=0.9)
    return optimizer, lr_scheduler.CyclicLR(optimizer, 0.1, 0.2, scale_fn=lambda x: 0.5)


def of_mine():
    optimizer = Mine([mytorch.ones(2, requires_grad=True)])
    return optimizer, lr_scheduler.StepLR(optimizer, 2)


def with_hook():
    w = mytorch.ones(2, requires_grad=True)
    w.register_hook(lambda grad: grad * 2)
    optimizer = optim.SGD([w])
    return optimizer, lr_scheduler.StepLR(optimizer, 2)


REFUSED = {
    with_closure: "a LambdaLR is none of", with_scale_fn: "the CyclicLR has a scale_fn",
    of_mine: "a Mine is none of", with_hook: r"a tensor of shape \(2,\) has hooks",
}


@pytest.mark.parametrize("make", REFUSED)
def test_what_is_not_saved(make, tmp_path):
    optimizer, schedule = make()
    (w,) = optimizer.param_groups[0]["params"]

    def step(x):
        (w * x).sum().backward()
        optimizer.step()
        schedule.step()

    with pytest.raises(NotImplementedError, match=f"can't save the instruction .*host.*: {REFUSED[make]}"):
        capture(step, mytorch.ones(2)).save(tmp_path / "p.safetensors")
    assert not any(tmp_path.iterdir())


def test_what_else_is_not_saved(tmp_path):
    w = mytorch.ones(2, requires_grad=True)
    optimizer = optim.SGD([w], mytorch.tensor(0.1))

    def step():
        w.sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"].mul_(0.5)

    program = capture(step)
    with pytest.raises(NotImplementedError, match="uses tensors that the SGD holds, too"):
        program.freeze(tmp_path / "p.safetensors")
    with pytest.raises(NotImplementedError, match="can't save step on meta: it calls host.set_grad"):
        replace(program, device=mytorch.device("meta")).freeze(tmp_path / "p.safetensors")
    program = capture(lambda: w * 2)
    w.data = mytorch.ones(3).data
    with pytest.raises(ValueError, match=r"%0: float32\[2\] .* is float32\[3\] of strides \(4,\)"):
        program.freeze(tmp_path / "p.safetensors")


# Damage.


def content_of(tmp_path, name="AdamW"):
    program = captured(name)
    run(program, 1)
    program.freeze(tmp_path / "p.safetensors")
    return mytorch.load(tmp_path / "p.safetensors")


ATTACKS = [
    (["objects", 1, "class"], "Popen", "no object of a program is a 'Popen'"),
    (["objects", 1, "class"], "LBFGS", "no object of a program is a 'LBFGS'"),
    (["objects", 1, "class"], "LambdaLR", "no object of a program is a 'LambdaLR'"),
    (["objects", 1, "groups", 0, 0], 99, "KeyError"),
    (["objects", 1, "groups", 0], [], "the objects: .*parameters"),
    (["objects", 1, "defaults", "eps"], -1.0, "Invalid epsilon"),
    (["objects", 1, "state", "param_groups", 0, "lr"], -1.0, "Invalid learning rate"),
    (["objects", 1, "state", "param_groups", 0, "lr"], "fast", "lr must be a number"),
    (["objects", 1, "state", "param_groups", 0, "betas"], (0.9,), "the objects"),
    (["objects", 1, "state", "state", 0, "exp_avg"], mytorch.ones(3), "doesn't fit"),
    (["objects", 1, "state", "state"], {9: {}}, "there are 6 parameters, 9 has the state"),
    (["objects", 1, "state", "state", 0, "step"], math.nan, "parameter 0 is at step nan"),
    (["objects", 1, "state", "param_groups", 0, "initial_lr"], "x", "initial_lr of a group .* is 'x'"),
    (["objects", 2, "state", "end_factor"], "1", "end_factor of the LinearLR is '1'; .* like 1.0"),
    (["objects", 2, "state", "last_epoch"], 0.5, "last_epoch of the LinearLR is 0.5"),
    (["objects", 2, "state", "base_lrs"], [0.1], r"base_lrs of the LinearLR is \[0.1\]"),
    (["objects", 2, "state", "more"], 1, "the LinearLR has the attributes .*'more'"),
    (["objects", 4, "state", "_milestones"], ["3"], "_milestones of the SequentialLR"),
    (["objects", 2, "optimizer"], 0, "LinearLR is of object 0"),
    (["objects", 2, "state", "total_iters"], "all", "the objects"),
    (["objects", 2, "state", "step"], 1, "the objects"),
    (["objects", 4, "schedulers", 0], 1, "SequentialLR is of object 1"),
    (["objects", 4, "state", "_milestones"], None, "the objects"),
    (["objects", 0, "state"], mytorch.ones(3), "set_state"),
    (["random"], mytorch.ones(3), "set_state"),
    (["tensors", 0, "value"], 99, "the tensors: KeyError"),
    (["tensors", 0, "requires_grad"], 1, "the tensors: one is"),
    (["tensors", 0, "requires_grad"], False, "doesn't require gradients"),
    (["state", 0, "strides"], [16, -4], "can't be a parameter's array"),
    (["grads", "%0"], np.ones(99, np.float32), "the tensors: .*another gradient"),
    (["grads", "%99"], np.ones(3, np.float32), r"no tensors have the gradients \['%99'\]"),
    (["position"], [1], "the position"),
    ("host.step", ["args", 0], {"reference": {"object": 0}}, "no step of a Generator"),
    ("host.step", ["args", 0], {"reference": {"object": 9}}, "IndexError"),
    ("host.step", ["args", 0], {"reference": {"tensor": 9}}, "KeyError"),
    ("host.step", ["args", 0], {"reference": {"import": "os"}}, "a reference is"),
    ("host.call", ["args", 0], {"reference": {"method": [4, "load_state_dict"]}}, "a reference is"),
    ("host.call", ["args", 0], {"reference": {"method": [4, "__init__"]}}, "a reference is"),
    ("host.call", ["args", 0], {"reference": {"method": [0, "set_state"]}}, "a reference is"),
    ("host.call", ["args", 1], (1, 2, 3), "too many positional arguments"),
    ("host.norm", ["args", 1], ("1", 2.0, False), "the arguments are"),
    ("host.norm", ["outputs", 0, "dtype"], "float64", "it gives"),
    ("host.random", ["args", 1], "shuffle", "no attribute 'shuffle'"),
    ("host.random", ["args", 1], "__init__", "there is no '__init__'"),
    ("host.random", ["args", 2], ((1 << 62, 4),), "instruction"),
    ("host.random", ["args", 0], {"reference": {"object": 1}}, "there is no 'standard_normal' of <AdamW>"),
    ("host.set_grad", ["args", 1], {"value": 6}, "the gradient %6"),
    ("host.set_grad", ["outputs", 0, "shape"], [4], "it gives"),
    ("host.set_grad", ["name"], "host.written_by", "no instruction is named"),
    ("host.draw", ["outputs"], [], "it gives 1 results"),
]


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    return content_of(tmp_path_factory.mktemp("content"))


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attacks(attack, content, tmp_path):
    path = tmp_path / "p.safetensors"
    *instruction, place, value, message = attack
    if instruction:
        number = [i["name"] for i in content["instructions"]].index(*instruction)
        place = ["instructions", number, *place]
    mytorch.save(changed(content, place, value), path)
    with pytest.raises(ValueError, match=message) as error:
        thaw(path)
    assert str(error.value).startswith(f"can't load {path}: ")


STRANGE = [
    None, 0, -1, 1 << 70, 0.5, "", "AdamW", "step", [], [0], {}, True, (1, 2), {"value": 0}, 4, np.ones(2),
    {"reference": {"object": 4}}, {"reference": {"tensor": 0}}, {"reference": {"method": [1, "step"]}},
]


def test_random_damage(content, tmp_path):
    """Each is refused, or it is another program, which is printed, optimized and saved as any."""
    path, read = tmp_path / "p.safetensors", 0
    host = [k for k, i in enumerate(content["instructions"]) if i["name"].startswith("host")]
    everywhere = [place for place in places(content) if place[0] not in ("arrays", "inputs", "state")]
    everywhere = [place for place in everywhere if place[0] != "instructions" or {*place} & {*host}]
    for program in programs_of_damaged_files(content, everywhere, STRANGE, path, 25):
        read += 1
        program.save(path)
    assert read < 15
