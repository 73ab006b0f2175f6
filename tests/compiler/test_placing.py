"""Programs on several devices compute the same, bit for bit, and cross where the fewest bytes do."""

import random
import threading

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.backends.device import _CUDA, META, device_of
from mytorch.backends.holding import HoldingArray, HoldingKind
from mytorch.compiler import capture
from mytorch.compiler.placing import placed as placing
from mytorch.compiler.placing.assignment import Assignment
from mytorch.compiler.placing.dataflow import Dataflow
from mytorch.compiler.placing.demand import Demand
from mytorch.core.tensor import raw_of
from mytorch.models import GPT2, GPT2Config
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves
from tests import strict_cupy
from tests.compiler.test_capture import FUNCTIONS as CAPTURED
from tests.compiler.test_capture import X as SHAPE
from tests.compiler.test_chunking import FUNCTIONS, X
from tests.compiler.test_compiled_steps import CASES as STEPS
from tests.compiler.test_compiled_steps import batch
from tests.each import each
from tests.every import every


@pytest.fixture
def gpus(fake_cuda):
    """Three GPUs of the stand-in; the third is unknown again after the test."""
    strict_cupy.install(device_count=3)
    yield
    _CUDA.pop(2, None)


class Apart(HoldingKind):
    """Arrays that don't mix with those of another device."""

    def call(self, name, function, args, kwargs):
        for x in leaves((args, kwargs)):
            if isinstance(x, HoldingArray) and x.kind is not self:
                raise TypeError(f"{name}: an array on {x.device.full_name}, and one on {self.name}")
        return super().call(name, function, args, kwargs)

    def take(self, raw, target):
        return super().take(raw.copy(), target)  # each device has a memory of its own


def devices(count, kind=Apart, *args):
    kinds = [kind(*args) for _ in range(count)]
    for k, made in enumerate(kinds):
        made.name = f"part {k}"
    return [made.device for made in kinds]


def elements(results):
    return [x.detach().numpy(force=True).copy() for x in leaves(results) if isinstance(x, mytorch.Tensor)]


def assert_equal(ours, want):
    assert len(ours) == len(want)
    for a, b in zip(ours, want, strict=True):
        np.testing.assert_array_equal(a, b)


def anywhere(monkeypatch, choose):
    """Lets a function choose the device of each group of instructions."""

    def assigned(program, targets, room):
        flow = Dataflow(program)
        devices = {group: choose(group) % len(room) for group in dict.fromkeys(flow.group.values())}
        found = Assignment(flow, devices)
        return found, Demand(flow).peaks(found.homes, found.copies, found.segments(), len(room))

    monkeypatch.setattr(placing, "assigned", assigned)


def captured(name):
    mytorch.manual_seed(0)
    return CAPTURED[name](), mytorch.randn(*SHAPE)


CASES = {name: lambda name=name: captured(name) for name in CAPTURED if name not in ("in place", "constants")}
CASES |= {f"{name} in parts": lambda f=f: (f, X) for name, (f, _) in FUNCTIONS.items()}


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values_cross_anywhere(name, optimized, monkeypatch):
    found = []
    for seed in range(4):
        draw = random.Random(seed)
        anywhere(monkeypatch, lambda i: draw.randrange(3) if seed else 0)  # noqa: B023
        function, x = CASES[name]()
        with F.use_fused(optimized):
            program = capture(function, x)
        program = program.optimized() if optimized else program
        held = [(owner(), owner().data) for owner in program.owners.values() if owner() is not None]
        call = program.placed(devices(3))
        found.append([y for _ in range(2) for y in elements(call(x))])
        for owner, data in held:  # of the module
            owner.data, owner.grad = data, None
        assert_equal(found[0], found[-1])


GPT = {"vocab_size": 65, "context_length": 16, "n_layer": 4, "n_head": 2, "n_embd": 32}


def trained(place, dropout=0.0, clip=False, device=None):
    """All that is left of four steps, and what ran them."""
    mytorch.manual_seed(0)
    model = GPT2(GPT2Config(**GPT, dropout_p=dropout)).to(device or "cpu")
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2)

    def step(x, y):
        optimizer.zero_grad()
        loss = model(x, y)[1]
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0) if clip else None
        optimizer.step()
        schedule.step()
        return loss, norm

    text = [mytorch.from_numpy(np.random.default_rng(k).integers(0, 65, (4, 17))) for k in range(4)]
    batches = [[x.contiguous().to(device or "cpu") for x in (t[:, :-1], t[:, 1:])] for t in text]
    program = capture(step, *batches[0]).optimized()
    call = place(program)
    found = [x for batch in batches for x in elements(call(*batch))]
    state = [x for p in model.parameters() for x in optimizer.state[p].values() if x.ndim]
    grads = [mytorch.Tensor(p.grad) for p in model.parameters()]
    for p in model.parameters():
        moments = [x.device for x in optimizer.state[p].values() if x.ndim]
        assert every(x.kind is p.device.kind for x in (p.grad.device, *moments))
    return found + elements([*model.parameters(), *grads, *state]), call, model


def test_a_training_step_on_several_devices():
    want, one, _ = trained(lambda program: program.placed(devices(1)))
    for count, share in ((2, 0.7), (3, 0.6), (4, 0.7)):
        limit = int(share * one.needed[0])
        found, call, model = trained(lambda program: program.placed(devices(count), memory=limit))  # noqa: B023
        assert_equal(found, want)
        assert len({p.device.full_name for p in model.parameters()}) >= min(count, 2)
        assert max(call.needed) <= limit < one.needed[0] and one.nbytes == 0 < call.nbytes
    one = trained(lambda program: program.placed(devices(1)), clip=True)[0]
    two = trained(lambda program: program.placed(devices(2), limit), clip=True)[0]
    for a, b in zip(one, two, strict=True):  # the norm adds up vectors, which are others
        np.testing.assert_allclose(a, b, 1e-3, 1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_training_step_on_gpus(gpus, dropout):
    want = trained(lambda program: program, dropout, device="cuda:0")[0]
    for limits in ({0: "1MB", 1: "1MB"}, {"cuda:0": "0.7MB", 1: "0.7MB", 2: "0.9MB"}):
        found, call, model = trained(lambda program: program.placed(limits), dropout, device="cuda:0")  # noqa: B023
        assert_equal(found, want)
        assert {p.device for p in model.parameters()} == {*call.devices}


@each("name", STEPS)
def test_training_steps_cross_anywhere(name, gpus, monkeypatch):
    """On one of three GPUs, and with instructions on any of them."""
    make, optimizer, step = STEPS[name]
    found = []
    for seed in range(2):
        draw = random.Random(seed)
        anywhere(monkeypatch, lambda i: draw.randrange(3) if seed else 0)  # noqa: B023
        mytorch.manual_seed(0)
        with mytorch.device("cuda:0"):
            model = make()
            function = step(model, optimizer(model.parameters()))
            program = capture(function, *[x.to("cuda:0") for x in batch(0)]).optimized()
        call = program.placed([0, 1, 2]) if seed else program
        values = [y for k in range(3) for y in elements(call(*[x.to("cuda:0") for x in batch(k)]))]
        found.append(values + elements([*model.parameters(), *model.buffers()]))
    for a, b in zip(*found, strict=True):
        tolerances = (1e-5, 1e-6) if "clip" in name else (0, 0)
        np.testing.assert_allclose(a, b, *tolerances)


@pytest.mark.parametrize("optimized", [False, True])
def test_the_fewest_bytes_cross(optimized):
    mytorch.manual_seed(0)
    sizes = (64, 96, 8, 96, 64)
    model = nn.Sequential(*[nn.Linear(a, b, bias=False) for a, b in zip(sizes, sizes[1:])])  # noqa: B905

    def step(x):
        loss = model(x).square().sum()
        loss.backward()
        return loss

    program = capture(step, mytorch.randn(16, 64))
    program = program.optimized() if optimized else program
    needed = program.placed(devices(1)).needed[0]
    call = program.placed(devices(2), memory=int(0.7 * needed))
    assert call.nbytes == 2 * 16 * 8 * 4  # the narrow activation, and its gradient
    text = str(call)
    assert text.startswith("step: 2 copies of 1.0 kB between devices in a run\n  cpu (part 0): needs ")
    assert text.count("  -> cpu (part") == 2 and "on cpu (part 1):\n  %" in text


def test_what_does_not_fit_says_how_much_it_needs():
    w = mytorch.randn(100, 100)
    program = capture(lambda x: (x @ w).relu() @ w, mytorch.ones(4, 100))
    with pytest.raises(ValueError, match="<lambda> doesn't fit its devices, it needs .* of 30.0 kB on cpu"):
        program.placed({"cpu": "30 kB"})
    assert device_of(raw_of(w)) == "cpu"  # nothing has moved
    for wrong in ([], ["cpu", "cpu"]):
        with pytest.raises(ValueError, match="expected devices that differ"):
            program.placed(wrong)
    with pytest.raises(ValueError, match="a limit of cpu, which is none of meta"):
        program.placed(["meta"], memory={"cpu": 10})
    with pytest.raises(ValueError, match=r"placed\(\): memory is a positive number of bytes"):
        program.placed(["cpu"], memory="much")


def test_devices_without_elements():
    """Where a model fits can be found out without its memory."""
    layers = nn.Sequential(*[nn.Linear(100, 100) for _ in range(4)])
    program = capture(lambda x: layers(x), mytorch.ones(4, 100))
    call = program.placed(devices(3, Apart, META), "86kB")
    assert call(mytorch.ones(4, 100)).shape == (4, 100)
    assert call.needed == [85_600, 85_600, 0] and call.nbytes == 4 * 100 * 4


def test_what_two_devices_use_of_the_state():
    """A tensor crosses once, and again after it was written to."""
    mytorch.manual_seed(0)
    table, first, last = [mytorch.randn(50, 50) for _ in range(3)]
    x = mytorch.ones(2, 50)
    program = capture(lambda x: (x @ table @ first).relu() @ last @ table, x)
    call, sent = program.placed(devices(2), 25_000), []
    send = call._transfers.send
    call._transfers.send = lambda raw, target: sent.append(raw.shape) or send(raw, target)
    counts, found = [], []
    for factor in (None, None, 2.0, None):
        if factor:
            table.mul_(factor)
        found += elements(call(x))
        counts.append(sent.count((50, 50)))
    assert counts == [1, 1, 2, 2] and call.nbytes == 2 * 50 * 4
    assert_equal(found, [found[0], found[0], 4 * found[0], 4 * found[0]])


def evaluating():
    mytorch.manual_seed(0)
    first, last = nn.Linear(40, 40), nn.Linear(40, 40)
    optimizer = optim.SGD([*first.parameters(), *last.parameters()], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        last(first(x)).square().mean().backward()
        optimizer.step()
        with mytorch.no_grad():
            return last(first(last(x)))

    return capture(step, mytorch.ones(2, 40))


def test_a_program_that_evaluates_after_its_step(monkeypatch):
    """What a step writes to crosses again in the same run."""
    found = []
    for seed in range(4):
        draw = random.Random(seed)
        anywhere(monkeypatch, lambda i: draw.randrange(2) if seed else 0)  # noqa: B023
        call = evaluating().placed(devices(2))
        found.append([y for k in range(3) for y in elements(call(mytorch.full((2, 40), float(k))))])
        assert not seed or [x for x in call._assignment.copies if x in call._state]
        assert_equal(found[0], found[-1])


def test_copies_are_made_beside_the_program(monkeypatch):
    """A copy here waits for what its source computes after it: it would wait for ever if the program did."""
    computed, waited = threading.Event(), []

    class Later(Apart):
        def call(self, name, function, args, kwargs):
            if name == "cos":
                computed.set()
            return super().call(name, function, args, kwargs)

        def take(self, raw, target):
            if target.full_name.endswith("part 1)"):
                waited.append(computed.wait(20))
            return super().take(raw, target)

    anywhere(monkeypatch, lambda i: int(i.name == "add"))
    program = capture(lambda x: (y := x * 2, x.cos(), y + 1)[1:], mytorch.ones(3, 7))
    call = program.placed(devices(2, Later))
    results = call(mytorch.ones(3, 7))
    assert [x.device.full_name for x in results] == ["cpu (part 0)", "cpu (part 1)"] and waited == [True]


def test_what_is_refused(fake_cuda):
    layer = nn.Linear(100, 100)
    program = capture(lambda x: layer(layer(x)), mytorch.ones(2, 100))
    call = program.placed(["cuda:1"])
    want = call(mytorch.ones(2, 100, device="cuda:1")).numpy(force=True)
    np.testing.assert_array_equal(call(mytorch.ones(2, 100)).numpy(force=True), want)  # from any device
    with pytest.raises(NotImplementedError, match="can't save <lambda> on 1 devices: save the program"):
        call.save("program.safetensors")
    with pytest.raises(ValueError, match=r"expected %\d: float32\[2, 100\] of strides .*, got float32"):
        call(mytorch.ones(3, 100))
    layer.to("cpu")
    with pytest.raises(RuntimeError, match="a tensor of the program's state was .* on cuda:1, and is .* cpu"):
        call(mytorch.ones(2, 100))
    layer.to("cuda:1")
    call(mytorch.ones(2, 100))
    strict_cupy.device.reset(1)
    with pytest.raises(RuntimeError, match="<lambda> runs on cuda:1, which isn't there any more"):
        call(mytorch.ones(2, 100))
    with pytest.raises(ValueError, match="can't place .*: it writes to its inputs"):
        capture(lambda x: x.add_(1), mytorch.ones(3)).placed(["cpu"])
    with pytest.raises(NotImplementedError, match="has gaps between its elements"):
        capture(lambda x: x + 1, mytorch.ones(3, 4)[:, :2]).placed(["cpu"])


def test_on_one_device_it_is_the_plain_program():
    """The text, the values and the number of segments."""
    model = nn.Linear(8, 8)
    optimizer = optim.SGD(model.parameters(), lr=0.001)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    program = capture(step, mytorch.ones(2, 8)).optimized()
    call = program.placed(["cpu", "meta"], {"cpu": "1MB"})
    assert [segment.instructions for _, segment, _ in call._segments] == [program.instructions]
    assert "\n".join([f"  {i}" for i in program.instructions]) in str(call) and call.nbytes == 0
    first = call(mytorch.ones(2, 8))
    assert program(mytorch.ones(2, 8)).item() < first.item()  # the same state
