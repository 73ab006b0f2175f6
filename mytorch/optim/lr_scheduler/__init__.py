"""
Learning rate schedules: after each epoch or iteration, `scheduler.step()` sets the `lr` of every group.

Each class has PyTorch's recursion (the next rate is computed from the group's current one), so schedules can
be chained, and a rate that the user has set isn't lost. A closed form serves to jump to an epoch.
"""

from .base import LRScheduler
from .combined import ChainedScheduler, SequentialLR
from .cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts, WarmupCosineLR
from .cyclic import CyclicLR, OneCycleLR
from .decay import ConstantLR, ExponentialLR, LinearLR, MultiStepLR, PolynomialLR, StepLR
from .functions import LambdaLR, MultiplicativeLR
from .plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR",
    "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR",
    "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR", "WarmupCosineLR",
]
