"""Processes that fork while another thread captures a function."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading, time
import mytorch
from mytorch.compiler import trace_lock

w = mytorch.tensor([2.0, 3.0], requires_grad=True)

@mytorch.compile
def slow(x):
    for _ in range(2 * 10**7):
        pass
    return x * w if {has_state} else x * 2

@mytorch.compile
def other(x):
    return (x + 1).sum()

signal.alarm(40)
trace_lock.PATIENCE = {patience}
thread = threading.Thread(target=slow, args=(mytorch.ones(2),))
thread.start()
while not trace_lock.is_tracing:
    time.sleep(0.01)
child = os.fork()
if not child:
    signal.alarm(20)
    print(slow(mytorch.ones(2)).tolist(), other(mytorch.ones(2)).item(), flush=True)
    os._exit(0)
status = os.waitpid(child, 0)[1]
thread.join()
print(slow(mytorch.ones(2)).tolist(), trace_lock.is_tracing)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("patience, has_state", [(10, True), (0.1, False)])
def test_a_child_does_not_wait_for_a_capture_of_its_parent(patience, has_state):
    program = PROGRAM.format(patience=patience, has_state=has_state)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    expected = [2.0, 3.0] if has_state else [2.0, 2.0]
    assert run.stdout.splitlines() == [f"{expected} 4.0", f"{expected} False"]
