"""Kinds of arrays from outside of the package: one that counts calls, and one that holds an array a rank."""

import ast
import copy
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.backends.blas import add_product
from mytorch.backends.device import is_on_host
from mytorch.backends.door import Kind, in_force
from mytorch.backends.holding import HoldingArray, HoldingKind
from mytorch.core.tensor import raw_of
from mytorch.models import GPT2, GPT2Config
from mytorch.nn import functional as F


class Counting(HoldingKind):
    """Counts the calls of NumPy's functions, and the bytes that they read and write."""

    def __init__(self, *args):
        super().__init__(*args)
        self.calls, self.bytes = {}, 0

    def call(self, name, function, args, kwargs):
        result = super().call(name, function, args, kwargs)
        self.calls[name] = self.calls.get(name, 0) + 1
        self.bytes += sum(x.nbytes for x in (*args, result) if isinstance(x, HoldingArray))
        return result


class TwoRanks(HoldingKind):
    """Holds an array for each of two ranks, which run in lockstep, and is what they reduce with."""

    count = ranks = 2

    def collectives(self, group):
        return self

    def all_reduce(self, raw, op):
        total = np.maximum(*raw.parts) if op is dist.ReduceOp.MAX else sum(raw.parts)
        for part in raw.parts:
            part[...] = total

    def broadcast(self, raw, root):
        raw.parts[1][...] = raw.parts[0]

    def scatter(self, x):
        """The halves of a batch, one for each rank."""
        return mytorch.Tensor(HoldingArray(np.split(x.numpy(), 2), self))

    def average(self, raw):
        """The all-reduce of data parallelism, in place."""
        mean = sum(raw.parts) / self.count
        for part in raw.parts:
            part[...] = mean

    def mean(self, x):
        return np.mean([part.item() for part in raw_of(x).parts])


def batches():
    rng = np.random.default_rng(0)
    for _ in range(3):
        text = rng.integers(0, 65, (2, 17))
        yield mytorch.from_numpy(text[:, :-1].copy()), mytorch.from_numpy(text[:, 1:].copy())


def adamw(model):
    return model, mytorch.optim.AdamW(model.parameters(), lr=1e-3)


def trained(scatter=lambda x: x, average=lambda raw: None, value=mytorch.Tensor.item, half=False, wrap=adamw):
    """The losses and norms of three steps of a GPT nano."""
    mytorch.manual_seed(0)
    model, optimizer = wrap(GPT2(GPT2Config.of_size("nano", vocab_size=65, context_length=16)))
    scaler = mytorch.amp.GradScaler("cpu", init_scale=1024.0, enabled=half)
    found = []
    for x, y in batches():
        with mytorch.autocast("cpu", dtype=mytorch.float16, enabled=half):
            loss = model(scatter(x), scatter(y))[1]
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        for p in model.parameters():
            average(raw_of(p.grad))
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        found.append((value(loss), norm.item()))
    return found


@pytest.fixture
def numpys():
    """What NumPy's arrays give without kernels, whose sums are rounded otherwise."""
    with F.use_fused(False):
        return trained()


def test_a_kind_that_counts_trains_a_gpt(numpys):
    with Counting() as kind:
        got = trained()
    np.testing.assert_allclose(got, numpys, rtol=1e-5)
    assert kind.calls["matmul"] > 100 and kind.bytes > 1e7


def test_a_kind_that_holds_two_ranks_trains_a_gpt(numpys):
    with TwoRanks() as kind:
        got = trained(kind.scatter, kind.average, kind.mean)
    np.testing.assert_allclose(got, numpys, rtol=1e-5)


@pytest.fixture
def alone():
    dist.init_process_group("single")
    yield
    dist.destroy_process_group()


def ddp(model):
    return adamw(dist.DistributedDataParallel(model))


def ddp_and_zero(model):
    model = dist.DistributedDataParallel(model)
    return model, dist.ZeroRedundancyOptimizer(model.parameters(), mytorch.optim.AdamW, lr=1e-3)


@pytest.mark.parametrize("wrap", [ddp, ddp_and_zero])
def test_ddp_and_zero_reduce_with_the_collectives_of_the_kind(wrap, numpys, alone):
    with TwoRanks() as kind:
        got = trained(kind.scatter, value=kind.mean, wrap=wrap)
    np.testing.assert_allclose(got, numpys, rtol=1e-5)
    with F.use_fused(False), Counting():
        got = trained(wrap=wrap)  # a kind that holds one array has the collectives of that
    np.testing.assert_allclose(got, numpys, rtol=1e-5)


def test_ddp_starts_with_the_weights_of_the_first_rank(alone):
    with TwoRanks() as kind:
        layer = nn.Linear(2, 2)
        raw_of(layer.weight).parts[1][...] += 1
        buffer = mytorch.Tensor(HoldingArray([np.ones(2, "f4"), np.zeros(2, "f4")], kind))
        layer.register_buffer("scale", buffer)
        dist.DistributedDataParallel(layer)
    for x in (layer.weight, layer.scale):
        np.testing.assert_array_equal(*raw_of(x).parts)


def test_an_inf_on_one_rank_is_skipped_on_both(alone):
    with TwoRanks() as kind:
        p = nn.Parameter(mytorch.ones(1))
        optimizer, scaler = mytorch.optim.SGD([p], lr=1.0), mytorch.amp.GradScaler(init_scale=4.0)
        factor = mytorch.Tensor(HoldingArray([np.ones(1, "f4"), np.full(1, np.inf, "f4")], kind))
        scaler.scale(p * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert p.item() == 1 and scaler.get_scale() == 2


def test_a_kind_without_collectives_says_so(alone):
    kind = type("Silent", (HoldingKind,), {"count": 2})()
    held = HoldingArray([np.ones(2), np.ones(2)], kind)
    with pytest.raises(NotImplementedError, match="arrays of Silent have no collectives"):
        dist.all_reduce(held)


def test_no_program_leaves_out_a_collective(alone):
    def reduced(x):
        dist.all_reduce(x)
        return x

    with pytest.raises(NotImplementedError, match=r"all_reduce\(\) of a process group"):
        mytorch.capture(reduced, mytorch.ones(2))


def test_kinds_hold_arrays_of_any_kind(numpys):
    with TwoRanks() as ranks, Counting(ranks.device) as kind:

        def scatter(x):
            return mytorch.Tensor(HoldingArray([raw_of(ranks.scatter(x))], kind))

        got = trained(
            scatter, lambda raw: ranks.average(raw.parts[0]), lambda x: ranks.mean(raw_of(x).parts[0])
        )
    np.testing.assert_allclose(got, numpys, rtol=1e-5)
    assert kind.calls["matmul"] > 100


@pytest.mark.parametrize("kind", [Counting, TwoRanks])
def test_half_precision_with_a_loss_scale(kind):
    with F.use_fused(False):
        want = trained(half=True)
    with kind() as kind:
        got = trained(half=True)
    np.testing.assert_allclose(got, want, rtol=2e-3)


def test_a_step_without_elements_is_counted():
    meta = mytorch.device("meta")
    with Counting(mytorch.empty(1, device=meta).device) as kind:
        x = mytorch.zeros(4, 3, device="meta", requires_grad=True)
        (x @ x.T).sum().backward()
    assert x.grad.shape == (4, 3) and kind.calls["matmul"] == 3


def test_a_model_made_before_is_lifted_and_keeps_its_memory():
    layer, x = nn.Linear(3, 2), mytorch.randn(4, 3)
    want = layer(x)
    with Counting() as kind:
        got = layer(x)
        got.sum().backward()
    np.testing.assert_allclose(raw_of(got).parts[0], want.detach().numpy(), 1e-6)
    assert type(raw_of(layer.weight)) is np.ndarray and type(raw_of(layer.weight.grad)) is np.ndarray
    assert kind.calls["matmul"]


@pytest.mark.parametrize("name", ["data", "grad", "an element"])
def test_an_array_of_another_kind_is_lifted_or_refused(name):
    p, ranks = mytorch.zeros(2, requires_grad=True), TwoRanks()
    other = mytorch.Tensor(HoldingArray([np.ones(2, "float32"), np.full(2, 2, "float32")], ranks))
    if name == "data":
        p.data = other
        (p * 3).sum().backward()
        assert [part.tolist() for part in raw_of(p.grad).parts] == [[3, 3], [3, 3]]
    elif name == "grad":
        with pytest.raises(RuntimeError, match=r"device cpu, got .* cpu \(TwoRanks\)"):
            p.grad = other
    else:
        with pytest.raises(TypeError, match="the parts of TwoRanks differ"):
            p.detach()[:] = other


def test_what_python_reads_must_be_one_value():
    ranks = TwoRanks()
    x = mytorch.Tensor(HoldingArray([np.array([1.0]), np.array([2.0])], ranks))
    with pytest.raises(RuntimeError, match=r"parts of TwoRanks have \[1.0, 2.0\]"):
        x.item()
    same = mytorch.Tensor(HoldingArray([np.array([np.nan]), np.array([np.nan])], ranks))
    assert np.isnan(same.item())
    with pytest.raises(TypeError, match="the parts of TwoRanks differ"):
        x.numpy()


def test_kinds_do_not_mix_by_themselves():
    with Counting():
        x = mytorch.ones(2)
    with pytest.raises(RuntimeError, match=r"got cpu and cpu \(Counting\)"):
        x + mytorch.ones(2)
    with pytest.raises(TypeError, match="by itself"):
        np.zeros(2)[:] = raw_of(x)


def test_no_array_of_another_kind_is_written_part_by_part():
    ranks = TwoRanks()
    held, plain = HoldingArray([np.ones(2), np.full(2, 2.0)], ranks), np.zeros(2)
    writes = {
        "+=": lambda: np.add(plain, held, out=plain), "copyto": lambda: np.copyto(plain, held),
        "add.at": lambda: np.add.at(plain, [0], held[:1]),
        "a product": lambda: add_product(held[None], held[:, None], plain[None, :1]),
        "meta": lambda: np.add(on_meta, 1, out=plain),
    }
    on_meta = raw_of(mytorch.ones(2, device="meta"))
    for name, write in writes.items():
        with pytest.raises(TypeError, match="can't be written"):
            write()
        assert not plain.any(), name
    base = mytorch.zeros(4)
    with ranks, pytest.raises((RuntimeError, ValueError), match="read-only"):
        base[:2].add_(mytorch.Tensor(HoldingArray([np.ones(2, "f4"), np.ones(2, "f4")], ranks)))
    assert not base.numpy().any()


def test_parts_have_one_shape():
    ranks = TwoRanks()
    x = mytorch.Tensor(HoldingArray([np.array([1.0, 2]), np.array([1.0, -2])], ranks))
    for make in (lambda: x[x > 0], lambda: HoldingArray([np.ones(2), np.ones(3)], ranks)):
        with pytest.raises(RuntimeError, match=r"holds 2 of one shape and dtype"):
            make()


def test_data_of_another_dtype_or_kind_leaves_the_flat_gradient():
    p = nn.Parameter(mytorch.ones(2))
    optimizer = mytorch.optim.SGD([p], lr=0.1)
    (p * 3).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    p.data = mytorch.tensor([1.0, 2.0], dtype=mytorch.float64) / 3
    (p / 3).sum().backward()
    assert p.grad.dtype == mytorch.float64 and p.grad.tolist() == [1 / 3, 1 / 3]
    optimizer.zero_grad()
    with Counting() as kind:
        p.data = mytorch.ones(2)
        (p * 3).sum().backward()
    assert raw_of(p.grad).kind is kind


USES = {
    "random numbers": lambda: mytorch.randn(3) + mytorch.randint(0, 3, (3,)) + mytorch.tensor([1.0, 2, 3]),
    "masks": lambda: mytorch.arange(4.0)[mytorch.tensor([True, False, True, False])],
    "numpy": lambda: mytorch.tensor(mytorch.ones(3).numpy()) + mytorch.ones(3).cpu(),
    "a diagonal": lambda: mytorch.ones(3, 3).diagonal().add_(1),
    "complex": lambda: mytorch.complex(mytorch.ones(2), mytorch.ones(2)).abs(),
    "attention": lambda: F.scaled_dot_product_attention(*[mytorch.ones(1, 2, 4, 3)] * 3, is_causal=True),
    "dropout": lambda: F.dropout(mytorch.ones(3), 0.5) * 0,
    "convolution": lambda: F.conv2d(mytorch.ones(1, 1, 4, 4), mytorch.ones(1, 1, 2, 2)),
    "cross entropy": lambda: F.cross_entropy(mytorch.ones(3, 4), mytorch.tensor([0, 1, 2])),
    "rotary": lambda: nn.RotaryEmbedding(4)(mytorch.ones(1, 2, 3, 4)),
    "a copy": lambda: copy.deepcopy(nn.Linear(2, 2))(mytorch.ones(1, 2)),
}


@pytest.mark.parametrize("name", USES)
def test_what_programs_do_in_a_block(name):
    mytorch.manual_seed(0)
    with F.use_fused(False):
        want = USES[name]().detach().numpy()
    mytorch.manual_seed(0)
    with Counting() as kind:
        got = USES[name]().detach()
    assert raw_of(got).kind is kind
    np.testing.assert_allclose(raw_of(got).parts[0], want, 1e-6)
    with F.use_fused(False):
        USES[name]()  # nothing of the block is left


def test_loading_the_state_of_an_optimizer_in_a_block():
    layer = nn.Linear(2, 2)
    optimizer = mytorch.optim.AdamW(layer.parameters())
    layer(mytorch.ones(1, 2)).sum().backward()
    optimizer.step()
    with Counting():
        other = nn.Linear(2, 2)
        theirs = mytorch.optim.AdamW(other.parameters())
        theirs.load_state_dict(optimizer.state_dict())
        other(mytorch.ones(1, 2)).sum().backward()
        theirs.step()
        assert theirs.state[other.weight]["step"].item() == 2


@pytest.mark.parametrize("name", ["SGD", "AdamW", "LBFGS"])
def test_an_optimizer_steps_before_in_and_after_a_block(name):
    def losses(kinds):
        p, found = nn.Parameter(mytorch.ones(3, 2)), []
        optimizer = getattr(mytorch.optim, name)([p], lr=0.01)

        def closure():
            optimizer.zero_grad()
            loss = ((x @ p - 1) ** 4).sum()
            loss.backward()
            return loss

        for kind in kinds:
            with kind:
                found.append(optimizer.step(closure).item())
        return found

    mytorch.manual_seed(0)
    x = mytorch.randn(4, 3)
    with F.use_fused(False):
        want = losses([nullcontext()] * 4)
    inside, outside = Counting(), nullcontext()
    np.testing.assert_allclose(losses([inside, outside] * 2), want, rtol=1e-4)
    np.testing.assert_allclose(losses([outside, inside] * 2), want, rtol=1e-4)


def test_a_kind_by_the_name_of_its_device():
    for name in ("cpu", mytorch.device("cpu")):
        with Counting(name) as kind:
            mytorch.ones(2) + 1
        assert kind.calls["add"] == 1


def test_programs_hold_no_kinds_of_others():
    with Counting():
        survivor = mytorch.ones(3)
    compiled = mytorch.compile(lambda x: (x * 2).tanh())
    with pytest.warns(UserWarning, match="can't hold arrays of Counting"):
        assert raw_of(compiled(survivor)).parts[0].tolist() == pytest.approx([np.tanh(2)] * 3)
    assert compiled(mytorch.ones(3)).tolist() == pytest.approx([np.tanh(2)] * 3)


def test_a_compiled_function_runs_eagerly_while_a_kind_is_in_force():
    compiled = mytorch.compile(lambda x: (x * 2).tanh())
    x = mytorch.randn(3)
    want = compiled(x)
    with Counting() as kind:
        assert raw_of(compiled(x)).parts[0].tolist() == pytest.approx(want.tolist())
        with pytest.raises(RuntimeError, match="while Counting is in force"):
            mytorch.capture(lambda x: x * 2, mytorch.ones(2))
    assert kind.calls == {"multiply": 1, "tanh": 1, "ones": 1}


def test_kinds_are_left_in_order():
    outer, inner = Counting(), Counting()
    with outer:
        inner.__enter__()
        with pytest.raises(RuntimeError, match="has to be left first"):
            outer.__exit__()
        inner.__exit__()
        assert in_force() is outer
        with pytest.raises(RuntimeError, match="isn't in force in this thread"):
            inner.__exit__()
    assert type(in_force()).__mro__[1] is Kind


# Places outside of the door that ask what a program, a stream or an array without elements needs, and those
# that ask for NumPy's own type, with the reason for each file.

STREAM = "an operation is noted: the log, the profiler and the timeline are views of it"
ASKING = {
    "autograd/function.py": (1, STREAM), "core/engine.py": (1, STREAM), "core/op.py": (2, STREAM),
    "distributed/process_group.py": (1, STREAM), "nn/module.py": (1, STREAM), "ops/inplace.py": (2, STREAM),
    "optim/optimizer.py": (1, STREAM), "profiler/profile.py": (1, STREAM),
    "utils/data/passes.py": (1, STREAM),
    "models/decoder.py": (1, "one call for a whole token, which notes nothing"),
}
FASTER = "a faster way to the same result: "
NUMPYS_TYPE = {
    "aliases/foreach.py": (1, FASTER + "one ufunc instead of an op for each tensor"),
    "backends/address.py": (1, "the pointer is read from the header of NumPy's C structure"),
    "backends/blas.py": (1, FASTER + "what the kinds' `product` leads to, in each product"),
    "backends/device.py": (3, "the questions that the others ask are answered here"),
    "backends/jit.py": (1, FASTER + "arguments of a kernel, whose number of elements decides on threads"),
    "core/array.py": (4, FASTER + "no GPU was waited for; `is_raw` says the same of a result"),
    "core/closure.py": (1, FASTER + "`is_raw` says the same of a variable of a closure"),
    "core/engine.py": (2, "only of NumPy's arrays it is known how many references an owner has"),
    "core/op.py": (5, FASTER + "`device_of`, `is_raw` and `as_raw` say the same, in each op"),
    "ops/create.py": (2, "from_numpy takes NumPy's arrays"),
    "ops/elementwise/operands.py": (1, FASTER + "a divisor is looked at without a message for the GPU"),
    "ops/reduce.py": (1, FASTER + "BLAS adds up what is contiguous"),
    "serialization.py": (1, "what is loaded has the type of what was saved"),
    "tokenizers/gguf.py": (1, "the lists of a file are NumPy's arrays, where they are long"),
    "utils/data/collate.py": (1, FASTER + "samples are copied into one array, without a tensor each"),
    "utils/data/ring.py": (1, "a pickle has NumPy's arrays beside it"),
}
DOOR = ("stream/", "compiler/", "backends/meta/", "backends/door", "backends/holding", "backends/kinds")


def asks_what_is_in_force(node):
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        return ast.unparse(node) in ("thread.tracer", "_state.stream")
    is_read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    return is_read and node.id in ("TRACED", "is_meta", "refuse_tracing")


def asks_for_numpys_type(node):
    """`isinstance(x, np.ndarray)`, `type(x) is np.ndarray`, `kind in (np.ndarray, …)`, and a `case`."""
    if isinstance(node, ast.Compare):
        types = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
        types = node.args[1:]
    elif isinstance(node, ast.MatchClass):
        types = [node.cls]
    else:
        return False
    flat = [part for x in types for part in (x.elts if isinstance(x, ast.Tuple) else [x])]
    return any("np.ndarray" in ast.unparse(x).split(" | ") for x in flat)


def counted(asks):
    """How often a question is asked, by file."""
    root, found = Path(mytorch.__file__).parent, {}
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        count = sum(map(asks, ast.walk(ast.parse(path.read_text()))))
        if count and not name.startswith(DOOR):
            found[name] = count
    return found


def test_nobody_outside_asks_what_is_in_force():
    assert counted(asks_what_is_in_force) == {name: count for name, (count, _) in ASKING.items()}


def test_nobody_outside_asks_for_numpys_type():
    assert counted(asks_for_numpys_type) == {name: count for name, (count, _) in NUMPYS_TYPE.items()}
    places = [*ASKING.values(), *NUMPYS_TYPE.values()]
    assert sum(count for count, _ in places) <= 40
    assert sum(count for count, reason in places if not reason.startswith(FASTER)) <= 24


QUESTIONS = {
    "isinstance(x, np.ndarray)": 1, "isinstance(x, (np.ndarray, np.generic))": 1,
    "isinstance(x, Sequence | np.ndarray)": 1, "type(x) not in (np.ndarray, np.memmap)": 1,
    "type(x) is not np.ndarray": 1, "match x:\n    case np.ndarray(): ...": 1,
    "def f(x: np.ndarray) -> np.ndarray: ...": 0, "isinstance(x, Array)": 0,
}


@pytest.mark.parametrize("text", QUESTIONS)
def test_questions_for_numpys_type_are_found(text):
    assert sum(map(asks_for_numpys_type, ast.walk(ast.parse(text)))) == QUESTIONS[text]


def test_what_lies_in_numpys_memory():
    others = {
        "meta": raw_of(mytorch.ones(2, device="meta")), "held": HoldingArray([np.ones(2)], Counting()),
        "no array": 1.0, "a Tensor": mytorch.ones(2),
    }
    assert is_on_host(np.ones(2))
    assert not [name for name, x in others.items() if is_on_host(x)]
