"""Values at the edge (inf, NaN, huge, nothing) and wrong calls, as PyTorch has them, in every variant."""

import warnings

import numpy as np
import pytest
import torch

import mytorch
from mytorch.nn import functional as F
from tests.each import each
from tests.nn.functional.cases import CASES, declined
from tests.nn.functional.test_parity import call, is_float, variants
from tests.oracle import check, fails_alike, outputs

INF, NAN = np.inf, np.nan
I3 = np.arange(3)


def f(values):
    return np.array(values, "float32")


SPECIAL = f([[INF, 1, 2], [-INF, 1, 2], [-INF, -INF, -INF], [NAN, 1, 2], [3e38, -3e38, 0]])
LINE = f([INF, -INF, NAN, 1e30, -1e30, 0])

STATISTICS = {"running_mean": f([0.5, 1]), "running_var": f([2, 1])}

EDGES = {  # "function and what": (arguments, keyword arguments)
    "relu": ([LINE], {}),
    "squared_relu": ([LINE], {}),
    "sigmoid": ([LINE], {}),
    "tanh": ([LINE], {}),
    "silu": ([LINE], {}),
    "mish": ([LINE], {}),
    "softplus": ([LINE], {}),
    "logsigmoid": ([LINE], {}),
    "softsign": ([LINE], {}),
    "tanhshrink": ([LINE], {}),
    "softshrink": ([LINE], {}),
    "hardshrink": ([LINE], {}),
    "hardsigmoid": ([LINE[[0, 1, 3, 4, 5]]], {}),  # at NaN PyTorch stops the gradient,
    "hardswish": ([LINE[[0, 1, 3, 4, 5]]], {}),  # and here it passes it
    "hardtanh": ([LINE], {}),
    "relu6": ([LINE], {}),
    "leaky_relu": ([LINE], {}),
    "rrelu": ([LINE], {}),
    "threshold": ([LINE], {"threshold": 1, "value": -INF}),
    "elu": ([LINE], {"alpha": 0.3}),
    "selu": ([LINE], {}),
    "celu": ([LINE], {"alpha": 0.3}),
    "prelu": ([LINE, f([0.3])], {}),
    "prelu inf": ([LINE[[0, 3, 4, 5]], f([0.3])], {}),
    "glu": ([LINE], {}),
    "relu ints": ([np.arange(-3, 9)], {}),
    "relu uint8": ([np.arange(9, dtype="uint8")], {}),
    "relu6 ints": ([np.arange(-3, 9)], {}),
    "relu6 uint8": ([np.arange(9, dtype="uint8")], {}),
    "hardtanh ints": ([np.arange(-3, 9, dtype="int8")], {"min_val": -1.5, "max_val": 2.7}),
    "hardtanh of one value": ([np.arange(4)], {"min_val": 2, "max_val": 2}),
    "threshold ints": ([np.arange(-3, 4, dtype="int16")], {"threshold": 0.5, "value": 9.7}),
    "softsign ints": ([np.arange(-3, 4)], {}),
    "softsign uint8": ([np.arange(250, 255, dtype="uint8")], {}),
    **{f"sigmoid {d}": ([I3.astype(d)], {}) for d in ("int64", "uint8", "bool")},
    **{f"tanh {d}": ([I3.astype(d)], {}) for d in ("int64", "uint8", "bool")},
    "tanhshrink ints": ([np.arange(-3, 4)], {}),
    "gelu": ([LINE[1:]], {}),  # at inf PyTorch's vectorized exact GELU gives NaN instead of inf
    "gelu tanh": ([LINE[[1, 2, 5]]], {"approximate": "tanh"}),  # x^3 overflows beyond 1e13
    "softmax": ([SPECIAL], {"dim": 1}),
    "log_softmax": ([SPECIAL], {"dim": 1}),
    "layer_norm": ([SPECIAL[:4], (3,), f([1, 2, 3]), f([0, 0, 1])], {}),
    "cross_entropy": ([SPECIAL, np.array([0, 1, 1, 1, 0])], {"reduction": "none"}),
    "cross_entropy -inf target": ([SPECIAL[1:2], np.array([0])], {}),
    "batch_norm of rows": ([f([[1, NAN], [INF, 2]])], STATISTICS),
    "batch_norm": ([f([[[1, NAN], [3, 4]], [[5, 6], [INF, 7]]])], STATISTICS),
    "cross_entropy inf ignored": ([f([[INF, 1], [3, 2]]), np.array([-100, 0])], {}),
    "cross_entropy NaN ignored": ([f([[NAN, 1], [3, 2]]), np.array([-100, 0])], {}),
    "cross_entropy smoothed": (
        [SPECIAL, np.array([0, 1, 1, 1, 0])], {"reduction": "none", "label_smoothing": 0.1},
    ),
    "cross_entropy probabilities": ([SPECIAL[1:], f(np.full((4, 3), 0.3))], {"reduction": "none"}),
    "cross_entropy all ignored": ([f([[1, 2], [3, 4]]), np.array([-100, -100])], {}),
    "cross_entropy empty": ([f(np.zeros((0, 3))), np.zeros(0, int)], {}),
    "cross_entropy empty sum": ([f(np.zeros((0, 3))), np.zeros(0, int)], {"reduction": "sum"}),
    "cross_entropy no weight": ([f([[1, 2], [3, 4]]), np.array([0, 1])], {"weight": f([0, 0])}),
    "nll_loss all ignored": ([f([[1, 2], [3, 4]]), np.array([-100, -100])], {}),
    "nll_loss NaN ignored": ([f([[NAN, 1], [3, 2]]), np.array([-100, 0])], {}),
    "mse_loss": ([LINE, LINE[::-1].copy()], {"reduction": "none"}),
    "mse_loss empty": ([f([]), f([])], {}),
    "scaled_dot_product_attention huge": (
        [f([[[1e4], [-1e4]]]), f([[[1e4], [2], [3]]]), f([[[1], [2], [3]]])], {},
    ),
    "scaled_dot_product_attention inf": ([f([[INF]]), f([[1], [2]]), f([[1], [2]])], {}),
    "scaled_dot_product_attention NaN": ([f([[1], [NAN]]), f([[1], [2]]), f([[1], [2]])], {}),
}


@each("name", EDGES)
def test_edges(name):
    (args, kwargs), function = EDGES[name], name.split()[0]
    for variant, choice in variants(function):
        if variant == "fused" and (args[0].dtype != np.float32 or declined(function, args)):
            continue
        check(call(F, function, kwargs, **choice), call(torch.nn.functional, function, kwargs), *args)


# Elsewhere PyTorch's kernels differ from each other: a weight that is NaN meets the padding of a convolution
# or doesn't, and a query that is NaN may give 0 in attention, of which see fused_ops/test_attention. The
# oracle of LSTM steps multiplies gates by an identity matrix, in which one NaN spreads to the others.
APART = {
    "conv1d", "conv2d", "self_attention", "cached_attention", "cached_self_attention", "dropout",
    "lstm_steps",
}
SPREADING = [(name, 0) for name in CASES if "cpu" in F.REGISTRY[name].suppliers and name not in APART]
_ACTIVATIONS = [options["activation"] for _, options in CASES["linear_activation"]]
SPREADING.append(("linear_activation", _ACTIVATIONS.index("relu")))


PASSED = {
    "linear_cross_entropy",  # its gradient is there before the incoming one, which multiplies all of it
}


def values_and_gradients(library, name, args, kwargs, incoming, **choice):
    """The results and the gradients of all floats, for random gradients with a number in their middle."""
    make = mytorch.from_numpy if library is F else torch.from_numpy
    xs = [make(a.copy()) if isinstance(a, np.ndarray) else a for a in args]
    floats = [x.requires_grad_() for x, a in zip(xs, args, strict=True) if is_float(a)]
    ys, rng = outputs(call(library, name, kwargs, **choice)(*xs)), np.random.default_rng(3)
    for y in ys:
        g = np.asarray(rng.standard_normal(tuple(y.shape)), "float32")
        g.reshape(-1)[g.size // 2] = incoming or 1
        y.backward(make(g), retain_graph=True)
    return [y.detach().numpy() for y in ys] + [x.grad.numpy() for x in floats]


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize(("name", "i"), SPREADING)
def test_what_is_not_finite_spreads_as_in_pytorch(name, i, value):
    """From each input, and from the incoming gradient, to the same places. Which of NaN and inf a sum of
    several such numbers is depends on its order, so there is no telling."""
    args, kwargs = CASES[name][i]
    places = [k for k, a in enumerate(args) if is_float(a)]
    for place in [*places, None]:
        if place is None and name in PASSED:
            continue
        given, incoming = list(args), value if place is None else None
        if place is not None:
            given[place] = args[place].copy()
            given[place].reshape(-1)[args[place].size * 3 // 5] = value
        wants = values_and_gradients(torch.nn.functional, name, given, kwargs, incoming)
        for variant, choice in variants(name, i):
            if variant == "reference":
                continue  # what cancels there, inf - inf, isn't in the derivative
            gots = values_and_gradients(F, name, given, kwargs, incoming, **choice)
            for k, (got, want) in enumerate(zip(gots, wants, strict=True)):
                finite, what = np.isfinite(want), f"{variant}, input {place}: result or gradient {k}"
                np.testing.assert_array_equal(np.isfinite(got), finite, err_msg=what)
                np.testing.assert_allclose(got[finite], want[finite], 1e-4, 1e-5, err_msg=what)


I35 = np.ones((3, 5), int)
X35, X53, X45 = np.ones((3, 5), "f"), np.ones((5, 3), "f"), np.ones((4, 5), "f")
W5 = np.ones(5, "f")


def attend(*shapes, **kwargs):
    return [np.ones(s, "f") for s in shapes], kwargs


WRONG = {  # "function, what": (arguments, keyword arguments, message)
    "linear features": ([X35, X53], {}, "shapes cannot be multiplied"),
    "linear dtypes": ([X35, X45.astype("d")], {}, "same dtype, got float32, float64"),
    "linear bias": ([X35, X45, W5], {}, r"a bias of shape \(5,\) can't be expanded to the output's \(3, 4\)"),
    "linear 0-d": ([np.array(1, "f"), X45], {}, "at least 1 dimension"),
    "linear bool": ([X35 > 0, X45 > 0], {}, "not implemented for bool"),
    **{
        f"{name} int": ([I3], {}, "not implemented for dtype int64")
        for name in (
            "celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "leaky_relu", "logsigmoid",
            "mish", "rrelu", "selu", "silu", "softplus", "softshrink",
        )
    },
    "glu int": ([np.ones((2, 4), int)], {}, "not implemented for dtype int64"),
    "glu odd": ([X35], {"dim": 1}, "even size, but dim 1 is of size 5"),
    "glu 0-d": ([np.array(1, "f")], {}, "a 0-d tensor has no halves"),
    "glu dim": ([X35], {"dim": 2}, r"expected to be in range of \[-2, 1\], but got 2"),
    "prelu int": ([I3, np.ones(1, int)], {}, "not implemented for dtype int64"),
    "prelu channels": ([X35, W5[:3]], {}, r"3 weights for 5 channels of \(3, 5\)"),
    "prelu vector": ([W5, W5], {}, r"5 weights for 1 channels"),
    "prelu matrix": ([X35, X35], {}, r"0 or 1 dims, got shape \(3, 5\)"),
    "prelu 0-d": ([np.array(1, "f"), W5[:2]], {}, r"0-d input takes one weight"),
    "prelu dtype": ([X35, W5.astype("d")], {}, "one dtype, got input float32 and weight float64"),
    "relu bool": ([X35 > 0], {}, "bool"),
    "relu6 bool": ([X35 > 0], {}, "bool"),
    "hardtanh bool": ([X35 > 0], {}, "bool"),
    "hardtanh bounds": ([X35], {"min_val": 2, "max_val": 1}, "min_val can.t be above max_val, got 2 and 1"),
    "hardtanh unsigned": ([I3.astype("uint8")], {}, "negative limits for an unsigned dtype, got -1.0"),
    "threshold bool": ([X35 > 0], {"threshold": 0, "value": 1}, "bool"),
    "threshold range": ([I3.astype("int8")], {"threshold": 0, "value": 900}, "900 .* int8"),
    "softsign bool": ([X35 > 0], {}, "bool"),
    "tanhshrink bool": ([X35 > 0], {}, "bool"),
    "softshrink lambd": ([X35], {"lambd": -1}, "lambd must not be negative, got -1"),
    "softshrink NaN": ([X35], {"lambd": NAN}, "lambd must not be negative, got nan"),
    "rrelu bounds": ([X35], {"lower": 0.5, "upper": 0.1}, "lower must not be above upper, got 0.5 and 0.1"),
    "rrelu infinite": ([X35], {"upper": INF, "training": True}, "must be finite, got 0.125 and inf"),
    "celu alpha": ([X35], {"alpha": 0}, "alpha cannot be 0"),
    "gelu approximate": ([X35], {"approximate": "x"}, "either none or tanh, got 'x'"),
    "softmax int": ([I3], {"dim": 0}, "not implemented for dtype int64"),
    "softmax dim": ([X35], {"dim": 2}, r"expected to be in range of \[-2, 1\], but got 2"),
    "log_softmax dim": ([X35], {"dim": -3}, r"expected to be in range of \[-2, 1\], but got -3"),
    "layer_norm int shape": ([X35, 5], {}, "must be a tuple of ints, got 5"),
    "layer_norm empty shape": ([X35, ()], {}, "at least 1-dimensional"),
    "layer_norm shape": ([X35, (3,)], {}, r"normalized_shape=\[3\], .* but got \[3, 5\]"),
    "layer_norm weight": ([X35, (5,), W5[:3]], {}, r"weight of shape \[3\]"),
    "layer_norm bias": ([X35, (5,), W5, W5[:3]], {}, r"bias of shape \[3\]"),
    "layer_norm dtype": ([X35, (5,), W5.astype("d")], {}, "input is float32, weight is float64"),
    "layer_norm int": ([I35, (5,)], {}, "not implemented for dtype int64"),
    "embedding range": ([np.array([1, 4]), X45], {}, "index out of range in self: 4, of 4 rows"),
    "embedding negative": ([np.array([-1]), X45], {}, "index out of range in self: -1, of"),
    "embedding dtype": ([W5, X45], {}, "int64 or int32, got float32"),
    "embedding weight": ([I3, W5], {}, r"'weight' must be 2-D, got shape \(5,\)"),
    "embedding padding_idx": (
        [I3, X45], {"padding_idx": 4}, "padding_idx 4 must be within num_embeddings, 4",
    ),
    "dropout p": ([X35], {"p": 1.5}, "between 0 and 1, but got 1.5"),
    "dropout int": ([I3], {}, "can't be cast to the input's type int64"),
    "mse_loss shapes": ([X35, X45], {}, r"can't be broadcast together: target \(4, 5\), input \(3, 5\)"),
    "mse_loss reduction": ([X35, X35], {"reduction": "max"}, "max is not a valid value for reduction"),
    "mse_loss int": ([I3, I3], {}, "not implemented for dtype int64"),
    "mse_loss weight": ([X35, X35], {"weight": W5}, "must have the same size"),
    "nll_loss 0-d": ([np.array(1, "f"), np.array(0)], {}, "expected 1 or more dimensions"),
    "nll_loss target dtype": ([X35, np.ones(3, "f")], {}, "int64 or uint8, got float32"),
    "nll_loss batch": ([X35, np.ones(2, int)], {}, r"batch_size \(3\) to match"),
    "nll_loss class": ([X35, np.array([0, 5, 1])], {}, "(?i)target 5 is out of bounds"),
    "nll_loss reduction": ([X35, I3], {"reduction": "max"}, "max is not a valid value"),
    "cross_entropy batch": ([X35, np.ones(2, int)], {}, r"batch_size \(3\) to match"),
    "cross_entropy class": (
        [X35, np.array([0, 5, 1])], {}, "(?i)target 5 is out of bounds, there are 5 classes",
    ),
    "cross_entropy negative class": ([X35, np.array([0, -1, 1])], {}, "(?i)target -1 is out of bounds"),
    "cross_entropy target dtype": ([X35, I3.astype("int32")], {}, "int64 or uint8, got int32"),
    "cross_entropy shape": ([np.ones((2, 4, 3), "f"), np.ones((2, 2), int)], {}, "size mismatch"),
    "cross_entropy int logits": ([I35, I3], {}, "not implemented for dtype int64"),
    "cross_entropy int probabilities": ([X35, I35], {}, "floating point type for target"),
    "cross_entropy ignored probability": ([X35, X35], {"ignore_index": 2}, "ignore_index=2 is not supported"),
    "cross_entropy weight": ([X35, I3], {"weight": W5[:4]}, "for all 5 classes or no classes"),
    "cross_entropy weight dtype": (
        [X35, I3], {"weight": W5.astype("d")}, "weight of dtype float32, got float64",
    ),
    "cross_entropy reduction": ([X35, I3], {"reduction": "max"}, "max is not a valid value"),
    "cross_entropy smoothing": ([X35, I3], {"label_smoothing": 2.0}, "between 0.0 and 1.0, got 2.0"),
    "linear_cross_entropy input dims": (
        [X35[None], X45, I3[None]], {}, "input with dimensionality 1 or 2, got 3",
    ),
    "linear_cross_entropy weight dims": ([X35, W5, I3], {}, "dimensionality at least 2, got 1"),
    "linear_cross_entropy features": ([X35, X45[:, :4], I3], {}, "got 5 and 4"),
    "linear_cross_entropy bias": ([X35, X45, I3, W5], {}, r"linear_bias shape \(4,\), got \(5,\)"),
    "linear_cross_entropy unbatched": ([W5, X45[:, None], np.array([0])], {}, "requires.* batched input"),
    "linear_cross_entropy dtype": ([X35, X45.astype("d"), I3], {}, "the same dtype, got float32, float64"),
    "linear_cross_entropy class": (
        [X35, X45, np.array([0, 4, 1])], {}, "(?i)target 4 is out of bounds, there are 4 classes",
    ),
    "linear_cross_entropy ignored probability": (
        [X35, X45, np.ones((3, 4), "f")], {"ignore_index": 1}, "ignore_index cannot be specified",
    ),
    "linear_cross_entropy reduction": ([X35, X45, I3], {"reduction": "max"}, "max is not a valid value"),
    "linear_cross_entropy smoothing": ([X35, X45, I3], {"label_smoothing": 2.0}, "between 0.0 and 1.0"),
    "scaled_dot_product_attention 1-d": (*attend(4, (5, 4), (5, 4)), "at least 2 dimensional"),
    "scaled_dot_product_attention E": (*attend((3, 4), (5, 5), (5, 6)), "shapes do not match"),
    "scaled_dot_product_attention S": (*attend((3, 4), (5, 4), (6, 6)), "shapes do not match"),
    "scaled_dot_product_attention batch": (*attend((2, 3, 4), (3, 5, 4), (3, 5, 6)), "can't be broadcast"),
    "scaled_dot_product_attention heads": (
        *attend((1, 4, 3, 4), (1, 3, 5, 4), (1, 3, 5, 6), enable_gqa=True), "enable_gqa=True",
    ),
    "scaled_dot_product_attention dtype": (
        [X35, X45.astype("d"), X45], {}, "same dtype, got float32, float64",
    ),
    "scaled_dot_product_attention int": ([I35, I35, I35], {}, "not implemented for dtype int64"),
    "scaled_dot_product_attention mask dtype": (*attend((3, 4), (5, 4), (5, 4), attn_mask=I35), "got int64"),
    "scaled_dot_product_attention mask shape": (
        *attend((3, 4), (5, 4), (5, 4), attn_mask=np.ones((2, 5), "f")), r"\(2, 5\) can't be broadcast",
    ),
    "scaled_dot_product_attention mask and causal": (
        *attend((3, 4), (5, 4), (5, 4), attn_mask=X35, is_causal=True),
        "should not be set when is_causal=True",
    ),
}


@each("name", WRONG)
def test_wrong_calls(name):
    (args, kwargs, message), function = WRONG[name], name.split()[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for _, choice in variants(function):
            ours, theirs = call(F, function, kwargs, **choice), call(torch.nn.functional, function, kwargs)
            fails_alike(ours, theirs, *args, match=message)


def test_softplus_does_not_overflow():
    """PyTorch's is infinite where exp(x) is and the threshold above."""
    x = mytorch.tensor([50.0, 100, 200], requires_grad=True)
    for _, choice in variants("softplus"):
        y = F.softplus(x, threshold=300, **choice)
        np.testing.assert_array_equal(y.detach().numpy(), x.detach().numpy())
        np.testing.assert_array_equal(mytorch.autograd.grad(y.sum(), x)[0].numpy(), 1)


def test_attention_dropout_probability():
    q = mytorch.ones(3, 4)
    with pytest.raises(ValueError, match="between 0 and 1, but got 2"):  # PyTorch raises RuntimeError
        F.scaled_dot_product_attention(q, q, q, dropout_p=2)


def test_sparse_gradients_are_refused():
    weight = mytorch.ones(2, 2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="use sparse=False"):
        F.embedding(mytorch.tensor([0]), weight, sparse=True)
    with mytorch.no_grad():
        assert F.embedding(mytorch.tensor([0]), weight, sparse=True).tolist() == [[1, 1]]


def test_the_weight_of_classes_is_not_differentiable():
    x, t = mytorch.ones(3, 5), mytorch.tensor([0, 1, 2])
    with pytest.raises(RuntimeError, match="not differentiable with respect to weight"):
        F.cross_entropy(x, t, mytorch.ones(5, requires_grad=True))
