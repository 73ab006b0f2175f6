"""Weights normalized before each use, as parametrizations: `weight_norm`, `spectral_norm`, `orthogonal`."""

from __future__ import annotations

from ...autograd import no_grad
from ...core.tensor import Tensor
from ...ops import dot, mv, randn
from ...ops.norms import vector_norm
from ..functional import normalize
from ..layers.conv import _ConvTranspose
from ..module import Module
from .orthogonal import Orthogonal
from .parametrize import register_parametrization

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(v: Tensor, dim: int | None) -> Tensor:
    """Returns the norms over all dims but this one, which stay with size 1; of all elements for None, -1."""
    if dim is None or dim == -1:
        return v.norm()
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    return vector_norm(v, dim=others, keepdim=True) if others else v.abs()


class _WeightNorm(Module):
    """g v / |v|, from g and v."""

    def __init__(self, dim: int | None = 0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Makes a weight the product of its norm g and its direction v / |v|; returns the module.

    The state_dict has `parametrizations.weight.original0`, g, and `parametrizations.weight.original1`, v.

    Args:
        dim: each index of this dim has a norm of its own; None for a single one.

    Source: Salimans and Kingma, "Weight Normalization", 2016, https://arxiv.org/abs/1602.07868
    """
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class PowerMethod:
    """Estimates the largest singular value of a weight, as a matrix whose rows are the indices of `dim`.

    Source: Miyato et al., "Spectral Normalization for Generative Adversarial Networks", 2018,
        https://arxiv.org/abs/1802.05957, algorithm 1
    """

    def __init__(self, weight: Tensor, dim: int, eps: float):
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.ndim}, {weight.ndim - 1}] "
                f"but got {dim})"
            )
        self.dim, self.eps = dim % weight.ndim, eps

    def matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def start(self, size: int, weight: Tensor) -> Tensor:
        """Returns a random vector of length 1."""
        return normalize(randn(size, dtype=weight.dtype, device=weight.device), dim=0, eps=self.eps)

    def improve(self, matrix: Tensor, vectors: list[tuple[Tensor, bool]]) -> None:
        """Replaces each singular vector, in turn, by the image of the other; True for the left one."""
        with no_grad():
            for i, (vector, is_left) in enumerate(vectors):
                product = mv(matrix if is_left else matrix.t(), vectors[1 - i][0])
                vector.copy_(normalize(product, dim=0, eps=self.eps))


class _SpectralNorm(Module):
    """weight / sigma; u and v are improved by each call in training."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12):
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.method, self.n_power_iterations = PowerMethod(weight, dim, eps), n_power_iterations
        if weight.ndim > 1:
            matrix = self.method.matrix(weight)
            self.register_buffer("_u", self.method.start(matrix.shape[0], weight))
            self.register_buffer("_v", self.method.start(matrix.shape[1], weight))
            self._improve(matrix, 15)

    def _improve(self, matrix: Tensor, times: int) -> None:
        for _ in range(times):
            self.method.improve(matrix, [(self._u, True), (self._v, False)])

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.method.eps)
        matrix = self.method.matrix(weight)
        if self.training:
            self._improve(matrix, self.n_power_iterations)
        return weight / dot(self._u.clone(), mv(matrix, self._v.clone()))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def output_dim(module: Module) -> int:
    """Returns the dim of the outputs in a layer's weight."""
    return 1 if isinstance(module, _ConvTranspose) else 0


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divides a weight by its largest singular value; returns the module.

    The state_dict has `parametrizations.weight.original` and, for the estimate of the singular vectors,
    `parametrizations.weight.0._u` and `…_v`.

    Args:
        n_power_iterations: steps of the power method in each access, in training.
        eps: the smallest length that a vector is divided by.
        dim: of the outputs; 0, and 1 for transposed convolutions.

    Raises:
        ValueError: the module has no such tensor; `n_power_iterations` isn't positive.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    dim = output_dim(module) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
    use_trivialization: bool = True,
) -> Module:
    """Makes a matrix orthogonal, or its columns if it is tall, its rows if it is wide; returns the module.

    The state_dict has `parametrizations.weight.original` and `parametrizations.weight.0.base`.

    Args:
        name: the tensor, (…, m, n): a matrix or a batch of them; its value is made orthogonal, if it isn't.
        orthogonal_map: "matrix_exp", "cayley" or "householder", see `Orthogonal`; by default the first for
            square and for complex matrices, the last for others.
        use_trivialization: the trained matrix is a change of a constant `base`, which is kept in a buffer.

    Raises:
        ValueError: the module has no such tensor; it has fewer than two dims; another map.
        NotImplementedError: no `use_trivialization`, and a map that has no inverse: all but "householder".

    Source: Lezcano-Casado, "Trivializations for Gradient-Based Optimization on Manifolds", 2019,
        https://arxiv.org/abs/1909.09501

    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    >>> mytorch.allclose(layer.weight @ layer.weight.T, mytorch.eye(3), atol=1e-5)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        is_rotated = weight.shape[-2] == weight.shape[-1] or weight.is_complex()
        orthogonal_map = "matrix_exp" if is_rotated else "householder"
    parametrization = Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, parametrization, unsafe=True)
