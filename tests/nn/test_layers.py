"""Every layer, with PyTorch's weights, gives PyTorch's output and gradients; it prints and starts alike."""

import inspect

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, nn
from mytorch.nn import layers
from tests.oracle import check

rng = np.random.default_rng(0)


def normal(*shape):
    return np.asarray(rng.standard_normal(shape), "float32")


def positive(*shape):
    return np.asarray(rng.uniform(0.1, 0.9, shape), "float32")


TOKENS = rng.integers(0, 6, (3, 4))
CLASSES = rng.integers(0, 4, 5)
SIGNS = np.array([1, -1, -1, 1, -1])

# name: [(the layer in library t, inputs)]
LAYERS = {
    "Identity": [(lambda t: t.nn.Identity(3, unused=True), [normal(2, 3)])],
    "Flatten": [
        (lambda t: t.nn.Flatten(), [normal(2, 3, 4)]), (lambda t: t.nn.Flatten(0, 1), [normal(2, 3, 4)]),
    ],
    "Linear": [
        (lambda t: t.nn.Linear(4, 3), [normal(2, 5, 4)]),
        (lambda t: t.nn.Linear(4, 3, bias=False), [normal(4)]),
        (lambda t: t.nn.Linear(4, 3, dtype=t.float64), [normal(2, 4).astype("float64")]),
    ],
    "Embedding": [
        (lambda t: t.nn.Embedding(6, 3), [TOKENS]),
        (lambda t: t.nn.Embedding(6, 3, padding_idx=-1), [TOKENS]),
        (lambda t: t.nn.Embedding(6, 3, 2, 1.5, 1.0, True), [TOKENS]),
    ],
    "EmbeddingBag": [
        (lambda t: t.nn.EmbeddingBag(6, 3), [TOKENS]),
        (lambda t: t.nn.EmbeddingBag(6, 3, 1.5, 1.0, False, "max", padding_idx=-1), [TOKENS]),
        (
            lambda t: t.nn.EmbeddingBag(6, 3, mode="sum", include_last_offset=True, dtype=t.float64),
            [TOKENS.reshape(-1), np.array([0, 5, 5, 12])],
        ),
        (
            lambda t: t.nn.EmbeddingBag(6, 3, mode="sum"),
            [TOKENS.reshape(-1), np.array([0, 5]), normal(12)],
        ),
    ],
    "CTCLoss": [
        (
            lambda t: t.nn.CTCLoss(3, "sum", True),
            [normal(6, 2, 5), CLASSES[:2].reshape(2, 1) % 3, np.array([6, 5]), np.array([1, 1])],
        ),
    ],
    "Dropout": [
        (lambda t: t.nn.Dropout(0.2).eval(), [normal(3)]), (lambda t: t.nn.Dropout(0.0, True), [normal(3)]),
    ],
    "LayerNorm": [
        (lambda t: t.nn.LayerNorm(4), [normal(2, 4)]),
        (lambda t: t.nn.LayerNorm((3, 4), 0.1), [normal(2, 3, 4)]),
        (lambda t: t.nn.LayerNorm(4, bias=False), [normal(2, 4)]),
        (lambda t: t.nn.LayerNorm([4], elementwise_affine=False), [normal(2, 4)]),
    ],
    "ReLU": [
        (lambda t: t.nn.ReLU(), [normal(5)]),
        (lambda t: t.nn.Sequential(t.nn.Linear(5, 5), t.nn.ReLU(True)), [normal(5)]),
    ],
    "GELU": [(lambda t: t.nn.GELU(), [normal(5)]), (lambda t: t.nn.GELU("tanh"), [normal(5)])],
    **{
        name: [(lambda t, name=name: getattr(t.nn, name)(), [3 * normal(2, 3)])]
        for name in (
            "Sigmoid", "Tanh", "LogSigmoid", "Softsign", "Tanhshrink", "ReLU6", "SELU", "SiLU", "Mish",
            "Hardsigmoid", "Hardswish",
        )
    },
    "LeakyReLU": [
        (lambda t: t.nn.LeakyReLU(), [normal(5)]),
        (lambda t: t.nn.Sequential(t.nn.Linear(5, 5), t.nn.LeakyReLU(0.2, True)), [normal(5)]),
    ],
    "RReLU": [(lambda t: t.nn.RReLU(0.2, 0.2), [normal(5)]), (lambda t: t.nn.RReLU().eval(), [normal(5)])],
    "PReLU": [
        (lambda t: t.nn.PReLU(), [normal(5)]), (lambda t: t.nn.PReLU(3, 0.5), [normal(2, 3, 4)]),
        (lambda t: t.nn.PReLU(dtype=t.float64), [normal(5).astype("float64")]),
    ],
    "ELU": [(lambda t: t.nn.ELU(), [normal(5)]), (lambda t: t.nn.ELU(0.5), [normal(5)])],
    "CELU": [(lambda t: t.nn.CELU(), [normal(5)]), (lambda t: t.nn.CELU(0.5), [normal(5)])],
    "Softplus": [(lambda t: t.nn.Softplus(), [normal(5)]), (lambda t: t.nn.Softplus(2, 1), [normal(5)])],
    "Hardtanh": [
        (lambda t: t.nn.Hardtanh(), [normal(5)]), (lambda t: t.nn.Hardtanh(-0.3, 2.0), [normal(5)]),
    ],
    "Threshold": [(lambda t: t.nn.Threshold(0.1, 20), [normal(5)])],
    "Softshrink": [(lambda t: t.nn.Softshrink(), [normal(5)]), (lambda t: t.nn.Softshrink(0.1), [normal(5)])],
    "Hardshrink": [(lambda t: t.nn.Hardshrink(), [normal(5)]), (lambda t: t.nn.Hardshrink(0.1), [normal(5)])],
    "GLU": [(lambda t: t.nn.GLU(), [normal(2, 4)]), (lambda t: t.nn.GLU(0), [normal(2, 3)])],
    "Softmax": [(lambda t: t.nn.Softmax(dim=1), [normal(2, 3)])],
    "LogSoftmax": [(lambda t: t.nn.LogSoftmax(dim=0), [normal(2, 3)])],
    "Softmin": [(lambda t: t.nn.Softmin(dim=0), [normal(2, 3)])],
    "Softmax2d": [
        (lambda t: t.nn.Softmax2d(), [normal(2, 3, 4, 5)]), (lambda t: t.nn.Softmax2d(), [normal(3, 4, 5)]),
    ],
    "Conv1d": [
        (lambda t: t.nn.Conv1d(2, 3, 2), [normal(2, 2, 6)]),
        (lambda t: t.nn.Conv1d(2, 4, (3,), 2, 1, 2, 2, False), [normal(2, 7)]),
        (lambda t: t.nn.Conv1d(2, 3, 4, padding="same", padding_mode="replicate"), [normal(1, 2, 6)]),
    ],
    "Conv2d": [
        (lambda t: t.nn.Conv2d(2, 3, 2), [normal(2, 2, 4, 5)]),
        (lambda t: t.nn.Conv2d(2, 4, (3, 2), (2, 1), (1, 0), (1, 2), 2, False), [normal(2, 2, 6, 5)]),
        (lambda t: t.nn.Conv2d(2, 3, 3, padding="same", dtype=t.float64), [normal(2, 5, 4).astype(float)]),
        (lambda t: t.nn.Conv2d(2, 3, 3, padding="valid"), [normal(2, 5, 4)]),
        *(
            (lambda t, m=mode: t.nn.Conv2d(2, 3, 3, 2, (1, 2), padding_mode=m), [normal(2, 2, 5, 4)])
            for mode in ("reflect", "replicate", "circular")
        ),
        (lambda t: t.nn.Conv2d(2, 3, (2, 3), padding="same", padding_mode="circular"), [normal(2, 5, 4)]),
    ],
    "Conv3d": [(lambda t: t.nn.Conv3d(2, 3, 2, padding=1), [normal(1, 2, 3, 2, 3)])],
    "ConvTranspose1d": [(lambda t: t.nn.ConvTranspose1d(2, 3, 3, 2, 1, 1), [normal(2, 2, 4)])],
    "ConvTranspose2d": [
        (lambda t: t.nn.ConvTranspose2d(2, 3, 2), [normal(2, 2, 3, 4)]),
        (lambda t: t.nn.ConvTranspose2d(2, 4, (3, 2), 2, 1, (1, 0), 2, False, 2), [normal(2, 3, 4)]),
    ],
    "ConvTranspose3d": [(lambda t: t.nn.ConvTranspose3d(2, 3, 2, 2), [normal(1, 2, 2, 3, 2)])],
    "Unfold": [(lambda t: t.nn.Unfold((2, 3), 1, 1, (1, 2)), [normal(2, 2, 4, 5)])],
    "Fold": [(lambda t: t.nn.Fold((4, 5), 2, padding=1, stride=2), [normal(2, 8, 9)])],
    "MSELoss": [
        (lambda t: t.nn.MSELoss(), [normal(3), normal(3)]),
        (lambda t: t.nn.MSELoss(reduction="sum"), [normal(3), normal(3)]),
    ],
    "NLLLoss": [
        (lambda t: t.nn.NLLLoss(), [normal(5, 4), CLASSES]),
        (
            lambda t: t.nn.NLLLoss(t.tensor([1.0, 2, 3, 4]), ignore_index=2, reduction="none"),
            [normal(5, 4), CLASSES],
        ),
    ],
    "LinearCrossEntropyLoss": [
        (lambda t: t.nn.LinearCrossEntropyLoss(3, 4), [normal(5, 3), CLASSES]),
        (
            lambda t: t.nn.LinearCrossEntropyLoss(
                3, 4, bias=True, dtype=t.float64, reduction="none", ignore_index=2, label_smoothing=0.1,
                weight=t.tensor([1.0, 2, 3, 4], dtype=t.float64),
            ),
            [normal(5, 3).astype("float64"), CLASSES],
        ),
        (
            lambda t: t.nn.LinearCrossEntropyLoss(3, 4, out_features=(2, 1), bias=True, reduction="sum"),
            [normal(5, 3), rng.integers(0, 4, (5, 2, 1))],
        ),
    ],
    "CrossEntropyLoss": [
        (lambda t: t.nn.CrossEntropyLoss(), [normal(5, 4), CLASSES]),
        (
            lambda t: t.nn.CrossEntropyLoss(t.tensor([1.0, 2, 3, 4]), None, 2, None, "sum", 0.1),
            [normal(5, 4), CLASSES],
        ),
    ],
    "L1Loss": [(lambda t: t.nn.L1Loss(None, None, "sum"), [normal(3), normal(3)])],
    "SmoothL1Loss": [(lambda t: t.nn.SmoothL1Loss(None, None, "sum", 0.3), [normal(3), normal(3)])],
    "HuberLoss": [(lambda t: t.nn.HuberLoss("sum", 0.3), [normal(3), normal(3)])],
    "KLDivLoss": [
        (lambda t: t.nn.KLDivLoss(reduction="batchmean"), [normal(3, 2), positive(3, 2)]),
        (lambda t: t.nn.KLDivLoss(None, None, "sum", True), [normal(3, 2), normal(3, 2)]),
    ],
    "GaussianNLLLoss": [
        (lambda t: t.nn.GaussianNLLLoss(full=True, eps=0.3), [normal(3), normal(3), positive(3)]),
    ],
    "PoissonNLLLoss": [
        (lambda t: t.nn.PoissonNLLLoss(False, True, None, 0.1, None, "sum"), [positive(3), positive(3)]),
    ],
    "BCELoss": [
        (lambda t: t.nn.BCELoss(), [positive(3), positive(3)]),
        (lambda t: t.nn.BCELoss(t.tensor([1.0, 2, 3]), None, None, "sum"), [positive(3), positive(3)]),
    ],
    "BCEWithLogitsLoss": [
        (lambda t: t.nn.BCEWithLogitsLoss(), [normal(3), positive(3)]),
        (
            lambda t: t.nn.BCEWithLogitsLoss(t.ones(3) * 2, None, None, "sum", t.tensor([1.0, 2, 3])),
            [normal(3), positive(3)],
        ),
    ],
    "MarginRankingLoss": [
        (lambda t: t.nn.MarginRankingLoss(0.3, None, None, "sum"), [normal(5), normal(5), SIGNS]),
    ],
    "HingeEmbeddingLoss": [
        (lambda t: t.nn.HingeEmbeddingLoss(), [normal(5), SIGNS]),
        (lambda t: t.nn.HingeEmbeddingLoss(0.3, None, None, "sum"), [normal(5), SIGNS]),
    ],
    "CosineEmbeddingLoss": [
        (lambda t: t.nn.CosineEmbeddingLoss(0.3, None, None, "sum"), [normal(5, 2), normal(5, 2), SIGNS]),
    ],
    "SoftMarginLoss": [(lambda t: t.nn.SoftMarginLoss(reduction="sum"), [normal(5), SIGNS])],
    "MultiMarginLoss": [
        (lambda t: t.nn.MultiMarginLoss(2, 0.3, t.tensor([1.0, 2, 3, 4])), [normal(5, 4), CLASSES]),
    ],
    "MultiLabelMarginLoss": [
        (lambda t: t.nn.MultiLabelMarginLoss(reduction="sum"), [normal(4), np.array([3, 0, -1, 1])]),
    ],
    "MultiLabelSoftMarginLoss": [
        (lambda t: t.nn.MultiLabelSoftMarginLoss(t.tensor([1.0, 2, 3])), [normal(5, 3), positive(5, 3)]),
    ],
    "TripletMarginLoss": [
        (
            lambda t: t.nn.TripletMarginLoss(0.3, 1, 1e-3, True, None, None, "sum"),
            [normal(4, 3), normal(4, 3), normal(4, 3)],
        ),
    ],
    "TripletMarginWithDistanceLoss": [
        (
            lambda t: t.nn.TripletMarginWithDistanceLoss(margin=0.3, swap=True),
            [normal(4, 3), normal(4, 3), normal(4, 3)],
        ),
    ],
    "CosineSimilarity": [(lambda t: t.nn.CosineSimilarity(0, 0.1), [normal(4, 3), normal(4, 3)])],
    "PairwiseDistance": [(lambda t: t.nn.PairwiseDistance(1, 0.1, True), [normal(4, 3), normal(4, 3)])],
    "RMSNorm": [
        (lambda t: t.nn.RMSNorm(4), [normal(2, 4)]), (lambda t: t.nn.RMSNorm((3, 4), 0.1), [normal(2, 3, 4)]),
        (lambda t: t.nn.RMSNorm([4], elementwise_affine=False), [normal(2, 4)]),
    ],
    "GroupNorm": [
        (lambda t: t.nn.GroupNorm(2, 4), [normal(2, 4, 3)]),
        (lambda t: t.nn.GroupNorm(2, 4, 0.1, bias=False), [normal(2, 4, 3)]),
        (lambda t: t.nn.GroupNorm(4, 4, affine=False), [normal(2, 4, 3)]),
    ],
    "LocalResponseNorm": [(lambda t: t.nn.LocalResponseNorm(3, 0.5, 0.6, 0.7), [normal(2, 4, 3)])],
    "BatchNorm1d": [
        (lambda t: t.nn.BatchNorm1d(4), [normal(5, 4)]), (lambda t: t.nn.BatchNorm1d(4), [normal(5, 4, 2)]),
        (lambda t: t.nn.BatchNorm1d(4).eval(), [normal(5, 4)]),
        (lambda t: t.nn.BatchNorm1d(4, track_running_stats=False).eval(), [normal(5, 4)]),
        (lambda t: t.nn.BatchNorm1d(4, 0.1, None, False), [normal(5, 4)]),
        (lambda t: t.nn.BatchNorm1d(4, bias=False), [normal(5, 4)]),
    ],
    "BatchNorm2d": [(lambda t: t.nn.BatchNorm2d(4, dtype=t.float64), [normal(5, 4, 2, 3).astype("d")])],
    "BatchNorm3d": [(lambda t: t.nn.BatchNorm3d(4), [normal(5, 4, 2, 1, 3)])],
    "InstanceNorm1d": [
        (lambda t: t.nn.InstanceNorm1d(4), [normal(5, 4, 3)]),
        (lambda t: t.nn.InstanceNorm1d(4), [normal(4, 3)]),
        (lambda t: t.nn.InstanceNorm1d(4, 0.1, 0.3, True, True).eval(), [normal(5, 4, 3)]),
    ],
    "InstanceNorm2d": [
        (lambda t: t.nn.InstanceNorm2d(4, affine=True), [normal(5, 4, 2, 3)]),
        (lambda t: t.nn.InstanceNorm2d(4, 0.1, 0.3, False, True), [normal(4, 2, 3)]),
    ],
    "InstanceNorm3d": [(lambda t: t.nn.InstanceNorm3d(4), [normal(5, 4, 2, 1, 3)])],
    "Bilinear": [
        (lambda t: t.nn.Bilinear(3, 4, 2), [normal(5, 3), normal(5, 4)]),
        (lambda t: t.nn.Bilinear(3, 4, 2, False), [normal(3), normal(4)]),
    ],
    "Unflatten": [
        (lambda t: t.nn.Unflatten(1, (2, 3)), [normal(2, 6)]),
        (lambda t: t.nn.Unflatten(-1, [-1, 2]), [normal(6)]),
    ],
    **{
        name: [
            (lambda t, name=name: getattr(t.nn, name)(0.4).eval(), [normal(2, 3, 4, 5)]),
            (lambda t, name=name: getattr(t.nn, name)(0.0), [normal(2, 3, 4, 5)]),
        ]
        for name in ("Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
    },
    "Dropout1d": [(lambda t: t.nn.Dropout1d(0.4).eval(), [normal(2, 3, 4)])],
    **{
        f"{mode}Pad{d}d": [
            (lambda t, m=mode, d=d: getattr(t.nn, f"{m}Pad{d}d")(2), [normal(2, 3, *(5, 4, 3)[:d])]),
            (lambda t, m=mode, d=d: getattr(t.nn, f"{m}Pad{d}d")((2, -1) * d), [normal(3, *(5, 4, 6)[:d])]),
        ]
        for mode in ("Reflection", "Replication", "Circular", "Zero")
        for d in (1, 2, 3)
    },
    **{
        f"ConstantPad{d}d": [
            (lambda t, d=d: getattr(t.nn, f"ConstantPad{d}d")((1, 2) * d, 3.5), [normal(3, *(5, 4, 3)[:d])]),
        ]
        for d in (1, 2, 3)
    },
    "Upsample": [
        (lambda t: t.nn.Upsample(5), [normal(2, 3, 4)]),
        (lambda t: t.nn.Upsample(scale_factor=(2, 1.5), mode="bilinear"), [normal(2, 3, 4, 5)]),
        (lambda t: t.nn.Upsample(None, 1.7, "bicubic", True, True), [normal(1, 2, 4, 5)]),
    ],
    "UpsamplingNearest2d": [(lambda t: t.nn.UpsamplingNearest2d(scale_factor=2), [normal(1, 2, 3, 4)])],
    "UpsamplingBilinear2d": [(lambda t: t.nn.UpsamplingBilinear2d((5, 3)), [normal(1, 2, 3, 4)])],
    "PixelShuffle": [(lambda t: t.nn.PixelShuffle(2), [normal(2, 8, 2, 3)])],
    "PixelUnshuffle": [(lambda t: t.nn.PixelUnshuffle(2), [normal(2, 3, 4, 6)])],
    "ChannelShuffle": [(lambda t: t.nn.ChannelShuffle(2), [normal(2, 6, 3)])],
    **{
        f"MaxPool{d}d": [
            (lambda t, d=d: getattr(t.nn, f"MaxPool{d}d")(2), [normal(2, 3, *(5, 4, 3)[:d])]),
            (
                lambda t, d=d: getattr(t.nn, f"MaxPool{d}d")(3, 2, 1, 1, True, True),
                [normal(3, *(5, 4, 6)[:d])],
            ),
        ]
        for d in (1, 2, 3)
    },
    **{
        f"AvgPool{d}d": [
            (lambda t, d=d: getattr(t.nn, f"AvgPool{d}d")(2), [normal(2, 3, *(5, 4, 3)[:d])]),
            (lambda t, d=d: getattr(t.nn, f"AvgPool{d}d")(3, 2, 1, True, False), [normal(3, *(5, 4, 6)[:d])]),
        ]
        for d in (1, 2, 3)
    },
    **{
        f"LPPool{d}d": [
            (lambda t, d=d: getattr(t.nn, f"LPPool{d}d")(3, 2, 1, True), [positive(2, 3, *(5, 4, 3)[:d])]),
        ]
        for d in (1, 2, 3)
    },
    **{
        f"AdaptiveAvgPool{d}d": [
            (lambda t, d=d: getattr(t.nn, f"AdaptiveAvgPool{d}d")(3), [normal(2, 3, *(5, 4, 6)[:d])]),
        ]
        for d in (1, 2, 3)
    },
    **{
        f"AdaptiveMaxPool{d}d": [
            (lambda t, d=d: getattr(t.nn, f"AdaptiveMaxPool{d}d")(3, True), [normal(2, 3, *(5, 4, 6)[:d])]),
        ]
        for d in (1, 2, 3)
    },
    "MultiheadAttention": [
        (lambda t: t.nn.MultiheadAttention(4, 2), [normal(3, 2, 4)] * 3),
        (
            lambda t: t.nn.MultiheadAttention(4, 2, 0.0, False, True, True, 5, 3, True),
            [normal(2, 3, 4), normal(2, 6, 5), normal(2, 6, 3)],
        ),
        (lambda t: t.nn.MultiheadAttention(4, 1, 0.3, kdim=4).eval(), [normal(3, 4), *[normal(6, 4)] * 2]),
    ],
    # in float64: a LayerNorm of few numbers amplifies what is rounded
    "TransformerEncoderLayer": [
        (
            lambda t: t.nn.TransformerEncoderLayer(4, 2, 6, 0.0, dtype=t.float64),
            [normal(3, 2, 4).astype("d")],
        ),
        (
            lambda t: t.nn.TransformerEncoderLayer(
                4, 2, 6, 0.0, "gelu", 0.1, True, True, False, None, t.float64
            ),
            [normal(2, 3, 4).astype("d")],
        ),
        (
            lambda t: t.nn.TransformerEncoderLayer(4, 2, 6, 0.0, t.nn.Tanh(), dtype=t.float64),
            [normal(3, 4).astype("d")],
        ),
    ],
    "TransformerDecoderLayer": [
        (
            lambda t: t.nn.TransformerDecoderLayer(4, 2, 6, 0.0, dtype=t.float64),
            [normal(3, 2, 4).astype("d"), normal(5, 2, 4).astype("d")],
        ),
        (
            lambda t: t.nn.TransformerDecoderLayer(
                4, 2, 6, 0.0, t.tanh, 0.1, True, True, False, None, t.float64
            ),
            [normal(2, 3, 4).astype("d"), normal(2, 5, 4).astype("d")],
        ),
    ],
    "TransformerEncoder": [
        (
            lambda t: t.nn.TransformerEncoder(
                t.nn.TransformerEncoderLayer(4, 2, 6, 0.0, dtype=t.float64), 2,
                t.nn.LayerNorm(4, dtype=t.float64), enable_nested_tensor=False,
            ),
            [normal(3, 2, 4).astype("d")],
        ),
    ],
    "TransformerDecoder": [
        (
            lambda t: t.nn.TransformerDecoder(t.nn.TransformerDecoderLayer(4, 2, 6, 0.0, dtype=t.float64), 2),
            [normal(3, 2, 4).astype("d"), normal(5, 2, 4).astype("d")],
        ),
    ],
    "Transformer": [
        (
            lambda t: t.nn.Transformer(4, 2, 1, 2, 6, 0.0, dtype=t.float64),
            [normal(3, 2, 4).astype("d"), normal(5, 2, 4).astype("d")],
        ),
        (
            lambda t: t.nn.Transformer(
                4, 2, 2, 1, 6, 0.0, "gelu", batch_first=True, norm_first=True, dtype=t.float64
            ),
            [normal(2, 3, 4).astype("d"), normal(2, 5, 4).astype("d")],
        ),
    ],
}
OURS = {  # PyTorch hasn't them; tested in functional/test_activations.py, test_own_layers.py, test_rotary.py,
    # test_grouped_attention.py, test_mixture_of_experts.py and test_lora.py
    "GeGLU", "SquaredReLU", "SwiGLU", "LinearActivation", "AddLayerNorm", "InstanceNorm", "LoRALinear",
    "ScaledDotProduct", "SlidingWindowAttention", "GatedMLP", "GroupedQueryAttention", "MixtureOfExperts",
    "RotaryEmbedding", "QuantizedEmbedding", "QuantizedLinear",
}
RECURRENT = {"RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"}  # test_rnn.py is about these
LAZY = {name for name in layers.__all__ if name.startswith("Lazy")}  # and test_lazy.py about these
EVERY_LAYER = pytest.mark.parametrize(
    ("make", "inputs"),
    [pytest.param(*case, id=f"{name}-{i}") for name, cases in LAYERS.items() for i, case in enumerate(cases)],
)


def test_every_layer_has_a_case():
    assert LAYERS.keys() | RECURRENT | OURS | LAZY == set(layers.__all__)


# The module database (tests/database/test_modules.py) runs all layers but these, and nothing in place.
LACKED = {"Identity", "Flatten", "Unflatten", "Hardsigmoid", "TripletMarginLoss", "EmbeddingBag"}


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        pytest.param(*case, id=f"{name}-{i}")
        for name, cases in LAYERS.items()
        for i, case in enumerate(cases)
        if name in LACKED or "Sequential" in case[0].__code__.co_names
    ],
)
def test_with_pytorch_s_weights_it_is_pytorch_s_layer(make, inputs):
    ours, theirs = make(mytorch), make(torch)
    assert repr(ours) == repr(theirs).replace("NonDynamicallyQuantizable", "")
    assert [(n, tuple(p.shape), str(p.dtype)) for n, p in ours.named_parameters()] == [
        (n, tuple(p.shape), str(p.dtype).removeprefix("torch.")) for n, p in theirs.named_parameters()
    ]
    ours.load_state_dict(theirs.state_dict())
    check(ours, theirs, *inputs, rtol=1e-4, atol=5e-6)  # gradients of norms cancel to little
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-5)


@EVERY_LAYER
def test_constructors_take_pytorch_s_arguments(make, inputs):
    ours, theirs = make(mytorch), make(torch)
    if isinstance(ours, nn.Sequential):
        ours, theirs = ours[1], theirs[1]
    mine = list(inspect.signature(type(ours).__init__).parameters)
    his = list(inspect.signature(type(theirs).__init__).parameters)
    without_rest = [name for name in his if name not in ("args", "kwargs")]
    assert {"auto", "fused"} <= set(mine)  # see test_variants.py
    mine = [name for name in mine if name not in ("auto", "fused")]
    assert mine in (without_rest, his)


def moments(values):
    return values.mean(), values.std(), values.min(), values.max()


STARTS = {  # name: (the layer, its parameter)
    "Linear weight": (lambda t: t.nn.Linear(400, 300), "weight"),
    "Linear bias": (lambda t: t.nn.Linear(4, 100_000), "bias"),
    "Embedding": (lambda t: t.nn.Embedding(400, 300), "weight"),
    "Conv2d weight": (lambda t: t.nn.Conv2d(60, 400, 3, groups=2), "weight"),
    "Conv2d bias": (lambda t: t.nn.Conv2d(2, 50_000, 3), "bias"),
    "ConvTranspose2d weight": (lambda t: t.nn.ConvTranspose2d(400, 60, 3, groups=2), "weight"),
    "ConvTranspose1d bias": (lambda t: t.nn.ConvTranspose1d(2, 50_000, 3), "bias"),
    "Bilinear weight": (lambda t: t.nn.Bilinear(40, 50, 60), "weight"),
    "MultiheadAttention": (lambda t: t.nn.MultiheadAttention(200, 2), "in_proj_weight"),
    "MultiheadAttention kdim": (lambda t: t.nn.MultiheadAttention(200, 2, kdim=400), "k_proj_weight"),
    "LayerNorm weight": (lambda t: t.nn.LayerNorm(10), "weight"),
    "LayerNorm bias": (lambda t: t.nn.LayerNorm(10), "bias"),
}


@pytest.mark.parametrize(("make", "name"), STARTS.values(), ids=STARTS)
def test_initial_values_have_pytorch_s_distribution(make, name):
    mytorch.manual_seed(0)
    torch.manual_seed(0)
    ours, theirs = (np.sort(getattr(make(t), name).detach().numpy().ravel()) for t in (mytorch, torch))
    steps = np.linspace(0, ours.size - 1, 101).astype(int)[5:-5]  # the tails of a normal sample vary most
    spread = theirs.std() or 1
    np.testing.assert_allclose(ours[steps], theirs[steps], atol=0.03 * spread)
    np.testing.assert_allclose(moments(ours)[:2], moments(theirs)[:2], atol=0.03 * spread)


def test_padding_row_starts_as_zeros_and_stays():
    layer = nn.Embedding(5, 3, padding_idx=2)
    assert not layer.weight[2].any()
    layer(mytorch.tensor([2, 3])).sum().backward()
    assert layer.weight.grad[2].tolist() == [0, 0, 0] and layer.weight.grad[3].tolist() == [1, 1, 1]


def test_a_padding_row_counts_from_the_end():
    for name, index in (("Embedding", -1), ("EmbeddingBag", -2), ("Embedding", 0)):
        ours, theirs = (getattr(t.nn, name)(6, 3, padding_idx=index) for t in (mytorch, torch))
        assert ours.padding_idx == theirs.padding_idx and repr(ours) == repr(theirs)


def test_embedding_from_pretrained():
    table = mytorch.randn(4, 3)
    layer = nn.Embedding.from_pretrained(table)
    assert layer.weight.data_ptr() == table.data_ptr() and not layer.weight.requires_grad
    assert repr(layer) == repr(torch.nn.Embedding.from_pretrained(torch.ones(4, 3)))
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad


def test_dropout_drops_in_training_only():
    layer, x = nn.Dropout(0.5), mytorch.ones(1000)
    assert 300 < int((layer(x) == 0).sum()) < 700
    assert layer.eval()(x) is x


WRONG = {
    "dropout": (lambda t: t.nn.Dropout(1.5), "between 0 and 1, but got 1.5"),
    "reduction": (lambda t: t.nn.MSELoss(reduction="max")(t.ones(1), t.ones(1)), "max is not a valid value"),
    "padding_idx": (lambda t: t.nn.Embedding(3, 2, padding_idx=3), "(?i)padding_idx"),
    "from_pretrained": (lambda t: t.nn.Embedding.from_pretrained(t.ones(3)), "2-dimensional"),
    "weight": (lambda t: t.nn.Embedding(3, 2, _weight=t.ones(2, 2)), "(?i)weight"),
    "groups": (lambda t: t.nn.Conv2d(3, 4, 3, groups=2), "got 2 for 3 and 4"),
    "groups of the result": (lambda t: t.nn.Conv2d(4, 3, 3, groups=2), "got 2 for 4 and 3"),
    "no groups": (lambda t: t.nn.Conv1d(3, 4, 3, groups=0), "got 0 for 3 and 4"),
    "padding": (lambda t: t.nn.Conv2d(3, 4, 3, padding="full"), "got 'full'"),
    "padding and stride": (lambda t: t.nn.Conv1d(3, 4, 3, 2, "same"), r"not supported with .* got \(2,\)"),
    "padding_mode": (lambda t: t.nn.Conv2d(3, 4, 3, padding_mode="zero"), "got 'zero'"),
    "transposed": (lambda t: t.nn.ConvTranspose2d(3, 4, 3, padding_mode="circular"), "'circular'"),
    "output_size": (
        lambda t: t.nn.ConvTranspose1d(1, 1, 3, 2)(t.ones(1, 1, 4), output_size=[11]),
        r"from \[9\] to \[10\]",
    ),
    "output_size of other dims": (
        lambda t: t.nn.ConvTranspose2d(1, 1, 3, 2)(t.ones(1, 1, 4, 4), output_size=[9]),
        "2 or 4 elements",
    ),
    "negative size": (lambda t: t.nn.Linear(-1, 2), "negative"),
    "batch norm dims": (lambda t: t.nn.BatchNorm1d(4)(t.ones(4)), "expected 2D or 3D input .got 1D input"),
    "batch norm images": (lambda t: t.nn.BatchNorm2d(4)(t.ones(2, 4, 3)), "expected 4D input .got 3D input"),
    "one value": (lambda t: t.nn.BatchNorm1d(4)(t.ones(1, 4)), "more than 1 value per channel"),
    "channels": (lambda t: t.nn.BatchNorm1d(4)(t.ones(2, 3)), r"running_mean of shape \(3,\), got \(4,\)"),
    "instance norm dims": (lambda t: t.nn.InstanceNorm2d(4)(t.ones(2, 4)), "expected 3D or 4D input .got 2D"),
    "group norm": (lambda t: t.nn.GroupNorm(3, 4), r"\(4\) must be divisible by num_groups \(3\)"),
    "delta": (lambda t: t.nn.HuberLoss(delta="1"), "delta must be a float or int, got"),
    "p": (lambda t: t.nn.MultiMarginLoss(p=3), "only p == 1 and p == 2 supported"),
    "class weight": (lambda t: t.nn.MultiMarginLoss(weight=t.ones(2, 2)), "weight to be None or 1D"),
    "margin": (lambda t: t.nn.TripletMarginLoss(0.0), "margin to be greater than 0, got 0"),
    "margin of a distance": (
        lambda t: t.nn.TripletMarginWithDistanceLoss(margin=-1.0),
        "margin to be greater than 0, got -1",
    ),
    "features": (lambda t: t.nn.Linear(3, 2)(t.ones(2, 2)), "cannot be multiplied"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_wrong_use(call, message):
    with pytest.raises(Exception) as expected:  # noqa: B017 - whatever PyTorch raises
        call(torch)
    with pytest.raises(expected.type, match=message):
        call(mytorch)


@pytest.mark.parametrize("size", [(7, 11), (8, 12), (2, 3, 8, 11), [7, 12]])
def test_output_size_of_a_transposed_convolution(size):
    theirs = torch.nn.ConvTranspose2d(2, 3, 3, 2, padding=(1, 0), dilation=(1, 2))
    ours = nn.ConvTranspose2d(2, 3, 3, 2, padding=(1, 0), dilation=(1, 2))
    ours.load_state_dict(theirs.state_dict())
    x = normal(2, 2, 4, 4)
    check(lambda x: ours(x, output_size=size), lambda x: theirs(x, output_size=size), x)


def untracked(t):
    layer = t.nn.BatchNorm1d(4)
    layer.track_running_stats = False
    return layer


NORMS = {  # name: (the layer, inputs of several steps)
    "batch, not tracked from now on": (untracked, [normal(5, 4), normal(3, 4)]),
    "batch": (lambda t: t.nn.BatchNorm1d(4), [normal(5, 4), normal(3, 4, 2), normal(2, 4)]),
    "batch, mean of all": (lambda t: t.nn.BatchNorm1d(4, momentum=None), [normal(5, 4), normal(3, 4)]),
    "batch, images": (lambda t: t.nn.BatchNorm2d(4, momentum=0.3), [normal(5, 4, 2, 3), normal(2, 4, 1, 3)]),
    "instance": (lambda t: t.nn.InstanceNorm1d(4, track_running_stats=True), [normal(5, 4, 3), normal(4, 2)]),
    "instance, images": (
        lambda t: t.nn.InstanceNorm2d(4, 1e-5, 0.3, True, True), [normal(5, 4, 2, 3), normal(2, 4, 1, 3)],
    ),
}


@pytest.mark.parametrize(("make", "steps"), NORMS.values(), ids=NORMS)
def test_running_statistics_follow_the_batches(make, steps):
    ours, theirs = make(mytorch), make(torch)
    for x in steps:
        check(ours, theirs, x)
        for (name, got), (their_name, want) in zip(
            ours.state_dict().items(), theirs.state_dict().items(), strict=True
        ):
            assert name == their_name
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    check(ours.eval(), theirs.eval(), steps[0])
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    ours(Tensor(steps[0]))
    for name, value in ours.state_dict().items():
        assert (value == before[name]).all(), f"{name} changed in evaluation"
    ours.reset_running_stats(), theirs.reset_running_stats()
    for got, want in zip(ours.buffers(), theirs.buffers(), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_instance_norm_of_other_channels():
    with pytest.warns(UserWarning, match="the input has 3 channels, num_features is 4"):
        nn.InstanceNorm1d(4)(mytorch.ones(2, 3, 5))
    with pytest.raises(ValueError, match="the input has 3 channels, num_features is 4"):
        nn.InstanceNorm1d(4, affine=True)(mytorch.ones(2, 3, 5))


def test_a_model_learns():
    """A small network fits a function: layers, loss, gradients and updates work together."""
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1))
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=0.01)
    x = Tensor(np.linspace(-2, 2, 64, dtype="float32")[:, None])
    y = x.sin()
    losses = []
    for _ in range(150):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 5e-3 < 0.2 < losses[0]
