"""The kind of an operation by its name, for logs: NumPy's functions by their class, ops by a list."""

from __future__ import annotations

import functools
import re

from .table import CONTRACTION, COPY, INDEXING, REDUCTION, VIEW, WRITING, row_of

_OF_CLASSES = {
    CONTRACTION: "product", REDUCTION: "reduction", VIEW: "view", COPY: "copy", WRITING: "copy",
    INDEXING: "embedding",
}
# Of ops whose names NumPy doesn't have, or has for another class: the first that matches.
_OF_OPS = {
    "product": "mm|bmm|mv|linear|addmm|addmv|baddbmm|bilinear|tensordot|quantized|(?:rnn|lstm|gru)_steps"
    "|svd|inv|pinv|solve|det|slogdet|eigh?|lstsq|lu|cholesky|qr|(?:other|reduced)_qr|lower_cholesky"
    "|i?r?fft",
    "convolution": "conv[a-z0-9]*",
    "attention": ".*attention",
    "normalization": "(?!vector_|linalg[.]).*norm",
    "loss": ".*(?:loss|cross_entropy|kl_div|_nll)",
    "embedding": "embedding|gather|index|scatter|mask_at",
    "view": "permute|expand|unsqueeze|slice(?!_scatter)|chunk|unbind|select|as_strided|flatten|unflatten"
    "|movedim|diagonal(?!_copy)|unfold|narrow|t",
    "copy": "clone|move|to|cast|cat|contiguous|flip(?:lr|ud)?|rot90|fill|zero|setitem|slice_scatter"
    "|diagonal_copy",
    "reduction": "softmax|log_softmax|logsumexp|logcumsumexp|running_minmax|count|histc|moments|mode|kthvalue"
    "|topk|vector_norm",
}
KINDS = (*_OF_OPS, "elementwise", "optimizer", "communication", "data", "annotation")


@functools.lru_cache(maxsize=4096)
def kind_of(name: str) -> str:
    """Returns the kind of an op, or of its vjp, by its name.

    >>> from mytorch.stream import kind_of
    >>> kind_of("layer_norm_backward"), kind_of("mul")
    ('normalization', 'elementwise')
    """
    name = name.lstrip("_.")
    for kind, names in _OF_OPS.items():
        if re.match(rf"(?:{names})(?![A-Za-z0-9])", name):
            return kind
    words = name.split("_")
    for count in range(len(words), 0, -1):  # `cumsum_backward` is of the kind of `cumsum`
        first = "_".join(words[:count])
        row = row_of(first) or row_of("." + first)
        if row is not None:
            return _OF_CLASSES.get(row.kind, "elementwise")
    return "elementwise"
