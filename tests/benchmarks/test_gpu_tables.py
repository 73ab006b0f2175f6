"""The tables of the GPU benchmark, and what counts as a problem."""

import json
import math

import pytest

from benchmarks.gpu import tables
from benchmarks.gpu.sizes import SIZES

GPT2 = SIZES["full"].train

ABOUT = {
    "gpu": "Chip", "driver": "1.2", "cuda_runtime": "13.0", "mytorch": "0", "cupy": "14", "triton": "3.6",
    "python": "3.12",
}  # fmt: skip
RUN = {"who": "mytorch", "losses": [2.0, 1.0], "scale": 1024.0, "skipped": 0, "least_loss": 0.5}


def section(*rows, failures=(), notes=(), error=""):
    return {"rows": rows, "failures": failures, "notes": notes, "error": error, "seconds": 1.0, "date": "now"}


def result(**sections):
    about = {"about": ABOUT, "peer": {"pytorch": "2.11"}, "date": "today", "size": "full"}
    return {**about, "sections": sections}


CEILINGS = section(
    {"what": "copy", "value": 4000.0, "unit": "GB/s", "tried": [{"bytes": 1 << 30, "value": 4000.0}]},
    {"what": "float16", "value": 800.0, "unit": "TFLOP/s", "tried": [{"n": 4096, "value": 800.0}]},
)


def cells(text, begin):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_kernel_s_speed_is_told_by_its_cost_and_the_ceilings():
    row = {
        "kernel": "linear", "dtype": "float16", "size": "8 × 9", "built": False,
        "cost": {"forward_bytes": 4 * 10**9, "backward_bytes": 8 * 10**9, "forward_flops": 8 * 10**11,
                 "backward_flops": 16 * 10**11},
        "times": {"mytorch": {"forward": {"ms": 2.0}, "total": {"ms": 8.0}},
                  "PyTorch eager": {"forward": {"ms": 1.0}, "total": {"ms": 5.0}}},
    }  # fmt: skip
    text = tables.markdown(result(ceilings=CEILINGS, kernels=section(row)))
    # 4 GB take 1 ms and 0.8 TFLOP take 1 ms: 50 % in 2 ms; 12 GB and 2.4 TFLOP take 3 ms: 38 % in 8 ms
    assert cells(text, "`linear`") == [
        "`linear` float16", "8 × 9", "2.000", "2,000", "400", "50%", "8.000", "1,500", "300", "38%",
        "", "5.000", "",
    ]  # fmt: skip
    row["cost"]["forward_flops"] *= 2  # now the products count: 2 ms of 2 ms
    assert cells(tables.markdown(result(ceilings=CEILINGS, kernels=section(row))), "`linear`")[5] == "100%"
    assert cells(tables.markdown(result(kernels=section(row))), "`linear`")[5] == ""
    assert cells(text, "copy") == ["copy", "4,000.0 GB/s", "1,024 MiB: 4,000.0"]


def test_the_table_of_training():
    row = {
        "who": "mytorch", "ms": 131.072, "windows_ms": [130.0, 140.0], "tokens_per_second": 500_000.0,
        "flops_per_token": 800_000_000, "bytes": 1 << 30, "config": vars(GPT2),
    }  # fmt: skip
    peer = {**row, "who": "PyTorch eager", "ms": 262.144, "tokens_per_second": 250_000.0}
    text = tables.markdown(result(ceilings=CEILINGS, train=section(row, peer)))
    expected = ["mytorch", "131.1", "130.0 – 140.0", "500,000", "400.0", "50%", "0.50", "1.0 GiB"]
    assert cells(text, "mytorch") == expected and cells(text, "PyTorch")[6] == "1.00"


def test_the_table_of_parity():
    def row(dtype, error, **more):
        return {"kernel": "relu", "table": "odd", "row": 0, "dtype": dtype, "error": error,
                "gradient_error": 2 * error, "wrong": "", **more}  # fmt: skip

    theirs = {"error": 0.5, "gradient_error": None}
    rows = [
        row("float32", 1e-6),
        row("float32", 1e-5, peer=theirs),
        row("float16", 1e-3, wrong="result 0: no"),
    ]
    failed = {**rows[2], "row": 1, "error": None, "wrong": "it failed"}
    failure = {"who": "mytorch", "item": {"do": "compare", "kernel": "relu"}, "error": "Traceback\nX: y\n"}
    peer = {**failure, "who": "PyTorch eager"}
    found = result(parity=section(*rows, failed, failures=[failure, peer], notes=["Something."]))
    text = tables.markdown(found)
    assert cells(text, "`relu`") == ["`relu`", "4", "2", "2.0e-05 (5.0e-01)", "2.0e-03", ""]
    assert tables.problems(found) == [
        "parity: mytorch, relu: X: y", "parity: relu, odd case 0, float16: result 0: no",
    ]  # fmt: skip
    assert "Something." in text and "**2 problems:**" in text


# losses of PyTorch -> how many problems
LOSSES = {"equal": ([2.0, 1.0], 0), "near": ([2.0, 1.04], 0), "far": ([2.0, 1.2], 1), "nan": ([None, 1.0], 1)}


@pytest.mark.parametrize(("losses", "count"), LOSSES.values(), ids=LOSSES.keys())
def test_losses_are_compared(losses, count):
    found = result(fp16=section(RUN, {**RUN, "who": "PyTorch eager", "losses": losses}))
    assert len(tables.problems(found)) == count
    assert cells(tables.markdown(found), "mytorch") == ["mytorch", "2.0000", "1.0000", "1,024", "0"]


def test_a_section_that_breaks_is_written_down(monkeypatch, tmp_path, capsys):
    from benchmarks.gpu import __main__ as main
    from benchmarks.gpu import sections

    def broken(context):
        raise KeyError("of the section")

    about = {**ABOUT, "bfloat16": ""}
    monkeypatch.setattr(main, "who_is_there", lambda peer: (about, {"missing": "not asked"}))
    monkeypatch.setitem(sections.SECTIONS, "parity", broken)
    monkeypatch.setitem(sections.SECTIONS, "fp16", lambda context: [{**RUN, "losses": [2.0, math.nan]}])
    with pytest.raises(SystemExit) as ended:
        main.main(["--out", str(tmp_path), "--sections", "parity", "fp16"])
    assert str(ended.value.code).startswith("benchmarks.gpu: 2 problems")
    found = json.loads((tmp_path / "gpu.json").read_text(), parse_constant=pytest.fail)["sections"]
    assert (
        "KeyError: 'of the section'" in found["parity"]["error"] and "Traceback" in found["parity"]["error"]
    )
    assert found["fp16"]["rows"][0]["losses"] == [2.0, None]
    assert "- parity: broken, KeyError: 'of the section'" in capsys.readouterr().out
