"""Workers' lives: nothing leaks, nothing hangs, nobody stays behind."""

import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch.nn import functional as F
from mytorch.utils import data
from mytorch.utils.data import pool
from tests.every import every
from tests.utils.data.datasets import Numbers, eventually, is_alive, within

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(autouse=True)
def bounded():
    gc.collect()  # workers of other tests, which the frames of a kept exception may hold
    with within(120):
        yield


def count():
    """What may leak."""
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "children": len(multiprocessing.active_children()),
        "resident": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"),
        "blocks": Path("/proc/self/maps").read_text().count("mytorch-batch"),
    }


def run(loader, epochs):
    for epoch in range(epochs):
        for k, batch in enumerate(loader):
            assert (batch.numpy() == [[2 * k], [2 * k + 1]]).all()
            if epoch % 3 == 2 and k == 3:  # a pass that is broken off leaves nothing either
                break


@pytest.mark.parametrize(("stays", "few", "many"), [(True, 10, 40), (False, 4, 12)])
def test_nothing_leaks_in_many_epochs(stays, few, many):
    dataset = Numbers(12, lambda i: np.full(50_000, i))
    loader = data.DataLoader(dataset, 2, num_workers=2, persistent_workers=stays)
    before = count()
    run(loader, few)
    settled = count()
    run(loader, many)
    after = count()
    assert after["children"] == settled["children"] == before["children"] + 2 * stays
    assert after["resident"] < settled["resident"] + (16 << 20)  # a batch is 0.8 MB, all batches are 190
    # 6 batches can be loaded ahead or on the way, 4 can be with the user; each may have a block
    assert after["blocks"] <= before["blocks"] + 10 * stays
    assert after["descriptors"] <= before["descriptors"] + (10 + 2 * 4) * stays
    del loader
    assert count()["blocks"] == before["blocks"] and count()["descriptors"] == before["descriptors"]
    assert count()["children"] == before["children"]


def test_workers_end_by_themselves_although_others_hold_their_pipes(monkeypatch):
    monkeypatch.setattr(pool, "_GRACE", 30.0)
    process_class = multiprocessing.get_context("fork").Process
    monkeypatch.setattr(process_class, "terminate", lambda self: pytest.fail("it had to be made to end"))
    loader = data.DataLoader(Numbers(), 2, num_workers=2, multiprocessing_context="fork")
    iterator = iter(loader)
    next(iterator)
    stranger = os.fork()
    if not stranger:
        time.sleep(60)
        os._exit(0)
    try:
        list(iterator)
        assert not multiprocessing.active_children()
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)


def test_a_worker_that_does_not_end_is_made_to():
    loader = data.DataLoader(Numbers(8, lambda i: time.sleep(60) if i == 5 else i), 1, num_workers=2)
    iterator = iter(loader)
    assert next(iterator).item() == 0
    pids = [worker.process.pid for worker in iterator._pool.workers]
    del iterator
    assert not any(map(is_alive, pids))


def test_workers_beside_the_thread_pools():
    """A forked child has none of the threads of Numba and OpenBLAS: waiting for them would last forever."""
    a = np.random.default_rng(0).standard_normal((256, 256), np.float32)

    def act(i):
        x = mytorch.from_numpy(a)
        return (x @ x).sum() + F.softmax(x, 1).sum() + F.layer_norm(x, (256,)).sum() + F.gelu(x).sum()

    want = [act(i).item() for i in range(4)]  # the pools are running now
    with within(120):
        got = [b.item() for b in data.DataLoader(Numbers(4, act), None, num_workers=2)]
    np.testing.assert_allclose(got, want, rtol=1e-4)
    assert act(0).item() == pytest.approx(want[0])


SCRIPT = """
import os, signal, sys, time
from mytorch.utils import data

class Slow(data.Dataset):
    def __len__(self): return 10_000
    def __getitem__(self, i):
        time.sleep(0.01)
        return i

stop = []
if {handles}:
    signal.signal(signal.SIGINT, lambda *_: stop.append(1))
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
loader = data.DataLoader(Slow(), 4, num_workers=2, persistent_workers=True)
iterator = iter(loader)
next(iterator)
print(*(worker.process.pid for worker in loader._pool.workers), flush=True)
seen = 1
for batch in iterator:
    seen += bool(stop)
    if seen > 20:
        print("twenty more", flush=True)
        break
"""


def start(handles=False):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(handles=handles)], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may have ignored it
    )
    return process, [int(pid) for pid in process.stdout.readline().split()]


def test_workers_end_when_the_parent_is_killed():
    process, workers = start()
    assert len(workers) == 2 and every(map(is_alive, workers))
    process.kill()
    process.communicate()
    eventually(lambda: not any(map(is_alive, workers)), 20)


STUCK = """
import multiprocessing, os, sys, threading, time
from pathlib import Path
from mytorch.utils import data

class Stuck(data.Dataset):
    def __len__(self): return 1
    def __getitem__(self, i):
        Path(sys.argv[1], "part").write_text(str(os.getpid()))
        Path(sys.argv[1], "part").rename(Path(sys.argv[1], "pid"))
        while True: time.sleep(1000)

if __name__ == "__main__":
    load = lambda: list(data.DataLoader(Stuck(), 1, num_workers=1, multiprocessing_context=sys.argv[2]))
    if sys.argv[3] == "thread":
        threading.Thread(target=load, daemon=True).start()
        time.sleep(1000)
    load()
"""


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.parametrize("place", ["main", "thread"])
def test_a_worker_that_is_stuck_ends_when_the_parent_is_killed(method, place, tmp_path):
    script, pid = tmp_path / "stuck.py", tmp_path / "pid"
    script.write_text(STUCK)
    process = subprocess.Popen([sys.executable, script, tmp_path, method, place], cwd=ROOT, env=ENVIRONMENT)
    eventually(pid.exists, 60)
    worker = int(pid.read_text())
    assert is_alive(worker)
    process.kill()
    process.wait()
    eventually(lambda: not is_alive(worker), 60)


def test_workers_outlive_the_thread_that_started_them():
    """For the system that thread is their parent; they have all begun when it ends."""
    loader = data.DataLoader(Numbers(12), 2, num_workers=2, persistent_workers=True)
    iterators, batches = [], []

    def begin():
        iterators.append(iter(loader))
        batches.extend([next(iterators[0]), next(iterators[0])])

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    eventually(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())
    batches.extend(iterators[0])
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in loader]


def test_ctrl_c():
    process, workers = start()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt")
    eventually(lambda: not any(map(is_alive, workers)))


def test_a_program_that_handles_ctrl_c_keeps_its_workers():
    process, workers = start(handles=True)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "twenty more" in output and not errors
    assert not any(map(is_alive, workers))


SMALL_SHM = """
import numpy as np, os
from mytorch.utils import data
assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 1 << 20
loader = data.DataLoader([0] * 8, None, collate_fn=lambda i: np.ones(1 << 20), num_workers=2)
print(sum(batch.sum() for batch in loader))
"""


def test_large_batches_with_a_small_dev_shm():
    inside = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    wrapper = ["unshare", "-m", "sh", "-c", inside, "sh"]
    if not shutil.which("unshare") or subprocess.run([*wrapper, "true"], capture_output=True).returncode:
        pytest.skip("only a privileged user may mount a small /dev/shm")
    done = subprocess.run(
        [*wrapper, sys.executable, "-c", SMALL_SHM], cwd=ROOT, text=True, capture_output=True, timeout=80
    )
    assert done.stdout.strip() == str(float(8 << 20)), done.stderr
