"""Time a whole GPT training step of mytorch beside PyTorch eager.

    python -m benchmarks.gpt_step --config nano|small|gpt2 [--variants] [--chunks N] [--steps K] [--out FILE]

A step is forward, cross entropy, backward, gradient clipping and AdamW, in float32, on the same weights and
tokens. Each library has a chunk of steps in its turn, which starts from the initial weights, since rounding
grows in a long run until losses differ without a fault. Times are medians over a chunk, then over the quiet
chunks. torch-tuned is PyTorch with torch.compile, the fused AdamW and oneMKL asked for AVX-512;
mytorch-numpy is mytorch without its compiled kernels. Exit code 1: the losses differ, or a worker failed.
"""

import itertools
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks import harness
from benchmarks.gpt import CONFIGS, chain
from benchmarks.harness import MYTORCH, NUMPY, TORCH, Plan, Task, Variant, by_library

BATCHES = 16
STEPS = {"nano": 40, "small": 5, "gpt2": 2, "tiny": 5}  # some two seconds: CPU ticks are 10 ms
VARIANTS = {
    "torch": TORCH,
    "torch-tuned": Variant("PyTorch, tuned", "torch", {"MKL_ENABLE_INSTRUCTIONS": "AVX512"}, ("tuned",)),
    "mytorch": MYTORCH,
    "mytorch-numpy": NUMPY,
    "mytorch-untuned": Variant("mytorch, MYTORCH_TUNE=0", "mytorch", {"MYTORCH_TUNE": "0"}),
}


def jobs(library: Any, config: str, *options: str) -> list[Callable[[], Task]]:
    """Returns the only job: steps that train a new model, and return their losses."""
    return [partial(training, library, config, {"compiled": True} if options else {})]


def training(library: Any, config: str, options: dict) -> Task:
    trainer = import_module(f"benchmarks.gpt_{library.__name__}").Trainer(CONFIGS[config], **options)
    arrays = [map(library.from_numpy, a) for a in chain(CONFIGS[config], BATCHES)]
    batches = itertools.cycle(list(zip(*arrays, strict=True)))
    return Task(lambda: trainer.step(*next(batches)).item())


def main(argv: list[str] | None = None) -> None:
    options = harness.parser("gpt_step", __doc__, 10, "--chunks")
    add = options.add_argument
    add("--config", default="nano", choices=CONFIGS, metavar="nano|small|gpt2")
    add("--variants", nargs="*", default=["torch", "mytorch"], choices=VARIANTS, metavar="NAME",
        help=f"what to run, the reference first; no name means all: {', '.join(VARIANTS)}")  # fmt: skip
    add("--steps", type=harness.positive, help="timed steps in a chunk (two seconds or more)")
    add("--minutes", type=float, default=10, help="take what there is if it isn't quiet for so long (10)")
    args = options.parse_args(argv)
    config, name = CONFIGS[args.config], args.config
    # the second step is the first to reuse memory
    plan = Plan("gpt_step", args.steps or STEPS[name], warm_up=2, tolerance=1e-4, fresh=True)
    variants = [VARIANTS[variant] for variant in args.variants or VARIANTS]
    result = harness.measure(plan, variants, [name], [("training step", name)], args, args.minutes)
    agreed = f"the losses differ by {result['largest_difference']:.1e} at most"
    title = f"GPT-2 {name}: {config}; float32; {agreed}"
    harness.show(title, result, by_library(result, "step", 1, config.tokens), args)


if __name__ == "__main__":
    main()
