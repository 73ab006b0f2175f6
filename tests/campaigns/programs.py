"""
Random programs in mytorch and in PyTorch: values, dtypes, shapes, gradients, and which statements raise.

A program is a list of statements on some tensors, of views, in-place writes and functions. "exact" ones have
functions that jump, and values without rounding errors; "smooth" ones functions that round. They run on the
CPU, or on the strict stand-in for CuPy, or compiled (see there); "steps" are those of tests/ops/programs.py.
"""

import re
import warnings
from contextlib import suppress
from functools import cache

import numpy as np
import torch

import mytorch
from mytorch.backends import cublas
from tests import oracle, strict_cupy
from tests.campaigns import compiled
from tests.campaigns.statements import STATEMENTS, WRITES
from tests.ops.programs import VIEW_STEPS, WRITE_STEPS, run_steps
from tests.strict_cupy.cublas import Cublas

DEADLINE = 120  # seconds
TRIES = 75
KNOWN = {}
KINDS = [
    "cpu, exact", "cpu, smooth", "cuda, exact", "cuda, smooth", "cpu, steps", "compiled, exact",
    "compiled, smooth",
]
# Where PyTorch alone refuses: mytorch copies overlapping memory, has other strides, a GPU looks at no values.
TORCH_STRICTER = (
    r"Autograd not support dtype|some elements of the input|is a view and its base|view size is not"
    r"|a leaf Variable that requires grad is being used"  # the tests know mytorch's; a view of a detached one
    r"|A view was created in no_grad mode"  # parts of a tensor without gradient that is written to
)
STRICTER_THAN_GPUS = r"out of (bounds|range|DATA)|ZeroDivisionError|source < number of ones"
# Where mytorch alone refuses: PyTorch at most warns of a write to elements that share memory, has other
# strides (its scans make contiguous tensors), and often looks at no dim, index or dtype of an empty tensor.
MYTORCH_STRICTER = (
    r"refers to a single memory location|view size .* is not compatible"
    r"|einsum\(\): not implemented for bool"  # PyTorch multiplies those of one element, or of a size of 1
)
STRICTER_FOR_EMPTY = r"[Oo]ut of (bounds|range)|not implemented for|shapes do not match|one dtype"
SHAPES = [(3, 4), (3, 4), (3, 4), (4,), (3, 1), (1, 4), (2, 3, 4), (2, 2), (), (0, 4), (3, 3)]
DTYPES = ["float32"] * 4 + ["float64", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"]
NUMBERS = ["2", "-1", "0.5", "-1.5", "3", "0", "True"]
TOLERANCE = {"float16": 1e-2, "bfloat16": 8e-2, "float32": 1e-4, "float64": 1e-9}
LARGEST = 1e4  # values above that end a program: differences of them would say nothing


def draw(random):
    kind = random.choice(KINDS)
    if kind.startswith("compiled"):
        return compiled.draw(random, kind, SHAPES, DTYPES, statement)
    length = random.randint(1, 12)
    if kind.endswith("steps"):
        kinds = [random.choice(VIEW_STEPS + WRITE_STEPS) for _ in range(length)]
        steps = [(step, *(random.randrange(n) for n in (10, 3, 3))) for step in kinds]
        return kind, steps, random.random() < 0.5
    # PyTorch negates bytes as bytes in some gradients: -1 is 255.
    dtypes = [dtype for dtype in DTYPES if dtype != "uint8" or kind.endswith("exact")]
    leaves = [(random.choice(SHAPES), random.choice(dtypes)) for _ in range(random.randint(2, 4))]
    kinds = STATEMENTS[kind.split(", ")[1]]
    return kind, leaves, [statement(random, kinds) for _ in range(length)], random.randrange(1 << 30)


def statement(random, kinds):
    """(text, which tensors, the words that are put in)."""
    text = random.choice(random.choice(kinds))
    words = {"i": str(random.randint(-2, 2)), "j": str(random.randint(-2, 1)), "s": random.choice(NUMBERS)}
    return text, [random.randrange(20) for _ in "abc"], {**words, "t": f"F.{random.choice(DTYPES)}"}


def check(folder, kind, *case):
    warnings.simplefilter("ignore")
    if kind.startswith("compiled"):
        return compiled.check(folder, kind, *case, make=array)
    mytorch.use_fused(False)  # no kernels
    if kind.endswith("steps"):
        steps, transposed = case
        rng = np.random.default_rng(0)
        arrays = rng.uniform(0.5, 2, (3, 4)), rng.uniform(0.5, 2, 4)
        oracle.check(*oracle.in_both(lambda F, x, w: run_steps(F, x, w, steps, transposed)), *arrays)
        return
    device = kind.split(",")[0]
    if device == "cuda":
        install_stand_in()
    # With copies of all that backward needs PyTorch's gradients are right whatever is written in place.
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        Programs(device, *case).run()


def overlap(a, b):
    """Whether two of PyTorch's tensors share memory, but are not the same view of it."""
    views = [(t.storage_offset(), t.shape, t.stride()) for t in (a, b)]
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0 and views[0] != views[1]


def is_of_gpus(error):
    """Whether the stand-in lacks what CuPy has."""
    return isinstance(error, NotImplementedError) and "stand-in" in str(error)


@cache
def install_stand_in():
    strict_cupy.install(device_count=1)
    blas = cublas.Library(Cublas())
    cublas.library = lambda: blas


FOUND_LATER = "A GPU found it"  # a wrong index


class End(Exception):
    """The rest of a program says nothing."""


class Programs:
    """The same program in both libraries, a statement at a time."""

    def __init__(self, device, leaves, program, seed):
        self.device, self.program, self.lines = device, program, []
        self.largest, self.loosest = 1.0, 0.0
        rng = np.random.default_rng(seed)
        arrays = [array(rng, *leaf) for leaf in leaves]
        self.leaves = [mytorch.tensor(a, device=device) for a in arrays], [oracle.torch_of(a) for a in arrays]
        for pair in zip(*self.leaves, strict=True):
            for leaf in pair:
                leaf.requires_grad_(pair[1].is_floating_point())
        # What is computed from leaves may be written in place.
        self.found = [[t * 1 if k % 2 else t for k, t in enumerate(leaves)] for leaves in self.leaves]
        self.lines += [f"t{k}: {leaf}" + " * 1" * (k % 2) for k, leaf in enumerate(leaves)]

    def run(self):
        try:
            for text, which, words in self.program:
                self.step(text, which, words)
                self.compare()
                if not self.largest < LARGEST:
                    return
            self.compare_gradients()
        except End:
            return
        except AssertionError as error:
            raise AssertionError("\n".join([*self.lines, "", str(error)[:2000]])) from None

    def step(self, text, which, words):
        names = {name: k % len(self.found[1]) for name, k in zip("abc", which, strict=True)}
        line = text.replace("{m}", "({a} > 0)").format(**{n: f"t[{k}]" for n, k in names.items()}, **words)
        operands = [self.found[1][names[name]] for name in "abc" if f"{{{name}}}" in text]
        if text in WRITES and ".clone()" not in text and any(overlap(operands[0], t) for t in operands[1:]):
            return  # PyTorch would read what it has written
        if "attention" in text and not all(t.numel() for t in operands):
            return  # its result has the dims of the query, whatever those of the keys
        self.lines.append(line)
        results = self.both(lambda F, t, device: run_line(line, F, t, device), operands)
        if results is not None:
            for found, result in zip(self.found, results, strict=True):
                found += [one for one in oracle.outputs(result) if hasattr(one, "requires_grad")]
            assert len(self.found[0]) == len(self.found[1]), "another number of results"

    def both(self, call, operands):
        """The results of both; None if both raise, and then nothing is written."""
        results, errors = [], []
        storages = [t.untyped_storage() for t in self.found[1]]
        before = [storage.clone() for storage in storages]
        for F, found, device in ((mytorch, self.found[0], self.device), (torch, self.found[1], "cpu")):
            try:
                results.append(call(F, found, device))
                if device == "cuda":
                    mytorch.cuda.synchronize()  # raises what a GPU has found
            except Exception as error:
                if device == "cuda":
                    with suppress(Exception):
                        mytorch.cuda.synchronize()  # else a later call raises what it has found
                    if is_of_gpus(error):
                        raise End from error
                errors.append(f"{F.__name__} raises {error!r}"[:1000])
        if len(errors) == 1 and self.may_differ(errors[0], operands):
            raise End
        assert len(errors) in (0, 2), errors[0]
        if not errors:
            return results
        if FOUND_LATER in errors[0]:
            raise End  # by then something was written where the index led to
        for storage, former in zip(storages, before, strict=True):
            storage.copy_(former)  # PyTorch writes elements before it comes to a wrong index
        return None

    def may_differ(self, error, operands):
        """Whether this error, which one of them raises, says why the other doesn't."""
        if error.startswith("torch"):
            patterns = [TORCH_STRICTER] + [STRICTER_THAN_GPUS] * (self.device == "cuda")
        else:
            patterns = [MYTORCH_STRICTER] + [STRICTER_FOR_EMPTY] * any(not t.numel() for t in operands)
        return re.search("|".join(patterns), error)

    def compare(self):
        for k, (mine, his) in enumerate(zip(*self.found, strict=True)):
            what = f"t[{k}]"
            if his.requires_grad and not his.is_floating_point():
                raise End  # PyTorch has integers that require grad
            assert mine.requires_grad == his.requires_grad, (
                f"{what}: requires_grad is {mine.requires_grad}, PyTorch's {his.requires_grad}"
            )
            self.same(mine.detach(), his.detach(), what)

    def same(self, mine, his, what):
        dtype = str(his.dtype).removeprefix("torch.")
        # What is computed from halves is as exact as they are, whatever its dtype.
        self.loosest = max(self.loosest, TOLERANCE.get(dtype, 0))
        tolerance = self.loosest if his.is_floating_point() else 0
        if his.numel() and his.dtype.is_floating_point:
            self.largest = max(self.largest, his.nan_to_num(0, 0, 0).abs().max().item())
        oracle.same(mine.cpu(), his, tolerance, tolerance * self.largest, what)

    def compare_gradients(self):
        def backward(F, found, device):
            wanted = [t for t in found if t.requires_grad]
            if wanted:
                sum((t.double() * (k + 1)).sum() for k, t in enumerate(wanted)).backward()

        self.lines.append("backward")
        try:
            backward(mytorch, self.found[0], self.device)
        except RuntimeError as error:
            if "modified by an inplace operation" in str(error):  # never a wrong gradient
                return
            raise AssertionError(f"backward: {error!r}") from error
        try:
            backward(torch, self.found[1], "cpu")
        except RuntimeError:  # it notices only here that an output of split() was written to
            return
        for k, (mine, his) in enumerate(zip(*self.leaves, strict=True)):
            if his.grad is None:
                assert mine.grad is None or not mine.grad.any().item(), f"a gradient of leaf {k}"
            else:
                assert mine.grad is not None, f"no gradient of leaf {k}"
                if his.grad.isfinite().all():  # 0 * inf is one thing in one formula, another in the next
                    self.same(mine.grad, his.grad, f"gradient of leaf {k}")


def array(rng, shape, dtype):
    """Small multiples of 1/2, which can be added and multiplied exactly."""
    values = rng.integers(-4, 5, shape) / 2
    if dtype in ("uint8", "bool"):
        values = np.abs(values)
    return np.asarray(values).astype(getattr(mytorch, dtype))


def run_line(line, F, t, device):
    def ints(*values):
        return F.tensor(values, device=device)

    names = {"F": F, "N": F.nn.functional, "t": t, "ints": ints}
    try:
        code = compile(line, "<program>", "eval")
    except SyntaxError:  # it is a statement
        return exec(line, names)
    return eval(code, names)
