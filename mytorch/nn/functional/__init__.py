"""The functions behind the layers, as in `F.gelu(x)`; how their variants are chosen is in `composite`."""

from ...ops.arrays import make_them_take_arrays
from .activations import logsigmoid, mish, sigmoid, silu, soft_cap, softplus, softsign, tanh
from .alibi import alibi_bias
from .attention import scaled_dot_product_attention
from .avg_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
)
from .batch_norm import batch_norm
from .binary_cross_entropy import binary_cross_entropy, binary_cross_entropy_with_logits
from .cached_attention import cached_attention
from .cached_self_attention import cached_self_attention
from .composite import REGISTRY, Composite
from .convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from .cross_entropy import cross_entropy, nll_loss
from .ctc_loss import ctc_loss
from .distance import cosine_similarity, pairwise_distance
from .dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from .elu import celu, celu_, elu, elu_, selu, selu_
from .embedding import embedding, one_hot
from .embedding_bag import embedding_bag
from .embedding_loss import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from .gated import geglu, glu, swiglu
from .gelu import gelu
from .grid_sample import affine_grid, grid_sample
from .group_norm import group_norm, instance_norm
from .gumbel_softmax import gumbel_softmax
from .interpolate import interpolate, upsample, upsample_bilinear, upsample_nearest
from .likelihood_loss import gaussian_nll_loss, kl_div, poisson_nll_loss
from .linear import bilinear, linear, linear_activation
from .linear_cross_entropy import linear_cross_entropy
from .margin_loss import (
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
)
from .max_pooling import (
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from .multi_head_attention import multi_head_attention_forward
from .normalization import add_layer_norm, layer_norm, local_response_norm, normalize, rms_norm
from .padding import pad
from .pixel_shuffle import channel_shuffle, pixel_shuffle, pixel_unshuffle
from .quantized_linear import quantized_linear
from .rectifiers import (
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    prelu,
    relu,
    relu6,
    relu_,
    rrelu,
    rrelu_,
    squared_relu,
    threshold,
    threshold_,
)
from .recurrent import gru_steps, lstm_steps, rnn_steps
from .regression_loss import huber_loss, l1_loss, mse_loss, smooth_l1_loss
from .rotary import rotary_embedding
from .self_attention import self_attention
from .shrink import hardshrink, softshrink, tanhshrink
from .softmax import log_softmax, softmax, softmin
from .unfold import fold, unfold
from .variant import use_fused

__all__ = [
    "multi_head_attention_forward", "cached_attention",
    "cached_self_attention", "self_attention",
    "alpha_dropout", "bilinear", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", "one_hot",
    "gru_steps", "lstm_steps", "rnn_steps",
    "channel_shuffle", "pixel_shuffle", "pixel_unshuffle",
    "interpolate", "upsample", "upsample_bilinear", "upsample_nearest",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d",
    "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold",
    "unfold",
    "REGISTRY", "Composite", "cross_entropy", "dropout", "huber_loss", "l1_loss", "smooth_l1_loss",
    "cosine_similarity", "pairwise_distance", "cosine_embedding_loss", "hinge_embedding_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "gaussian_nll_loss", "kl_div",
    "poisson_nll_loss",
    "margin_ranking_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss",
    "soft_margin_loss",
    "add_layer_norm",
    "batch_norm", "group_norm", "instance_norm", "local_response_norm", "normalize", "rms_norm",
    "embedding", "gelu", "layer_norm", "linear", "linear_activation",
    "linear_cross_entropy", "quantized_linear",
    "affine_grid", "ctc_loss", "embedding_bag", "grid_sample", "gumbel_softmax",
    "log_softmax", "mse_loss", "nll_loss", "pad", "relu", "scaled_dot_product_attention", "sigmoid", "silu",
    "softmax", "tanh", "use_fused",
    "celu", "elu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid",
    "mish", "prelu", "relu6", "rrelu", "selu", "softmin", "softplus", "softshrink", "softsign", "swiglu",
    "tanhshrink", "threshold", "celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "rrelu_", "selu_",
    "threshold_", "alibi_bias", "geglu", "rotary_embedding", "soft_cap", "squared_relu",
]

make_them_take_arrays(globals(), __all__)
