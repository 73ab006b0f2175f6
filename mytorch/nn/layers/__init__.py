"""The layers, one file a family."""

from .activation import GELU, LogSoftmax, ReLU, Sigmoid, SiLU, Softmax, Tanh
from .dropout import Dropout
from .embedding import Embedding
from .linear import Flatten, Identity, Linear
from .loss import CrossEntropyLoss, MSELoss, NLLLoss
from .normalization import LayerNorm

__all__ = [
    "CrossEntropyLoss", "Dropout", "Embedding", "Flatten", "GELU", "Identity", "LayerNorm", "Linear",
    "LogSoftmax", "MSELoss", "NLLLoss", "ReLU", "SiLU", "Sigmoid", "Softmax", "Tanh",
]  # fmt: skip
