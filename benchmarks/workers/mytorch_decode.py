"""Generation with a cache in mytorch, through its ordinary public interface."""

from __future__ import annotations

import sys

import mytorch  # before NumPy, as in a user's script: the import may choose OpenBLAS's kernels
from benchmarks.decode import LENGTHS, fingerprint
from benchmarks.harness import Step, about_mytorch, serve
from benchmarks.problem import CONFIGS, load_problem
from mytorch.models.gpt2 import GPT2, GPT2Config


def generation(config: str, problem: str) -> list[Step]:
    """One callable: it writes a text and returns its fingerprint."""
    sizes, length = CONFIGS[config], LENGTHS[config]
    model = GPT2(
        GPT2Config(
            sizes.vocab_size, sizes.context_length, sizes.n_layer, sizes.n_head, sizes.n_embd, bias=False
        )
    )
    model.load_state_dict(load_problem(problem)[0])
    model.eval()
    prompt = mytorch.from_numpy(length.prompt_of(config))
    return [lambda: fingerprint(model.generate(prompt, length.new, temperature=0)[0].tolist())]


def main(config: str, problem: str) -> None:
    serve(about_mytorch(), lambda: generation(config, problem))


if __name__ == "__main__":
    main(*sys.argv[1:])
