"""The table of kernels says what the files register, and names the files that there are."""

import importlib
from pathlib import Path

import pytest

import mytorch
from mytorch.nn.functional.composite import REGISTRY
from mytorch.nn.fused_ops.kernels import CPU_KERNELS, KERNELS, TABLE

FUSED_OPS = Path(mytorch.__file__).parent / "nn" / "fused_ops"


def test_each_composite_is_in_the_row_of_the_file_that_registers_it():
    pytest.importorskip("numba")
    for file in TABLE.keys() - {"gemm"}:
        importlib.import_module(f"mytorch.nn.fused_ops.numba.{file}")
    modules = {
        name: composite.kernels["cpu"].forward.__module__
        for name, composite in REGISTRY.items()
        if "cpu" in composite.kernels and name != "self_attention"  # `packed` makes it of attention's
    }
    found = {name: module.rpartition(".")[2] for name, module in modules.items()}
    assert {**found, "self_attention": "attention"} == {**KERNELS, **CPU_KERNELS}


def test_each_row_has_its_files():
    for file, row in TABLE.items():
        if file == "gemm":
            assert (FUSED_OPS.parents[1] / "backends" / "gemm.py").exists()
            continue
        assert (FUSED_OPS / "numba" / f"{file}.py").exists()
        assert not row.composites or (FUSED_OPS / "triton" / f"{file}.py").exists()
