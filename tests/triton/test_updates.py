"""Run the tests of the optimizers' Triton kernels, as test_kernels.py does for the others."""

from tests.triton.test_kernels import run, without_torch  # noqa: F401 - a fixture


def test_values_in_the_interpreter(without_torch):  # noqa: F811
    run("tests/triton/updates.py", without_torch, TRITON_INTERPRET="1")


def test_resources_of_what_is_compiled(without_torch):  # noqa: F811
    run("tests/triton/updates.py", without_torch, TRITON_INTERPRET="0", TRITON_DISABLE_LINE_INFO="1")
