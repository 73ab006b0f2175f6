from __future__ import annotations

from .adam import Adam
from .param_groups import Params


class AdamW(Adam):
    """Adam with decoupled weight decay: the weights shrink directly, not through the gradient.

        p <- (1 - lr weight_decay) p
        m <- beta1 m + (1 - beta1) g                m_hat = m / (1 - beta1^t)      (-g for g if maximize)
        v <- beta2 v + (1 - beta2) g^2              v_hat = v / (1 - beta2^t); of the largest v if amsgrad
        p <- p - lr m_hat / (sqrt(v_hat) + eps)

    It is `Adam` with `decoupled_weight_decay=True`; see it for arguments, state and errors.

    Source: Loshchilov & Hutter, 2019, algorithm 2. https://arxiv.org/abs/1711.05101

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.AdamW([w], lr=0.1, weight_decay=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.89000 0.89000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
        fused: bool | None = None,
    ):
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )
