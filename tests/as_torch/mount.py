"""Runs the programs of this folder: `python mount.py mytorch` with mytorch in the place of PyTorch.

    import mount
    mount.mount()         # from here on `import torch.nn` gives mytorch.nn
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np

PROGRAMS = ["gpt", "vae", "policy_gradient", "muon", "vit", "gan", "names", "state_space"]


class Finder:
    """Finds every module `torch.x` as `mytorch.x`."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            return importlib.util.spec_from_loader(name, self)
        return None

    def create_module(self, spec):
        self.own = importlib.import_module(f"my{spec.name}").__spec__
        return sys.modules[f"my{spec.name}"]

    def exec_module(self, module):
        module.__spec__ = self.own


def mount():
    sys.meta_path.insert(0, Finder())


def fill(module, seed=0):
    """Gives the parameters small values, the same in every framework."""
    import torch

    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32) * 0.1))
    return module


def numbers(*shape, seed=1):
    """A float32 tensor, the same in every framework."""
    import torch

    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    if sys.argv[1] == "mytorch":
        mount()
    results = {name: list(importlib.import_module(name).losses()) for name in PROGRAMS}
    import torch

    print(json.dumps({"framework": torch.nn.Linear.__module__.partition(".")[0], "losses": results}))
