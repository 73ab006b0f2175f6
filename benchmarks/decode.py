"""Time the tokens that a Llama of SmolLM2-135M's shape generates, quantised and not, beside PyTorch eager.

    python -m benchmarks.decode [--size 135m] [--variants NAME ...] [--rounds N]

Batch 1, a cache of keys and values, random weights, the most probable token. PyTorch runs transformers' Llama
in a loop of its own; llama.cpp (pip install llama-cpp-python) reads a GGUF file of that shape. The title has
the rate at which two threads read memory: a token takes at least as long as reading all weights once.
"""

import tempfile
from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.harness import MYTORCH, TORCH, Plan, Task, Variant
from benchmarks.machine import read_rate

PROMPT, NEW = 16, 32
VARIANTS = {"torch": TORCH, "mytorch": MYTORCH} | {
    name: Variant(f"mytorch, {name}", "mytorch", options=(name,)) for name in ("q8_0", "q4_0", "q4_1")
}
VARIANTS["llama.cpp"] = Variant("llama.cpp, Q8_0", "mytorch", options=("llama.cpp",))


def in_mytorch(size: str, format: str | None = None) -> Task:
    import mytorch
    from mytorch.models import Llama, LlamaConfig

    if format == "llama.cpp":
        return in_llama_cpp(LlamaConfig.of_size(size))
    mytorch.manual_seed(0)
    model = Llama(LlamaConfig.of_size(size)).eval()
    if format is not None:
        mytorch.quantize(model, format)
    prompt = [list(range(PROMPT))]
    return Task(lambda: float(model.generate(prompt, NEW, temperature=0) is None), calls=NEW)


def in_llama_cpp(config: Any) -> Task:
    import llama_cpp
    import transformers
    from gguf import GGMLQuantizationType

    from tests.models.test_gguf import write

    def describe(writer: Any) -> None:
        writer.add_tokenizer_model("no_vocab")
        writer.add_vocab_size(config.vocab_size)

    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config.to_hugging_face()))
    quants = {name: GGMLQuantizationType.Q8_0 for name in ("proj.weight", "tokens.weight")}
    with tempfile.TemporaryDirectory() as folder:
        path = str(write(f"{folder}/model.gguf", theirs, quants=quants, more=describe))
        model = llama_cpp.Llama(path, n_ctx=64, n_threads=2, use_mmap=False, verbose=False)

    def generate() -> float:
        model.reset()
        tokens = list(range(PROMPT))
        for _ in range(NEW):
            model.eval(tokens)
            tokens = [model.sample(temp=0.0)]
        return 0.0

    return Task(generate, calls=NEW)


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

    return Task(generate, calls=NEW)


def jobs(library: Any, size: str, *quantized: str) -> list[partial]:
    return [partial({"mytorch": in_mytorch, "torch": in_torch}[library.__name__], size, *quantized)]


def main(argv: list[str] | None = None) -> None:
    options = harness.parser("decode", __doc__, 5)
    add = options.add_argument
    add("--size", default="135m", help="of `LlamaConfig.of_size` (%(default)s)")
    add("--variants", nargs="*", default=["torch", "mytorch", "q8_0"], choices=VARIANTS, metavar="NAME")
    args = options.parse_args(argv)
    variants = [VARIANTS[name] for name in args.variants or VARIANTS]
    result = harness.measure(Plan("decode", 1, 1, 0.0), variants, [args.size], [("token", args.size)], args)
    title = f"Llama {args.size}: {NEW} tokens after a prompt of {PROMPT}, batch 1; {read_rate():.1f} GB/s"
    harness.show(title, result, harness.by_library(result, "token"), args)


if __name__ == "__main__":
    main()
