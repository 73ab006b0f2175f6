"""The operators of PyTorch's database that mytorch has."""

from __future__ import annotations

FAMILIES = {
    "elementwise": """
        abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan asin acos atan
        sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma floor ceil round trunc frac
        sign positive logit nan_to_num isnan isinf isfinite logical_not bitwise_not clamp clamp_min clamp_max
        deg2rad rad2deg add sub rsub mul div floor_divide remainder fmod pow float_power maximum minimum
        fmax fmin atan2 eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or
        bitwise_xor where lerp addcmul addcdiv xlogy logaddexp isclose allclose equal true_divide __radd__
        __rand__ __rdiv__ __rmod__ __rmul__ __ror__ __rpow__ __rsub__ __rxor__ copysign fill zero_
    """,
    "reductions": """
        sum mean prod amax amin max min argmax argmin var std var_mean std_mean logsumexp norm
        linalg.vector_norm any all cumsum cumprod cummax cummin logcumsumexp nansum nanmean median nanmedian
        count_nonzero aminmax quantile nanquantile trapezoid trapz cumulative_trapezoid
    """,
    "sorting": """
        sort argsort topk kthvalue unique unique_consecutive searchsorted bucketize bincount msort histogram
    """,
    "indexing": """
        __getitem__ gather scatter scatter_add scatter_reduce index_select index_add index_copy index_fill
        index_put masked_fill masked_select masked_scatter take put take_along_dim nonzero argwhere isin
    """,
    "shape": """
        reshape view flatten ravel unflatten permute transpose t T mT movedim cat stack hstack vstack split
        split_with_sizes chunk tensor_split squeeze unsqueeze expand expand_as broadcast_to
        broadcast_tensors repeat repeat_interleave tile flip roll rot90 tril triu diag diagonal diag_embed
        narrow select unbind unfold contiguous clone reshape_as view_as meshgrid trace diff atleast_1d
        tril_indices triu_indices broadcast_shapes hsplit vsplit dsplit dstack column_stack atleast_2d
        atleast_3d diagflat fliplr flipud
    """,
    "products": """
        matmul mm bmm mv dot vdot addmm addmv addbmm baddbmm addr outer inner einsum tensordot kron
        cdist __rmatmul__
    """,
    "decompositions": """
        linalg.inv linalg.solve linalg.qr linalg.cholesky linalg.eigh linalg.eigvalsh linalg.det
        linalg.slogdet linalg.pinv linalg.lstsq linalg.svd linalg.svdvals linalg.matrix_rank
        linalg.matrix_power linalg.multi_dot linalg.solve_triangular logdet cholesky qr svd pinverse
    """,
    "transforms": """
        fft.fft fft.ifft fft.rfft fft.irfft fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2 fft.fftn fft.ifftn
        fft.rfftn fft.irfftn fft.fftshift fft.ifftshift complex polar view_as_complex angle real conj
        conj_physical
    """,
    "factories": """
        new_zeros new_ones new_full new_empty zeros ones full arange linspace logspace eye zeros_like
        ones_like full_like empty_like rand_like randn_like randint_like randn randint bernoulli multinomial
        normal float double half int long short bool byte char to item empty
    """,
    "activations": """
        nn.functional.relu nn.functional.relu6 nn.functional.gelu nn.functional.silu
        nn.functional.leaky_relu nn.functional.elu nn.functional.selu nn.functional.celu
        nn.functional.softplus nn.functional.softsign nn.functional.logsigmoid nn.functional.hardtanh
        nn.functional.hardsigmoid nn.functional.hardswish nn.functional.mish nn.functional.glu
        nn.functional.prelu nn.functional.threshold nn.functional.softmin nn.functional.softshrink
        nn.functional.hardshrink nn.functional.tanhshrink nn.functional.rrelu softmax log_softmax
    """,
    "losses": """
        nn.functional.cross_entropy nn.functional.nll_loss nn.functional.mse_loss nn.functional.l1_loss
        nn.functional.smooth_l1_loss nn.functional.huber_loss nn.functional.kl_div
        nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits
        nn.functional.cosine_embedding_loss nn.functional.cosine_similarity
        nn.functional.margin_ranking_loss nn.functional.hinge_embedding_loss
        nn.functional.triplet_margin_loss nn.functional.gaussian_nll_loss nn.functional.poisson_nll_loss
        nn.functional.pairwise_distance nn.functional.multi_margin_loss
        nn.functional.multilabel_margin_loss nn.functional.multilabel_soft_margin_loss nn.functional.ctc_loss
    """,
    "normalization": """
        nn.functional.batch_norm nn.functional.layer_norm nn.functional.group_norm nn.functional.instance_norm
        nn.functional.rms_norm nn.functional.normalize nn.functional.local_response_norm
    """,
    "convolution": """
        nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose1d
        nn.functional.conv_transpose2d nn.functional.unfold
    """,
    "pooling": """
        nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.avg_pool1d nn.functional.avg_pool2d
        nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
        nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d nn.functional.pixel_shuffle
        nn.functional.interpolate nn.functional.pad nn.functional.pixel_unshuffle
        nn.functional.channel_shuffle nn.functional.upsample_nearest nn.functional.upsample_bilinear
        nn.functional.avg_pool3d nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool3d
    """,
    "layers": """
        nn.functional.linear nn.functional.bilinear nn.functional.embedding nn.functional.one_hot
        nn.functional.scaled_dot_product_attention nn.functional.dropout nn.functional.dropout2d
        nn.functional.dropout3d nn.functional.alpha_dropout nn.functional.feature_alpha_dropout
        nn.functional.multi_head_attention_forward nn.functional.embedding_bag nn.functional.grid_sample
    """,
}

# Results are drawn at random, or are uninitialised memory: only dtypes and shapes can be compared.
RANDOM = {
    "rand_like", "randn_like", "randint_like", "randn", "randint", "bernoulli", "multinomial", "normal",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu",
    "empty_like", "new_empty", "empty",
}

# Which of several equal elements their indices name is not told: where `dim` is among the arguments.
CHOOSING = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "mode": 0}

# Vectors up to their signs.
UP_TO_SIGN = {"linalg.eigh"}

# Their results are complex, and compared as pairs of real numbers.
COMPLEX = {
    "fft.fft", "fft.ifft", "fft.rfft", "fft.fft2", "fft.ifft2", "fft.rfft2", "fft.fftn", "fft.ifftn",
    "fft.rfftn", "complex", "polar", "view_as_complex",
}

# Softmax of float16 scores of thousands: one rounding decides which is the largest. Dtypes and shapes only.
UNSTABLE = {("nn.functional.multi_head_attention_forward", "float16")}

# The database says otherwise, but PyTorch has no second derivative.
NO_SECOND = {"nn.functional.ctc_loss"}

# Compared with PyTorch in float64: PyTorch in this dtype rounds at each step, or sums numbers of 10000, or
# 25 numbers of up to 81 (addbmm), of which 0.05 is left.
ROUGH = {
    ("logcumsumexp", "float32"), ("logcumsumexp", "float16"), ("addr", "float16"),
    ("addbmm", "float32"), ("addbmm", "float16"),
    *((f"nn.functional.{name}", "float16") for name in (
        "conv_transpose2d", "interpolate", "adaptive_avg_pool3d", "bilinear", "scaled_dot_product_attention",
        "binary_cross_entropy_with_logits", "embedding_bag",
    )),
    ("nn.functional.scaled_dot_product_attention", "float32"), ("nn.functional.ctc_loss", "float32"),
    ("digamma", "float32"), ("linalg.eigh", "float32"),
}

# PyTorch adds up logarithms in float32 there, and loses digits: float64 only.
DOUBLE_MODULES = {"CTCLoss"}

MODULES = """
    Linear Bilinear Embedding Identity Flatten Unflatten LayerNorm BatchNorm1d BatchNorm2d GroupNorm
    InstanceNorm1d InstanceNorm2d RMSNorm LocalResponseNorm ReLU ReLU6 GELU SiLU LeakyReLU ELU SELU CELU
    Softplus Softsign LogSigmoid Hardtanh Hardsigmoid Hardswish Mish GLU PReLU Threshold Softmin Softshrink
    Hardshrink Tanhshrink Softmax Softmax2d LogSoftmax Sigmoid Tanh CrossEntropyLoss NLLLoss MSELoss L1Loss
    SmoothL1Loss HuberLoss KLDivLoss BCELoss BCEWithLogitsLoss CosineEmbeddingLoss MarginRankingLoss
    HingeEmbeddingLoss TripletMarginLoss GaussianNLLLoss PoissonNLLLoss Conv1d Conv2d ConvTranspose1d
    ConvTranspose2d MaxPool1d MaxPool2d AvgPool1d AvgPool2d AdaptiveAvgPool1d AdaptiveAvgPool2d
    AdaptiveMaxPool1d AdaptiveMaxPool2d LPPool1d LPPool2d MaxPool3d AvgPool3d ZeroPad1d ZeroPad2d
    ConstantPad1d ConstantPad2d ReflectionPad1d ReflectionPad2d ReplicationPad1d ReplicationPad2d
    CircularPad1d CircularPad2d MultiheadAttention TransformerEncoderLayer TransformerEncoder
    TransformerDecoderLayer Transformer RNNCell LSTMCell GRUCell RNN LSTM GRU CTCLoss
"""
