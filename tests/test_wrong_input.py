"""Every kind of wrong input ends in one clear message with the values in it, never in a silent result."""

import numpy as np
import pytest

import mytorch
from mytorch import Array, Tensor, nn
from mytorch.nn import functional as F
from tests.each import each


def leaf(*shape):
    return mytorch.ones(*shape, requires_grad=True)


def spent():
    y = (leaf(2) ** 2).sum()
    y.backward()
    y.backward()


def overwritten():
    y = leaf(2).exp()
    y.mul_(2)
    y.sum().backward()


KINDS = {
    "shapes that don't broadcast": (
        lambda: mytorch.ones(2, 3) + mytorch.ones(4), RuntimeError,
        r"size of tensor a \(3\) .* tensor b \(4\).* dimension 1: .*\[2, 3\] and \[4\]",
    ),
    "shapes of a product": (lambda: mytorch.ones(2, 3) @ mytorch.ones(4, 5), RuntimeError, "2.*3.*4.*5"),
    "dtypes of a product": (
        lambda: mytorch.ones(2, 2) @ mytorch.ones(2, 2).double(), RuntimeError, "float32.*float64",
    ),
    "a view that can't be": (lambda: mytorch.ones(2, 6).view(5, -1), RuntimeError, r"\[5, -1\].*12"),
    "a dim out of range": (lambda: mytorch.ones(2, 3).sum(dim=2), IndexError, r"\[-2, 1\].*2"),
    "an index out of range": (lambda: mytorch.ones(3)[3], IndexError, "3"),
    "too many indices": (lambda: mytorch.ones(3)[0, 0], IndexError, "1"),
    "a float index": (lambda: mytorch.ones(3)[mytorch.ones(1)], IndexError, "float32|long"),
    "gather out of range": (
        lambda: mytorch.ones(2, 3).gather(1, mytorch.tensor([[7]])), (RuntimeError, IndexError), "7.*3",
    ),
    "an unknown dtype": (lambda: mytorch.zeros(2, dtype="float128"), TypeError, "float128"),
    "data that is not numbers": (lambda: mytorch.tensor(["a"]), (TypeError, ValueError), "str"),
    "ragged lists": (lambda: mytorch.tensor([[1, 2], [3]]), ValueError, "inhomogeneous|length"),
    "an unknown device": (lambda: mytorch.zeros(2, device="tpu"), RuntimeError, "'tpu'"),
    "a device without its library": (
        lambda: mytorch.zeros(2, device="cuda"), RuntimeError, "CuPy.*pip install",
    ),
    "a negative size": (lambda: mytorch.zeros(-1), (RuntimeError, ValueError), "-1"),
    "backward without a graph": (lambda: mytorch.ones(1).backward(), RuntimeError, "does not require grad"),
    "backward from many elements": (lambda: (leaf(3) * 2).backward(), RuntimeError, r"scalar.*\(3,\)"),
    "a gradient of another shape": (
        lambda: (leaf(3) * 2).backward(np.ones(2)), RuntimeError, r"\(2,\).*\(3,\)",
    ),
    "a spent graph": (spent, RuntimeError, "second time"),
    "an overwritten array": (overwritten, RuntimeError, "version 1"),
    "a leaf in place": (lambda: leaf(2).add_(1), RuntimeError, "leaf"),
    "a grad of another shape": (
        lambda: setattr(leaf(2), "grad", Array([1.0])), RuntimeError, r"\(2,\).*\(1,\)",
    ),
    "requires_grad of integers": (lambda: mytorch.arange(3).requires_grad_(), RuntimeError, "int64"),
    "numpy() of a tensor with grad": (lambda: leaf(2).numpy(), RuntimeError, "detach"),
    "item() of many elements": (lambda: mytorch.ones(2).item(), RuntimeError, "2 elements"),
    "the truth of many elements": (lambda: bool(mytorch.ones(2)), RuntimeError, "ambiguous"),
    "a missing key in a state_dict": (
        lambda: nn.Linear(2, 2).load_state_dict({"weight": np.ones((2, 2))}), RuntimeError,
        "[Mm]issing.*bias",
    ),
    "an unexpected key in a state_dict": (
        lambda: nn.Identity().load_state_dict({"colour": np.ones(2)}), RuntimeError, "[Uu]nexpected.*colour",
    ),
    "another shape in a state_dict": (
        lambda: nn.Linear(2, 2, bias=False).load_state_dict({"weight": np.ones((3, 2))}), RuntimeError,
        r"weight.*3, 2.*2, 2",
    ),
    "a module without super().__init__": (lambda: Careless(), AttributeError, "__init__"),
    "a layer of the wrong width": (lambda: nn.Linear(3, 2)(mytorch.ones(4, 5)), RuntimeError, "5.*3"),
    "a target out of range": (
        lambda: F.cross_entropy(mytorch.ones(2, 3), mytorch.tensor([0, 3])), IndexError, "3",
    ),
    "a token out of range": (lambda: nn.Embedding(4, 2)(mytorch.tensor([4])), IndexError, "4"),
    "a probability out of range": (lambda: nn.Dropout(1.5), ValueError, "1.5"),
    "a negative learning rate": (lambda: mytorch.optim.SGD([leaf(1)], lr=-1), ValueError, "-1"),
    "an empty optimizer": (lambda: mytorch.optim.AdamW([]), ValueError, "empty"),
    "a fused kernel that isn't there": (
        lambda: F.elu(mytorch.ones(2), fused=True), RuntimeError, "elu.*cpu",
    ),
    "a missing file": (lambda: mytorch.load("nowhere.safetensors"), FileNotFoundError, "nowhere"),
    "a loader without items": (lambda: mytorch.utils.data.DataLoader([1], batch_size=0), ValueError, "0"),
    "multinomial of nothing": (
        lambda: mytorch.multinomial(mytorch.zeros(3), 1), RuntimeError, "no probability above 0",
    ),
}


class Careless(nn.Module):
    def __init__(self):
        self.weight = nn.Parameter(mytorch.ones(1))


@each("kind", KINDS)
def test_wrong_input(kind):
    call, error, message = KINDS[kind]
    with pytest.raises(error, match=message):
        call()


def test_arrays_on_two_devices(fake_cuda):
    here, there = Tensor([1.0, 2.0]), Tensor([1.0, 2.0]).cuda()
    with pytest.raises(RuntimeError, match="same device, got cpu and cuda:0"):
        here + there
    with pytest.raises(RuntimeError, match="one device, got cpu and cuda:0"):
        here.data + there.data
