"""Factories, against PyTorch's. CuPy is the strict stand-in here."""

import numpy as np
import pytest
import torch

import mytorch
from tests.each import each
from tests.oracle import fails_alike, in_both, same

# what: call, with `m` the module: mytorch or torch.
CALLS = {
    "logspace": lambda m: m.logspace(0, 3, 4),
    "logspace base": lambda m: m.logspace(-2, 2, 7, base=2, dtype=m.float64),
    "logspace int": lambda m: m.logspace(0, 3, 4, 3, dtype=m.int32),
    "logspace one": lambda m: m.logspace(2, 3, 1),
    "logspace none": lambda m: m.logspace(2, 3, 0),
    "tril_indices": lambda m: m.tril_indices(3, 4, 1),
    "tril_indices int32": lambda m: m.tril_indices(2, 3, -1, dtype=m.int32),
    "triu_indices": lambda m: m.triu_indices(3, 4, offset=-1),
    "triu_indices none": lambda m: m.triu_indices(0, 4),
    "arange wraps": lambda m: m.arange(-1, 300, 100, dtype=m.uint8),
    "arange cut": lambda m: m.arange(-0.9, 5.1, 1.0, dtype=m.int32),
    "linspace cut": lambda m: m.linspace(4.3, -3.7, 10, dtype=m.int64),
    "full wraps": lambda m: m.full((2,), -9, dtype=m.uint8),
    "zeros varargs": lambda m: m.zeros(2, 3),
    "zeros tuple": lambda m: m.zeros((2, 3)),
    "zeros list": lambda m: m.zeros([2]),
    "zeros 0-d": lambda m: m.zeros(()),
    "zeros of size 0": lambda m: m.zeros(2, 0),
    "zeros size=": lambda m: m.zeros(size=(2,)),
    "zeros of a tensor's size": lambda m: m.zeros(m.ones(2, 3).shape),
    "zeros of a tensor": lambda m: m.zeros(m.tensor(2), 3),
    "ones": lambda m: m.ones(2, 3, dtype=m.int32),
    "ones bool": lambda m: m.ones(2, dtype=m.bool),
    "ones python int": lambda m: m.ones(2, dtype=int),
    "ones python float": lambda m: m.ones(2, dtype=float),
    "empty": lambda m: m.empty(2, 3, dtype=m.float64).fill_(1),
    "numpy ints": lambda m: m.ones(np.int64(2), np.int32(1)),
    "full int": lambda m: m.full((2,), 3),
    "full float": lambda m: m.full((2,), 2.5),
    "full bool": lambda m: m.full((2,), True),
    "full complex": lambda m: m.full((2,), 1j),
    "full 0-d": lambda m: m.full((), 2),
    "full list": lambda m: m.full([2, 1], 1.0),
    "full 0-d tensor": lambda m: m.full((2,), m.tensor(2.5)),
    "full dtype": lambda m: m.full((2,), 2.5, dtype=m.int64),
    "full to bool": lambda m: m.full((2,), 2, dtype=m.bool),
    "full inf": lambda m: m.full((2,), float("inf")),
    "full half": lambda m: m.full((2,), float("nan"), dtype=m.float16),
    "zeros_like": lambda m: m.zeros_like(m.ones(2, 3, dtype=m.int64)),
    "ones_like": lambda m: m.ones_like(m.zeros(2, 0)),
    "empty_like": lambda m: m.empty_like(m.ones(3)).fill_(2),
    "ones_like dtype": lambda m: m.ones_like(m.zeros(2, dtype=m.int64), dtype=m.float64),
    "full_like": lambda m: m.full_like(m.ones(2, dtype=m.int64), 2.5),
    "full_like float": lambda m: m.full_like(m.ones(2), 3),
    "arange": lambda m: m.arange(5),
    "arange float": lambda m: m.arange(5.0),
    "arange bounds": lambda m: m.arange(2, 9),
    "arange step": lambda m: m.arange(1, 10, 3),
    "arange fractions": lambda m: m.arange(1, 2.5, 0.5),
    "arange down": lambda m: m.arange(5, -3, -2),
    "arange nothing": lambda m: m.arange(1, 1),
    "arange zero": lambda m: m.arange(0),
    "arange beyond": lambda m: m.arange(1, 5, 100),
    "arange end=": lambda m: m.arange(end=4),
    "arange start= end=": lambda m: m.arange(start=1, end=4),
    "arange step=": lambda m: m.arange(1, 9, step=2),
    "arange tensor": lambda m: m.arange(m.tensor(3)),
    "arange float tensor": lambda m: m.arange(m.tensor(3.0)),
    "arange half": lambda m: m.arange(0, 2, 0.25, dtype=m.float16),
    "arange double": lambda m: m.arange(0, 1, 0.1, dtype=m.float64),
    "arange ints as floats": lambda m: m.arange(5, dtype=m.float32),
    "arange bool": lambda m: m.arange(True),
    "arange floats as ints": lambda m: m.arange(0.5, 5, dtype=m.int64),
    "arange int32": lambda m: m.arange(-3, 3, dtype=m.int32),
    "arange big": lambda m: m.arange(2**62, 2**62 + 3),
    "arange numpy": lambda m: m.arange(np.int64(3)),
    "arange long": lambda m: m.arange(0, 1000, 0.7),
    "linspace": lambda m: m.linspace(0, 1, 5),
    "linspace odd": lambda m: m.linspace(-3.3, 7.7, 7),
    "linspace 0": lambda m: m.linspace(0, 1, 0),
    "linspace 1": lambda m: m.linspace(3, 9, 1),
    "linspace 2": lambda m: m.linspace(3, 9, 2),
    "linspace down": lambda m: m.linspace(5, -5, 11),
    "linspace int": lambda m: m.linspace(0, 10, 4, dtype=m.int64),
    "linspace negative int": lambda m: m.linspace(0, -10, 4, dtype=m.int64),
    "linspace double": lambda m: m.linspace(0, 1, 1000, dtype=m.float64),
    "linspace half": lambda m: m.linspace(0, 1, 11, dtype=m.float16),
    "linspace tensors": lambda m: m.linspace(m.tensor(0.0), m.tensor(2.0), 3),
    "linspace steps=": lambda m: m.linspace(0, 1, steps=3),
    "linspace equal": lambda m: m.linspace(2, 2, 3),
    "linspace long": lambda m: m.linspace(-1, 1, 10_001),
    "eye": lambda m: m.eye(3),
    "eye wide": lambda m: m.eye(2, 4),
    "eye tall": lambda m: m.eye(4, 2, dtype=m.int64),
    "eye 0": lambda m: m.eye(0),
    "eye bool": lambda m: m.eye(2, dtype=m.bool),
    "tensor ints": lambda m: m.tensor([[1, 2], [3, 4]]),
    "tensor floats": lambda m: m.tensor([1, 2.5]),
    "tensor bool": lambda m: m.tensor(True),
    "tensor bools and ints": lambda m: m.tensor([True, 2]),
    "tensor dtype": lambda m: m.tensor([1.7, -1.7], dtype=m.int64),
    "tensor complex": lambda m: m.tensor([1, 2j]),
    "tensor empty": lambda m: m.tensor([[], []]),
    "tensor numpy": lambda m: m.tensor(np.arange(3.0)),
    "tensor numpy scalars": lambda m: m.tensor([np.float64(1), np.float64(2)]),
    "tensor of arrays": lambda m: m.tensor([np.array([1, 2]), np.array([3, 4])]),
    "tensor of tensors": lambda m: m.tensor([m.tensor(1.0), m.tensor(2)]),
    "tensor range": lambda m: m.tensor(range(3)),
    "tensor of a transposed array": lambda m: m.tensor(np.arange(6.0).reshape(2, 3).T),
    "tensor of 0-d": lambda m: m.tensor(np.array(2.5)),
    "as_tensor": lambda m: m.as_tensor([1.0, 2.0]),
    "as_tensor dtype": lambda m: m.as_tensor(np.arange(3), dtype=m.float32),
    "from_numpy": lambda m: m.from_numpy(np.arange(3, dtype="int16")),
    "from_numpy 0-d": lambda m: m.from_numpy(np.array(3.0)),
    "new_zeros": lambda m: m.ones(2, dtype=m.float64).new_zeros(2, 3),
    "new_ones": lambda m: m.ones(2, dtype=m.int64).new_ones((2, 3)),
    "new_empty": lambda m: m.ones(2, dtype=m.int64).new_empty(2).fill_(0),
    "new_full": lambda m: m.ones(2, dtype=m.int64).new_full((2,), 2.5),
    "new_full dtype": lambda m: m.ones(2, dtype=m.int64).new_full((2,), 2.5, dtype=m.float32),
    "new_tensor": lambda m: m.ones(2, dtype=m.float64).new_tensor([1, 2]),
}


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy.ndarrays")
@each("what", CALLS)
def test_values_dtype_and_shape(what):
    same(CALLS[what](mytorch), CALLS[what](torch), rtol=1e-3 if what == "linspace half" else 2e-7, atol=1e-7)


@each("what", CALLS)
def test_on_a_gpu(what, fake_cuda):
    """The default device decides nothing: what a factory makes on a GPU is what it makes on the CPU."""
    if what.startswith(("from_numpy", "new_")):
        return
    with_device = Devices("cuda:1")
    got, want = CALLS[what](with_device), CALLS[what](mytorch)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got.cpu().numpy(), want.numpy())


class Devices:
    """mytorch, whose factories get `device=`, if they take it."""

    def __init__(self, device):
        self.device, self.made = device, ()

    def __getattr__(self, name):
        function = getattr(mytorch, name)
        if not callable(function) or isinstance(function, np.dtype):
            return function

        def call(*args, **kwargs):
            out = function(*args, device=self.device, **kwargs)
            assert out.device == self.device
            return out

        return call


def test_linspace_ends_exactly_where_it_should():
    for start, end, steps in ((-4.6, 4.7, 34), (-1 / 3, 1e6, 50), (0, 1, 1000), (4.7, -1.4, 60)):
        x = mytorch.linspace(start, end, steps, dtype=mytorch.float64).numpy()
        assert x[0] == start and x[-1] == end
        same(mytorch.from_numpy(x), torch.linspace(start, end, steps, dtype=torch.float64), rtol=4e-16)


def test_requires_grad():
    for make in (
        lambda **k: mytorch.zeros(2, **k),
        lambda **k: mytorch.ones(2, **k),
        lambda **k: mytorch.empty(2, **k),
        lambda **k: mytorch.full((2,), 1.0, **k),
        lambda **k: mytorch.eye(2, **k),
        lambda **k: mytorch.arange(2.0, **k),
        lambda **k: mytorch.linspace(0, 1, 2, **k),
        lambda **k: mytorch.tensor([1.0], **k),
        lambda **k: mytorch.zeros_like(mytorch.ones(2), **k),
        lambda **k: mytorch.full_like(mytorch.ones(2), 1, **k),
        lambda **k: mytorch.ones(2).new_zeros(2, **k),
        lambda **k: mytorch.rand(2, **k),
        lambda **k: mytorch.randn(2, **k),
    ):
        assert make(requires_grad=True).requires_grad and not make().requires_grad


def test_a_copy_or_the_same_memory():
    raw = np.arange(3.0)
    for data in (raw, mytorch.Array(raw), mytorch.from_numpy(raw), memoryview(raw), torch.from_numpy(raw)):
        assert not np.shares_memory(mytorch.tensor(data).numpy(), raw)
    for data in (raw, mytorch.Array(raw), mytorch.from_numpy(raw)):
        assert np.shares_memory(mytorch.as_tensor(data).numpy(), raw)
        assert not np.shares_memory(mytorch.as_tensor(data, dtype="float32").numpy(), raw)
    mytorch.from_numpy(raw)[0] = 9
    assert raw[0] == 9 and mytorch.tensor(raw.reshape(3, 1).T).is_contiguous()
    raw.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        mytorch.from_numpy(raw)[0] = 1


def test_history():
    x = mytorch.tensor([1.0, 2.0], requires_grad=True)
    assert mytorch.as_tensor(x) is x and not mytorch.tensor(x).requires_grad
    y = mytorch.as_tensor(x, dtype=mytorch.float64)
    y.sum().backward()
    assert y.requires_grad and x.grad.tolist() == [1, 1]
    assert mytorch.tensor([x.sum().detach(), mytorch.tensor(0.5)]).tolist() == [3, 0.5]


def test_like_and_new_stay_on_their_device(fake_cuda):
    x = mytorch.ones(2, 3, dtype=mytorch.float16, device="cuda:1")
    for made in (
        mytorch.zeros_like(x),
        mytorch.full_like(x, 3),
        x.new_zeros(2),
        x.new_full((2,), 3),
        x.new_tensor([1, 2]),
        mytorch.rand_like(x),
        mytorch.randn_like(x),
        mytorch.randint_like(x, 3),
    ):
        assert (made.device, made.dtype) == ("cuda:1", "float16")
    made = mytorch.ones_like(x, dtype=mytorch.int64, device="cpu")
    assert (made.device, made.dtype) == ("cpu", "int64")


FAILS = {
    "size missing": (lambda m: m.zeros(), "size is missing"),
    "size float": (lambda m: m.zeros(2.5), "2.5"),
    "size bool": (lambda m: m.zeros(True), "True"),
    "size None": (lambda m: m.ones(None), "None"),
    "size text": (lambda m: m.empty("a"), "'a'"),
    "size twice": (lambda m: m.zeros((2,), 3), r"\(2,\), 3"),
    "size negative": (lambda m: m.zeros(2, -1), r"\(2, -1\)"),
    "unknown keyword": (lambda m: m.zeros(2, foo=1), "foo"),
    "integers with gradient": (lambda m: m.zeros(2, dtype=m.int64, requires_grad=True), "int64"),
    "device": (lambda m: m.zeros(2, device="gpu"), "gpu"),
    "dtype": (lambda m: m.zeros(2, dtype=object), "object"),
    "full size": (lambda m: m.full(3, 1.0), "3"),
    "full text": (lambda m: m.full((2,), "a"), "str"),
    "full tensor": (lambda m: m.full((2,), m.tensor([2.5])), "Tensor"),
    "full too large": (lambda m: m.full((2,), 300, dtype=m.uint8), "300.*uint8"),
    "full nan as int": (lambda m: m.full((2,), float("nan"), dtype=m.int64), "nan.*int64"),
    "full complex as float": (lambda m: m.full((2,), 1j, dtype=m.float32), "1j.*float32"),
    "full too large a float": (lambda m: m.full((2,), 1e300, dtype=m.float32), "1e.300.*float32"),
    "arange nothing": (lambda m: m.arange(), "end"),
    "arange only start": (lambda m: m.arange(start=4), "end"),
    "arange text": (lambda m: m.arange("a"), "str"),
    "arange step 0": (lambda m: m.arange(1, 5, 0), "nonzero"),
    "arange wrong sign": (lambda m: m.arange(1, 5, -1), "from 1 to 5"),
    "arange down": (lambda m: m.arange(5, 1), "sign"),
    "arange endless": (lambda m: m.arange(0, float("inf")), "inf"),
    "arange nan": (lambda m: m.arange(float("nan")), "nan"),
    "arange bool": (lambda m: m.arange(5, dtype=m.bool), "bool"),
    "arange too many": (lambda m: m.arange(1, 2, 3, 4), "4"),
    "linspace negative": (lambda m: m.linspace(0, 1, -1), "-1"),
    "linspace steps": (lambda m: m.linspace(0, 1, 2.5), "2.5"),
    "linspace no steps": (lambda m: m.linspace(0, 1), "steps"),
    "linspace bool": (lambda m: m.linspace(0, 1, 3, dtype=m.bool), "bool"),
    "eye negative": (lambda m: m.eye(-1), "-1"),
    "eye m negative": (lambda m: m.eye(2, -3), "-3"),
    "eye float": (lambda m: m.eye(2.0), "2.0"),
    "tensor text": (lambda m: m.tensor("a"), "str"),
    "tensor None": (lambda m: m.tensor([None], dtype=m.float32), "None"),
    "tensor ragged": (lambda m: m.tensor([[1], [2, 3]]), "inhomogeneous"),
    "tensor 2**63": (lambda m: m.tensor(2**63), "int64"),
    "tensor too large": (lambda m: m.tensor([300], dtype=m.uint8), "300.*uint8"),
    "tensor complex": (lambda m: m.tensor(1j, dtype=m.float32), "complex"),
    "tensor positional dtype": (lambda m: m.tensor([1], m.float32), "positional"),
    "from_numpy list": (lambda m: m.from_numpy([1]), "list"),
    "from_numpy text": (lambda m: m.from_numpy(np.array(["a"])), "U1"),
    "from_numpy scalar": (lambda m: m.from_numpy(np.float32(3)), "float32"),
    "like a list": (lambda m: m.zeros_like([1]), "list"),
}


@each("what", FAILS)
def test_refuses_what_pytorch_refuses(what):
    call, message = FAILS[what]
    fails_alike(*in_both(call), match=message)


def test_triangles_of_ones():
    for name in ("tril", "triu"):
        ours, theirs = getattr(mytorch, name), getattr(torch, name)
        same(ours((3, 3)), theirs(torch.ones(3, 3)))
        same(ours((2, 3), 1, dtype=mytorch.int32), theirs(torch.ones(2, 3, dtype=torch.int32), 1))
        with pytest.raises(TypeError, match=rf"^{name}\(\): dtype and device are for a shape"):
            ours(mytorch.ones(2, 2), dtype=mytorch.int32)
        with pytest.raises(TypeError, match=f"^{name}.*: expected a Tensor, got list"):
            ours([2, 3])
