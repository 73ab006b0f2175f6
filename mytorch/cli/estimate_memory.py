"""
`mytorchrun estimate-memory`: the memory that training a GPT-2 takes on each device.

With P parameters, N = batch_size * sequence_length tokens, L layers, H heads, C features, V tokens in the
vocabulary, and s bytes a number (4; 2 in half precision), each process holds

    parameters    s P              half: 4 P more, the float32 master weights
    gradients     s P              half: 4 P more, in float32
    optimizer     8 P + 8 min(P, 2^24)    AdamW: exp_avg and exp_avg_sq, and buffers of the update
                                   (on the CPU 2^16); SGD without momentum: the latter alone;
                                   ZeRO stage 1: 8 P divided by the number of processes
    activations   L (16 s N C + 8 N H) + max(3 s N C + 8 N V, 6 s N C + 4 N V) + 16 N
                                   half: 12 N V in place of 8, the loss has a copy of the logits

A block saves for backward, in units of N C numbers: the inputs of both norms (2), of the projections
after them (2), queries, keys and values (3), the output of attention (1), and in the MLP the output and the
slope of GELU (4 + 4). Attention saves two float32 numbers for each row of its scores, never the scores.
The peak is reached either at the start of backward: logits, their gradient, and what the final norm saved; or
in the last block: gradients as wide as the MLP, while the caller still holds the logits. The caller's logits
are float32, tokens and targets int64.

This holds with the fused kernels (Numba's on the CPU in float32, Triton's on a GPU); without them attention
saves its scores, N H sequence_length numbers more for each layer. Not counted: Python and its libraries, a
CUDA context, reserves of allocators, NCCL's buffers, and the float32 copies with which the CPU computes
bfloat16. The formulas were checked against steps in float32 on the CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace

from ..backends.device import device
from ..distributed.launch import positive
from ..models.gpt2 import GPT2
from ..models.gpt2_config import SIZES, GPT2Config
from ..optim.update import CHUNK, CHUNK_CUDA

HELP = "estimate the memory that training a GPT-2 takes"
_STATE = {"adamw": 2, "sgd": 0}  # float32 numbers of an optimizer's state for each parameter
_OF_BLOCK = 16  # numbers for each token and feature: see the module's docstring


@dataclass(frozen=True)
class Estimate:
    """Bytes on each device; `number_of_parameters` is a count."""

    number_of_parameters: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations


def count_parameters(config: GPT2Config) -> int:
    """Returns the number of parameters of a GPT-2: of models of one and two layers, which take no memory."""
    with device("meta"):
        one, two = (GPT2(replace(config, n_layer=n)).num_parameters() for n in (1, 2))
    return one + (config.n_layer - 1) * (two - one)


def estimate(
    config: GPT2Config, batch_size: int, sequence_length: int | None = None, mixed_precision: str = "no",
    optimizer: str = "adamw", num_processes: int = 1, zero_stage: int = 0, cpu: bool = False,
) -> Estimate:
    """Returns the peak of a training step by the formulas of this module.

    Args:
        batch_size: sequences in a micro-batch of one process; accumulating gradients takes no more memory.
        sequence_length: tokens in each; the context if None.
        mixed_precision: "no", "fp16" or "bf16".
        optimizer: "adamw" or "sgd".
        zero_stage: 1 distributes the optimizer's state over the processes.
        cpu: on the CPU an optimizer uses smaller buffers.

    Raises:
        ValueError: sequences longer than the context.
    """
    length = config.context_length if sequence_length is None else sequence_length
    if length > config.context_length:
        raise ValueError(f"{length} tokens exceed the context length of {config.context_length}")
    is_half = mixed_precision != "no"
    count, size = count_parameters(config), 2 if is_half else 4
    state, work = 4 * _STATE[optimizer] * count, 2 * 4 * min(count, CHUNK if cpu else CHUNK_CUDA)
    return Estimate(
        number_of_parameters=count,
        parameters=(size + 4 * is_half) * count,
        gradients=(size + 4 * is_half) * count,
        optimizer=-(-state // (num_processes if zero_stage else 1)) + work,
        activations=_activations(config, batch_size * length, size),
    )


def _activations(config: GPT2Config, tokens: int, size: int) -> int:
    features, logits = tokens * config.n_embd, tokens * config.vocab_size
    blocks = config.n_layer * (_OF_BLOCK * features * size + 2 * 4 * tokens * config.n_head)
    at_start = size * 3 * features + 4 * logits * (2 if size == 4 else 3)
    in_last_block = size * 6 * features + 4 * logits
    return blocks + max(at_start, in_last_block) + 16 * tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = __doc__.split("\n", 2)[2] if __doc__ else HELP
    add = parser.add_argument
    add("--model_size", choices=SIZES, default="base", help="layers, heads and features (default base)")
    for name, about in (
        ("n_layer", "instead of the size's"), ("n_head", "instead of the size's"),
        ("n_embd", "instead of the size's"), ("vocab_size", "default 50257"),
        ("context_length", "default 1024"), ("sequence_length", "tokens of a sequence, default: the context"),
    ):
        add(f"--{name}", type=positive, help=about)
    add(
        "--batch_size",
        type=positive,
        default=12,
        help="sequences in a micro-batch of one process (default 12)",
    )
    add("--no_bias", action="store_true", help="linear layers and norms without biases, as train_gpt2.py")
    add("--mixed_precision", choices=("no", "fp16", "bf16"), default="no", help="default no")
    add("--optimizer", choices=_STATE, default="adamw", help="default adamw; sgd: without momentum")
    add("--num_processes", type=positive, default=1, help="default 1")
    add("--zero_stage", type=int, choices=(0, 1), default=0, help="1: ZeroRedundancyOptimizer (default 0)")
    add("--cpu", action="store_true", help="train on the CPU")
    add("--json", action="store_true", help="bytes, as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints the estimate; returns the exit code, 2 for an impossible model."""
    names = ("n_layer", "n_head", "n_embd", "vocab_size", "context_length")
    changes = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    try:
        config = GPT2Config.of_size(options.model_size, bias=not options.no_bias, **changes)
        found = estimate(
            config, options.batch_size, options.sequence_length, options.mixed_precision, options.optimizer,
            options.num_processes, options.zero_stage, options.cpu,
        )
    except ValueError as error:
        print(f"mytorchrun estimate-memory: {error}", file=sys.stderr)
        return 2
    parts = {name: getattr(found, name) for name in ("parameters", "gradients", "optimizer", "activations")}
    if options.json:
        facts = {"number_of_parameters": found.number_of_parameters, **parts, "total": found.total}
        print(json.dumps(facts, indent=2))
        return 0
    devices = f"each of {options.num_processes} devices" if options.num_processes > 1 else "the device"
    print(f"{found.number_of_parameters:,} parameters; on {devices}:")
    for name, number in {**parts, "total": found.total}.items():
        print(f"  {name:<11} {text_of(number):>10}  {number / found.total:4.0%}")
    return 0


def text_of(size: int) -> str:
    """Returns a number of bytes with a unit."""
    number, units = float(size), iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while number >= 1024 and unit != "GiB":
        number, unit = number / 1024, next(units)
    return f"{number:,.1f} {unit}"
