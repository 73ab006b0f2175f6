"""Time the tokens that a Llama of SmolLM2-135M's shape generates, quantised and not, beside PyTorch eager.

    python -m benchmarks.decode [--size 135m] [--variants NAME ...] [--rounds N]

Batch 1, a cache of keys and values, random weights, the most probable token. PyTorch runs transformers' Llama
in a loop of its own. Beside the times stands the share of the bound: the time in which the processor reads
the weights once, of that of a token; how fast it reads is measured with a sum over 256 MB.
"""

import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.harness import MYTORCH, TORCH, Plan, Task, Variant

PROMPT, NEW = 16, 32
VARIANTS = {"torch": TORCH, "mytorch": MYTORCH} | {
    name: Variant(f"mytorch, {name}", "mytorch", options=(name,)) for name in ("q8_0", "q4_0", "q4_1")
}


def jobs(library: Any, size: str, *quantized: str) -> list[partial]:
    """Returns the only job: tokens after a prompt."""
    return [partial({"mytorch": in_mytorch, "torch": in_torch}[library.__name__], size, *quantized)]


def in_mytorch(size: str, format: str | None = None) -> Task:
    import mytorch
    from mytorch.models import Llama, LlamaConfig

    mytorch.manual_seed(0)
    model = Llama(LlamaConfig.of_size(size)).eval()
    if format is not None:
        mytorch.quantize(model, format)
    prompt = [list(range(PROMPT))]
    return Task(lambda: float(model.generate(prompt, NEW, temperature=0) is None))


def in_torch(size: str) -> Task:
    import torch
    import transformers

    from mytorch.models import LlamaConfig

    config = transformers.LlamaConfig(**LlamaConfig.of_size(size).to_hugging_face())
    model = transformers.LlamaForCausalLM(config).eval()

    @torch.inference_mode()
    def generate() -> float:
        cache, tokens = None, torch.arange(PROMPT)[None]
        for _ in range(NEW):
            output = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache, tokens = output.past_key_values, output.logits[:, -1:].argmax(-1)
        return 0.0

    return Task(generate)


def bytes_per_second() -> float:
    """Returns how fast two threads read memory: the best of ten sums."""
    from numba import njit, prange

    @njit(parallel=True, fastmath=True)
    def total(x):
        found = np.float32(0)
        for i in prange(len(x)):
            found += x[i]
        return found

    x, times = np.ones(1 << 26, np.float32), []
    for _ in range(11):
        start = time.perf_counter()
        total(x)
        times.append(time.perf_counter() - start)
    return x.nbytes / min(times[1:])


def main(argv: list[str] | None = None) -> None:
    options = harness.parser("decode", __doc__, 5)
    add = options.add_argument
    add("--size", default="135m", help="of `LlamaConfig.of_size` (%(default)s)")
    add("--variants", nargs="*", default=["torch", "mytorch", "q8_0"], choices=VARIANTS, metavar="NAME")
    args = options.parse_args(argv)
    variants = [VARIANTS[name] for name in args.variants or VARIANTS]
    result = harness.measure(Plan("decode", 1, 1, 0.0), variants, [args.size], [("token", args.size)], args)
    rate = bytes_per_second()
    title = f"Llama {args.size}: {NEW} tokens after a prompt of {PROMPT}, batch 1; {rate / 1e9:.1f} GB/s"
    harness.show(title, result, harness.by_library(result, "token", NEW, NEW), args)


if __name__ == "__main__":
    main()
