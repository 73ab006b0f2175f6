"""`weight_norm` and `spectral_norm` of `nn.utils`, which compute the weight before each call of the module.

PyTorch has them beside `parametrizations`, with other names in the state_dict; most checkpoints have these.
"""

from __future__ import annotations

from ...autograd import no_grad
from ...core.tensor import Tensor
from ...ops import dot, mv
from ..module import Module
from ..parameter import Parameter
from .parametrizations import PowerMethod, norm_except_dim, output_dim

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]


class _Normalized:
    """A hook that computes the attribute `name` of a module before `forward`."""

    title: str
    suffixes: tuple[str, ...]  # of the parameters and buffers that take the weight's place

    def __init__(self, name: str):
        self.name = name

    def compute(self, module: Module) -> Tensor:
        raise NotImplementedError

    def __call__(self, module: Module, args: tuple) -> None:
        setattr(module, self.name, self.compute(module))

    def parts(self, module: Module) -> list[Tensor]:
        return [getattr(module, self.name + suffix) for suffix in self.suffixes]

    def attach(self, module: Module, parts: list[Tensor]) -> Module:
        """Registers the parts, as parameters or buffers, and the hook."""
        if _find(module, type(self), self.name) is not None:
            raise RuntimeError(
                f"Cannot register two {self.title} hooks on the same parameter {self.name}"
            )
        delattr(module, self.name)
        for suffix, part in zip(self.suffixes, parts, strict=True):
            register = module.register_parameter if isinstance(part, Parameter) else module.register_buffer
            register(self.name + suffix, part)
        with no_grad():
            setattr(module, self.name, self.compute(module))
        module.register_forward_pre_hook(self)
        return module

    def detach(self, module: Module) -> None:
        """Makes the weight a parameter again."""
        with no_grad():
            weight = self.compute(module)
        delattr(module, self.name)
        for suffix in self.suffixes:
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))


class _WeightNorm(_Normalized):
    title, suffixes = "weight_norm", ("_g", "_v")

    def __init__(self, name: str, dim: int | None):
        super().__init__(name)
        self.dim = dim

    def compute(self, module: Module) -> Tensor:
        g, v = self.parts(module)
        return v * (g / norm_except_dim(v, self.dim))


class _SpectralNorm(_Normalized):
    title, suffixes = "spectral_norm", ("_orig", "_u", "_v")

    def __init__(self, name: str, method: PowerMethod, n_power_iterations: int):
        super().__init__(name)
        self.method, self.n_power_iterations = method, n_power_iterations

    def compute(self, module: Module, improve: bool = False) -> Tensor:
        weight, u, v = self.parts(module)
        matrix = self.method.matrix(weight)
        for _ in range(self.n_power_iterations if improve else 0):
            self.method.improve(matrix, [(v, False), (u, True)])
        return weight / dot(u.clone(), mv(matrix, v.clone()))

    def __call__(self, module: Module, args: tuple) -> None:
        setattr(module, self.name, self.compute(module, module.training))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Makes a weight g v / |v|, of the parameters `weight_g` and `weight_v`; returns the module.

    Args:
        dim: each index of this dim has a norm of its own; None for a single one.

    Source: Salimans and Kingma, "Weight Normalization", 2016, https://arxiv.org/abs/1602.07868
    """
    weight = getattr(module, name)
    g = Parameter(norm_except_dim(weight.detach(), dim))
    return _WeightNorm(name, dim).attach(module, [g, Parameter(weight.detach())])


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divides a weight by its largest singular value; returns the module.

    It has the parameter `weight_orig` and the buffers `weight_u` and `weight_v`.

    Args:
        n_power_iterations: steps of the power method in each call, in training.
        eps: the smallest length that a vector is divided by.
        dim: of the outputs; 0, and 1 for transposed convolutions.

    Raises:
        ValueError: `n_power_iterations` isn't positive.
        RuntimeError: the weight has a spectral norm already.
    """
    if n_power_iterations <= 0:
        raise ValueError(
            f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
        )
    weight = getattr(module, name)
    method = PowerMethod(weight, output_dim(module) if dim is None else dim, eps)
    vectors = [method.start(size, weight) for size in method.matrix(weight.detach()).shape]
    return _SpectralNorm(name, method, n_power_iterations).attach(module, [weight, *vectors])


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight a parameter again, with its value; returns the module.

    Raises:
        ValueError: it has no weight norm.
    """
    return _remove(module, _WeightNorm, name)


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight a parameter again, with its value; returns the module.

    Raises:
        ValueError: it has no spectral norm.
    """
    return _remove(module, _SpectralNorm, name)


def _find(module: Module, kind: type, name: str) -> int | None:
    """Returns the key of the hook of this kind and name."""
    hooks = module._hooks.before if module._hooks is not None else {}
    found = (key for key, (hook, _) in hooks.items() if isinstance(hook, kind) and hook.name == name)
    return next(found, None)


def _remove(module: Module, kind: type, name: str) -> Module:
    key = _find(module, kind, name)
    if key is None:
        raise ValueError(f"{kind.title} of '{name}' not found in {module}")
    hook, _ = module._hooks.before.pop(key)
    hook.detach(module)
    return module
