"""mytorchrun compile, and the compilation of kernels in the background."""

import os
import subprocess
import sys

import pytest

from mytorch.cli import compile as command
from mytorch.nn import functional
from mytorch.nn.fused_ops import background
from mytorch.nn.fused_ops.kernels import IN_ADVANCE, TABLE
from tests.each import each

pytest.importorskip("numba")


def test_every_file_has_a_warm_up():
    assert set(command.WARM_UPS) == set(IN_ADVANCE)


FEW, MANY = (64, 32), (4096, 32)
ROWS = {(*batch, n, 32) for n in (1, 64, 4096) for batch in ((), (1,))}
SIZES = {  # of the first argument; of others few rows and many
    "self_attention": {(4, 8, 96), (4, 128, 96)},
    "scaled_dot_product_attention": {(2, 2, 8, 16), (2, 2, 128, 16)},
    "cached_self_attention": {(b, t, 96) for b in (1, 4) for t in (1, 8)}, "embedding": {(4, 16), (4, 1024)},
    "linear": ROWS, "linear_activation": ROWS,
    "softmax": {(1, 32), FEW, MANY}, "log_softmax": {(1, 32), FEW, MANY},
}
BY_ANOTHER = {"squared_relu", "cached_attention"}  # relu's kernels, and those of cached_self_attention


@each("file", [file for file in IN_ADVANCE if TABLE[file].composites])
def test_a_warm_up_calls_all_functions_of_its_file(file):
    """Of few elements and of many, whose kernels use threads."""
    seen = {name: set() for name in TABLE[file].composites + TABLE[file].cpu_composites}

    def noted(name):
        def function(x, *args, **options):
            seen[name].add(tuple(x.shape))
            return x

        return function

    with pytest.MonkeyPatch.context() as patch:
        for name in seen:
            patch.setattr(functional, name, noted(name))
        command.WARM_UPS[file]()
    assert seen == {name: set() if name in BY_ANOTHER else SIZES.get(name, {FEW, MANY}) for name in seen}


def test_a_file_needs_those_that_it_loads():
    """Their kernels are registered, and used, with its own."""
    assert background._needed("cross_entropy") == ("gemm", "softmax", "cross_entropy")
    assert background._needed("linear") == ("gemm", "activations", "gelu", "rectifiers", "linear")


def test_wrong_names(capsys):
    options = command.argparse.Namespace(files=["relu"])
    assert command.run(options) == 2
    assert "no such kernels: relu; there are gemm, activations" in capsys.readouterr().err


def run(code, tmp_path=None, **environment):
    """Runs code; with a folder, as if no file of kernels were compiled. Numba has its cache, so that takes as
    long as a process to start."""
    env = {**os.environ, **environment}
    if tmp_path is not None:
        env["MYTORCH_CACHE"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


FIRST_HOUR = """
import time
import mytorch
from mytorch.nn import functional as F
from mytorch.nn.functional import REGISTRY

x = mytorch.linspace(-1, 1, 1000)
expected = F.relu(x, fused=False).tolist()
assert F.relu(x).tolist() == expected
print("kernel at once", bool(REGISTRY["relu"].kernels))
start = time.monotonic()
while not REGISTRY["relu"].kernels and time.monotonic() - start < 240:
    assert F.relu(x).tolist() == expected
    time.sleep(0.02)
print("kernel at last", bool(REGISTRY["relu"].kernels))
assert F.relu(x).tolist() == expected
"""


def test_numpy_computes_until_the_kernels_are_compiled(tmp_path):
    first = run(FIRST_HOUR, tmp_path, MYTORCH_COMPILE="background")
    assert first.stdout.split("\n")[:2] == ["kernel at once False", "kernel at last True"]
    lines = [line for line in first.stderr.splitlines() if line.startswith("mytorch:")]
    assert len(lines) == 2 and "compiling kernels in the background" in lines[0]
    assert "2 files of kernels are compiled (" in lines[1]
    second = run(FIRST_HOUR, tmp_path, MYTORCH_COMPILE="background")
    assert second.stdout.startswith("kernel at once True") and "mytorch:" not in second.stderr


SHORT = """
import mytorch
mytorch.nn.functional.relu(mytorch.ones(3))
"""


def test_short_programs_say_it_once_per_machine(tmp_path):
    """They end before anything is compiled."""
    assert run(IN_TEXT, tmp_path, MYTORCH_COMPILE="background").stderr == ""  # which counts as not said
    said = [run(SHORT, tmp_path, MYTORCH_COMPILE="background").stderr for _ in range(3)]
    assert [text.count("compiling kernels in the background, once per machine") for text in said] == [1, 0, 0]
    assert [text.count("\n") for text in said] == [1, 0, 0]


def test_it_is_said_where_nothing_can_be_kept(tmp_path):
    (tmp_path / "numba").touch()  # a file in the place of the folder
    for _ in range(2):
        assert "compiling kernels in" in run(SHORT, tmp_path, MYTORCH_COMPILE="background").stderr


IN_TEXT = """
import mytorch
from mytorch.nn import functional as F
with mytorch.no_grad():
    F.relu(mytorch.ones(3))
"""


def test_nothing_is_said_while_a_text_is_generated(tmp_path):
    assert run(IN_TEXT, tmp_path, MYTORCH_COMPILE="background").stderr == ""


@pytest.mark.parametrize(
    "environment", [{"MYTORCH_COMPILE": "wait"}, {"MYTORCH_COMPILE": "background", "RANK": "0"}]
)
def test_who_waits(environment):
    code = "from mytorch.nn.fused_ops import background; print(background.waits())"
    assert run(code, **environment).stdout == "True\n"


def test_without_a_home_kernels_are_compiled_where_they_are_called():
    code = """
import os
os.path.expanduser = lambda path: path  # as for a user id that no account has
from mytorch.nn.fused_ops import background
from mytorch.nn.fused_ops.kernels import IN_ADVANCE
print(background.waits())
"""
    assert run(code, MYTORCH_COMPILE="background", MYTORCH_CACHE="").stdout == "True\n"


def test_another_mode():
    code = "import mytorch; mytorch.nn.functional.relu(mytorch.ones(3))"
    with pytest.raises(AssertionError, match="MYTORCH_COMPILE is one of background, wait; got 'later'"):
        run(code, MYTORCH_COMPILE="later")


WARM = """
import numba.core.dispatcher, numpy as np
import mytorch
from mytorch import nn
from mytorch.cli import compile as command
from mytorch.models import GPT2, GPT2Config
from mytorch.nn import functional as F

late, found = [False], []
compile = numba.core.dispatcher.Dispatcher.compile
def noted(self, signature):  # also called for what comes from the cache
    if late[0] and self.__module__.startswith("mytorch"):
        found.append((self.__qualname__, signature))
    return compile(self, signature)
numba.core.dispatcher.Dispatcher.compile = noted

for file in command.IN_ADVANCE:
    command.WARM_UPS[file]()
late[0] = True
for bias in (False, True):
    config = GPT2Config.of_size("nano", vocab_size=65, context_length=64, bias=bias, dropout_p=0.1)
    model = GPT2(config)
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    rows = mytorch.from_numpy(np.random.default_rng(0).integers(65, size=(12, 65)))
    for _ in range(2):
        _, loss = model(rows[:, :-1], rows[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    model.generate(rows[:1, :8], 3, top_k=10)
print(found)
"""


def test_a_lock_that_is_held_too_long_is_no_reason_to_wait(tmp_path, monkeypatch):
    """As by a process that is stopped."""
    fcntl = pytest.importorskip("fcntl")
    from mytorch.backends import jit

    monkeypatch.setattr(jit, "_PATIENCE", 0.05)
    compiled = jit._one_at_a_time(lambda signature: ("compiled", signature), tmp_path / "lock")
    with open(tmp_path / "lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert compiled("int64") == ("compiled", "int64")
    assert compiled("int64") == ("compiled", "int64")


def test_the_warm_ups_cover_a_gpt():
    """Training and generating need no other kernel and no other types."""
    assert run(WARM, MYTORCH_COMPILE="wait").stdout == "[]\n"
