"""The table of kernels says what the files register, and names the files that there are."""

import ast
import importlib
import re
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


def test_each_pointer_s_shape_is_written_down():
    """Of Triton's functions: `# Shapes: x, y (rows, n); bias (n,)`; in long ones the docstring has them."""
    kernels = 0
    for path in sorted((FUSED_OPS / "triton").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            names = {a.arg for a in node.args.args} if isinstance(node, ast.FunctionDef) else set()
            pointers = {name.removesuffix("_ptr") for name in names if name.endswith("_ptr")}
            if pointers:
                kernels += 1
                shapes = shapes_of("\n".join(text.splitlines()[node.lineno : node.end_lineno]))
                assert pointers <= shapes.keys() <= pointers | names, f"{path.name}: {node.name}"
    assert kernels > 60


def shapes_of(text):
    """The shapes by the names of the pointers."""
    text, found = re.sub(r"\s+(?:# )?", " ", text).partition("Shapes: ")[2], {}
    while pair := re.match(r"([\w, ]+) (\([^()]*\)(?: or, [^;()]*\([^()]*\))?)", text):
        found |= dict.fromkeys(pair[1].split(", "), pair[2])
        text = text[pair.end() :].removeprefix("; ")
    return found
