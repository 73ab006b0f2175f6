"""Time a training step of a GPT, or text that it generates, beside PyTorch eager.

    python -m benchmarks.gpt_step [--generate] [--config nano|small|gpt2] [--variants] [--rounds N]

A training step is forward, cross entropy, backward, gradient clipping and AdamW, in float32. The steps of a
turn start from the initial weights, since rounding grows in a long run until losses differ without a fault.
With --generate a step is a whole text after a prompt, with a cache of keys and values, batch 1, always of the
most probable token. torch-tuned is PyTorch with torch.compile, the fused AdamW and oneMKL asked for AVX-512;
mytorch-numpy is mytorch without its compiled kernels.
"""

import itertools
import zlib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.gpt import CONFIGS, chain
from benchmarks.harness import MYTORCH, NUMPY, TORCH, Plan, Task, Variant
from benchmarks.machine import read_rate

BATCHES = 16
STEPS = {"nano": 40, "small": 5, "gpt2": 2, "tiny": 5}  # some two seconds: CPU ticks are 10 ms
# tokens of the prompt, tokens that follow it, texts in a turn
TEXTS = {"nano": (16, 48, 20), "small": (32, 128, 6), "gpt2": (32, 64, 2), "tiny": (3, 5, 2)}
VARIANTS = {
    "torch": TORCH,
    "torch-tuned": Variant("PyTorch, tuned", "torch", {"MKL_ENABLE_INSTRUCTIONS": "AVX512"}, ("compiled",)),
    "mytorch": MYTORCH,
    "mytorch-numpy": NUMPY,
}


def jobs(library: Any, what: str, config: str, *mode: str) -> list[Callable[[], Task]]:
    """Returns the only job: steps that train a new model and return their losses, or that write texts."""
    gpt = import_module(f"benchmarks.gpt_{library.__name__}")
    make = {"training step": training, "text": writing}[what]
    return [partial(make, library, gpt, config, *mode)]


def training(library: Any, gpt: Any, config: str, mode: str = "eager") -> Task:
    trainer = gpt.Trainer(CONFIGS[config], mode=mode)
    arrays = [map(library.from_numpy, a) for a in chain(CONFIGS[config], BATCHES)]
    batches = itertools.cycle(list(zip(*arrays, strict=True)))
    return Task(lambda: trainer.step(*next(batches)).item())


def writing(library: Any, gpt: Any, config: str) -> Task:
    """Returns steps that give the fingerprint of a text."""
    length, new, _ = TEXTS[config]
    prompt = np.random.default_rng(3).integers(0, CONFIGS[config].vocab_size, (1, length))
    generate = gpt.generation(CONFIGS[config], library.from_numpy(prompt), new)
    return Task(lambda: float(zlib.crc32(np.asarray(generate(), np.int64).tobytes())), calls=new)


def main(argv: list[str] | None = None) -> None:
    options = harness.parser("gpt_step", __doc__, 10)
    add = options.add_argument
    add("--generate", action="store_true", help="time texts instead of training steps")
    add("--config", default="nano", choices=CONFIGS, metavar="nano|small|gpt2")
    add("--variants", nargs="*", default=["torch", "mytorch"], choices=VARIANTS, metavar="NAME",
        help=f"what to run, the reference first; no name means all: {', '.join(VARIANTS)}")
    add("--steps", type=harness.positive, help="timed steps in a turn (two seconds or more)")
    args = options.parse_args(argv)
    name, config = args.config, CONFIGS[args.config]
    length, new, texts = TEXTS[name]
    if args.generate:
        plan, what = Plan("gpt_step", args.steps or texts, warm_up=1, tolerance=0.0), "text"
        shown = ("token",)
        said = f"{new} tokens after a prompt of {length}; memory is read at {read_rate():.1f} GB/s"
    else:  # the second step is the first to reuse memory
        plan = Plan("gpt_step", args.steps or STEPS[name], warm_up=2, tolerance=1e-4)
        what, shown, said = "training step", ("step", config.tokens), "training steps"
    variants = [VARIANTS[variant] for variant in args.variants or VARIANTS]
    result = harness.measure(plan, variants, [what, name], [(what, name)], args)
    harness.show(f"GPT-2 {name}: {config}; float32; {said}", result, harness.by_library(result, *shown), args)


if __name__ == "__main__":
    main()
