"""CUDA graphs on the strict stand-in for CuPy, which notes what is captured and does it in every replay."""

import numpy as np
import pytest

import mytorch
from mytorch import cuda, nn, optim
from mytorch.backends import cublas, graphs
from mytorch.nn import functional as F

X = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture
def x(fake_cuda):
    return mytorch.tensor(X, device="cuda:0")


def captured(work):
    made = cuda.CUDAGraph()
    with cuda.graph(made):
        result = work()
    return made, result


def test_capturing_does_nothing_and_every_replay_does_all(x):
    total = mytorch.zeros(2, 2, device="cuda:0")

    def work():
        assert cuda.is_current_stream_capturing() and cuda.current_stream() != cuda.default_stream()
        y = x @ x.T
        total.add_(y)
        y[0] = 7
        return y

    made, y = captured(work)
    assert not cuda.is_current_stream_capturing() and cuda.current_stream() == cuda.default_stream()
    assert total.tolist() == [[0, 0], [0, 0]]
    for n in (1, 2):
        made.replay()
        assert total.tolist() == (n * X @ X.T).tolist() and y.tolist() == [[7, 7], (X @ X.T)[1].tolist()]
    x.zero_()
    made.replay()
    assert total.tolist() == (2 * X @ X.T).tolist() and y.tolist() == [[7, 7], [0, 0]]


def test_its_arrays_have_memory_of_their_own(x):
    captured(lambda: x)  # cuBLAS gets its workspace
    pool = cuda.graph_pool_handle()
    made, other = cuda.CUDAGraph(), cuda.CUDAGraph()
    default = graphs.cupy().get_default_memory_pool()
    before, total = default.used_bytes(), cuda.memory_allocated()
    with cuda.graph(made, pool=pool):
        y = x * 2
    assert default.used_bytes() == before and pool.memory.used_bytes() == 512
    assert cuda.memory_allocated() == total + 512
    with cuda.graph(other, pool=made.pool()):
        z = y + 1
    assert other.pool() is pool and pool.memory.used_bytes() == 1024
    made.replay()
    other.replay()
    assert z.tolist() == (2 * X + 1).tolist()
    made.reset()
    for call in (made.replay, made.pool):
        with pytest.raises(RuntimeError, match="nothing was captured"):
            call()
    with cuda.graph(made):
        x.add_(1)
    made.replay()
    assert x.tolist() == (X + 1).tolist()


def test_random_numbers_go_on(x):
    cuda.manual_seed(3)
    made, y = captured(lambda: mytorch.rand(4, device="cuda:0"))
    seen = []
    for _ in range(3):
        made.replay()
        seen.append(y.tolist())
    cuda.manual_seed(3)
    expected = [mytorch.rand(4, device="cuda:0").tolist() for _ in range(4)]
    assert seen == expected[1:]  # the stand-in has drawn the first ones while it captured


READS = {
    "item": lambda x: x[0, 0].item(),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "numpy": lambda x: x.cpu().numpy(),
    "bool": lambda x: bool(x[0, 0]),
    "float": lambda x: float(x[0, 0]),
    "print": lambda x: repr(x),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "unique": lambda x: x.unique(),
    "synchronize": lambda x: cuda.synchronize(),
    "stream": lambda x: cuda.current_stream().synchronize(),
}


@pytest.mark.parametrize("name", READS)
def test_what_waits_for_the_gpu_says_so(x, name):
    with pytest.raises(
        RuntimeError, match="must not wait for the GPU, as reading a number does.*StreamCapture"
    ):
        captured(lambda: READS[name](x))
    assert not cuda.is_current_stream_capturing() and x.tolist() == X.tolist()
    made, y = captured(lambda: x + 1)  # the next one works
    made.replay()
    assert y.tolist() == (X + 1).tolist()


def test_a_wait_that_was_hidden_is_found_at_the_end(x):
    def work():
        try:
            x.tolist()
        except RuntimeError:
            return x * 2

    with pytest.raises(RuntimeError, match="must not wait.*previous error"):
        captured(work)


def test_other_errors_stay_what_they_are(x):
    def fail():
        raise KeyError("mine")

    made = cuda.CUDAGraph()
    with pytest.raises(KeyError, match="mine"), cuda.graph(made):
        fail()
    with pytest.raises(RuntimeError, match="shapes"):
        captured(lambda: x @ x)
    with pytest.raises(RuntimeError, match="nothing was captured"):
        made.replay()


REFUSED = {
    "from the CPU": (lambda x: x + mytorch.tensor(X).to("cuda:0"), "a copy from the CPU to cuda:0"),
    "from a list": (lambda x: mytorch.tensor([1.0], device="cuda:0"), "a copy from the CPU to cuda:0"),
    "another graph": (lambda x: captured(lambda: x), "another graph"),
    "optimizer": (lambda x: optim.SGD([nn.Parameter(x)], 0.1).step(), r"optimizer.step\(\).*Python counts,"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_be_repeated_is_refused(x, name):
    work, message = REFUSED[name]
    with pytest.raises(RuntimeError, match=f"{message} can't be captured in a CUDA graph"):
        captured(lambda: work(x))
    assert not cuda.is_current_stream_capturing()


def test_wrong_use(x):
    made = cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="default stream"):
        made.capture_begin()
    with pytest.raises(RuntimeError, match=r"without capture_begin\(\)"):
        made.capture_end()
    with pytest.raises(ValueError, match="'strict'"), cuda.graph(made, capture_error_mode="strict"):
        pass
    assert cuda.current_stream() == cuda.default_stream()
    with cuda.stream(cuda.Stream()):
        made.capture_begin()
        x.add_(1)
        made.capture_end()
    made.replay()
    assert x.tolist() == (X + 1).tolist()
    with pytest.raises(RuntimeError, match=r"has been captured: reset\(\) it"), cuda.graph(made):
        pass


def test_the_cublas_handle_is_made_before(x, monkeypatch):
    """Making one waits for the GPU, so a capture would fail."""
    made = cublas._Handle
    monkeypatch.setattr(cublas, "_Handle", lambda library: cuda.synchronize() or made(library))
    replayed, y = captured(lambda: x @ x.T)
    replayed.replay()
    assert y.tolist() == (X @ X.T).tolist()


# A training step.


def training(optimizer, dropout=0.0):
    mytorch.manual_seed(0)
    layers = nn.Linear(4, 8), nn.GELU(), nn.Dropout(dropout), nn.LayerNorm(8), nn.Linear(8, 3)
    model = nn.Sequential(*layers).to("cuda:0")
    optimizer = optimizer(model.parameters(), lr=0.05)

    def forward_backward(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        return loss, norm

    return model, optimizer, forward_backward


def batches(count, size=5):
    return [
        (mytorch.randn(size, 4, device="cuda:0"), mytorch.randint(0, 3, (size,), device="cuda:0"))
        for _ in range(count)
    ]


@pytest.mark.parametrize("optimizer", [optim.SGD, optim.AdamW])
def test_a_graphed_step_trains_as_the_step_itself(fake_cuda, optimizer):
    eager, graphed = training(optimizer), training(optimizer)
    data = batches(5)
    step = cuda.make_graphed_step(graphed[2], data[0])
    results = []
    for x, y in data:
        for forward_backward, (_, stepper, _) in ((eager[2], eager), (step, graphed)):
            loss, norm = forward_backward(x, y)
            results.append((loss.item(), norm.item()))
            stepper.step()
    assert results[0::2] == results[1::2] and len(set(results)) == 5
    for p, q in zip(eager[0].parameters(), graphed[0].parameters(), strict=True):
        assert p.tolist() == q.tolist()


def test_a_graphed_step_draws_anew(fake_cuda):
    _, _, forward_backward = training(optim.SGD, dropout=0.5)
    (batch,) = batches(1)
    step = cuda.make_graphed_step(forward_backward, batch)
    assert len({step(*batch)[0].item() for _ in range(5)}) == 5


def test_a_graphed_step_takes_what_it_was_made_for(fake_cuda):
    _, _, forward_backward = training(optim.SGD)
    (batch, other), ((x, y),) = batches(2), batches(1, 4)
    step = cuda.make_graphed_step(forward_backward, batch)
    first = step(*batch)[0].item()
    assert step(*(t.cpu() for t in batch))[0].item() == first != step(*other)[0].item()
    assert batch[0].tolist() != other[0].tolist()  # the caller's tensors stay what they were
    with pytest.raises(
        ValueError, match=r"captured for inputs of \[\(\(5, 4\), 'float32'\).*got \[\(\(4, 4\)"
    ):
        step(x, y)
    with pytest.raises(ValueError, match="num_warmup_iters must be at least 1, got 0"):
        cuda.make_graphed_step(forward_backward, batch, num_warmup_iters=0)


MANY = {
    "cat": lambda xs: mytorch.cat(xs, 1),
    "stack": lambda xs: mytorch.stack(xs, 1),
    "split": lambda xs: mytorch.autograd.grad(sum(p.sum() for p in xs[0].split(1, 1)), xs[:1])[0],
    "unbind": lambda xs: mytorch.autograd.grad(sum(p.sum() for p in xs[0].unbind(1)), xs[:1])[0],
}


@pytest.mark.parametrize("name", MANY)
def test_more_than_eight_arrays_are_joined(fake_cuda, name):
    """CuPy would copy their addresses from the CPU."""
    xs = [mytorch.randn(2, 20, device="cuda:0", requires_grad=True) for _ in range(70)]
    made, y = captured(lambda: MANY[name](xs))
    made.replay()
    assert y.tolist() == MANY[name](xs).tolist()


def test_clipping_more_than_eight_gradients(fake_cuda):
    ps = [nn.Parameter(mytorch.randn(3, device="cuda:0")) for _ in range(20)]
    for p in ps:
        p.grad = mytorch.randn(3, device="cuda:0")
    before = mytorch.cat([p.grad for p in ps])
    made, norm = captured(lambda: nn.utils.clip_grad_norm_(ps, 0.5))
    made.replay()
    assert norm.item() == pytest.approx(before.norm().item())
    assert mytorch.cat([p.grad for p in ps]).norm().item() == pytest.approx(0.5, 1e-4)


def test_cupy_joins_by_addresses(fake_cuda):
    """The stand-in refuses it as the real one: many small arrays of one dtype."""
    a, big = (fake_cuda.zeros(n, "f") for n in (3, 1 << 19))
    for arrays in ([a] * 8, [a] * 8 + [a.astype("e")], [big] * 9):
        captured(lambda arrays=arrays: fake_cuda.concatenate(arrays))
    for function in (fake_cuda.concatenate, fake_cuda.stack, fake_cuda.vstack):
        with pytest.raises(RuntimeError, match="must not wait"):
            captured(lambda function=function: function([a] * 9))
