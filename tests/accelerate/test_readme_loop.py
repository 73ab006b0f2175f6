"""The documented training loop, word for word, on one process and on two."""

import os
import re
import runpy
import sys
from unittest import mock

import numpy as np

import mytorch
from tests.distributed.launched import ROOT, launch, needs_mpi, surroundings

AFTER = """
import sys
from pathlib import Path
trained = accelerator.unwrap_model(model).state_dict()
trained["updates"] = mytorch.tensor(scheduler.scheduler.last_epoch)
trained["rate"] = mytorch.tensor(scheduler.get_last_lr())
if accelerator.is_main_process:
    mytorch.save(trained, Path(sys.argv[1]))
"""


def loop():
    """The block of the page that accumulates."""
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8"), re.M | re.S
    )
    (found,) = [block for block in blocks if "gradient_accumulation_steps=2" in block]
    return found


def run(tmp_path, text, processes):
    """What the loop leaves: the weights, how many updates there were, and the learning rate."""
    script, out = tmp_path / "script.py", tmp_path / "trained.safetensors"
    script.write_text(text + AFTER)
    if processes == 1:
        with (
            mock.patch.dict(os.environ, surroundings(MYTORCH_CPU="true"), clear=True),
            mock.patch.object(sys, "argv", [str(script), str(out)]),
        ):
            runpy.run_path(str(script), run_name="__main__")
    else:
        code, _, err = launch("-n", processes, script, out, limit=300)
        assert code == 0, err
    return {name: value.numpy() for name, value in mytorch.load(out).items()}


@needs_mpi
def test_two_processes_train_as_one_with_twice_the_batch(tmp_path):
    assert "batch_size=8" in loop() and "range(25)" in loop()
    short = loop().replace("range(25)", "range(3)")
    both = run(tmp_path, short, 2)
    alone = run(tmp_path, short.replace("batch_size=8", "batch_size=16"), 1)
    # 240 samples in batches of 16 are 15 micro-batches an epoch: 7 windows of two, and a short one.
    assert both["updates"] == alone["updates"] == 3 * 8
    for name, value in alone.items():
        np.testing.assert_allclose(both[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
