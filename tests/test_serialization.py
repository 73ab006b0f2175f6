"""save and load: everything comes back, other libraries read it, and a broken write breaks nothing."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import OrderedDict, namedtuple
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mytorch
from mytorch import optim
from mytorch.utils import atomic_write
from tests.every import every

ROOT = Path(__file__).parent.parent


def same(a, b):
    """Equal in type, dtype, shape, order and bits."""
    assert type(a) is type(b), f"{type(a)} instead of {type(b)}"
    if isinstance(b, (mytorch.Tensor, mytorch.Array)):
        a, b = (x.data.numpy() if isinstance(x, mytorch.Tensor) else x.numpy() for x in (a, b))
    if isinstance(b, (np.ndarray, np.generic)):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    elif isinstance(b, dict):
        for (k, v), (k2, v2) in zip(a.items(), b.items(), strict=True):
            same(k, k2)
            same(v, v2)
    elif isinstance(b, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert repr(a) == repr(b)  # nan is nan, -0.0 is not 0.0


def round_trip(obj, path):
    mytorch.save(obj, path)
    return mytorch.load(path)


# What comes back

DTYPES = [
    "float16", mytorch.bfloat16, "float32", "float64", "complex64", "bool",
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
]
OBJECTS = {
    "number": 3,
    "large": 10**40,
    "floats": [0.1, -0.0, 1e-320, float("inf"), float("-inf"), float("nan")],
    "complex": [1 + 2j, complex("nan+infj")],
    "nothing": None,
    "bools": (True, False),
    "text": ["", "ä€\n\0", "$tensor", "\U0001f600"],
    "empty": [{}, [], (), {"a": {}}],
    "nested": {"a": [1, (2, [3, {"b": (None,)}])]},
    "keys": {0: "a", "0": "b", True: "c", None: "d", 2.5: "e", -1: "f"},
    "dollar": {"$tensor": 1},
    "dollars": {"$tuple": [1], "a": 2},
    "scalars": [np.float32(0.1), np.float64("nan"), np.int16(-3), np.bool_(True), np.complex64(1 - 2j)],
    "one tensor": mytorch.Tensor([1.0, 2.0]),
    "kinds": [mytorch.Tensor([1.0]), mytorch.Array([2]), np.array([3.0])],
    "0-d": [mytorch.Tensor(1.5), mytorch.Array(2), np.array(3.0)],
    "size zero": {"a": mytorch.Tensor(np.zeros((0, 3))), "b": mytorch.Tensor(np.zeros((2, 0), np.int32))},
    "names": {
        "a.b": mytorch.Tensor([1.0]),
        "a": {"b": mytorch.Tensor([2.0])},
        "__metadata__": mytorch.Tensor([3.0]),
    },
    "many names": {"": mytorch.Tensor([1.0]), "data": mytorch.Tensor([2.0]), "a b/ä": mytorch.Tensor([3.0])},
    "int and text": {1: mytorch.Tensor([1.0]), "1": mytorch.Tensor([2.0])},
    **{str(dtype): mytorch.Tensor(np.array([[0, 1], [1, 0]]).astype(dtype)) for dtype in DTYPES},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_round_trip(name, tmp_path):
    same(round_trip(OBJECTS[name], tmp_path / "file"), OBJECTS[name])


ARRAYS = {
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "every other": np.arange(10)[::2],
    "reversed": np.arange(10)[::-1],
    "broadcast": np.broadcast_to(np.float32(2), (3, 2)),
    "Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "part": np.arange(24).reshape(4, 6)[1:3, 2:4],
}


@pytest.mark.parametrize("name", ARRAYS)
def test_any_memory_layout(name, tmp_path):
    got = round_trip([ARRAYS[name], mytorch.Tensor(ARRAYS[name])], tmp_path / "file")
    np.testing.assert_array_equal(got[0], ARRAYS[name])
    np.testing.assert_array_equal(got[1].numpy(), ARRAYS[name])


keys = st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.none())
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.lists(st.integers(-9, 9), max_size=3).map(lambda x: mytorch.Tensor(np.array(x, np.int64))),
)
objects = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
    ),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(obj=objects)
def test_any_structure(obj, tmp_path_factory):
    same(round_trip(obj, tmp_path_factory.mktemp("any") / "file"), obj)


def test_what_changes_its_type(tmp_path):
    got = round_trip(
        {
            "parameter": mytorch.Tensor([1.0], requires_grad=True),
            "size": mytorch.Tensor([[1.0]]).shape,
            "ordered": OrderedDict(b=1, a=2),
            "device": mytorch.device("cpu"),
        },
        tmp_path / "file",
    )
    assert not got["parameter"].requires_grad
    assert type(got["size"]) is tuple and got["size"] == (1, 1)
    assert type(got["ordered"]) is dict and list(got["ordered"]) == ["b", "a"]
    assert type(got["device"]) is str and got["device"] == "cpu"


def test_loaded_tensors_can_be_written(tmp_path):
    got = round_trip({"a": mytorch.Tensor([1.0, 2.0]), "b": np.zeros(2)}, tmp_path / "file")
    got["a"].add_(1)
    got["b"][0] = 5
    assert got["a"].tolist() == [2, 3]
    assert mytorch.load(tmp_path / "file")["a"].tolist() == [1, 2]


def test_tied_tensors_are_stored_once_and_stay_tied(tmp_path):
    weight = mytorch.Tensor(np.ones((100, 100), np.float32), requires_grad=True)
    state = {"embedding": weight, "head": weight.detach(), "part": weight.detach()[:50]}
    got = round_trip(state, tmp_path / "file")
    assert 60_000 < os.path.getsize(tmp_path / "file") < 62_000
    got["embedding"].fill_(3)
    assert got["head"].numpy().max() == 3 and got["part"].numpy().max() == 1
    y = (mytorch.Tensor(np.ones((100, 100), np.float32), requires_grad=True) * got["head"]).sum()
    got["embedding"].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_a_training_run_continues_bit_by_bit(tmp_path):
    def start():
        params = [
            mytorch.Tensor(np.linspace(-1, 1, n, dtype=np.float32), requires_grad=True) for n in (3, 70, 1)
        ]
        optimizer = optim.AdamW([{"params": params[:2], "weight_decay": 0.1}, {"params": params[2:]}], lr=0.1)
        return params, optimizer, optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def train(params, optimizer, scheduler, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            for p in params:
                p.backward(p.data * 2 + 1)
            optimizer.step()
            scheduler.step()

    params, optimizer, scheduler = start()
    train(params, optimizer, scheduler, 4)
    checkpoint = {"model": params, "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    saved = round_trip(checkpoint, tmp_path / "checkpoint")
    train(params, optimizer, scheduler, 4)
    resumed, optimizer_2, scheduler_2 = start()
    for p, q in zip(resumed, saved["model"], strict=True):
        p.data[...] = q.data
    optimizer_2.load_state_dict(saved["optimizer"])
    scheduler_2.load_state_dict(saved["scheduler"])
    train(resumed, optimizer_2, scheduler_2, 4)
    for p, q in zip(params, resumed, strict=True):
        assert p.data.numpy().tobytes() == q.data.numpy().tobytes()
    assert optimizer_2.param_groups[0]["betas"] == (0.9, 0.999)


# Other libraries


def test_other_libraries_read_our_files(tmp_path):
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    state = {
        "layer.weight": mytorch.Tensor(weight.T),
        "layer.bias": mytorch.Tensor([1.0]),
        "step": mytorch.tensor(3),
    }
    mytorch.save(state, tmp_path / "file")
    theirs = safetensors.torch.load_file(tmp_path / "file")
    assert set(theirs) == set(state)
    np.testing.assert_array_equal(theirs["layer.weight"].numpy(), weight.T)
    assert theirs["step"].dtype == torch.int64 and theirs["step"].shape == ()
    mytorch.save(
        {"model": state, "optimizer": {"state": {0: {"exp_avg": mytorch.Tensor([1.0])}}}}, tmp_path / "file"
    )
    assert set(safetensors.numpy.load_file(tmp_path / "file")) == {
        "model.layer.weight", "model.layer.bias", "model.step", "optimizer.state.0.exp_avg",
    }


def test_we_read_files_of_other_libraries(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    safetensors.torch.save_file(model.state_dict(), tmp_path / "file")
    ours = mytorch.load(tmp_path / "file")
    assert set(ours) == set(model.state_dict())
    for name, value in model.state_dict().items():
        assert isinstance(ours[name], mytorch.Tensor) and ours[name].shape == tuple(value.shape)
        assert str(ours[name].dtype) == str(value.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(ours[name].numpy(), value.numpy())


def tied_model():
    model = torch.nn.ModuleDict(
        {"embedding": torch.nn.Embedding(5, 4), "head": torch.nn.Linear(4, 5, bias=False)}
    )
    model["head"].weight = model["embedding"].weight
    return model


def test_tied_weights_are_exchanged_with_pytorch(tmp_path):
    model = tied_model()
    safetensors.torch.save_model(model, tmp_path / "theirs")
    ours = mytorch.load(tmp_path / "theirs")
    assert set(ours) == {"embedding.weight", "head.weight"}
    assert np.shares_memory(ours["embedding.weight"].numpy(), ours["head.weight"].numpy())
    ours["head.weight"].fill_(7)
    mytorch.save(ours, tmp_path / "ours")
    with safetensors.safe_open(tmp_path / "ours", "np") as file:
        stored, (alias,) = list(file.keys()), {"embedding.weight", "head.weight"} - set(file.keys())
        assert [file.metadata()[alias]] == stored  # as safetensors writes it
    safetensors.torch.load_model(model, tmp_path / "ours")
    assert model["embedding"].weight.unique().tolist() == [7]


# Devices


def test_devices(fake_cuda, tmp_path):
    x = mytorch.Tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda:1")
    mytorch.save(
        {"x": x, "a": x.data, "t": x.detach().T, "tied": x, "n": np.ones(2), "s": np.float32(2)},
        tmp_path / "file",
    )
    here = mytorch.load(tmp_path / "file")
    assert {here[k].device for k in ("x", "a", "t", "tied")} == {"cpu"}
    assert here["t"].tolist() == [[1, 3], [2, 4]]
    there = mytorch.load(tmp_path / "file", map_location="cuda:0")
    assert {there[k].device for k in ("x", "a", "t", "tied")} == {"cuda:0"}
    assert type(there["n"]) is np.ndarray and type(there["s"]) is np.float32
    with pytest.raises(RuntimeError, match="'tpu'"):
        mytorch.load(tmp_path / "file", "tpu")


# What can't be saved

Point = namedtuple("Point", "x y")
loop = {"a": []}
loop["a"].append(loop)


class Model:
    def state_dict(self):
        return {}


UNSUPPORTED = {
    "function": (
        TypeError,
        {"state": {"0": {"f": len}}},
        r"obj\['state'\]\['0'\]\['f'\]: can't save a builtin_",
    ),
    "set": (TypeError, [1, {2}], r"obj\[1\]: can't save a set"),
    "itself": (TypeError, object(), "can't save a object"),
    "module": (TypeError, Model(), r"can't save a Model; save its state_dict\(\)"),
    "model": (TypeError, {"model": Model()}, r"obj\['model'\]: can't save a Model; save its state_dict\(\)"),
    "named tuple": (TypeError, {"p": Point(1, 2)}, r"obj\['p'\]: can't save a Point"),
    "bytes": (TypeError, (b"x",), r"obj\[0\]: can't save a bytes"),
    "key": (TypeError, {"a": {(1, 2): 3}}, r"obj\['a'\]: can't save a dict with a tuple as key: \(1, 2\)"),
    "complex128": (
        TypeError,
        {3: np.ones(2, "complex128")},
        r"obj\[3\]: can't save an array of dtype complex128",
    ),
    "objects": (TypeError, np.array([None]), "can't save an array of dtype object"),
    "dates": (TypeError, [np.datetime64("2020-01-01")], r"obj\[0\]: can't save an array of dtype datetime64"),
    "loop": (ValueError, loop, r"obj\['a'\]\[0\]: can't save a dict that contains itself"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_cannot_be_saved(name, tmp_path):
    error, obj, message = UNSUPPORTED[name]
    with pytest.raises(error, match=f"^{message}"):
        mytorch.save(obj, tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_the_same_list_twice_is_no_loop(tmp_path):
    part = [1]
    assert round_trip([part, part], tmp_path / "file") == [[1], [1]]


def test_too_much_that_is_no_tensor(tmp_path, monkeypatch):
    mytorch.save("old", tmp_path / "file")
    monkeypatch.setattr(mytorch.utils.safetensors_file, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match=r"can't save 1,\d+ bytes .*, the limit is 1,000"):
        mytorch.save("x" * 1000, tmp_path / "file")
    assert mytorch.load(tmp_path / "file") == "old" and os.listdir(tmp_path) == ["file"]


# What can't be loaded


def header(**entries):
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def ours(obj, version=1):
    return header(__metadata__={"mytorch": json.dumps({"version": version, "object": obj})})


good = safetensors.numpy.save({"a": np.ones(3)})
DAMAGED = {
    "empty": (b"", "is not a safetensors file"),
    "text": (b"hello, this is text", "is not a safetensors file"),
    "truncated": (good[:-1], "truncated or damaged"),
    "truncated header": (good[:40], "truncated or damaged"),
    "longer": (good + b"x", "truncated or damaged"),
    "zip": (b"PK\x03\x04" + bytes(100), "is a pickle, as torch.save writes it"),
    "pickle": (b"\x80\x02}q\x00." + bytes(100), "is a pickle"),
    "float8": (
        safetensors.torch.save({"w": torch.ones(2).to(torch.float8_e4m3fn)}),
        "tensor 'w' has dtype F8_E4M3, which is not supported; supported are float64, float32, float16",
    ),
    "no tensor": (ours({"$tensor": "a"}), "tensor 'a' is missing"),
    "unknown kind": (ours({"$code": "print(1)"}), r"unknown kind '\$code'"),
    "version": (ours(1, version=2), "its format has version 2, expected version 1"),
    "no JSON": (header(__metadata__={"mytorch": "{"}), "its header is damaged"),
    "no object": (header(__metadata__={"mytorch": "{}"}), "its header is damaged"),
    "wrong kind of entry": (ours({"$dict": 3}), "its header is damaged"),
    "wrong pairs": (ours({"$dict": [[1, 2, 3]]}), "expected pairs of keys and values"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_cannot_be_loaded(name, tmp_path):
    content, message = DAMAGED[name]
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        mytorch.load(tmp_path / "file")
    assert str(tmp_path / "file") in str(error.value)


def test_files_of_torch_save_are_not_unpickled(tmp_path):
    for new in (True, False):
        torch.save({"a": torch.ones(2)}, tmp_path / "file.pt", _use_new_zipfile_serialization=new)
        with pytest.raises(
            ValueError, match="is a pickle, .* save the tensors with safetensors.torch.save_file"
        ):
            mytorch.load(tmp_path / "file.pt")


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="can't load .*missing: no such file"):
        mytorch.load(tmp_path / "missing")
    with pytest.raises(IsADirectoryError, match="can't load"):
        mytorch.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="folder .*missing does not exist"):
        mytorch.save(1, tmp_path / "missing" / "file")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        mytorch.save(1, tmp_path)
    for call in (lambda: mytorch.save(1, 3), lambda: mytorch.load(None)):
        with pytest.raises(TypeError, match="expected a path or a file, got"):
            call()


# Whole or not there


def test_an_error_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    mytorch.save("old", tmp_path / "file")

    def fail_half_way(file, arrays, metadata):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(mytorch.serialization, "write_safetensors", fail_half_way)
    with pytest.raises(OSError, match="can't write .*file: no space left on device"):
        mytorch.save("new", tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]
    assert mytorch.load(tmp_path / "file") == "old"


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_kill_leaves_the_old_file(tmp_path, moment):
    mytorch.save({"x": mytorch.Tensor([1.0])}, tmp_path / "file")
    code = f"""
        import os, signal, sys
        sys.path.insert(0, {str(ROOT)!r})
        import mytorch
        os.{moment} = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
        mytorch.save({{"x": mytorch.Tensor([2.0])}}, {str(tmp_path / "file")!r})
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert mytorch.load(tmp_path / "file")["x"].tolist() == [1]
    mytorch.save({"x": mytorch.Tensor([3.0])}, tmp_path / "file")
    assert mytorch.load(tmp_path / "file")["x"].tolist() == [3]


def test_atomic_write(tmp_path):
    path = tmp_path / "file.json"
    with atomic_write(path) as file:
        file.write_text("first")
        assert not path.exists() and file.parent == tmp_path
    assert path.read_text() == "first"
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as file:
        file.write_text("sec")
        raise KeyboardInterrupt
    assert path.read_text() == "first" and os.listdir(tmp_path) == ["file.json"]
    with atomic_write(str(path)) as outer, atomic_write(path) as inner:  # two at once: the last one wins
        outer.write_text("outer")
        inner.write_text("inner")
    assert path.read_text() == "outer"


def test_the_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "plain").write_text("")
    mytorch.save(1, tmp_path / "file")
    assert os.stat(tmp_path / "file").st_mode == os.stat(tmp_path / "plain").st_mode


def test_the_library_safetensors_is_not_needed():
    code = "import io, sys, mytorch; mytorch.save(1, io.BytesIO()); assert 'safetensors' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


# Damage that a header may hide


def deep(levels):
    return "[" * levels + "]" * levels


def raw_header(text):
    return len(text.encode()).to_bytes(8, "little") + text.encode()


ENTRY = '{"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}'
CRAFTED = {  # the file: what is said
    "a name twice": (raw_header(f'{{"a": {ENTRY}, "a": {ENTRY}}}') + b"x", "the key 'a' occurs twice"),
    "metadata twice": (raw_header('{"__metadata__": {"a": "", "a": ""}}'), "the key 'a' occurs twice"),
    "a key of ours twice": (
        header(__metadata__={"mytorch": '{"version": 1, "object": {"a": 1, "a": 2}}'}),
        "the key 'a' occurs twice",
    ),
    "no characters": (raw_header('{"__metadata__": {"a": "\\ud800"}}'), "half of a surrogate pair"),
    "no characters but bytes": (raw_header('{"__metadata__": {"a": "\\udc80"}}'), "surrogates not allowed"),
    "a dict's key twice": (ours({"$dict": [[1, 2], [1, 3]]}), "a dict has a key twice"),
    "deep header": (raw_header('{"a": ' + deep(100_000) + "}"), "nested too deeply"),
    "deep metadata": (header(__metadata__={"mytorch": deep(100_000)}), "nested too deeply"),
    "deep object": (ours(json.loads(deep(400))), "nested too deeply, the limit is 200"),
    "infinity": (header(__metadata__={"mytorch": '{"version": 1, "object": Infinity}'}), "Infinity is no"),
    "too large": (header(__metadata__={"mytorch": '{"version": 1, "object": 1e999}'}), "1e999 is too large"),
    "not UTF-8": (raw_header("{}")[:8] + b"{\xff", "damaged"),
    "metadata of numbers": (header(__metadata__={"mytorch": 1}), "must be an object of strings"),
    "metadata no object": (header(__metadata__=[]), "must be an object of strings"),
    "an entry no object": (header(a=3), "'a' has no dtype, shape and data_offsets"),
    "an entry without shape": (header(a={"dtype": "F32", "data_offsets": [0, 0]}), "'a' has no dtype, shape"),
    "three offsets": (header(a={"dtype": "U8", "shape": [], "data_offsets": [0, 1, 2]}), "has no dtype"),
    "shape": (header(a={"dtype": "U8", "shape": "1", "data_offsets": [0, 1]}) + b"x", "'a' has shape '1'"),
    "dims": (header(a={"dtype": "U8", "shape": [-1, -1], "data_offsets": [0, 1]}) + b"x", "has shape"),
    "bool dims": (header(a={"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}) + b"x", "has shape"),
    "huge dims": (header(a={"dtype": "U8", "shape": [0, 10**30], "data_offsets": [0, 0]}), "has shape"),
    "70 dims": (header(a={"dtype": "U8", "shape": [1] * 70, "data_offsets": [0, 1]}) + b"x", "dimension"),
    "dtype": (header(a={"dtype": ["F32"], "shape": [], "data_offsets": [0, 0]}), "'a' has dtype"),
    "negative": (header(a={"dtype": "U8", "shape": [1], "data_offsets": [-1, 0]}) + b"x", "data_offsets"),
    "backwards": (header(a={"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}) + b"x", "data_offsets"),
    "size": (header(a={"dtype": "F32", "shape": [1], "data_offsets": [0, 1]}) + b"x", "has 4 bytes, the"),
    "shared": (
        header(**{name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]} for name in "ab"}) + b"x",
        "ends at byte 1 of 1, the next one begins at 0",
    ),
    "a gap": (
        header(a={"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}) + b"xx", "ends at byte 0 of 2, the"
    ),
    "beyond the end": (header(a={"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}), "byte 9 of 0"),
    "a bool of 2": (
        header(a={"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}) + b"\x02", "a bool is 2, expected"
    ),
    "a scalar with a shape": (
        header(
            a={"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            __metadata__={"mytorch": '{"version": 1, "object": {"$scalar": "a"}}'},
        ) + b"x",
        r"has shape \(1,\), expected a scalar",
    ),
    "a name no text": (ours({"$tensor": ["a"]}), "its header is damaged"),
    "a tuple of text": (ours({"$tuple": "abc"}), "expected a list, got str"),
    "a float of a list": (ours({"$float": []}), "its header is damaged"),
    "a complex of text": (ours({"$complex": ["a", "b"]}), "its header is damaged"),
    "a large complex": (ours({"$complex": [10**400, 0]}), "its header is damaged"),
    "a list as key": (ours({"$dict": [[[1], 2]]}), "its header is damaged"),
    "object a list": (header(__metadata__={"mytorch": "[1]"}), "its header is damaged"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_what_a_header_may_hide(name, tmp_path):
    content, message = CRAFTED[name]
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        mytorch.load(tmp_path / "file")
    assert str(tmp_path / "file") in str(error.value)


def test_objects_that_are_nested_too_deeply(tmp_path):
    for levels in (300, 100_000):
        obj = []
        for _ in range(levels):
            obj = [obj]
        with pytest.raises(ValueError, match="it is nested too deeply"):
            mytorch.save(obj, tmp_path / "file")
    assert os.listdir(tmp_path) == []
    nested = mytorch.Tensor([1.0])
    for _ in range(60):
        nested = {"a": (nested,)}
    same(round_trip(nested, tmp_path / "file"), nested)


# Memory and files


LITTLE_MEMORY = """
import io, pathlib, resource, sys
import mytorch
path, size = pathlib.Path(sys.argv[1]), 400 << 20
x = mytorch.zeros(size, dtype="uint8") if sys.argv[2] == "save" else None
if x is None:
    text = '{"x": {"dtype": "U8", "shape": [%d], "data_offsets": [0, %d]}}' % (size, size)
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode())
    with open(path, "r+b") as file:  # without its data: the file takes no room
        file.truncate(8 + len(text) + size)
taken = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (100 << 20), -1))
try:
    if x is None:
        mytorch.load(path if sys.argv[2] == "load" else open(path, "rb"))
    else:
        mytorch.save(x, io.BytesIO())
except MemoryError as error:
    print("MemoryError", error)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits memory by Linux's means")
@pytest.mark.parametrize("mode", ["load", "load an open file", "save"])
def test_a_tensor_that_does_not_fit_in_memory(tmp_path, mode):
    done = subprocess.run(
        [sys.executable, "-c", LITTLE_MEMORY, tmp_path / "file", mode], cwd=ROOT, capture_output=True,
        text=True, timeout=120,
    )
    assert done.stdout.startswith("MemoryError") and done.stderr == "", done.stdout + done.stderr
    if mode == "load":
        assert f"can't load {tmp_path / 'file'}: no memory for tensor 'x' of 419,430,400" in done.stdout


def test_the_files_are_those_of_the_library(tmp_path):
    """The same bytes, but for the metadata."""
    arrays = {
        "b": np.arange(3.0), "a": np.ones((2, 1), np.float32), "ä": np.array(3, np.int16),
        "z": np.zeros((0, 3)), "k": np.array([True]), "s": np.ones(1, np.float16),
    }
    mytorch.utils.safetensors_file.write_safetensors(file := io.BytesIO(), arrays, {"a": "ü"})
    assert file.getvalue() == safetensors.numpy.save(arrays, {"a": "ü"})


def test_a_file_that_is_replaced_while_it_is_read(tmp_path, monkeypatch):
    """What was opened is read to its end."""
    mytorch.save({"a": mytorch.full((1000,), 1.0), "b": mytorch.full((1000,), 1.0)}, tmp_path / "file")
    read = mytorch.utils.safetensors_file.SafetensorsFile.read

    def read_and_replace(file, name):
        mytorch.save({"other": mytorch.full((5,), 2.0)}, tmp_path / "file")
        return read(file, name)

    monkeypatch.setattr(mytorch.utils.safetensors_file.SafetensorsFile, "read", read_and_replace)
    got = mytorch.load(tmp_path / "file")
    assert every(got[name].tolist() == [1.0] * 1000 for name in "ab")


def test_a_file_that_is_cut_while_it_is_read(tmp_path, monkeypatch):
    mytorch.save({"a": mytorch.ones(100_000)}, tmp_path / "file")
    empty = np.empty

    def cut(*args):
        os.truncate(tmp_path / "file", 1000)
        return empty(*args)

    monkeypatch.setattr(mytorch.utils.safetensors_file.np, "empty", cut)
    with pytest.raises(ValueError, match="can't load .*file: tensor 'a' is truncated"):
        mytorch.load(tmp_path / "file")
