"""Tokens per second, MFU, the peaks of GPUs; what ends a training that diverged."""

import platform
import re
from pathlib import Path

import pytest

import mytorch
from mytorch import cuda, nn
from mytorch.accelerate import Accelerator, throughput
from mytorch.accelerate.finite import check_finite
from mytorch.accelerate.throughput import Throughput, peak_flops, peak_memory
from mytorch.models import GPT2, GPT2Config

NAMES = {  # as drivers print them: 10¹² FLOP/s in half precision, in float32
    "NVIDIA A100-SXM4-80GB": (312, 19.5), "NVIDIA A100 80GB PCIe": (312, 19.5), "NVIDIA A10G": (70, 35),
    "NVIDIA A10": (125, 31.2), "NVIDIA H100 80GB HBM3": (989, 67), "NVIDIA H100 PCIe": (756, 51),
    "NVIDIA H200": (989, 67), "NVIDIA L40S": (362, 91.6), "NVIDIA L4": (121, 30.3), "Tesla T4": (65, 8.1),
    "Tesla V100-SXM2-16GB": (125, 15.7), "NVIDIA GeForce RTX 4090": (165.2, 82.6),
    "NVIDIA T400 4GB": None, "NVIDIA A1000": None, "Quadro": None,
}


class Gpu:
    type = "cuda"


@pytest.mark.parametrize("name", NAMES)
def test_peaks(name, monkeypatch):
    monkeypatch.setattr(throughput, "as_device", lambda device: device)
    monkeypatch.setattr(cuda, "get_device_name", lambda device: name)
    found = peak_flops(Gpu(), True), peak_flops(Gpu(), False)
    assert found == (tuple(1e12 * x for x in NAMES[name]) if NAMES[name] else (None, None))


def test_the_peak_of_a_cpu_is_that_of_the_fastest_product(monkeypatch):
    clock = iter([0.0, 0.5, 1.0, 1.25, 2.0, 4.0])
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: next(clock))
    assert throughput.measured_peak_flops(100, 3) == 2 * 100**3 / 0.25
    monkeypatch.setattr(throughput, "measured_peak_flops", lambda: 7.0)
    assert peak_flops("cpu", False) == 7


def test_speed_and_mfu(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: clock[0])
    measure = Throughput(1000, flops_per_token=2e9, peak=4e12)
    measure.start(7)
    clock[0] += 5
    assert measure.measure(17) == {"tokens_per_second": 2000, "mfu": 1.0}
    assert measure.text() == "0.50 s a step, 2,000 tokens/s, MFU 100.0%"
    without = Throughput(1000, 2e9)
    without.start(0)
    clock[0] += 2
    assert without.measure(1) == {"tokens_per_second": 500}
    assert without.text() == "2.00 s a step, 500 tokens/s"


def test_the_text_is_of_the_last_interval(monkeypatch):
    """The mean has the compilation in it, which the first steps of a run wait for."""
    clock = [0.0]
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: clock[0])
    measure = Throughput(1000, flops_per_token=1e9, peak=4e12)
    measure.start(0)
    for iteration, seconds, mean in ((10, 40, 250), (20, 5, 444.44), (30, 5, 600)):
        clock[0] += seconds
        found = measure.measure(iteration)
        assert found == {"tokens_per_second": mean, "mfu": pytest.approx(mean / 4000, rel=1e-4)}
        speed = 10000 / seconds
        assert measure.text() == f"{seconds / 10:.2f} s a step, {speed:,.0f} tokens/s, MFU {speed / 4000:.1%}"
    measure.start(30)
    clock[0] += 20
    assert measure.measure(40)["tokens_per_second"] == 500
    assert measure.text().startswith("2.00 s a step, 500 tokens/s")


def test_a_peak_that_is_exceeded_is_measured_again(monkeypatch):
    clock, peaks = [0.0], iter([1e12, 5e12, 4e12])
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: clock[0])
    measure = Throughput(1000, flops_per_token=2e9, peak=lambda: next(peaks))
    measure.start(0)
    clock[0] = 1.0
    assert [measure.measure(n)["mfu"] for n in (1, 2, 3)] == [0.4, 0.8, 1.2]
    assert measure.peak == 5e12 and list(peaks) == []


@pytest.mark.skipif(platform.system() != "Linux", reason="reads /proc")
def test_peak_memory():
    kilobytes = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]
    assert peak_memory("cpu") == pytest.approx(1024 * int(kilobytes), rel=0.05)


def test_check_finite():
    model = nn.Linear(2, 3)
    check_finite([model], 1.0, True, True)
    check_finite([model], float("nan"), False, True)
    with pytest.raises(FloatingPointError, match="^the training loss is nan$"):
        check_finite([model], float("nan"), True, False)
    with mytorch.no_grad():
        model.bias[1] = float("inf")
    check_finite([model], 1.0, True, False)
    with pytest.raises(FloatingPointError, match="^1 of 2 weights are inf or NaN, the first is bias$"):
        check_finite([model], 1.0, True, True)


def test_the_accelerator_checks_what_it_prepared():
    accelerator = Accelerator(cpu=True)
    first, second = accelerator.prepare(nn.Linear(1, 1), nn.Linear(2, 3))
    accelerator.check_finite(1.0, checks_weights=True)
    with mytorch.no_grad():
        second.weight[0, 1] = float("nan")
    accelerator.check_finite(1.0)
    with pytest.raises(FloatingPointError, match="^1 of 4 weights are inf or NaN, the first is weight$"):
        accelerator.check_finite(1.0, checks_weights=True)
    with pytest.raises(FloatingPointError, match="^the training loss is inf, and 1 of 4 weights"):
        accelerator.check_finite(float("inf"))
    accelerator.checks_loss = False
    accelerator.check_finite(float("inf"), checks_weights=True)
    scaled = Accelerator(cpu=True, mixed_precision="fp16")
    scaled.prepare(first)
    scaled.check_finite(float("nan"), checks_weights=True)  # fp16 skips the step


def test_the_peak_is_that_of_all_processes(monkeypatch):
    monkeypatch.setattr(Accelerator, "num_processes", 3)
    model = GPT2(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=5, context_length=4))
    given = Throughput.of(Accelerator(cpu=True), model, 100, 2e12)
    assert (given.tokens, given.peak, given.flops_per_token) == (300, 6e12, model.flops_per_token())
    monkeypatch.setattr(throughput, "measured_peak_flops", lambda: 7.0)
    assert Throughput.of(Accelerator(cpu=True), model, 100).peak == 21


def test_check_finite_compiles_one_kernel_for_all_shapes(fake_cuda, monkeypatch):
    """CuPy compiles one for each shape that it reduces."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Conv2d(1, 2, 3)).to("cuda")
    model.factor = nn.Parameter(mytorch.ones(2, dtype="complex64", device="cuda"))
    model.append(nn.Linear(1, 1))
    for name in ("isfinite", "all", "any"):
        monkeypatch.setattr(fake_cuda, name, None)
    check_finite([model], 1.0, True, True)
    with mytorch.no_grad():
        model[0].bias[1] = float("inf")
        model[1].weight[0, 0, 1, 2] = float("nan")
        model.factor[0] = complex(0, float("nan"))
    with pytest.raises(FloatingPointError, match=r"^3 of 7 weights are inf or NaN, the first is factor$"):
        check_finite([model], 1.0, True, True)
