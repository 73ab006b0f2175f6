"""Devices: names, availability, and what happens without a GPU. CuPy is the strict stand-in here."""

import copy
import pickle
import sys

import pytest

import mytorch
from mytorch import device
from mytorch.backends.device import CPU, as_device, device_count, is_available
from tests import strict_cupy

NAMES = {
    "cpu": ("cpu", "cpu", None),
    "cuda": ("cuda", "cuda", None),
    "cuda:1": ("cuda:1", "cuda", 1),
    "number": (1, "cuda", 1),
    "device": (device("cuda:1"), "cuda", 1),
    "cpu:0": ("cpu:0", "cpu", 0),
}


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    given, kind, index = NAMES[name]
    made = device(given)
    assert (made.type, made.index) == (kind, index)
    assert made == (f"cuda:{index}" if kind == "cuda" and index is not None else kind)


def test_a_device_is_a_string():
    assert (
        device("cuda", 1) == "cuda:1"
        and f"{device('cuda:1')}" == "cuda:1"
        and repr(device("cpu")) == "device('cpu')"
    )
    assert {device("cuda:1"): 1}["cuda:1"] == 1 and mytorch.zeros(2).device == "cpu"
    for twin in (pickle.loads(pickle.dumps(device("cuda:1"))), copy.deepcopy(device("cuda:1"))):
        assert twin == "cuda:1" and twin.index == 1


WRONG = {
    "unknown": ("gpu", None, RuntimeError, "gpu"),
    "no number": ("cuda:", None, RuntimeError, "number"),
    "a word": ("cuda:x", None, RuntimeError, "cuda:x"),
    "negative": ("cuda:-1", None, RuntimeError, "cuda:-1"),
    "two numbers": ("cuda:0", 1, RuntimeError, "index=1"),
    "cpu:1": ("cpu:1", None, RuntimeError, "cpu:1"),
    "float": (1.0, None, TypeError, "1.0"),
    "bool": (True, None, TypeError, "True"),
    "empty": ("", None, RuntimeError, "''"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_device(name):
    given, index, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        device(given, index)


def test_the_current_gpu(fake_cuda):
    assert as_device("cuda") is as_device("cuda:0") is as_device(0)
    with fake_cuda.cuda.Device(1):
        assert as_device("cuda") == "cuda:1" and mytorch.zeros(2, device="cuda").device == "cuda:1"
    assert as_device(None) is as_device("cpu") is CPU


def test_arrays_go_to_the_device_that_was_asked_for(fake_cuda):
    for name in ("cpu", "cuda:0", "cuda:1"):
        x = mytorch.ones(2, 3, device=name)
        assert x.device == name and (x + x).device == name and x.data.device == name
    assert fake_cuda.cuda.Device().id == 0


def test_counting(fake_cuda):
    assert device_count() == 2 and is_available() and mytorch.cuda.device_count() == 2


def test_a_driver_without_a_gpu():
    strict_cupy.install(device_count=0)
    try:
        assert device_count() == 0 and not is_available()
        with pytest.raises(RuntimeError, match="cuda:0.*0 GPUs"):
            mytorch.zeros(2, device="cuda:0")
        with pytest.raises(RuntimeError, match="'cuda'.*0 GPUs"):
            mytorch.zeros(2, device="cuda")
    finally:
        strict_cupy.uninstall()


def test_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert device_count() == 0 and not is_available()
    for call in (
        lambda: mytorch.zeros(2, device="cuda"),
        lambda: mytorch.ones(2).cuda(),
        lambda: mytorch.ones(2).to("cuda:0"),
        lambda: mytorch.Generator("cuda"),
        lambda: mytorch.tensor([1.0], device="cuda:0"),
    ):
        with pytest.raises(RuntimeError, match="needs CuPy.*pip install"):
            call()


def test_a_gpu_that_is_not_there(fake_cuda):
    for call in (
        lambda: mytorch.zeros(2, device="cuda:7"),
        lambda: mytorch.ones(2).cuda(7),
        lambda: mytorch.ones(2).to("cuda:7"),
        lambda: mytorch.Generator("cuda:7"),
        lambda: mytorch.rand(2, device=7),
        lambda: mytorch.arange(3, device="cuda:7"),
    ):
        with pytest.raises(RuntimeError, match="cuda:7.*2 GPUs"):
            call()
