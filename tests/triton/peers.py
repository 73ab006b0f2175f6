"""Triton's kernels in half precision beside PyTorch's: whose results and gradients are nearer to float64's.

`results.py` has what the kernels found. PyTorch gets the very same inputs and incoming gradients, on the CPU,
in the same dtype and in float64: `torch.nn.functional`'s function of that name, or what is in PEERS, ORACLES.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from mytorch.backends.device import CPU
from mytorch.nn.functional import philox
from mytorch.nn.functional.composite import REGISTRY
from tests.nn.functional.oracles import ORACLES
from tests.triton.cases import CASES, DTYPES, FUNCTIONS
from tests.triton.results import load

TIMES = 2  # so many times PyTorch's error ours may be, and half an ulp more: what rounding alone may cost


class Error(NamedTuple):
    """The size of ours, of PyTorch's, of half an ulp, and of the result or gradient itself, in some norm."""

    what: str
    ours: float
    theirs: float
    half_ulp: float
    size: float

    def is_small(self) -> bool:
        return self.ours <= TIMES * self.theirs + self.half_ulp  # not if it is NaN

    def __str__(self) -> str:
        numbers = f"{self.ours:.3g}, PyTorch's {self.theirs:.3g}, half an ulp {self.half_ulp:.3g}"
        return f"{self.what}: error {numbers} of {self.size:.3g}"


def kept(seed: int, shape: tuple[int, ...], p: float) -> torch.Tensor:
    """What our dropout multiplies with: 0, or 1 / (1 - p)."""
    uniform = philox.uniform(seed, int(np.prod(shape)), CPU).reshape(shape)
    return torch.as_tensor(uniform > p) * (1 / (1 - p) if p < 1 else 0.0)


def dropout(input, p, seed):
    return input * kept(seed, input.shape, p).to(input.dtype)


def attention(query, key, value, attn_mask=None, *, dropout_p=0.0, seed=None, **options):
    """PyTorch's flash kernel, for which rows of keys and of values are made equally long.

    It has neither dropout nor the gradient of a mask; these are composed of functions in half precision, as
    PyTorch's other kernel computes everything in float32.
    """
    if dropout_p:
        return composed(query, key, value, attn_mask, dropout_p, seed, **options)
    if attn_mask is not None and attn_mask.requires_grad:
        apart = composed(query.detach(), key.detach(), value.detach(), attn_mask, **options)
        y = attention(query, key, value, attn_mask.detach(), **options)
        return y + (apart - apart.detach())  # 0, with the mask's gradient
    if attn_mask is not None:
        options["attn_mask"] = attn_mask
    options.setdefault("scale", query.shape[-1] ** -0.5)
    features, longest = value.shape[-1], max(query.shape[-1], value.shape[-1])
    three = [F.pad(a, (0, longest - a.shape[-1])) for a in (query, key, value)]
    if query.ndim > 4:  # as one dim: the kernel has no others
        batch = torch.broadcast_shapes(*(a.shape[:-3] for a in three))
        heads = torch.broadcast_shapes(*(a.shape[-3:-2] for a in three))
        three = [a.expand(*batch, *heads, -1, -1).flatten(0, -4) for a in three]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        result = ORACLES["scaled_dot_product_attention"](*three, **options)[..., :features]
    return result.unflatten(0, batch) if query.ndim > 4 else result


def composed(query, key, value, mask=None, dropout_p=0.0, seed=0, is_causal=False, enable_gqa=False):
    if enable_gqa:
        key, value = (a.repeat_interleave(query.shape[-3] // a.shape[-3], -3) for a in (key, value))
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if is_causal:
        mask = torch.zeros(scores.shape[-2:], dtype=scores.dtype).masked_fill(
            ~torch.ones(scores.shape[-2:], dtype=bool).tril(), -torch.inf
        )
    weights = torch.softmax(scores if mask is None else scores + mask, -1)
    return (weights * kept(seed, weights.shape, dropout_p).to(weights.dtype)) @ value


def self_attention(qkv, num_heads, *args, **options):
    q, k, v = (a.unflatten(-1, (num_heads, -1)).transpose(1, 2) for a in qkv.chunk(3, dim=-1))
    return attention(q, k, v, *args, **options).transpose(1, 2).flatten(2)


def cached_attention(query, key, value, key_cache, value_cache, position, **options):
    """The caches have the new tokens already."""
    end = position + key.shape[2]
    seen = torch.ones(query.shape[2], end, dtype=bool).tril(position)
    return attention(query, key_cache[:, :, :end], value_cache[:, :, :end], seen, **options)


# The others write to their arguments, which are compared as results are.


def add_rows(index, g, out, padding_idx=None, scale_grad_by_freq=False, beta=1):
    if not beta:
        out.zero_()
    if scale_grad_by_freq:
        g = g / torch.bincount(index.flatten(), minlength=len(out))[index][..., None]
    used = index != (-1 if padding_idx is None else padding_idx)
    out.index_add_(0, index[used], g[used].to(out.dtype))


def sum_of_squares(x):
    return torch.linalg.vector_norm(x, dtype=torch.promote_types(x.dtype, torch.float32)) ** 2


def scale(x, factor):
    x.mul_(factor)


def cast_and_check(source, out, found_inf):
    out.copy_(source)
    found_inf.copy_(torch.maximum(found_inf, ~out.isfinite().all()))


def unscale_and_check(grad, inv_scale, found_inf):
    grad.mul_(inv_scale)
    found_inf.copy_(torch.maximum(found_inf, ~grad.isfinite().all()))


PEERS: dict[str, Callable] = {
    "dropout": dropout, "scaled_dot_product_attention": attention, "self_attention": self_attention,
    "cached_attention": cached_attention, "add_rows": add_rows, "sum_of_squares": sum_of_squares,
    "scale": scale, "cast_and_check": cast_and_check, "unscale_and_check": unscale_and_check,
}


def of(name: str, row: int, saved: dict, half: torch.dtype, dtype: torch.dtype) -> list[torch.Tensor]:
    """PyTorch's results, or what its arrays have become, and gradients in a dtype, for what a kernel got."""
    args, kwargs = CASES[name][row]
    given = {place: tensor(*a) for place, a in saved["inputs"].items()}
    if name in REGISTRY:
        given = {place: downcast(a, half) for place, a in given.items()}
    given = {place: in_dtype(a, dtype) for place, a in given.items()}
    function = PEERS.get(name) or ORACLES.get(name) or getattr(F, name)
    if name in FUNCTIONS:
        result = function(*[given.get(place, a) for place, a in enumerate(args)])
        return [*([] if result is None else [result]), *given.values()]
    gradients = [*saved.get("gradients", ())]
    for place in gradients:
        given[place].requires_grad_()
    names = [*REGISTRY[name].signature.parameters]
    args = [given.get(place) if isinstance(a, np.ndarray) else a for place, a in enumerate(args)]
    kwargs = {n: given.get(names.index(n)) if isinstance(a, np.ndarray) else a for n, a in kwargs.items()}
    if "seed" in saved:
        kwargs["seed"] = int(tensor(*saved["seed"][0]))
    result = function(*args, **kwargs)
    results = list(result) if isinstance(result, tuple) else [result]
    if gradients:
        torch.autograd.backward(results, [in_dtype(tensor(*g), dtype) for g in saved["incoming"].values()])
    return [*(y.detach() for y in results), *(given[place].grad for place in gradients)]


def tensor(dtype: str, bits: np.ndarray) -> torch.Tensor:
    found = torch.from_numpy(bits.copy())
    return found.view(torch.bfloat16) if dtype == "bfloat16" else found


def downcast(a: torch.Tensor, half: torch.dtype) -> torch.Tensor:
    """Returns the argument as the user passed it, where a check has upcast it."""
    as_given = a.to(half) if a.is_floating_point() else a
    return as_given if torch.equal(as_given.to(a.dtype).nan_to_num(), a.nan_to_num()) else a


def in_dtype(a: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """In float64, or as it is."""
    return a.to(dtype) if a.is_floating_point() and dtype == torch.float64 else a


def errors(name: str, row: int, dtype: str, saved: dict) -> list[Error]:
    """Of all that a kernel found for a row of its cases."""
    half = getattr(torch, dtype)
    theirs, want = (of(name, row, saved, half, computed) for computed in (half, torch.float64))
    places = [(kind, place) for kind in ("outputs", "gradients") for place in saved.get(kind, ())]
    found = []
    for (kind, place), t, w in zip(places, theirs, want, strict=True):
        ours = tensor(*saved[kind][place])
        if kind == "gradients":  # it may be wider, until it is a tensor's
            ours = ours.to(t.dtype)
        found += compare(f"{name}-{row}-{dtype}: {kind[:-1]} {place}", ours, t, w)
    return found


def compare(what: str, ours: torch.Tensor, theirs: torch.Tensor, want: torch.Tensor) -> list[Error]:
    """In the maximum norm and the root of the mean square, of what is finite."""
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), f"{what}: {ours}, PyTorch's {theirs}"
    if not ours.is_floating_point():
        return []
    limits = torch.finfo(ours.dtype)
    finite = want.isfinite() & (want.abs() <= limits.max) & theirs.isfinite()  # sums of theirs may overflow
    ours, theirs, want = (a[finite].double() for a in (ours, theirs, want))
    if not want.numel():
        return []
    found = []
    for norm, size, share in (("max", 1, 1.0), ("rms", want.numel() ** 0.5, 3**-0.5)):
        order = np.inf if norm == "max" else 2
        scale, ours_off, theirs_off = (
            torch.linalg.vector_norm(a, order).item() / size for a in (want, ours - want, theirs - want)
        )
        # half an ulp of a number of that size; errors below it have that root of the mean square
        rounding = share * limits.eps / 2 * 2.0 ** math.floor(math.log2(scale)) if scale else 0.0
        found.append(Error(f"{what}, {norm}", ours_off, theirs_off, rounding, scale))
    return found


def assert_as_exact_as_pytorch(folder: Path) -> None:
    """No error of what the kernels found is more than TIMES PyTorch's and half an ulp; and all are there."""
    found, bad = set(), []
    for path in sorted(folder.iterdir()):
        name, row, dtype, saved = load(path)
        found.add((name, dtype))
        bad += [e for e in errors(name, row, dtype, saved) if not e.is_small()]
    assert found == {(name, dtype) for name in CASES for dtype in DTYPES if dtype != "float32"}
    assert not bad, less_exact(bad)


def less_exact(bad: list[Error]) -> str:
    return "less exact than PyTorch:\n" + "\n".join(map(str, bad))
