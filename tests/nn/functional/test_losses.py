"""The losses and distances that are plain functions: values, gradients, dtypes, edges and errors of PyTorch.

LOSSES[name] is a list of (arguments, keyword arguments). Arrays become tensors; the positional ones of floats
get gradients.
"""

import itertools
import warnings

import numpy as np
import pytest
import torch

import mytorch
from mytorch.nn import functional as F
from tests.each import each
from tests.oracle import check, fails_alike

INF, NAN = np.inf, np.nan
rng = np.random.default_rng(0)


def normal(*shape):
    return np.asarray(rng.standard_normal(shape), "float32")


def positive(*shape):
    return np.asarray(rng.uniform(0.1, 0.9, shape), "float32")


def sign(*shape):
    return np.asarray(np.where(rng.random(shape) < 0.5, -1, 1), "int64")


def count(*shape):
    return np.asarray(rng.integers(0, 6, shape), "float32")


def classes(high, *shape):
    return rng.integers(0, high, shape)


def f(values):
    return np.array(values, "float32")


def case(*args, **kwargs):
    return args, kwargs


def reductions(*args, **kwargs):
    return [case(*args, reduction=r, **kwargs) for r in ("mean", "sum", "none")]


LOGITS = f([[-INF, INF, 0, 100], [-100, 1, -1, 30]])
YES = f([[0, 1, 0.5, 1], [0, 1, 0, 0.2]])

LOSSES = {
    "kl_div": [
        *reductions(normal(4, 3), positive(4, 3)), case(normal(4, 3), positive(4, 3), reduction="batchmean"),
        *reductions(normal(4, 3), normal(4, 3), log_target=True),
        case(normal(), positive(), reduction="batchmean"), case(normal(4, 3), positive(3), reduction="none"),
        case(normal(0, 3), positive(0, 3), reduction="sum"), case(normal(4), positive(4), reduce=False),
        case(normal(4), positive(4), size_average=False), case(f([1, 2]), f([0, 1]), reduction="sum"),
    ],
    "gaussian_nll_loss": [
        *reductions(normal(4, 3), normal(4, 3), positive(4, 3)),
        case(normal(4, 3), normal(4, 3), positive(4, 1)), case(normal(4, 3), normal(4, 3), positive(4)),
        case(normal(4, 3), normal(4, 3), 0.3, full=True), case(normal(4, 3), normal(3), positive(4, 3)),
        case(normal(3), normal(3), f([0, 1e-9, 0.2])), case(normal(3), normal(3), f([0, 0.1, 0.2]), eps=0.15),
        case(normal(), normal(), positive()), case(normal(0), normal(0), positive(0), reduction="sum"),
    ],
    "poisson_nll_loss": [
        *reductions(normal(4, 3), count(4, 3)), *reductions(positive(4, 3), count(4, 3), log_input=False),
        case(normal(4, 3), 1 + count(4, 3), full=True), case(f([0, 1, 2]), f([2, 0, 1]), log_input=False),
        case(normal(4, 3), count(3)), case(np.array([1, 2]), np.array([0, 3]), reduction="sum"),
        case(normal(4), count(4), eps=0.1, log_input=False), case(normal(0), count(0), reduction="sum"),
    ],
    "binary_cross_entropy": [
        *reductions(positive(4, 3), positive(4, 3)),
        *reductions(positive(4, 3), positive(4, 3), weight=normal(4, 3)),
        case(positive(4, 3), positive(4, 3), weight=normal(3)), case(positive(), positive()),
        case(positive(0), positive(0), reduction="sum"), case(positive(0), positive(0)),
    ],
    "binary_cross_entropy_with_logits": [
        *reductions(normal(4, 3), positive(4, 3)),
        *reductions(normal(4, 3), positive(4, 3), weight=normal(4, 3)),
        *reductions(normal(4, 3), positive(4, 3), pos_weight=positive(3)),
        case(normal(4, 3), positive(4, 3), weight=normal(4, 1), pos_weight=positive(4, 3)),
        case(np.array(LOGITS[1]), np.array(YES[1]), reduction="none"),
        case(f([0.0]), f([0.3])), case(normal(), positive()), case(normal(0), positive(0), reduction="sum"),
    ],
    "margin_ranking_loss": [
        *reductions(normal(4, 3), normal(4, 3), sign(4, 3)), case(normal(4), normal(4), sign(4), margin=0.5),
        case(normal(4, 3), normal(1, 3), sign(4, 1)), case(normal(), normal(), sign()),
        case(f([1, 1]), f([1, 1]), np.array([1, -1])), case(normal(0), normal(0), sign(0), reduction="sum"),
        case(classes(9, 5), classes(9, 5), sign(5)),
    ],
    "hinge_embedding_loss": [
        *reductions(normal(4, 3), sign(4, 3)), case(normal(4, 3), sign(3), margin=0.3),
        case(normal(5), np.array([1, -1, 0, 2, 1])), case(f([1, 1]), np.array([1, -1])),
        case(normal(), sign()),
    ],
    "soft_margin_loss": [
        *reductions(normal(4, 3), target=sign(4, 3).astype("float32")), case(normal(4, 3), sign(3)),
        case(f([0, 80, -80]), np.array([1, 1, 1]), reduction="none"), case(normal(), sign()),
    ],
    "multilabel_soft_margin_loss": [
        *reductions(normal(4, 3), positive(4, 3)), case(normal(4, 3), classes(2, 4, 3)),
        *reductions(normal(4, 3), positive(4, 3), positive(3)), case(normal(3), positive(3)),
        case(normal(2, 4, 3), positive(2, 4, 3), reduction="none"), case(f([0, 90, -90]), f([1, 0.5, 1])),
    ],
    "multi_margin_loss": [
        *reductions(normal(4, 3), classes(3, 4)), case(normal(4, 3), classes(3, 4), p=2),
        *reductions(normal(4, 3), classes(3, 4), 1, 0.3, weight=positive(3)),
        case(normal(3), np.array(1)), case(normal(3), np.array([1])), case(f([1, 2, 3]), np.array(0)),
        case(f([0, 1, 2]), np.array(2), margin=1.0, p=2),
    ],
    "multilabel_margin_loss": [
        *reductions(normal(2, 4), np.array([[3, 0, -1, 1], [0, 1, 2, 3]])),
        case(normal(4), np.array([1, 1, -1, 0])), case(normal(4), np.array([-1, 1, 2, 0])),
        case(f([0, 1, 2]), np.array([1, -1, -1])),
    ],
    "cosine_embedding_loss": [
        *reductions(normal(4, 3), normal(4, 3), sign(4)), case(normal(3), normal(3), np.array(-1)),
        case(normal(4, 3), normal(4, 3), sign(4), margin=0.5), case(normal(4, 3), normal(1, 3), sign(4)),
        case(normal(4, 3), normal(4, 3), np.array([1, 0, -1, 2]), reduction="none"),
        case(classes(5, 4, 3), classes(5, 4, 3), sign(4)),
    ],
    "triplet_margin_loss": [
        *reductions(normal(4, 3), normal(4, 3), normal(4, 3)), case(normal(3), normal(3), normal(3)),
        *(case(normal(4, 3), normal(4, 3), normal(4, 3), swap=True, p=p) for p in (1, 2.0, 3, INF)),
        case(normal(4, 3), normal(1, 3), normal(4, 3), margin=0.3, eps=1e-3),
        case(normal(0, 3), normal(0, 3), normal(0, 3), reduction="sum"),
    ],
    "triplet_margin_with_distance_loss": [
        *reductions(normal(4, 3), normal(4, 3), normal(4, 3), swap=True),
        case(normal(4, 3), normal(4, 3), normal(4, 3), distance_function=lambda x, y: (x - y).abs().sum(-1)),
    ],
    "cosine_similarity": [
        case(normal(4, 3), normal(4, 3)), *(case(normal(4, 3, 2), normal(4, 3, 2), dim=d) for d in (0, -1)),
        case(normal(4, 1, 2), normal(3, 1), dim=-1), case(normal(3), normal(3), dim=0),
        case(f([[0, 0], [1, 0], [1e-9, 0]]), normal(3, 2)), case(normal(4, 3), normal(4, 3), eps=2.0),
        case(normal(2, 0), normal(2, 0)), case(normal(0, 2), normal(0, 2)), case(normal(), normal(), dim=0),
        case(normal(4, 3), classes(5, 4, 3)),
    ],
    "pairwise_distance": [
        *(case(normal(4, 3), normal(4, 3), p=p) for p in (1, 2.0, 3, 0, INF, -1.5)),
        case(normal(4, 3), normal(4, 3), keepdim=True), case(normal(4, 3), normal(3)),
        case(normal(3), normal(3)),
        case(normal(2, 1, 3), normal(4, 3), eps=0.1), case(classes(9, 4, 3), classes(9, 4, 3)),
        case(normal(0, 3), normal(0, 3)),
    ],
    "normalize": [
        case(normal(4, 3)), case(normal(4, 3, 2), dim=-1), case(normal(3), dim=0), case(normal(4, 3), 1, 0),
        case(normal(4, 3), 3.0, eps=2.0), case(normal(4, 3, 2), dim=(1, 2)), case(normal(4, 3), dim=None),
        case(f([[0, 0], [1, 0]])), case(normal(4, 3), INF), case(normal(0, 3)), case(normal(), dim=0),
    ],
    "local_response_norm": [
        *(case(normal(2, 6, 3), size, 0.5, 0.6, 0.7) for size in (1, 2, 3, 5, 9)),
        case(normal(2, 5, 3, 2), 2), case(normal(2, 4, 1, 2, 3), 3), case(normal(0, 4, 3), 3),
        case(classes(30, 2, 5, 3), 3, 0.5),
    ],
}
EVERY_LOSS = pytest.mark.parametrize("name", LOSSES)


def call(library, name, kwargs, wrap):
    kwargs = {key: wrap(a) if isinstance(a, np.ndarray) else a for key, a in kwargs.items()}
    return lambda *args: getattr(library, name)(*args, **kwargs)


def compare(name, args, kwargs, dtype, layout=lambda a: a):
    def cast(a):
        if not isinstance(a, np.ndarray):
            return a
        return layout(a.astype(dtype) if a.dtype == np.float32 else a)

    args, kwargs = [cast(a) for a in args], {key: cast(a) for key, a in kwargs.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(
            call(F, name, kwargs, mytorch.from_numpy),
            call(torch.nn.functional, name, kwargs, lambda a: torch.from_numpy(a.copy())), *args,
        )


@EVERY_LOSS
def test_against_pytorch(name):
    for args, kwargs in LOSSES[name]:
        compare(name, args, kwargs, "float32")


LAYOUTS = {
    "transposed": lambda a: np.swapaxes(np.swapaxes(a, 0, -1).copy(), 0, -1) if a.ndim else a,
    "every other": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a,
}


@EVERY_LOSS
def test_layouts_in_float64(name):
    """Each case in one layout, in turn."""
    for (args, kwargs), layout in zip(LOSSES[name], itertools.cycle(LAYOUTS.values()), strict=False):
        compare(name, args, kwargs, "float64", layout)


LIMITS = {  # where PyTorch's limits, which are float32 numbers, matter
    "binary_cross_entropy": [
        case(f([0, 1, 0, 1]), f([0, 1, 1, 0]), reduction="none"), case(f([1e-20, 1]), f([0.5, 0.5])),
    ],
    "cosine_embedding_loss": [case(np.zeros((2, 3), "float32"), normal(2, 3), np.array([1, -1]))],
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name):
    for args, kwargs in LIMITS[name]:
        compare(name, args, kwargs, "float32")


def test_infinite_logits_have_a_finite_loss_where_the_answer_is_right():
    x = mytorch.tensor([INF, -INF, 1e4, -1e4], requires_grad=True)
    loss = F.soft_margin_loss(x, mytorch.tensor([1.0, -1, 1, -1]), reduction="none")
    loss.sum().backward()
    assert loss.tolist() == [0, 0, 0, 0] and x.grad.tolist() == [0, 0, 0, 0]
    x = mytorch.tensor([300.0], requires_grad=True)
    loss = F.soft_margin_loss(x, mytorch.tensor([-1.0]))  # PyTorch gives inf
    loss.backward()
    assert loss.item() == 300 and x.grad.item() == 1


def test_the_margin_loss_of_no_sample_is_0():
    x, target = mytorch.ones(0, 3), mytorch.zeros(0, dtype="int64")  # PyTorch gives what is in the memory
    assert F.multi_margin_loss(x, target, reduction="sum").item() == 0


def test_kl_div_warns_of_the_mean():
    x = mytorch.ones(2, 3)
    with pytest.warns(UserWarning, match="batchmean") as seen:
        F.kl_div(x, x)
    assert seen[0].filename == __file__
    for kwargs in ({"reduction": "sum"}, {"reduction": "batchmean"}, {"size_average": True}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            F.kl_div(x, x, **kwargs)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_broadcasting_warns_where_it_is_called(name):
    with pytest.warns(UserWarning, match=r"\(3,\) is different from the input's, \(2, 3\)") as seen:
        getattr(F, name)(mytorch.ones(2, 3), mytorch.ones(3))
    assert [w.filename for w in seen] == [__file__]


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_errors_that_are_nan_or_infinite(name):
    x = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    ours, theirs = getattr(F, name), getattr(torch.nn.functional, name)
    check(ours, theirs, x, np.ones_like(x), reduction="sum")


DTYPES = ["float16", "float32", "float64", "int64"]


@each("dtype, other", itertools.product(DTYPES, DTYPES))
@pytest.mark.parametrize(
    "name",
    ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss", "margin_ranking_loss",
     "hinge_embedding_loss", "cosine_similarity", "pairwise_distance", "binary_cross_entropy",
     "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss"],
)
def test_mixed_dtypes(name, dtype, other):
    """The dtype of the result is PyTorch's, or both refuse with the same class of error."""
    kwargs = {} if name in ("cosine_similarity", "pairwise_distance") else {"reduction": "mean"}
    third = name == "margin_ranking_loss"

    def run(library):
        x = library.ones(2, 3, dtype=getattr(library, dtype))
        y = library.ones(2, 3, dtype=getattr(library, other))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(library.nn.functional, name)(x, y, *[y] * third, **kwargs)

    try:
        want = run(torch)
    except Exception as error:
        with pytest.raises(type(error)):
            run(mytorch)
    else:
        got = run(mytorch)
        assert str(got.dtype) == str(want.dtype).removeprefix("torch.")
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-3)


ONES, ONE = np.ones((3, 5), "f"), np.ones(5, "f")
I3 = np.arange(3)

WRONG = {  # "function, what": (arguments, keyword arguments, message)
    "kl_div int": ([I3, I3], {}, "integral inputs are not supported, the input is int64"),
    "kl_div reduction": ([ONE, ONE], {"reduction": "max"}, "max is not a valid value"),
    "kl_div shapes": ([ONE, ONE[:3]], {}, r"can't be broadcast together: input \(5,\), target \(3,\)"),
    "l1_loss int mean": ([I3, I3], {}, "floating-point"),
    "l1_loss bool": ([I3 > 0, I3 > 0], {}, "bool"),
    "l1_loss batchmean": ([ONE, ONE], {"reduction": "batchmean"}, "batchmean is not a valid value"),
    "l1_loss weight": ([ONES, ONES], {"weight": ONE}, r"weight \(5,\) and input \(3, 5\)"),
    "smooth_l1_loss beta": ([ONE, ONE], {"beta": -1}, "negative values for beta, got -1"),
    "smooth_l1_loss int": ([I3, I3], {}, "not implemented for dtype int64"),
    "smooth_l1_loss shapes": ([ONE, ONE[:3]], {}, r"target \(3,\), input \(5,\)"),
    "huber_loss delta": ([ONE, ONE], {"delta": 0}, "non-positive values for delta, got 0"),
    "huber_loss int": ([I3, I3], {}, "not implemented for dtype int64"),
    "huber_loss reduction": ([ONE, ONE], {"reduction": "max"}, "max is not a valid value"),
    "huber_loss weight": ([ONES, ONES], {"weight": ONE}, r"weight \(5,\) and input \(3, 5\)"),
    "gaussian_nll_loss negative": ([ONE, ONE, -ONE], {}, "var has negative entries, got -1"),
    "gaussian_nll_loss number": ([ONE, ONE, -0.5], {}, "var has negative entr"),
    "gaussian_nll_loss size": ([ONES, ONES, ONE], {}, r"incorrect size, \(5,\), for an input of \(3, 5\)"),
    "gaussian_nll_loss two": ([ONES, ONES, ONES[:1, :1]], {}, r"incorrect size, \(1, 1\)"),
    "gaussian_nll_loss reduction": ([ONE, ONE, ONE], {"reduction": "max"}, "max is not valid|max is not a"),
    "poisson_nll_loss reduction": ([ONE, ONE], {"reduction": "max"}, "max is not a valid value"),
    "poisson_nll_loss shapes": ([ONE, ONE[:3]], {}, "can't be broadcast"),
    "binary_cross_entropy shapes": ([ONES, ONE], {}, r"target \(5,\) and input \(3, 5\)"),
    "binary_cross_entropy input": ([2 * ONE, ONE], {}, "elements of input should be between 0 and 1, got 2"),
    "binary_cross_entropy NaN": ([NAN * ONE, ONE], {}, "input should be between 0 and 1, got nan"),
    "binary_cross_entropy target": ([ONE, -ONE], {}, "elements of target should be between 0 and 1, got -1"),
    "binary_cross_entropy dtype": ([ONE, ONE.astype("d")], {}, "target of dtype float32, got float64"),
    "binary_cross_entropy weight": ([ONE, ONE, ONE[:3]], {}, r"target \(5,\), weight \(3,\)"),
    "binary_cross_entropy reduction": ([ONE, ONE], {"reduction": "max"}, "max is not a valid value"),
    "binary_cross_entropy_with_logits shapes": ([ONES, ONE], {}, r"target \(5,\) and input \(3, 5\)"),
    "binary_cross_entropy_with_logits int": ([I3, I3], {}, "not implemented for dtype int64"),
    "binary_cross_entropy_with_logits weight": ([ONE, ONE, ONE[:3]], {}, r"input \(5,\), weight \(3,\)"),
    "binary_cross_entropy_with_logits pos_weight": (
        [ONE, ONE], {"pos_weight": ONE[:3]}, r"input \(5,\), pos_weight \(3,\)",
    ),
    "margin_ranking_loss dims": ([ONES, ONES, ONE], {}, r"target \(5,\)"),
    "margin_ranking_loss shapes": ([ONE, ONE[:3], ONE], {}, r"input2 \(3,\)"),
    "hinge_embedding_loss shapes": ([ONE, ONE[:3]], {}, r"target \(3,\)"),
    "hinge_embedding_loss reduction": ([ONE, ONE], {"reduction": "max"}, "max is not a valid value"),
    "soft_margin_loss int": ([I3, I3], {}, "int64"),
    "soft_margin_loss shapes": ([ONE, ONE[:3]], {}, r"target \(3,\)"),
    "multilabel_soft_margin_loss int": ([I3, I3], {}, "not implemented for dtype int64"),
    "multi_margin_loss p": ([ONES, I3], {"p": 3}, "p == 1 and p == 2"),
    "multi_margin_loss class": ([ONES, I3 + 3], {}, "target 5 is out of range, there are 5 classes"),
    "multi_margin_loss negative": ([ONES, I3 - 1], {}, "target -1 is out of range"),
    "multi_margin_loss size": ([ONES, I3[:2]], {}, r"target size, \(2,\), expected \(3,\)"),
    "multi_margin_loss weight": ([ONES, I3], {"weight": ONES}, r"one-dimensional, got shape \(3, 5\)"),
    "multi_margin_loss weight size": ([ONES, I3], {"weight": ONE[:3]}, r"weight size, \(3,\) for 5"),
    "multi_margin_loss dims": ([ONES[None], I3], {}, r"vector or matrix, got shape \(1, 3, 5\)"),
    "multilabel_margin_loss class": ([ONE, np.full(5, 5)], {}, "target 5 is out of range"),
    "multilabel_margin_loss size": ([ONES, I3], {}, r"target size, \(3,\), expected \(3, 5\)"),
    "multilabel_margin_loss dtype": ([ONE, ONE], {}, "dtype int64, got float32"),
    "cosine_embedding_loss target": ([ONES, ONES, ONES], {}, r"0D or 1D target tensor expected"),
    "cosine_embedding_loss 1-d": ([ONES, ONES, np.array(1)], {}, r"0D target tensor expects 1D input"),
    "cosine_embedding_loss 2-d": ([ONE, ONE, I3], {}, r"1D target tensor expects 2D input"),
    "triplet_margin_loss margin": ([ONES, ONES, ONES], {"margin": 0}, "greater than 0, got 0"),
    "triplet_margin_loss dims": ([ONES, ONE, ONES], {}, "2D, 1D and 2D"),
    "triplet_margin_with_distance_loss margin": ([ONES] * 3, {"margin": -1.0}, "greater than 0, got -1"),
    "triplet_margin_with_distance_loss dims": ([ONES, ONES, ONE], {}, "2D, 2D and 1D"),
    "triplet_margin_with_distance_loss reduction": ([ONE] * 3, {"reduction": "max"}, "max is not a valid"),
    "cosine_similarity int": ([I3, I3], {"dim": 0}, "floating-point dtype, got int64"),
    "cosine_similarity shapes": ([ONE, ONE[:3]], {"dim": 0}, r"x1 \(5,\), x2 \(3,\)"),
    "cosine_similarity dim": ([ONE, ONE], {}, "out of range"),
    "pairwise_distance shapes": ([ONES, ONE[:3]], {}, r"x1 \(3, 5\), x2 \(3,\)"),
    "normalize int": ([I3], {"dim": 0}, "int64"),
    "normalize dim": ([ONE], {}, "out of range"),
    "local_response_norm dims": ([ONES, 2], {}, "got 2 dimensions"),
    "local_response_norm size": ([ONES[None], 0], {}, "greater than zero, got 0"),
    "local_response_norm bool": ([ONES[None] > 0, 2], {}, "bool"),
}


@each("name", WRONG)
def test_wrong_calls(name):
    (args, kwargs, message), function = WRONG[name], name.split()[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ours, theirs = (
            call(library, function, kwargs, wrap)
            for library, wrap in ((F, mytorch.from_numpy), (torch.nn.functional, torch.from_numpy))
        )
        fails_alike(ours, theirs, *args, match=message)


@pytest.mark.filterwarnings("ignore:kl_div")
@pytest.mark.parametrize("name", ["hinge_embedding_loss", "kl_div", "cosine_similarity", "pairwise_distance"])
def test_arrays_are_no_tensors(name):
    with pytest.raises(TypeError, match=rf"{name}\(\): \w+ must be a Tensor, got ndarray"):
        getattr(F, name)(ONE, ONE)


@pytest.mark.parametrize("variant", [{}, {"auto": True}, {"fused": False}])
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"label_smoothing": 0.1, "weight": True}])
def test_cross_entropy_of_half_logits_in_float32(device, variant, half, options):
    """It is that of the logits cast first, without storing these; the gradient is rounded once."""
    numbers, classes = rng.standard_normal((6, 50)).astype("float32"), mytorch.tensor([0, 49, -100, 3, 3, 7])
    weight = mytorch.rand(50).to(device) if "weight" in options else None
    found = []
    for cast in (False, True):
        x = mytorch.tensor(numbers).to(half).to(device).requires_grad_()
        given, dtype = (x.float(), {}) if cast else (x, {"dtype": mytorch.float32})
        loss = F.cross_entropy(given, classes.to(device), **{**options, "weight": weight}, **dtype, **variant)
        assert loss.dtype == mytorch.float32
        (1000 * loss.sum()).backward()
        assert x.grad.dtype == x.dtype
        found.append((loss.tolist(), x.grad.float().tolist()))
    assert found[0] == found[1]


def test_the_dtype_of_cross_entropy_is_that_of_the_cast_logits():
    x, y = mytorch.randn(3, 5), mytorch.tensor([0, 4, 2])
    for dtype in ("float16", "float64", mytorch.float32, None):
        cast = x if dtype is None else x.to(dtype)
        assert mytorch.equal(F.cross_entropy(x, y, dtype=dtype), F.cross_entropy(cast, y))
    half, p = x.half(), x.softmax(-1)
    assert mytorch.equal(F.cross_entropy(half, p, dtype="float32"), F.cross_entropy(half.float(), p))


def test_a_variance_of_nan_is_no_negative_one():
    args = np.ones(2, "float32"), np.zeros(2, "float32"), np.array([1, np.nan], "float32")
    want = torch.nn.functional.gaussian_nll_loss(*map(torch.from_numpy, args), reduction="none")
    tensors = [mytorch.from_numpy(a) for a in args]
    for function in (F.gaussian_nll_loss, mytorch.compile(F.gaussian_nll_loss)):
        got = function(*tensors, reduction="none")
        np.testing.assert_allclose(got.numpy(), want.numpy(), 1e-6)
