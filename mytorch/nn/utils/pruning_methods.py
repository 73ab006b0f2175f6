"""The methods of `prune`: which entries of a parameter they set to 0."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from ...autograd import no_grad
from ...core.tensor import Tensor
from ...ops import ones_like, rand, rand_like, topk, zeros_like
from ...ops.norms import vector_norm
from ..module import Module
from ..parameter import Parameter


class BasePruningMethod(ABC):
    """A rule by which weights are pruned, and the hook that applies its mask before `forward`.

    A subclass defines `compute_mask` and PRUNING_TYPE: what `compute_mask` gets of a parameter that has been
    pruned before. "unstructured": a vector of what is left; "structured": the slices along `self.dim` in
    which something is left; "global": all of it.
    """

    PRUNING_TYPE: str
    _tensor_name: str

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns the mask of ones and zeros, shaped as `t`, whose zeros include those of `default_mask`."""

    def apply_mask(self, module: Module) -> Tensor:
        """Returns the pruned tensor."""
        original = getattr(module, f"{self._tensor_name}_orig")
        return getattr(module, f"{self._tensor_name}_mask").to(original.dtype) * original

    def __call__(self, module: Module, inputs: tuple) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prunes a parameter of the module; returns the hook.

        Args:
            name: the parameter, which becomes `name_orig`; the mask is the buffer `name_mask`.
            importance_scores: what the mask is computed from, instead of the parameter.
            args, kwargs: those of the class.

        Raises:
            ValueError: the scores don't have the shape of the parameter.
        """
        method, key, tensor = cls(*args, **kwargs), find_hook(module, name), getattr(module, name)
        method._tensor_name = name
        scores = _checked(importance_scores, tensor, name).detach()
        if key is None:
            hook, before = method, ones_like(tensor.detach())
        else:
            old = module._hooks.before[key][0]
            hook = PruningContainer(*(old if isinstance(old, PruningContainer) else [old]), method)
            before = getattr(module, f"{name}_mask").detach().clone()
        with no_grad():
            mask = hook.compute_mask(scores, before)
        if key is None:
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", tensor)
        else:
            del module._hooks.before[key]
        module.register_buffer(f"{name}_mask", mask)
        setattr(module, name, hook.apply_mask(module))
        module.register_forward_pre_hook(hook)
        return hook

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """Returns a pruned copy of a tensor; see `apply`."""
        scores = _checked(importance_scores, t, "t")
        return t * self.compute_mask(scores, ones_like(t) if default_mask is None else default_mask)

    def remove(self, module: Module) -> None:
        """Makes the pruned tensor a parameter: the one that was `name_orig`."""
        name = self._tensor_name
        with no_grad():
            pruned = self.apply_mask(module)
        original: Parameter = getattr(module, f"{name}_orig")
        original.data = pruned.data
        for attribute in (name, f"{name}_orig", f"{name}_mask"):
            delattr(module, attribute)
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Methods that were applied to one parameter, in their order; the mask is computed by the last one."""

    PRUNING_TYPE = "global"

    def __init__(self, *methods: BasePruningMethod):
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if methods:
            self._tensor_name = methods[0]._tensor_name
        for method in methods:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Adds a method.

        Raises:
            TypeError: it is none.
            ValueError: it is that of another parameter.
        """
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method, mask = self._pruning_methods[-1], default_mask.to(t.dtype, copy=True)
        part = _left(method, default_mask)
        mask[part] = method.compute_mask(t[part], default_mask=default_mask[part]).to(mask.dtype)
        return mask

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]


class Identity(BasePruningMethod):
    """Prunes nothing: the parameter gets a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Amount(BasePruningMethod):
    """The methods that prune a number of entries or slices, or a share in [0, 1] of them."""

    def __init__(self, amount: int | float):
        if not isinstance(amount, numbers.Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        if amount < 0 or amount > 1 and not isinstance(amount, numbers.Integral):
            raise ValueError(
                f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer"
            )
        self.amount = amount

    def _count(self, size: int) -> int:
        """Returns how many of `size` are pruned."""
        count = self.amount if isinstance(self.amount, numbers.Integral) else round(self.amount * size)
        if count > size:
            raise ValueError(
                f"amount={count} should be smaller than the number of parameters to prune={size}"
            )
        return count


class _Unstructured(_Amount):
    PRUNING_TYPE = "unstructured"

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        mask = default_mask.flatten().clone()
        if count := self._count(t.numel()):
            mask[topk(self._scores(t).flatten(), count, largest=False).indices] = 0
        return mask.reshape(t.shape)


class RandomUnstructured(_Unstructured):
    """Prunes random entries; `amount` is their number, or their share in [0, 1]."""

    def _scores(self, t: Tensor) -> Tensor:
        return rand_like(t)


class L1Unstructured(_Unstructured):
    """Prunes the entries of the smallest absolute values; `amount` is their number, or their share."""

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()


class _Structured(_Amount):
    PRUNING_TYPE = "structured"
    dim: int

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                f"{t.shape} with {t.ndim} dims"
            )
        if not -t.ndim <= self.dim < t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        size = t.shape[self.dim]
        if not (count := self._count(size)):
            return default_mask
        kept = zeros_like(t).movedim(self.dim, 0)  # a view
        mask = kept.movedim(0, self.dim)
        kept[topk(self._scores(t), size - count).indices] = 1
        return mask * default_mask.to(mask.dtype)


class RandomStructured(_Structured):
    """Prunes random slices along `dim`; `amount` is their number, or their share in [0, 1]."""

    def __init__(self, amount: int | float, dim: int = -1):
        super().__init__(amount)
        self.dim = dim

    def _scores(self, t: Tensor) -> Tensor:
        return rand(t.shape[self.dim], device=t.device)


class LnStructured(_Structured):
    """Prunes the slices along `dim` with the smallest norms of order n; `amount` is their number or share."""

    def __init__(self, amount: int | float, n: float, dim: int = -1):
        super().__init__(amount)
        self.n, self.dim = n, dim

    def _scores(self, t: Tensor) -> Tensor:
        return vector_norm(t.movedim(self.dim, 0).flatten(1), float(self.n), dim=1)


class CustomFromMask(BasePruningMethod):
    """Prunes where `mask` is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor):
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise ValueError(f"mask has the shape {self.mask.shape}, expected {default_mask.shape}")
        return default_mask * self.mask.to(default_mask.dtype)


def find_hook(module: Module, name: str) -> int | None:
    """Returns the key of the hook that prunes this parameter."""
    hooks = module._hooks.before if module._hooks is not None else {}
    found = (
        k for k, (h, _) in hooks.items() if isinstance(h, BasePruningMethod) and h._tensor_name == name
    )
    return next(found, None)


def _checked(scores: Tensor | None, tensor: Tensor, name: str) -> Tensor:
    if scores is None:
        return tensor
    if scores.shape != tensor.shape:
        raise ValueError(
            f"importance_scores has the shape {scores.shape}, expected that of {name}, {tensor.shape}"
        )
    return scores


def _left(method: BasePruningMethod, mask: Tensor) -> object:
    """Returns the index of what a method gets of a pruned tensor; see BasePruningMethod."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE == "structured":
        dim = method.dim % mask.ndim
        kept = mask.movedim(dim, 0).flatten(1).sum(1) != 0
        return (*[slice(None)] * dim, kept)
    if method.PRUNING_TYPE == "global":
        return ...
    raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
