"""embedding, the rows of a table, and one_hot."""

from __future__ import annotations

import numpy as np

from ...autograd import is_grad_enabled, no_grad
from ...backends.device import RawArray, has_values, on
from ...core.op import require_tensor
from ...core.tensor import Tensor, raw_of
from ...ops import arange, contiguous, where
from ...ops.bounds import check_range
from ...ops.gather_scatter import scatter_nd
from ...ops.inplace import write
from .composite import composite


@composite(order=contiguous)
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:
    """Returns the rows of a table, y[...] = weight[input[...]].

    Args:
        input: int64 or int32 indices of rows, any shape.
        weight: (num_embeddings, embedding_dim)
        padding_idx: the row without gradient; negative ones count from the end.
        max_norm: selected rows whose `norm_type`-norm is larger are scaled down to it, in place.
        scale_grad_by_freq: divide a row's gradient by the number of its occurrences.
        sparse: must be False where a gradient is required: only dense ones are implemented.

    Returns:
        (*input.shape, embedding_dim)

    Raises:
        IndexError: an index out of range (on a GPU: after the next wait).
        RuntimeError: an invalid dtype of `input`, or a weight that is not a matrix.
        AssertionError: `padding_idx` is out of range.

    >>> F.embedding(mytorch.tensor([1, 0]), mytorch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3.00000 4.00000]
            [1.00000 2.00000]])
    """
    y = weight[input]
    if scale_grad_by_freq:
        uses = (input.reshape(-1, 1) == input.reshape(1, -1)).sum(1).reshape(*input.shape, 1)
        y = y.detach() + (y - y.detach()) / uses
    if padding_idx is not None:
        y = where((input == padding_idx).unsqueeze(-1), y.detach(), y)
    return y


@embedding.check
def _check(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse):
    if weight.ndim != 2:
        raise RuntimeError(f"embedding(): 'weight' must be 2-D, got shape {tuple(weight.shape)}")
    if input.dtype not in (np.int64, np.int32):
        raise RuntimeError(f"embedding(): expected indices of dtype int64 or int32, got {input.dtype}")
    if sparse and weight.requires_grad and is_grad_enabled():
        raise NotImplementedError("embedding(): sparse gradients are not implemented; use sparse=False")
    count = weight.shape[0]
    text = f"embedding(): index out of range in self: {{bad}}, of {count} rows"
    check_range(input, 0, count, text, IndexError)
    if padding_idx is not None:
        if not -count <= padding_idx < count:
            raise AssertionError(
                f"embedding(): padding_idx {padding_idx} must be within num_embeddings, {count}"
            )
        padding_idx %= count
    if max_norm is not None:
        renormalize(weight, raw_of(input), max_norm, norm_type)
    return input, weight, padding_idx, None, norm_type, scale_grad_by_freq, False


def renormalize(weight: Tensor, index: RawArray, max_norm: float, norm_type: float) -> None:
    """Scales the rows `index` of the weight down to `max_norm`, in place."""
    with no_grad(), on(weight.device):
        index = np.unique(index) if has_values(index) else index.reshape(-1)
        rows = raw_of(weight)[index]
        norm = np.linalg.norm(rows, norm_type, axis=1, keepdims=True)
        write(
            weight,
            np.where(norm > max_norm, rows * (max_norm / (norm + 1e-7)), rows),
            index,
            "embedding_renorm_",
        )


@embedding.manual(half=True)
def _embedding(index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse):
    shape = weight.shape

    def dweight(g):
        total = scatter_nd.dual(g, (index,), (0,), shape)
        if scale_grad_by_freq:
            total = total / np.maximum(np.bincount(np.reshape(index, -1), minlength=shape[0]), 1)[:, None]
        if padding_idx is not None:
            total[padding_idx] = 0
        return total

    return np.take(weight, index, axis=0), (None, dweight)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Returns y[..., c] = (tensor[...] == c): 1 at the class, else 0.

    Args:
        tensor: int64 classes, any shape.
        num_classes: -1 for one more than the largest class in the tensor.

    Returns:
        int64 (*tensor.shape, num_classes)

    Raises:
        RuntimeError: another dtype; classes outside of 0 to num_classes - 1 (on a GPU: after the next
            wait); no elements and no `num_classes`.

    >>> F.one_hot(mytorch.tensor([0, 2]), 3)
    tensor([[1 0 0]
            [0 0 1]])
    """
    require_tensor(tensor, "one_hot")
    if tensor.dtype != np.int64:
        raise RuntimeError(f"one_hot(): expected an index tensor of dtype int64, got {tensor.dtype}")
    index = raw_of(tensor)
    if not index.size and num_classes < 1:
        raise RuntimeError("one_hot(): can not infer total number of classes from empty tensor")
    if num_classes == -1:
        num_classes = int(tensor.max()) + 1
    text = "one_hot(): class values must be non-negative and smaller than num_classes: "
    check_range(tensor, 0, num_classes, f"{text}got {{bad}} and {num_classes}")
    classes = arange(num_classes, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(dtype=np.int64)
