"""Special functions under PyTorch's names: `mytorch.special.expit` is `mytorch.sigmoid`."""

from mytorch.nn.functional.tensor_methods import log_softmax, softmax
from mytorch.ops import (
    digamma,
    erf,
    erfc,
    erfinv,
    exp2,
    expm1,
    log1p,
    logit,
    logsumexp,
    round,
    sinc,
    xlogy,
)
from mytorch.ops import lgamma as gammaln
from mytorch.ops import sigmoid as expit
from mytorch.ops.arrays import make_them_take_arrays

__all__ = [
    "digamma", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammaln", "log1p", "log_softmax", "logit",
    "logsumexp", "round", "sinc", "softmax", "xlogy",
]

make_them_take_arrays(globals(), __all__)
