"""The one pool of threads: what it does to its process, to other processes and to other threads."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import mytorch

KERNEL = """
import numpy as np, mytorch
from mytorch.backends import threads
from mytorch.nn import functional as F
x = mytorch.ones(300, 300)
def work():
    y = F.linear(x, x, fused=True)
    assert y.shape == (300, 300) and (y.numpy() == 300).all()
"""


def python(code, before="", **environment):
    environment = {key: value for key, value in {**os.environ, **environment}.items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-c", before + KERNEL + textwrap.dedent(code)], capture_output=True, text=True,
        timeout=300, env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_dont_hang_beside_the_pool(method, tmp_path):
    """A forked child has none of its parent's threads; a spawned one starts its own.

    So do the workers of a DataLoader, which use kernels while the parent does.
    """
    (tmp_path / "main.py").write_text(
        textwrap.dedent(f"""
        import multiprocessing
        {textwrap.indent(KERNEL, " " * 8).strip()}
        from mytorch.utils import data

        def in_child(queue):
            work()
            F.layer_norm(x, (300,))
            y = mytorch.ones(300, 300, requires_grad=True)
            (F.gelu(y @ y)).sum().backward()
            queue.put((threads.running, float(y.grad.sum())))

        class Products(data.Dataset):
            def __len__(self): return 6
            def __getitem__(self, i):
                y = mytorch.full((300, 300), i / 100)
                return F.softmax(F.layer_norm(F.gelu(y @ y), (300,)), -1).sum().item(), threads.running

        if __name__ == "__main__":
            work()
            context = multiprocessing.get_context({method!r})
            queue = context.Queue()
            child = context.Process(target=in_child, args=(queue,))
            child.start()
            work()  # while the child does
            print(queue.get(timeout=240))
            child.join()
            work()
            options = {{"multiprocessing_context": {method!r}, "timeout": 240}}
            for total, running in data.DataLoader(Products(), None, num_workers=1, **options):
                work()
                print(round(float(total), 3), bool(running))
        """)
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "main.py")], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    running = method == "spawn"
    child, *batches = done.stdout.splitlines()
    assert child == str((running, 300 * 300 * 300 * 2.0)) and batches == [f"300.0 {running}"] * 6


def test_three_threads_at_once():
    """Each gets what it gets alone, in products and in trainings; nothing of the process is changed."""
    code = """
    import os, threading
    from mytorch import nn, optim
    from mytorch.backends.openblas import openblas
    environment, blas_threads = dict(os.environ), openblas().get_num_threads()

    failed = []
    def multiply(seed):
        try:
            rng = np.random.default_rng(seed)
            w = mytorch.Tensor(rng.standard_normal((200, 200)).astype("float32"), requires_grad=True)
            for _ in range(30):
                y = F.linear(x[:, :200], w, fused=True)
                y.square().sum().backward()
                want = 2 * (y.detach().numpy().T @ x.numpy()[:, :200])
                np.testing.assert_allclose(w.grad.numpy(), want, rtol=1e-3, atol=1e-2)
                w.grad = None
        except BaseException as error:
            failed.append(error)
    def at_once(target, *args):
        workers = [threading.Thread(target=target, args=(i, *args)) for i in range(3)]
        for t in workers: t.start()
        for t in workers: t.join()
    at_once(multiply)
    assert not failed, failed
    assert threads.running and dict(os.environ) == environment
    assert openblas().get_num_threads() == blas_threads

    def train(seed, results):
        rng = np.random.default_rng(seed)
        shapes = (65, 48), (144, 48), (48,), (48,)
        params = [0.2 * mytorch.from_numpy(rng.standard_normal(shape, np.float32)) for shape in shapes]
        table, w, scale, shift = [p.requires_grad_() for p in params]
        tokens = mytorch.from_numpy(rng.integers(0, 65, (4, 40)))
        optimizer = optim.AdamW(params, lr=1e-2)
        losses = []
        for _ in range(8):
            x = F.embedding(tokens, table)
            qkv = F.linear(F.layer_norm(x, (48,), scale, shift), w)
            y, x = F.add_layer_norm(F.gelu(F.self_attention(qkv, 4, is_causal=True)), x, (48,), scale, shift)
            loss = F.cross_entropy((y @ table.T)[:, :-1].reshape(-1, 65), tokens[:, 1:].reshape(-1))
            loss.backward()
            nn.utils.clip_grad_norm_(params, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        results[seed] = losses
    together, alone = {}, {}
    at_once(train, together)
    for i in range(3): train(i, alone)
    assert all(losses[-1] < losses[0] for losses in alone.values()), alone
    np.testing.assert_allclose([together[i] for i in range(3)], [alone[i] for i in range(3)], rtol=1e-5)
    print("well")
    """
    assert python(code) == "well"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"NUMBA_THREADING_LAYER": "workqueue"}, "isn't thread-safe"),
        ({"NUMBA_THREADING_LAYER": "tbb"}, "no OpenMP threads"),
    ],
)
def test_without_openmp_kernels_run_serially(environment, reason):
    said = python("work(); work(); print(threads.running, threads.why_serial())", **environment)
    assert said.startswith("False") and reason in said


def test_the_users_number_of_threads_counts():
    """Also PyTorch's, which uses the OpenMP that Numba starts two threads of."""
    code = "work(); print(mytorch.get_num_threads(), threads._numba.get_num_threads())"
    assert python(code, OMP_NUM_THREADS="1") == "1 1"
    counts = "threads._numba.get_num_threads(), torch.get_num_threads()"
    code = f"mytorch.set_num_threads(1); work(); print({counts})"
    before = "import torch; torch.set_num_threads(1)"
    assert python(code, before, OMP_NUM_THREADS=None, NUMBA_NUM_THREADS="2") == "1 1"


def test_numba_may_be_there_before_us():
    code = "print(threads.running); work(); print(threads.running)"
    prelude = "import numba; import numpy as np; numba.njit(lambda x: x + 1)(1)\n"
    assert python(prelude + code).split() == ["False", "True"]


def test_without_numba_there_is_a_reason_and_how_to_install_it():
    code = """
    import sys
    sys.modules["numba"] = None
    assert F.linear(x, x)[0, 0] == 300
    try:
        F.linear(x, x, fused=True)
    except RuntimeError as error:
        print(error)
    """
    said = python(code)
    assert "linear(): fused=True, but Numba is not installed: pip install 'mytorch[cpu]'" in said


@pytest.mark.parametrize(
    ("number", "error", "says"),
    [(0, RuntimeError, "positive integer, got 0"), (-2, RuntimeError, "-2"), (1.5, TypeError, "float"),
     (True, TypeError, "bool"), (100_000, RuntimeError, "NUMBA_NUM_THREADS=100000")],
)
def test_wrong_numbers_of_threads(number, error, says):
    from mytorch.backends import jit  # noqa: F401 - starts the pool

    before = mytorch.get_num_threads()
    with pytest.raises(error, match=says):
        mytorch.set_num_threads(number)
    assert mytorch.get_num_threads() == before


def test_compiling_is_said_once(tmp_path):
    """Kernels that are demanded are compiled at once; the garbage collector is as before afterwards."""
    code = """
import gc
F.relu(x, fused=True)  # two that are compiled fast
print(gc.isenabled())
gc.disable()
F.leaky_relu(x, fused=True)
print(gc.isenabled())
"""
    done = [
        subprocess.run(
            [sys.executable, "-c", KERNEL + code], capture_output=True, text=True, timeout=300,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "MYTORCH_COMPILE": "background"},
        )
        for _ in range(2)
    ]
    assert [d.stdout for d in done] == ["True\nFalse\n"] * 2
    assert [d.stderr.count("compiling kernels") for d in done] == [1, 0]


def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path):
    code = KERNEL + "F.relu(x, fused=True)"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "MYTORCH_COMPILE": "wait"}
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    texts = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], texts
    assert sorted(text.count("compiling kernels") for text in texts) == [0, 1]


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path):
    code = "import numba.core.caching as c\nc.CacheImpl._locator_classes.clear()\n"
    code += "print(F.relu(x, fused=True).sum().item())"  # it is compiled fast
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", KERNEL + code], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "90000.0\n" and "kernels can't be cached" in done.stderr


@pytest.mark.parametrize("changed", ["backends/tiles.py", "nn/fused_ops/numba/approximations.py"])
def test_kernels_are_compiled_anew_when_a_routine_that_they_call_changes(changed, tmp_path, monkeypatch):
    jit = pytest.importorskip("mytorch.backends.jit")
    for folder in ("backends", "nn/fused_ops/numba"):
        shutil.copytree(Path(mytorch.__file__).parent / folder, tmp_path / folder)
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "backends" / "jit.py"))
    mine = str(tmp_path / "nn" / "fused_ops" / "numba" / "lstm.py")
    before = jit._stamp(mine)
    (tmp_path / changed).write_text("changed = True\n")
    jit._sources.cache_clear()
    assert jit._stamp(mine) != before
