"""Programs check indices against their bounds, as eager code does."""

import numpy as np
import pytest

import mytorch
from mytorch import func, optim
from mytorch.compiler import capture, load
from mytorch.nn import functional as F
from tests.each import each

ROW = 1, 2
FUNCTIONS = {  # of x, (4, 3), and two indices
    "gather": lambda x, i: x.gather(0, i.reshape(ROW)),
    "gather along the last dim": lambda x, i: x[:2].gather(1, i[:, None]),
    "take_along_dim": lambda x, i: x[:, :2].take_along_dim(i.reshape(ROW), 0),
    "scatter": lambda x, i: x.scatter(0, i.reshape(ROW), x[2:] * 2),
    "scatter a number": lambda x, i: x.scatter(0, i.reshape(ROW), 3.0),
    "scatter add": lambda x, i: x.scatter(0, i.reshape(ROW), x[2:], reduce="add"),
    "scatter_add": lambda x, i: x.scatter_add(0, i.reshape(ROW), x[2:]),
    **{
        f"scatter_reduce {how}": lambda x, i, how=how: x.scatter_reduce(0, i.reshape(ROW), x[2:], how)
        for how in ("sum", "prod", "mean", "amax")
    },
    "scatter_": lambda x, i: (x * 2).scatter_(0, i.reshape(ROW), x[2:]),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x[2:]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[2:]),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, x[0, :2]),
    "masked_scatter": lambda x, i: x.masked_scatter(x > i[0] + 2, x.reshape(-1)[:9]),
    "nll_loss": lambda x, i: F.nll_loss(x[:2].log_softmax(1), i, reduction="none"),
    "nll_loss with weights": lambda x, i: F.nll_loss(x[:2], i, mytorch.ones(3), ignore_index=-9),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2], i),
    "linear_cross_entropy": lambda x, i: F.linear_cross_entropy(x[:2], x, i),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x[:2], i),
    "multilabel_margin_loss": lambda x, i: F.multilabel_margin_loss(x[:1, :2], i.reshape(ROW)),
    "ctc_loss": lambda x, i: F.ctc_loss(x.log_softmax(1)[:, None], i.reshape(ROW), [4], [1]),
    "one_hot": lambda x, i: F.one_hot(i, 4) * x[:2, :1],
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i.reshape(ROW), x),
    "embedding_bag offsets": lambda x, i: F.embedding_bag(mytorch.tensor([0, 1]), x, i),
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x[:, i],
    "x[i, i]": lambda x, i: x[i, i],
    "vmap": lambda x, i: func.vmap(lambda row, k: row.gather(0, k))(x[:2], i[:, None]),
    "grad": lambda x, i: func.grad(lambda x: x.gather(0, i.reshape(ROW)).exp().sum())(x),
}
INDICES = {"good": (0, 1), "equal": (2, 2), "negative": (1, -1), "far": (-9, 0), "too large": (1, 12)}


def inputs():
    return mytorch.tensor(np.linspace(1, 5, 12, dtype=np.float32).reshape(4, 3))


def outcome(function, *args):
    """Returns the result as a list, or the type of the error and its text."""
    try:
        return function(*args).tolist()
    except (IndexError, RuntimeError) as error:
        return type(error), str(error)


def alike(found, expected):
    if isinstance(expected, tuple):
        return found == expected
    return not isinstance(found, tuple) and np.allclose(found, expected, rtol=1e-5, equal_nan=True)


@each("name", FUNCTIONS)
def test_programs_raise_as_eager_code(name):
    function, x = FUNCTIONS[name], inputs()
    whole = capture(function, x, mytorch.tensor([0, 1]))
    programs = whole, whole.optimized(), mytorch.compile(function, fullgraph=True)
    assert not isinstance(outcome(function, x, mytorch.tensor([0, 1])), tuple)
    failed = 0
    for which, values in INDICES.items():
        i = mytorch.tensor(values)
        expected = outcome(function, x, i)
        failed += isinstance(expected, tuple)
        for program in programs:
            found = outcome(program, x, i)
            assert alike(found, expected), f"{which}: {found}, eager {expected}"
    assert failed


@each("name", FUNCTIONS)
def test_training_steps_raise_before_they_change_parameters(name):
    function = FUNCTIONS[name]

    def trained(make):
        w = inputs().requires_grad_()
        optimizer = optim.SGD([w], lr=0.1)

        def step(i):
            optimizer.zero_grad()
            loss = (function(w * 1, i) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        step, results = make(step), []
        for values in ([0, 1], INDICES["negative"], INDICES["too large"]):
            before = w.tolist()
            found = outcome(step, mytorch.tensor(values))
            assert not isinstance(found, tuple) or w.tolist() == before != inputs().tolist()
            results.append((found, w.tolist()))
        return results

    def captured(step):
        return capture(step, mytorch.tensor([0, 1])).optimized()

    if name == "grad":  # a second derivative would be another graph
        return
    results = [trained(make) for make in (lambda f: f, captured, mytorch.compile)]
    for (expected, w), *others in zip(*results, strict=True):
        for found, own in others:
            assert alike(found, expected) and alike(own, w), f"{found}, eager {expected}"


def test_modules_whose_backward_pass_comes_later():
    def function(x, i):
        return x.exp().gather(0, i)

    compiled = mytorch.compile(function, fullgraph=True)
    for values in ([[0, 1, 2]], [[3, 3, 0]]):
        found = []
        for f in (function, compiled):
            x = inputs().requires_grad_()
            f(x, mytorch.tensor(values)).sum().backward()
            found.append(x.grad.tolist())
        assert alike(*found)
    with pytest.raises(RuntimeError, match="index -2 is out of bounds for dimension 0 with size 4"):
        compiled(inputs().requires_grad_(), mytorch.tensor([[0, -2, 0]]))


def chain(x, i):
    y = (x * 2).exp()
    return (y.gather(0, i) + 1).sum() + ((y + x) * 3).sum()


def checks(program):
    return [str(i) for i in program.instructions if i.name == "check"]


def loops(program):
    return [str(i).partition(" = ")[2] for i in program.instructions if i.name == "loop"]


def test_a_check_is_printed_and_stops_no_loop(monkeypatch):
    x, i = inputs(), mytorch.tensor([[0, 1, 2]])
    program = capture(chain, x, i).optimized()
    text = "RuntimeError: gather(): index {bad} is out of bounds for dimension 0 with size 4"
    assert checks(program) == [f"check(0 <= %1 < 4)  # else {text}"]
    assert checks(program)[0] in str(program)
    expected, found = program(x, i), loops(program)
    monkeypatch.setattr("mytorch.compiler.tracing.tracer.Tracer.checks", lambda *args: True)
    without = capture(chain, x, i).optimized()
    assert not checks(without) and loops(without) == found and len(found) >= 1
    assert without(x, i).tolist() == expected.tolist()
    with pytest.raises(IndexError):  # by NumPy, which takes negative ones
        without(x, i + 4)


def test_equal_checks_are_merged_and_unused_results_checked():
    def twice(x, i, j):
        x.gather(0, i)
        return x.gather(0, i) + x.exp().gather(0, i) + x.scatter_add(0, i, x)[:1] + x.gather(0, j)

    i = mytorch.tensor([[0, 1, 2]])
    program = capture(twice, inputs(), i, i)
    assert len(checks(program)) == 5
    assert len(checks(program.optimized())) == 2
    unused = mytorch.compile(lambda x, i: (x.gather(0, i), x + 1)[1])
    with pytest.raises(RuntimeError, match="index -1"):
        unused(inputs(), i - 1)


UNUSED = {
    "rows": lambda w, i: w[i], "columns": lambda w, i: w[:, i], "both": lambda w, i: w[i, i],
    "take": lambda w, i: w.take(i), "reshaped": lambda w, i: w[i[:, None]],
}


@each("name", UNUSED)
def test_indices_of_gathers_whose_values_are_not_used(name):
    """The step needs only gradients, which negative indices too far below would give to other elements."""
    for values in ((1, -1), (-5, 0), (0, 5), (0, 12)):
        found = []
        for make in (lambda f: f, mytorch.compile):
            w = inputs().requires_grad_()
            optimizer = optim.SGD([w], lr=0.1)

            def step(i, w=w, optimizer=optimizer):
                optimizer.zero_grad()
                UNUSED[name](w, i).sum().backward()
                optimizer.step()
                return i

            step = make(step)
            step(mytorch.tensor([0, 1]))
            found.append((outcome(step, mytorch.tensor(values)), w.tolist()))
        assert found[0][0] == found[1][0] and alike(found[1][1], found[0][1]), f"{values}: {found}"


def test_kernels_check_themselves():
    i = mytorch.tensor([0, 2])
    step = capture(lambda x, i: F.cross_entropy(F.embedding(i, x), i), inputs(), i)
    assert not checks(step) and [x.name for x in step.instructions] == ["kernel", "kernel"]


def test_constants_are_checked_once():
    good, bad = np.array([[0, 1, 2]]), np.array([[0, 1, 4]])
    assert not checks(capture(lambda x: x.gather(0, mytorch.tensor(good)), inputs()).optimized())
    with pytest.raises(RuntimeError, match="index 4 is out of bounds"):
        mytorch.compile(lambda x: x.gather(0, mytorch.tensor(bad)))(inputs())
    index = mytorch.tensor(good)  # is state, which may change
    compiled = mytorch.compile(lambda x: x.gather(0, index))
    compiled(inputs())
    index[0, 0] = -3
    with pytest.raises(RuntimeError, match="index -3 is out of bounds"):
        compiled(inputs())


def test_state_is_not_written_before_the_check():
    x, i, state = inputs(), mytorch.tensor([0, 9]), mytorch.zeros(4)

    def step(i):
        state.scatter_(0, i, 5.0)
        return state.sum()

    program = capture(step, mytorch.tensor([0, 1])).optimized()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"scatter.*: index 9 is out of bounds"):
            program(i)
        assert state.tolist() == [0] * 4
    assert program(mytorch.tensor([0, 1])).item() == 10 and x.shape == (4, 3)


@each("way", ("save", "freeze", "chunked", "stream"))
def test_other_ways_to_run(way, tmp_path):
    table, good = inputs(), mytorch.arange(40) % 4
    bad = good - (mytorch.arange(40) // 36)

    def rows(i):
        return (table * 2).exp().index_select(0, i.clamp(max=9)).sum(1)

    program = capture(rows, good)
    expected = program(good).tolist()
    if way in ("save", "freeze"):
        getattr(program.optimized(), way)(tmp_path / "program.safetensors")
        program = load(tmp_path / "program.safetensors")
    elif way == "chunked":
        program = program.chunked(memory=400)
        assert program.rows < 36 and "for each part:" in str(program) and "check(0 <= " in str(program)
    if way == "stream":
        assert [x.tolist() for x in program.stream([good])] == [expected]
        with pytest.raises(IndexError, match="index -1 is out of bounds"):
            list(program.stream([bad]))
        return
    assert np.allclose(program(good).tolist(), expected)
    with pytest.raises(IndexError, match="index -1 is out of bounds"):
        program(bad)


@each("change", ({"error": "SystemExit"}, {"low": "0"}, {"text": 3}, {"ignored": 1.5}, {"low": None}))
def test_damaged_files(change, tmp_path, monkeypatch):
    program = capture(chain, inputs(), mytorch.tensor([[0, 1, 2]]))
    (check,) = [i for i in program.instructions if i.name == "check"]
    check.kwargs.update(change)
    program.save(tmp_path / "program.safetensors")
    with pytest.raises(ValueError, match="instruction 2, 'check'"):
        load(tmp_path / "program.safetensors")
