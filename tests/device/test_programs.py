"""Programs on a GPU (the strict stand-in for CuPy) compute what the same functions do without them."""

import re

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.compiler import capture, load
from mytorch.compiler.program.kernels import KERNELS_IN_HALF
from mytorch.core.flat_buffer import FlatBuffer, GradSlot
from mytorch.models import GPT2, GPT2Config
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves
from tests.compiler.test_capture import FUNCTIONS, X, same
from tests.compiler.test_compiled_steps import CASES, MODULES, batch, training
from tests.on_device import DEVICE, never_waiting

pytestmark = pytest.mark.usefixtures("fake_cuda")


def values(results):
    """The elements of tensors, all of which are on the GPU, and other results."""
    found = []
    for x in leaves(results):
        if isinstance(x, mytorch.Tensor):
            assert x.device == DEVICE
            x = x.detach().numpy(force=True).copy()
        found.append(x)
    return found


def on_gpu(make):
    """What a function makes with new tensors on the GPU, after the same seed."""
    mytorch.manual_seed(0)
    with mytorch.device(DEVICE):
        return make()


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "constants"])  # a NumPy array
def test_functions(name):
    found = []
    for captured in (False, True):
        function, x = on_gpu(lambda: (FUNCTIONS[name](), mytorch.randn(*X)))
        with mytorch.device(DEVICE):
            call = capture(function, x).optimized() if captured else function
            found.append([y for _ in range(3) for y in values(call(x))] + values([x]))
    same(found[1], found[0])


def trained(case, steps=4, **options):
    """All that is left of some steps, and the function; with options it is compiled."""
    make, optimizer, step = CASES[case]
    model = on_gpu(make)
    if options.get("mode"):  # the stand-in draws while a graph is captured, which a GPU doesn't
        for module in model.modules():
            module.p = 0.0
    function = on_gpu(lambda: step(model, optimizer(model.parameters())))
    function = mytorch.compile(function, fullgraph=True, **options) if options else function
    seen = [y for k in range(steps) for y in values(function(*[x.to(DEVICE) for x in batch(k)]))]
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    left = [*model.parameters(), *model.buffers(), *map(mytorch.Tensor, grads)]
    return seen + values([*left, mytorch.rand(3, device=DEVICE)]), function


@pytest.mark.parametrize("name", [name for name in CASES if name != "autocast"])  # on the CPU
def test_training_steps(name):
    same(trained(name, dynamic=False)[0], trained(name)[0])


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    make, shape = MODULES[name]
    found = []
    for compiled in (False, True):
        model, x = on_gpu(lambda: (make(), mytorch.randn(*shape, requires_grad=True)))
        call = mytorch.compile(model, fullgraph=True) if compiled else model
        for _ in range(2):
            results = list(leaves(call(x)))
            sum((y.tanh() * (k + 1)).sum() for k, y in enumerate(results)).backward()
        found.append(values([*results, *[mytorch.Tensor(p.grad) for p in (x, *model.parameters())]]))
    same(found[1], found[0])


def test_a_language_model(monkeypatch, fake_cuda):
    shape = {"vocab_size": 11, "context_length": 8, "n_layer": 1, "n_head": 2, "n_embd": 8, "dropout_p": 0.2}
    idx, found = mytorch.tensor(np.arange(16).reshape(2, 8) % 11, device=DEVICE), []
    for compiled in (False, True):
        model = on_gpu(lambda: GPT2(GPT2Config(**shape)))
        step = training(model, optim.AdamW(model.parameters(), lr=0.01), loss=lambda f, x, y: f(x, y)[1])
        step = mytorch.compile(step, fullgraph=True) if compiled else step
        mytorch.manual_seed(1)
        found.append([step(idx, idx)[0].item() for _ in range(3)])
    np.testing.assert_allclose(found[1], found[0], 1e-5)
    with never_waiting(monkeypatch, fake_cuda):
        step(idx, idx)


GRAPHS = {
    "pooling": lambda x: F.max_pool2d(F.conv2d(x, x[:, :, :3, :3]), 2),
    "unfold": lambda x: x.unfold(2, 3, 2).sum(-1) + F.unfold(x, 2).sum(),
    "topk": lambda x: x.topk(2, 1).values,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_a_graph(name):
    """CuPy's own windows and partitions would wait for the GPU."""
    x, function = mytorch.randn(3, 3, 9, 9, device=DEVICE)[:, :2], GRAPHS[name]
    compiled = mytorch.compile(function, fullgraph=True, mode="reduce-overhead")
    for _ in range(3):
        same([compiled(x).numpy(force=True)], [function(x).numpy(force=True)])
    assert mytorch.compiler.explain(compiled).endswith("in a CUDA graph")


def test_autocast():
    x, found = mytorch.randn(5, 6, device=DEVICE), []
    for compiled in (False, True):
        model = on_gpu(lambda: nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)))

        def function(x):
            with mytorch.autocast("cuda", dtype=mytorch.float16):  # noqa: B023
                y = model(x)  # noqa: B023
                return y, mytorch.autograd.grad(y.float().sum(), list(model.parameters()))  # noqa: B023

        program = capture(function, x).optimized() if compiled else function
        found.append(values(program(x)))
    assert found[0][0].dtype == np.float16 and "float16[5, 8], %" in str(program)
    for ours, want in zip(*found, strict=True):
        np.testing.assert_allclose(ours, want, 2e-3, 2e-3)


def test_a_program_says_where_it_runs():
    program = capture(lambda x: F.softmax(x, -1) + mytorch.zeros_like(x), mytorch.ones(2, 3, device=DEVICE))
    assert str(program).startswith(f"<lambda>(%0: float32[2, 3]) on {DEVICE}\n") and program.device == DEVICE
    source = program.optimized().source()
    assert "@triton.jit" in source and "cupy.empty((2, 3), 'float32')" in source
    with pytest.raises(ValueError, match=r"on cuda:1, as the examples, got float32.* on cpu"):
        program(mytorch.ones(2, 3))


def test_each_device_has_its_program():
    double, x = mytorch.compile(lambda x: x * 2), mytorch.ones(2)
    with F.use_fused(False):
        for where in ("cpu", "cuda:0", "cuda:1", "cpu", "cuda:1"):
            y = double(x.to(where))
            assert y.device == where and y.tolist() == [2, 2]
    assert [reason for reason, _ in double.history] == [
        "first call", "an argument is float32[2] on cuda:0, was float32[2]",
        "an argument is float32[2] on cuda:1, was float32[2] on cuda:0",
    ]
    layer = nn.Linear(2, 2)
    compiled = mytorch.compile(layer)
    for where in ("cpu", DEVICE):
        assert compiled.to(where)(x[None].to(where)).device == where
    assert compiled.forward.history[1][0].startswith("an argument is float32[1, 2] on cuda:1")


SCALE, GENERATOR = mytorch.tensor(2.0), mytorch.Generator()  # on the CPU
REFUSED = {
    "a copy to the CPU": (lambda x: x.sum().cpu(), "a program on cuda:1 can't hold tensors on cpu"),
    "a tensor on the CPU": (lambda x: x * SCALE, "a program on cuda:1 can't hold tensors on cpu"),
    "another GPU": (lambda x: x.to("cuda:0"), "a program on cuda:1 can't hold tensors on cuda:0"),
    "numbers of the CPU": (lambda x: x + mytorch.rand(2, device="cpu"), "can't hold tensors on cpu"),
    "its generator": (lambda x: mytorch.rand(2, device=x.device, generator=GENERATOR), "tensors on cpu"),
    "an element": (lambda x: x * x.sum().item(), "an element of an array"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_programs_on_a_gpu_do_not_hold(name):
    function, message = REFUSED[name]
    with pytest.raises(NotImplementedError, match=message):
        capture(function, mytorch.ones(2, device=DEVICE))


def test_raw_arrays_are_arguments():
    plus = mytorch.compile(lambda x: mytorch.add(x, 1), fullgraph=True)
    for k in (1, 2):
        assert plus(mytorch.full((2,), k, device=DEVICE).data._array).tolist() == [k + 1] * 2
    assert len(plus.history) == 1


def test_an_element_decides():
    absolute = mytorch.compile(lambda x: x if x.sum() > 0 else -x, fullgraph=True)
    for sign in (1, -1, 1, -1):
        assert absolute(sign * mytorch.ones(2, device=DEVICE)).tolist() == [1, 1]
    assert len(absolute.history) == 2


def test_a_saved_program_runs_on_a_gpu(tmp_path):
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.GELU())
    x = mytorch.randn(2, 4)
    capture(model, x).optimized().save(tmp_path / "cpu.safetensors")
    there = load(tmp_path / "cpu.safetensors").to(DEVICE)
    assert there.to(DEVICE) is there
    with F.use_fused(False):
        same(values([there(x.to(DEVICE))]), [model(x).detach().numpy()])
    program = capture(model.to(DEVICE), x.to(DEVICE)).optimized()
    program.save(tmp_path / "gpu.safetensors")
    here = load(tmp_path / "gpu.safetensors")
    with F.use_fused(False):
        assert here.device == "cpu" and mytorch.allclose(here(x), program(x.to(DEVICE)).cpu(), atol=1e-6)
    with pytest.raises(NotImplementedError, match="calls Python's objects, host.random"):
        capture(lambda x: x + mytorch.rand(4), x).to(DEVICE)


def test_no_gradient_is_copied(monkeypatch):
    """Nothing but its parameter refers to the last one when the next one takes its place."""
    reserve, copied = GradSlot.reserve, []

    def reserving(self):
        last = self._last and self._last()
        copied.append(last is not None and last._array is self.raw)
        return reserve(self)

    monkeypatch.setattr(GradSlot, "reserve", reserving)
    trained("tied", dynamic=False)
    assert copied and not any(copied)


# CUDA graphs.


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("usual", "of them"), ("zeroed at the end", "of them"), ("two micro-batches", "of them"),
        ("never zeroed", "of them"), ("by hand", "of them"), ("scheduled", "of them"),
        ("clip_grad_norm", "of them"), ("averaged", "of them"), ("AdamW", "of them"),
        ("zeros in place", "host.call comes first"),
    ],
)
def test_graphed_training_steps(name, part):
    (ours, function), (want, _) = trained(name, 6, mode="reduce-overhead"), trained(name, 6, mode="default")
    line = mytorch.compiler.explain(function).splitlines()[-1]
    assert part in line
    if name in ("usual", "AdamW"):  # all but the step of an optimizer whose learning rate is a float
        count, in_graph = map(int, re.findall(r"(\d+) (?:instructions|of them)", line))
        assert count - in_graph == 1
    same(ours, want)


def graphed(function, *args, **options):
    """A compiled function after the call that captures its graph."""
    function = mytorch.compile(function, fullgraph=True, mode="reduce-overhead", **options)
    for _ in range(3):
        function(*args)
    return function


def test_a_graph_copies_arguments_and_results():
    w, x = mytorch.ones(3, device=DEVICE), mytorch.ones(3, device=DEVICE)
    function = graphed(lambda x: x * w + 1, x)
    assert mytorch.compiler.explain(function).endswith("1 instructions, 1 of them in a CUDA graph")
    y, z = function(x), function(x * 2)
    assert (y.tolist(), z.tolist(), x.tolist()) == ([2] * 3, [3] * 3, [1] * 3)
    w.mul_(5)
    assert function(x).tolist() == [6] * 3
    w.data = mytorch.zeros(3, device=DEVICE).data  # other memory: the graph is captured again
    assert function(x).tolist() == [1] * 3 and function(x).tolist() == [1] * 3
    assert len(function.history) == 1


def test_a_graph_draws_anew():
    mytorch.manual_seed(0)
    x = mytorch.ones(20, device=DEVICE)
    function = graphed(lambda x: (F.dropout(x, 0.5), mytorch.rand_like(x)), x)
    for k in (0, 1):
        assert len({str(function(x)[k].tolist()) for _ in range(4)}) == 4


def test_gradients_of_a_graph():
    """They lie where they did; what holds an old one keeps it, and who takes it away gets the next."""
    model = on_gpu(lambda: nn.Linear(2, 1, bias=False))

    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    x = mytorch.ones(1, 2, device=DEVICE)
    step(x)
    function = graphed(step, x)
    old = model.weight.grad
    function(x * 2)
    assert old.tolist() == [[1, 1]] and model.weight.grad.tolist() == [[2, 2]]
    seen = []
    model.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    function(x)
    assert seen == [[[1, 1]]]  # not in the graph


@pytest.mark.parametrize("factor", [1, 0.5])
@pytest.mark.parametrize("buffered", [True, False])
def test_a_graph_adds_to_the_gradient_that_is_there(buffered, factor):
    model, x = on_gpu(lambda: (nn.Linear(2, 1, bias=False), mytorch.ones(1, 2)))
    weight = model.weight
    if buffered:
        FlatBuffer([weight], values=False)  # as that of an optimizer

    def step(x):
        model(x).sum().backward()
        if factor != 1:
            weight.grad = weight.grad * factor

    step(x)
    function, want = graphed(step, x), factor
    refused = "no CUDA graph: it adds to gradients that are in no optimizer's buffer"
    assert (refused in mytorch.compiler.explain(function)) == (factor != 1 and not buffered)
    for _ in range(3):
        want = (want + 1) * factor
    assert weight.grad.tolist() == [[want] * 2]
    for start in (10, 20):
        weight.grad = mytorch.full((1, 2), start, dtype="float32", device=DEVICE)
        want = start
        for _ in range(2):
            function(x)
            want = (want + 1) * factor
            assert weight.grad.tolist() == [[want] * 2]


def test_a_graph_notices_other_memory_for_gradients():
    model, x = on_gpu(lambda: (nn.Linear(2, 1, bias=False), mytorch.ones(1, 2)))

    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    step(x)
    function = graphed(step, x)
    buffer = FlatBuffer([model.weight], values=False)
    function(x * 3)
    assert buffer.grad[:2].tolist() == [3, 3] and buffer.grad_slots[0].holds(model.weight.grad)


def test_a_graph_counts_its_writes():
    total, x = mytorch.ones(2, device=DEVICE), mytorch.ones(2, device=DEVICE, requires_grad=True)
    function = graphed(lambda y: total.add_(y).sum(), mytorch.ones(2, device=DEVICE))
    z = (x * total).sum()
    function(mytorch.ones(2, device=DEVICE))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def writes(x):
    x.add_(1)


NO_GRAPH = {
    "it writes to an argument": writes,
    "it returns a view of an argument": lambda x: (x[0], x * 2),
    "its backward pass comes later": nn.Linear(2, 2),
    "calling cuBLAS API during stream capture": lambda x: mytorch.linalg.inv(x + mytorch.eye(2).to(x.device)),
}


@pytest.mark.parametrize("reason", NO_GRAPH)
def test_what_is_no_graph(reason):
    function, x = NO_GRAPH[reason], mytorch.ones(2, 2, device=DEVICE)
    function = function.to(DEVICE) if isinstance(function, nn.Module) else function
    compiled = graphed(function, x)
    assert f"no CUDA graph: {reason}" in mytorch.compiler.explain(compiled)
    with F.use_fused(False):
        same(values([compiled(x.clone())]), values([function(x.clone())]))


def test_a_graph_without_gradients():
    model, x = on_gpu(lambda: (nn.Linear(2, 2), mytorch.ones(1, 2)))
    with mytorch.no_grad():
        compiled = graphed(model, x)
        assert compiled(x).tolist() == model(x).tolist()
    assert "of them in a CUDA graph" in mytorch.compiler.explain(compiled)
    assert "graph" not in mytorch.compiler.explain(graphed(lambda x: x + 1, mytorch.ones(2)))  # on the CPU


@pytest.mark.parametrize("name", KERNELS_IN_HALF)
def test_half_precision_is_left_to_the_kernels(name):
    """Casts to float32 and back around a loop are three passes over memory, where the kernel has one."""
    arguments = (1,) if "softmax" in name else ()
    function = getattr(F, name)

    def step(x):
        return function(x * 2, *arguments) * 3

    for dtype, place in (("float16", DEVICE), ("bfloat16", DEVICE), ("float32", DEVICE), ("float16", "cpu")):
        found = []
        for call in (step, mytorch.compile(step, fullgraph=True)):
            x = mytorch.linspace(-2, 3, 12, device=place).reshape(3, 4).to(dtype).requires_grad_()
            y = call(x)
            y.backward(mytorch.ones_like(y))
            found.append([y.detach().cpu().float().numpy(), x.grad.cpu().to(mytorch.float32).numpy()])
        tolerance = {"float16": 1e-2, "bfloat16": 5e-2}.get(dtype, 1e-5)
        np.testing.assert_allclose(found[1][0], found[0][0], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(found[1][1], found[0][1], rtol=tolerance, atol=tolerance)
        program = capture(step, x.detach()).optimized()
        is_kernel = f"kernel('{name}'" in str(program)
        assert is_kernel == (dtype != "float32" and place == DEVICE)
