"""What is kept of the rules of meta arrays: calls give what the rules give, whatever was called before."""

import functools
import gc
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mytorch.backends.meta import MetaArray, cache, new
from mytorch.backends.meta.array import view
from mytorch.backends.meta.layout import layout, layout_of
from mytorch.backends.meta.storage import memory
from tests.backends.meta_calls import ARRAYS, CALLS, DTYPES
from tests.each import each
from tests.every import every


def described(result, x):
    """What there is to know about a result of a function of `x`."""
    if isinstance(result, (tuple, list)):
        return type(result), [described(item, x) for item in result]
    if not isinstance(result, MetaArray):
        return type(result), getattr(result, "char", result)
    y = result.layout
    base = x if x.base is None else x.base
    is_view = result.storage is x.storage and (result.offset, result.base is base)
    facts = y.shape, y.strides, y.dtype, y.dtype.char, y.flags.writeable, result.storage.nbytes
    return facts, result is x, is_view, result.base is None


def outcome(call, real):
    """What a call gives for a view that begins in the middle of its storage; or the error."""
    whole = new((real.size + 10,), real.dtype)
    x = view(whole, layout_of(real), 8)
    try:
        return described(call(x), x)
    except Exception as error:
        return type(error), str(error)


def differences(cases):
    """The cases whose first or second call, after those of all others, doesn't give what the rule gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_known", {})
        patch.setattr(cache, "MOST", 1 << 20)
        found = {key: [outcome(CALLS[key[0]], real) for _ in range(2)] for key, real in cases.items()}
        patch.setattr(cache, "_add", lambda *args: False)
        wanted = {key: outcome(CALLS[key[0]], real) for key, real in cases.items()}
    return {key: (want, found[key]) for key, want in wanted.items() if found[key] != [want, want]}


@pytest.mark.filterwarnings("ignore")
def test_calls_give_what_rules_give():
    arrays = [(name, "f4") for name in ARRAYS] + [("C", dtype) for dtype in DTYPES if dtype != "f4"]
    cases = {(call, *of): ARRAYS[of[0]].astype(of[1], "K") for of in arrays for call in CALLS}
    wrong = differences(cases)
    assert not wrong, f"{len(wrong)} of {len(cases)}: {[*wrong.items()][:5]}"


def adding(left_out):
    """A function that adds arguments to keys, one fact of each left out."""

    def add(x, key, arrays, by_value):
        facts = {"kind": type(x), "value": x}
        if isinstance(x, (tuple, list, slice)):
            items = (x.start, x.stop, x.step) if isinstance(x, slice) else x
            facts["value"] = len(items)
        elif isinstance(x, MetaArray):
            arrays.append(x)
            y = x.layout
            facts = {"shape": y.shape, "strides": y.strides, "dtype": y.dtype, "char": y.dtype.char}
            facts["writeable"] = y.flags.writeable
        elif isinstance(x, np.dtype):
            facts = {"kind": np.dtype, "value": str(x), "of dtype": x.char}
        elif isinstance(x, np.ndarray):
            facts["value"] = x.shape, x.dtype
        key += [fact for name, fact in facts.items() if name != left_out]
        return not isinstance(x, (tuple, list, slice)) or all([add(y, key, arrays, by_value) for y in items])

    return add


@pytest.mark.filterwarnings("ignore")
@each("left_out", ["kind", "value", "shape", "strides", "dtype", "char", "writeable", "of dtype"])
def test_a_key_without_a_fact_is_noticed(monkeypatch, left_out):
    names = [name for name in CALLS if name.split(" ")[0] in ("add", "no", "reshape", "sum", "T")]
    arrays = [ARRAYS["C"].astype(dtype) for dtype in ("l", "q", "f4", ">f4")]
    arrays += [np.zeros(2, "i1"), np.zeros(2, "f4"), np.zeros(7, "f4"), ARRAYS["F"].astype("f4", "F")]
    arrays += [np.broadcast_to(arrays[2], (3, 4, 5)), np.broadcast_to(arrays[2][0], (3, 4, 5))]
    cases = {(name, k): real for k, real in enumerate(arrays) for name in names}
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_add", adding(left_out))
        assert differences(cases)


@st.composite
def strided(draw):
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=4))
    steps = [draw(st.sampled_from([1, 1, 2, -1])) for _ in shape]
    sizes = [n * abs(step) for n, step in zip(shape, steps, strict=True)]
    x = np.zeros(sizes, draw(st.sampled_from(DTYPES)))[tuple([slice(None, None, step) for step in steps])]
    x = x.transpose(draw(st.permutations(range(x.ndim))))
    lengths = [n * 3 if n == 1 and draw(st.booleans()) else n for n in x.shape]
    return np.broadcast_to(x, lengths) if draw(st.booleans()) else x


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=40, deadline=None)
@given(strided(), st.lists(st.sampled_from(sorted(CALLS)), min_size=20, max_size=20, unique=True))
def test_calls_of_any_arrays(real, names):
    assert not differences({(name,): real for name in names})


ARGUMENTS = [
    (1,), (True,), (1.0,), (1 + 0j,), (np.int64(1),), (np.longlong(1),), (np.float64(1),), (np.True_,),
    ("1",), (None,), (...,), (0.5,), (float,), (int,), (tuple,), (slice,), (np.float64,), (np.dtype("f8"),),
    (np.dtype("l"),), (np.dtype("q"),), (), ((),), ([],), ((1,),), ([1],), ((1, 2),), ((1,), 2), (1, 2),
    (1, (2,)), ((1, (2,)),), (slice(1, 2, 3),), (slice, 1, 2, 3), (slice(1, 2), 3), (1, 2, None, 3),
    (tuple, 1, 2),
    (float, 1.0), (1.0, float), (1.0, 1.0), (int, 1), (type,), (type, int), (slice(1.0, 2, 3),),
    (slice(None),), (slice(None), None), (new(2), 1), (new(2), True), (new((2,), "f4"), 1), ([new(2), 1],),
    (new((2, 1)), 1), (view(new(2), layout((2,), (0,), np.dtype(float))), 1),
    (view(new(2), layout((2,), None, np.dtype(float), writeable=False)), 1),
]


def noted(runs, *args, **kwargs):
    runs.append((args, kwargs))


@each("args", ARGUMENTS)
def test_no_arguments_are_taken_for_others(args):
    """Each kept after the others; then called with names, too."""
    known, runs = {}, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_known", known)
        rule = functools.partial(noted, runs)
        for others in ARGUMENTS:
            if others is not args:
                cache.call(rule, others, {})
        before = len(runs)
        cache.call(rule, args, {})
        cache.call(rule, args, {})
        cache.call(rule, args[:-1], {"x": args[-1]} if args else {"x": 1})
        cache.call(rule, (*args[:-1], "x", *args[-1:]), {})
    assert len(runs) - before == 3 and before == len(ARGUMENTS) - 1


class Answering(MetaArray):
    """An array of whose element Python is told."""

    __slots__ = ()
    answers = ()

    def __index__(self):
        return next(Answering.answers)


def test_an_answer_is_no_layout():
    """The arrays of a function that is captured may answer with another number each time."""
    n = new((), np.int64)
    n.__class__ = Answering
    Answering.answers = iter([2, 3, 4, 0, 1])
    assert [np.reshape(new(12), (n, -1)).shape for _ in range(3)] == [(2, 6), (3, 4), (4, 3)]
    assert [np.sum(new((2, 3)), axis=n).shape for _ in range(2)] == [(3,), (2,)]


def test_results_are_new_arrays():
    x, y = new((3, 4), np.float32), new((3, 4), np.float32)
    results = [x + y for _ in range(3)] + [x[1:] for _ in range(3)] + np.split(x, 3) + np.split(x, 3)
    assert len({id(z) for z in results}) == len(results)
    first, second = np.split(x, 3), np.split(x, 3)
    first.clear()
    assert len(second) == 3 and len(np.split(x, 3)) == 3
    assert len({id(z.storage) for z in results[:3]} | {id(x.storage)}) == 4


def test_a_view_is_of_its_argument():
    """Though at first both arguments were in one memory."""
    whole = new(12)
    x, y = whole[:4], whole[4:8]
    for a, b in ((x, y), (new(4), new(4)), (y, x), (x, new(4))):
        found = np.broadcast_arrays(a, b)
        assert [z.storage for z in found] == [a.storage, b.storage]
        assert [z.data.ptr for z in found] == [a.data.ptr, b.data.ptr]
        assert np.add(a, b, out=b) is b and np.add(a, b, out=a) is a and a.astype(float, copy=False) is a


def test_a_rule_runs_once():
    runs = []
    rule = cache.cached(lambda x, n: runs.append(n) or x[n:])
    for _ in range(3):
        assert rule(new((5, 6)), 2).shape == (3, 6)
    assert runs == [2]
    assert rule(new((5, 6)), 3).shape == (2, 6) and rule(new((5, 6)), True).shape == (4, 6)
    with pytest.raises(TypeError):
        rule(new((5, 6)), 2.0)
    assert runs[:3] == [2, 3, True]


def test_other_results_are_made_each_time():
    for rule in (lambda x: {"x": 1}, lambda x: np.ones(2), lambda x: (x, [{}])):
        kept = cache.cached(rule)
        assert kept(new(3)) is not kept(new(3))
    kept = cache.cached(lambda x: view(new(4), new(2).layout))
    assert {kept(new(3)).base.shape for _ in range(2)} == {(4,)}


@each("x", [np.arange(3), {"a": 1}, {1}, object(), np.array(1), [np.arange(2)], slice(np.arange(2))])
def test_what_is_not_kept(x):
    runs = []
    for _ in range(2):
        cache.call(lambda *args: runs.append(args), (new(2), x), {})
        cache.call(lambda *args, **kwargs: runs.append(args), (new(2),), {"x": x})
    assert len(runs) == 4


def test_an_error_is_raised_again():
    x, y = new((2, 3), np.uint8), new((4, 5))
    messages = []
    for _ in range(2):
        with pytest.raises(ValueError) as raised:
            x @ y
        messages.append(str(raised.value))
        with pytest.raises(OverflowError) as raised:
            x + 300
        messages.append(str(raised.value))
        assert (x + 200).dtype == np.uint8
    assert messages[:2] == messages[2:]


def test_errors_of_samples_are_no_ones():
    """Whatever the caller lets NumPy do at an overflow."""
    x = new(7, np.float16)
    with np.errstate(all="raise"):
        assert [(x * 1e300).dtype for _ in range(2)] == [np.float16] * 2
        assert [np.divide(x, 0).dtype for _ in range(2)] == [np.float16] * 2


def test_memory_is_that_of_results_alone():
    def grown(call):
        gc.collect()
        memory.reset_peak()
        before = memory.allocated
        result = call()
        found = memory.peak - before, memory.allocated - before
        del result
        return *found, memory.allocated - before

    x, y, out = new((100, 100)), new((100, 100)), new((100, 100))
    expected = {"x + y": 80_000, "np.sum(x, 0)": 800, "x.T": 0, "np.dot(x, y, out=out)": 0, "x[:, [3]]": 800}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_known", {})
        for text, size in expected.items():
            call = functools.partial(eval, text, {"np": np, "x": x, "y": y, "out": out})
            assert [grown(call) for _ in range(2)] == [(size, size, 0)] * 2, text


def test_as_many_calls_as_there_is_room_for(monkeypatch):
    monkeypatch.setattr(cache, "_known", {})
    monkeypatch.setattr(cache, "MOST", 3)
    for n in range(20):
        assert new(30)[n:].shape == (30 - n,)
        assert 0 < len(cache._known) <= 3
    index = [0] * 1000
    assert new(30)[index].shape == (1000,) and every(len(key) < 300 for key in cache._known)


def test_equal_layouts_are_one():
    x = layout((2, 3), None, np.dtype("f4"))
    assert layout([np.int64(2), True + 2], (12, 4), np.dtype("f4")) is x is new((2, 3), "f4").layout
    assert pickle.loads(pickle.dumps(new((2, 3), "f4").layout)).shape == (2, 3)
    assert [type(n) for n in layout((True, 2), None, np.dtype("i2")).shape] == [int, int]
    with pytest.raises(TypeError):
        layout((2.0, 3), None, np.dtype("f4"))
    kinds = [layout((), None, np.dtype(code)) for code in "lq"]
    assert kinds[0] is not kinds[1] and [x.dtype.char for x in kinds] == ["l", "q"]
