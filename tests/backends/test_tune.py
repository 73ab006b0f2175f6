"""Memory that was freed and kept is given back after a model was made, converted or loaded."""

import json
import subprocess
import sys

import pytest

import mytorch
from mytorch.backends import tune

pytestmark = pytest.mark.skipif(
    not tune.report()["malloc"].startswith("freed arrays"), reason="malloc is not tuned in this process"
)

START = """
import json, re
import mytorch, numpy as np
from mytorch import nn
from mytorch.backends import tune

def memory(of):
    \"\"\"MiB: the resident memory for "VmRSS", the most there has been for "VmHWM".\"\"\"
    return int(re.search(of + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) >> 10

found, start = {}, memory("VmRSS")
"""


def run(program):
    """Returns the MiB that the program finds."""
    done = subprocess.run(
        [sys.executable, "-c", START + program + "print(json.dumps(found))"],
        capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_freed_memory_is_given_back():
    found = run("""
parts = [np.ones(1 << 20) for _ in range(40)]  # 8 MiB each
last = np.ones(1 << 10)  # above them: freeing the others doesn't shrink the heap
del parts
found["kept"] = memory("VmRSS") - start
tune.release_freed_memory(1 << 30)
found["after"] = memory("VmRSS") - start
""")
    assert found["kept"] > 300 and found["after"] < 50


@pytest.mark.parametrize("init", [
    "normal_(x, std=0.02)", "uniform_(x, -1, 1)", "trunc_normal_(x)", "kaiming_uniform_(x)",
])
def test_a_large_weight_is_drawn_without_another_one(init):
    found = run(f"""
x = nn.Parameter(mytorch.empty(1 << 14, 1 << 10))  # 64 MiB
nn.init.{init}
found["peak"] = memory("VmHWM") - start
""")
    assert 60 < found["peak"] < 64 + 30


def test_what_a_model_replaces_is_given_back():
    found = run("""
model = nn.Sequential(nn.Linear(1 << 12, 1 << 13), nn.Linear(1 << 12, 1 << 13))  # 128 MiB each
found["made"] = memory("VmRSS") - start
model[1].weight = model[0].weight
found["shared"] = memory("VmRSS") - start
model.to(mytorch.bfloat16)
found["converted"] = memory("VmRSS") - start
model.float()
mytorch.quantize(model)
found["quantized"] = memory("VmRSS") - start
""")
    assert 250 < found["made"] < 300 and 120 < found["shared"] < 128 + 40
    assert 60 < found["converted"] < 64 + 40 and 30 < found["quantized"] < 34 + 50


def test_loading_a_model_leaves_its_weights(tmp_path):
    found = run(f"""
from mytorch.models import GPT2, GPT2Config

with nn.init.skipped():
    model = GPT2(GPT2Config(n_layer=1, n_head=8, n_embd=512, vocab_size=50304, context_length=64))
for p in model.parameters():
    p.data[...] = 0
model.save_pretrained({str(tmp_path)!r})
del model, p
tune.release_freed_memory(1 << 30)
start = memory("VmRSS")
model = GPT2.from_pretrained({str(tmp_path)!r})  # 110 MiB, of which one tensor has 98
found["loaded"] = memory("VmRSS") - start
""")
    assert 100 < found["loaded"] < 110 + 40


def test_the_first_step_of_training_does_it_once(monkeypatch):
    calls = []
    monkeypatch.setattr(tune, "release_freed_memory", calls.append)
    p = mytorch.nn.Parameter(mytorch.ones(4))
    optimizer = mytorch.optim.AdamW([p])
    for _ in range(3):
        p.sum().backward()
        optimizer.step()
    assert len(calls) == 1 and calls[0] >= p.nbytes


def test_small_models_do_not(monkeypatch):
    calls = []
    monkeypatch.setattr(tune.ctypes, "CDLL", calls.append)
    mytorch.nn.Linear(2, 2).half()
    assert not calls
