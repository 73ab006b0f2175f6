"""The table of kernels: which file holds those of which composite, and whether it is compiled in advance."""

from __future__ import annotations

from typing import NamedTuple


class KernelFile(NamedTuple):
    """A file of kernels; it has one name in the folders `numba` and `triton`.

    composites: the functions whose kernels it has, on both kinds of device.
    cpu_composites: those that have a kernel on the CPU alone; on a GPU their parts have.
    in_advance: `mytorch.cli.compile` compiles all of its kernels that a usual call needs, in the background
        or for an image (see `background`); Numba compiles the others where they are first called.
    """

    composites: tuple[str, ...] = ()
    cpu_composites: tuple[str, ...] = ()
    in_advance: bool = False


TABLE = {
    "gemm": KernelFile(in_advance=True),  # in `backends`; loading any kernel starts its pool of threads
    "activations": KernelFile(("sigmoid", "silu", "tanh"), in_advance=True),
    "adam": KernelFile(in_advance=True),
    "attention": KernelFile(("scaled_dot_product_attention", "self_attention"), in_advance=True),
    "batch_norm": KernelFile(("batch_norm",)),
    "cached_attention": KernelFile(("cached_attention",), ("cached_self_attention",), in_advance=True),
    "cast": KernelFile(),
    "convolution": KernelFile(("conv1d", "conv2d")),
    "cross_entropy": KernelFile(("cross_entropy",), in_advance=True),
    "decoder": KernelFile(),
    "dropout": KernelFile(("dropout",), in_advance=True),
    "embedding": KernelFile(("embedding",), in_advance=True),
    "gated": KernelFile(("geglu", "swiglu")),
    "gelu": KernelFile(("gelu",), in_advance=True),
    "group_norm": KernelFile(("group_norm",)),
    "layer_norm": KernelFile(("layer_norm", "rms_norm", "add_layer_norm"), in_advance=True),
    "linear": KernelFile(("linear", "linear_activation"), in_advance=True),
    "linear_cross_entropy": KernelFile(("linear_cross_entropy",)),
    "lion": KernelFile(),
    "lstm": KernelFile(cpu_composites=("lstm_steps",)),
    "norm": KernelFile(in_advance=True),
    "quantized_linear": KernelFile(("quantized_linear",)),
    "rectifiers": KernelFile(("leaky_relu", "relu", "squared_relu"), in_advance=True),
    "rotary": KernelFile(("rotary_embedding",)),
    "sgd": KernelFile(in_advance=True),
    "softmax": KernelFile(("softmax", "log_softmax"), in_advance=True),
}

KERNELS = {name: file for file, row in TABLE.items() for name in row.composites}
CPU_KERNELS = {name: file for file, row in TABLE.items() for name in row.cpu_composites}
IN_ADVANCE = tuple(file for file, row in TABLE.items() if row.in_advance)
