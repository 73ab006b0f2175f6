"""Whatever happens to a checkpoint's files or to their place: it is said, and nothing good is lost."""

import json
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import mytorch
from mytorch import nn, optim
from mytorch.accelerate import Accelerator, CheckpointError, checkpoint
from tests.accelerate.test_checkpoint import FILES, begin, run
from tests.distributed.launched import ROOT, surroundings
from tests.every import every


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder in which a run was saved after steps 1, 2 and 3."""
    folder, parts = tmp_path_factory.mktemp("saved"), begin()
    run(parts, 3, lambda: parts[0].save_state(folder, keep_last=3))
    return folder


@pytest.fixture
def three(tmp_path, saved):
    """The accelerator of that run, and a copy of the folder in tmp_path."""
    parts = begin()
    run(parts, 3)
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    return parts[0]


def step_in(folder):
    return mytorch.load(folder / "custom_checkpoint.bin")["step"]


def truncate(path):
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 7)


def flip(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def make_folder(path):
    path.unlink()
    path.mkdir()


DAMAGE = {  # what is done to a file: what is said of it
    "truncated": (truncate, "bytes instead of"),
    "emptied": (lambda path: path.write_bytes(b""), "has 0 bytes instead of"),
    "one bit": (flip, "was altered"),
    "removed": (Path.unlink, "is missing"),
    "a folder": (make_folder, "it is a folder"),
    "a FIFO": (lambda path: (path.unlink(), os.mkfifo(path)), "it is a FIFO"),
    "a link to nothing": (lambda path: (path.unlink(), path.symlink_to("nothing")), "is missing"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", sorted(FILES - {"manifest.json"}))
def test_damage_is_refused_by_name_and_a_good_one_offered(tmp_path, three, name, kind):
    damage, text = DAMAGE[kind]
    damage(tmp_path / "checkpoint_2" / name)
    before = [p.data.numpy().copy() for p in three._models[0].parameters()]
    for asked in (tmp_path, tmp_path / "checkpoint_2"):
        with pytest.raises(CheckpointError, match=rf"checkpoint_2: {name}.*{text}.*good.*checkpoint_1"):
            three.load_state(asked)
    after = [p.data.numpy() for p in three._models[0].parameters()]
    assert every((a == b).all() for a, b in zip(before, after, strict=True))
    assert three.load_state(tmp_path / "checkpoint_1") == str(tmp_path / "checkpoint_1")


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_of_another_checkpoint_is_refused(tmp_path, three, name):
    """The content of accelerator.bin is the same in both; of a manifest, the first file isn't its own."""
    path, older = (tmp_path / f"checkpoint_{i}" / name for i in (2, 1))
    own = path.read_bytes()
    path.write_bytes(older.read_bytes())
    named = "model.safetensors" if name == "manifest.json" else name
    with pytest.raises(CheckpointError, match=rf"checkpoint_2: {named} .*good.*checkpoint_1"):
        three.load_state(tmp_path)
    path.write_bytes(own)
    assert three.load_state(tmp_path).endswith("checkpoint_2")


def test_random_states_that_did_not_change_are_of_their_checkpoint(tmp_path):
    model = nn.Linear(2, 1)
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, optim.SGD(model.parameters(), lr=0.1))
    for step in range(2):
        accelerator.save_state(tmp_path / str(step))
        accelerator.backward(model(mytorch.ones(1, 2)).sum())
        optimizer.step()
    for name in ("accelerator.bin", "random_states.bin", "sampler.bin"):
        path = tmp_path / "1" / name
        own = path.read_bytes()
        path.write_bytes((tmp_path / "0" / name).read_bytes())
        with pytest.raises(CheckpointError, match=f"1: {name} was altered"):
            accelerator.load_state(path.parent)
        path.write_bytes(own)


@pytest.mark.parametrize("name", ["optimizer_1.bin", "model_1.safetensors", "custom_checkpoint_12.bin"])
def test_a_part_that_the_manifest_lacks_is_refused(tmp_path, three, name):
    folder = tmp_path / "checkpoint_2"
    shutil.copy(folder / "optimizer.bin", folder / name)
    with pytest.raises(CheckpointError, match=rf"checkpoint_2: {name} is of another.*good.*checkpoint_1"):
        three.load_state(tmp_path)
    (folder / name).rename(folder / "notes.txt")  # a file of the user
    assert three.load_state(tmp_path) == str(folder)


MANIFESTS = {  # what is in manifest.json: what is said
    "{": "is damaged",
    "[]": "is damaged",
    "[" * 100_000: "is damaged",
    '{"version": 1, "version": 1, "files": {}}': "the key 'version' occurs twice",
    '{"version": 1, "files": {}}': "accelerator.bin is not in manifest.json",
    **{
        f'{{"version": 1, "files": {{"a": {{"bytes": {size}, "blake2b": ""}}}}}}': "is damaged"
        for size in ("Infinity", "NaN", "1e999", "-1", "true", "1.0", '"1"', "[]")
    },
    '{"version": 1, "files": {"a": {"bytes": 1, "blake2b": 1}}}': "is damaged",
    "\udcff": "is damaged",
    '{"version": 1}': "is damaged",
    '{"version": 1, "files": []}': "is damaged",
    '{"version": 1, "files": {"a": 1}}': "is damaged",
    '{"version": 1, "files": {"a": {"bytes": null, "blake2b": ""}}}': "is damaged",
    '{"version": 2, "files": {}}': "it has version 2, this mytorch reads version 1",
    **{
        json.dumps({"version": 1, "files": {name: {"bytes": 0, "blake2b": ""}}}): f"{name!r} is no name of"
        for name in ("../x", "/etc/hostname", "a/../b", "..", "", "manifest.json")
    },
}


@pytest.mark.parametrize("text", MANIFESTS, ids=lambda text: text[:60].encode("ascii", "replace").decode())
def test_a_bad_manifest(tmp_path, three, text):
    path = tmp_path / "checkpoint_2/manifest.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError) as raised:
        three.load_state(tmp_path)
    assert MANIFESTS[text] in str(raised.value) and str(raised.value).endswith("checkpoint_1")


def test_a_missing_manifest(tmp_path, three):
    (tmp_path / "checkpoint_2/manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"manifest.json is missing.*good.*checkpoint_1"):
        three.load_state(tmp_path)
    (tmp_path / "checkpoint_2").rename(tmp_path / "alone")
    with pytest.raises(CheckpointError, match="alone: manifest.json is missing"):
        three.load_state(tmp_path / "alone")


def test_each_bit_of_the_manifest_matters(tmp_path, three):
    path = tmp_path / "checkpoint_2/manifest.json"
    whole = path.read_bytes()
    rng = random.Random(0)
    for bit in [*range(8 * 60), *rng.sample(range(8 * 60, 8 * len(whole)), 200)]:
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        assert checkpoint.find_problem(path.parent), f"bit {bit}"


def edited(folder, target, **files):
    """A checkpoint like another one but for some files."""
    checkpoint.write(target, {**checkpoint.read(folder), **files})
    return target


def changed(name, *keys):
    """Returns a function that returns a file's content with the item under `keys` replaced; None deletes."""

    def change(content, value):
        inner = content
        for key in keys[:-1]:
            inner = inner[key]
        if value is None:
            del inner[keys[-1]]
        else:
            inner[keys[-1]] = value
        return content

    return name, change


def whole(name):
    return name, lambda content, value: value


STEP = changed("accelerator.bin", "step")
CLASSES = changed("accelerator.bin", "classes")
NUMPY = changed("random_states.bin", 0, "numpy")
POSITION = changed("random_states.bin", 0, "numpy", "state", "pos")
GROUP = changed("optimizer.bin", "param_groups", 0)
MOMENT = changed("optimizer.bin", "state", 0, "exp_avg")
OPTIMIZER_STEP = changed("optimizer.bin", "state", 0, "step")
WEIGHT = changed("model.safetensors", "0.weight")
LOADER = changed("sampler.bin", 0, 0, "batches")
CRAFTED = [  # a file, what is in it; the manifest fits
    (STEP, -1), (STEP, "3"), (STEP, 1.5), (STEP, True), (STEP, None), (STEP, [3]), (CLASSES, []),
    (CLASSES, {"optimizer": "AdamW", "scheduler": []}), (CLASSES, {"optimizer": [1], "scheduler": []}),
    (changed("accelerator.bin", "num_processes"), 0), (changed("accelerator.bin", "num_processes"), "1"),
    (changed("sampler.bin", 0), {}), (changed("sampler.bin", 0, 0), 3), (changed("sampler.bin", 0, 0), {}),
    (changed("sampler.bin", 0, 0, "epoch"), "a"), (changed("sampler.bin", 0, 0, "streams"), 1),
    (LOADER, -1), (LOADER, "1"), (LOADER, None), (LOADER, 1.5),
    (changed("random_states.bin", 0), []), (changed("random_states.bin", 0, "python"), 3),
    (changed("random_states.bin", 0, "python"), (3, (1, 2), None)), (NUMPY, {}), (NUMPY, []), (POSITION, -1),
    (POSITION, 10**6), (POSITION, 10**30), (POSITION, "1"), (changed("random_states.bin", 0, "mytorch"), []),
    (changed("random_states.bin", 0, "numpy", "bit_generator"), "PCG64"),
    (changed("random_states.bin", 0, "numpy", "state", "key"), mytorch.ones(3).numpy()),
    (changed("random_states.bin", 0, "mytorch", "cpu"), mytorch.ones(3)),
    (changed("random_states.bin", 0, "mytorch", "cpu"), mytorch.ones(3, dtype="uint8")),
    (GROUP, []), (GROUP, {}), (changed("optimizer.bin", "param_groups", 0, "params"), 3),
    (changed("optimizer.bin", "param_groups", 0, "lr"), "a"), (changed("optimizer.bin", "state", 0), []),
    (changed("optimizer.bin", "state"), [1]), (changed("optimizer.bin", "param_groups"), {}),
    (MOMENT, mytorch.ones(3)), (MOMENT, "a"), (MOMENT, None), (MOMENT, [1.0]),
    (OPTIMIZER_STEP, -1), (OPTIMIZER_STEP, "a"), (OPTIMIZER_STEP, mytorch.tensor(-1.0)),
    (WEIGHT, mytorch.ones(3)), (WEIGHT, "a"), (WEIGHT, None), (WEIGHT, 3),
    (changed("scheduler.bin", "last_epoch"), "a"), (changed("scheduler.bin", "last_epoch"), -5),
    *((whole(name), value) for name in sorted(FILES - {"manifest.json"}) for value in ([], "a", 3, {}, [[]])),
]


@pytest.fixture(scope="module")
def losses_from_2(saved):
    """Those of a run that starts with checkpoint 2."""
    fresh = begin()
    fresh[0].load_state(saved / "checkpoint_2")
    return run(fresh, 6)


@pytest.mark.filterwarnings("ignore:passed over")
@pytest.mark.parametrize(
    "part, value", CRAFTED, ids=[f"{part[0]} {i}" for i, (part, _) in enumerate(CRAFTED)]
)
def test_a_part_of_wrong_content(tmp_path, saved, losses_from_2, part, value):
    """One error names the file; the last good one passes over it, and all is as in that one."""
    name, change = part
    parts = begin()
    run(parts, 3)
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    content = change(mytorch.load(tmp_path / "checkpoint_2" / name), value)
    edited(tmp_path / "checkpoint_2", tmp_path / "checkpoint_3", **{name: content})
    with pytest.raises((ValueError, RuntimeError), match=f"checkpoint_3.*{name}"):
        parts[0].load_state(tmp_path / "checkpoint_3")
    assert parts[0].load_state(tmp_path, last_good=True) == str(tmp_path / "checkpoint_2")
    assert run(parts, 6) == losses_from_2


SCALER = [("scale", "a"), ("scale", 0.0), ("growth_factor", None), ("growth_interval", []),
          ("_growth_tracker", -1), ("_growth_tracker", "1")]
MIXED = [
    {"precision": 16}, {"scaler": []}, {"scaler": {}}, {"float32_weights": []}, {"float32_weights": {}},
    {"float32_weights": [{"0": "a"}]}, {"float32_weights": [{"0": mytorch.ones(3)}]},
    *({"scaler": setting} for setting in SCALER),
]


@pytest.mark.filterwarnings("ignore:passed over")
@pytest.mark.parametrize("change", MIXED, ids=[str(i) for i in range(len(MIXED))])
def test_mixed_precision_of_wrong_content(tmp_path, change):
    parts = begin("fp16")
    run(parts, 2, lambda: parts[0].save_state(tmp_path, keep_last=3))
    content = mytorch.load(tmp_path / "checkpoint_1/mp_config.bin")
    if isinstance(change.get("scaler"), tuple):
        change = {"scaler": {**content["scaler"], change["scaler"][0]: change["scaler"][1]}}
    edited(tmp_path / "checkpoint_1", tmp_path / "checkpoint_2", **{"mp_config.bin": {**content, **change}})
    with pytest.raises((ValueError, RuntimeError), match="checkpoint_2.*mp_config.bin"):
        parts[0].load_state(tmp_path / "checkpoint_2")
    assert parts[0].load_state(tmp_path, last_good=True) == str(tmp_path / "checkpoint_1")


# Which one is taken.


def test_the_last_good_one(tmp_path, three):
    flip(tmp_path / "checkpoint_2/optimizer.bin")
    with pytest.warns(UserWarning, match=r"passed over.*checkpoint_2: optimizer.bin was altered"):
        assert three.load_state(tmp_path, last_good=True) == str(tmp_path / "checkpoint_1")
    assert three._custom[0].step == 2
    three.save_state(tmp_path, keep_last=1)  # one after the damaged one, which then isn't needed
    assert os.listdir(tmp_path) == ["checkpoint_3"]
    assert three.load_state(tmp_path, last_good=True) == str(tmp_path / "checkpoint_3")


def test_keep_last_counts_good_ones(tmp_path, three):
    """A damaged one neither takes the place of a good one nor is deleted before it would be by its age."""
    flip(tmp_path / "checkpoint_2/optimizer.bin")
    truncate(tmp_path / "checkpoint_1/model.safetensors")
    three.save_state(tmp_path, keep_last=2)  # good are 3 and 0
    assert sorted(os.listdir(tmp_path)) == [f"checkpoint_{i}" for i in range(4)]
    three.save_state(tmp_path, keep_last=2)  # good are 4 and 3
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_3", "checkpoint_4"]
    os.rename(tmp_path / "checkpoint_4/manifest.json", tmp_path / "checkpoint_4/other.json")
    three.save_state(tmp_path, keep_last=2, asynchronous=True)
    three.wait_for_checkpoint()
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_3", "checkpoint_4", "checkpoint_5"]
    with pytest.warns(UserWarning, match="passed over .*checkpoint_5"):
        flip(tmp_path / "checkpoint_5/optimizer.bin")
        assert three.load_state(tmp_path, last_good=True) == str(tmp_path / "checkpoint_3")


def test_a_checkpoint_that_is_replaced_while_it_is_read(tmp_path, three, monkeypatch):
    """The new one is read, not a mixture of both."""
    load_open, replaced = checkpoint.load_open, []

    def load_and_replace(file, *args, **kwargs):
        content = load_open(file, *args, **kwargs)
        if not replaced:
            replaced.append(True)
            checkpoint.write(tmp_path / "checkpoint_0", files)
        return content

    files = checkpoint.read(tmp_path / "checkpoint_2")
    monkeypatch.setattr(checkpoint, "load_open", load_and_replace)
    found = checkpoint.read(tmp_path / "checkpoint_0")
    assert replaced and found["custom_checkpoint.bin"] == {"step": 3}
    assert found["model.safetensors"]["0.weight"].tolist() == files["model.safetensors"]["0.weight"].tolist()


@pytest.mark.filterwarnings("ignore:passed over")
def test_no_memory_is_no_damage(tmp_path, three, monkeypatch):
    def no_memory(*args, **kwargs):
        raise MemoryError("no memory for tensor 'x'")

    monkeypatch.setattr(checkpoint, "load_open", no_memory)
    with pytest.raises(MemoryError):
        three.load_state(tmp_path, last_good=True)


def test_the_last_good_one_if_all_are_damaged(tmp_path, three):
    for i in range(3):
        truncate(tmp_path / f"checkpoint_{i}/model.safetensors")
    with pytest.raises(CheckpointError, match=r"no valid checkpoint found .*_2: model.*_1: model.*_0: model"):
        three.load_state(tmp_path, last_good=True)
    assert three._custom[0].step == 3


def test_the_last_good_one_if_there_is_none(tmp_path, three):
    folder = tmp_path / "new"
    assert three.load_state(folder, last_good=True) is None
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("{}")
    (folder / ".checkpoint_0.abcd.partial").mkdir()
    assert three.load_state(folder, last_good=True) is None
    with pytest.raises(CheckpointError, match="no checkpoint found in .*new"):
        three.load_state(folder)
    assert three._custom[0].step == 3


def test_the_one_before_waits_beside_a_folder_that_is_saved_again(tmp_path, three):
    three.save_state(tmp_path / "c")
    (tmp_path / "checkpoint_1").rename(tmp_path / "c.previous")  # as a kill after both renames leaves it
    flip(tmp_path / "c/sampler.bin")
    with pytest.raises(CheckpointError, match=r"c: sampler.bin was altered.*good checkpoint is .*c.previous"):
        three.load_state(tmp_path / "c")
    with pytest.warns(UserWarning, match="sampler.bin"):
        assert three.load_state(tmp_path / "c", last_good=True) == str(tmp_path / "c.previous")


# Where it is written.


def foreign(folder):
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")


def a_file(folder):
    folder.write_text("years of work")


def checkpoints_in_it(folder):
    begin()[0].save_state(folder, keep_last=2)


def current_folder(folder):
    folder.mkdir()
    os.chdir(folder)


TAKEN = {  # what is there: what is said
    "other files": (foreign, r"other files in it would be deleted \(thesis.tex\)"),
    "a file": (a_file, "it is a file"),
    "checkpoints": (checkpoints_in_it, r"would be deleted \(checkpoint_0\)"),
    "the current folder": (current_folder, "it is the current folder"),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_nothing_else_is_deleted(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    make, text = TAKEN[kind]
    make(tmp_path / "c")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FileExistsError, match=text):
        begin()[0].save_state(tmp_path / "c")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_one_is_replaced(tmp_path, three):
    (tmp_path / "checkpoint_1/manifest.json").unlink()
    (tmp_path / "checkpoint_1/model.safetensors").write_bytes(b"")
    three.save_state(tmp_path / "checkpoint_1")
    assert step_in(tmp_path / "checkpoint_1") == 3 and not checkpoint.find_problem(tmp_path / "checkpoint_1")


def test_a_row_of_checkpoints_is_not_put_into_one(tmp_path, three):
    with pytest.raises(FileExistsError, match="checkpoint_1: it is one itself"):
        three.save_state(tmp_path / "checkpoint_1", keep_last=2)


def test_a_link_stays_a_link(tmp_path, three):
    (tmp_path / "latest").symlink_to(tmp_path / "checkpoint_0")
    three.save_state(tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink() and step_in(tmp_path / "checkpoint_0") == 3
    assert three.load_state(tmp_path / "latest") == str(tmp_path / "latest")
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_0", "checkpoint_1", "checkpoint_2", "latest"]


def test_two_runs_that_save_into_one_folder(tmp_path, monkeypatch):
    """The second is told; what the first has written, and what either is writing, isn't deleted."""
    one, other = begin(), begin()
    run(other, 2)
    real, is_writing, may_go_on = checkpoint.save, threading.Event(), threading.Event()

    def late(obj, path):
        if threading.current_thread() is not threading.main_thread():
            is_writing.set()
            may_go_on.wait()
        real(obj, path)

    monkeypatch.setattr(checkpoint, "save", late)
    one[0].save_state(tmp_path, keep_last=1, asynchronous=True)
    assert is_writing.wait(100)
    with pytest.warns(UserWarning, match="was not written"):
        try:
            other[0].save_state(tmp_path, keep_last=1)
            assert len(list(tmp_path.glob(".checkpoint_0.*.partial"))) == 1
        finally:
            may_go_on.set()
        with pytest.raises(FileExistsError, match="does another run save into"):
            one[0].wait_for_checkpoint()
    assert os.listdir(tmp_path) == ["checkpoint_0"] and step_in(tmp_path / "checkpoint_0") == 2


FULL = """
import resource, sys
from tests.accelerate.test_checkpoint import begin, run
parts = begin()
run(parts, 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
try:
    parts[0].save_state(sys.argv[1], keep_last=1, asynchronous=sys.argv[3] == "True")
    parts[0].end_training()
except OSError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("room, asynchronous", [(100, True), (1000, False)])
def test_a_disk_that_is_full(tmp_path, three, room, asynchronous):
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path, str(room), str(asynchronous)], cwd=ROOT, text=True,
        env=surroundings(), capture_output=True, timeout=300,
    )
    assert done.returncode == 0 and "too large" in done.stdout, done.stdout + done.stderr
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
    assert three.load_state(tmp_path) == str(tmp_path / "checkpoint_2")


# What it is of.


def test_another_optimizer_or_schedule_is_refused(tmp_path):
    def make(optimizer, schedule):
        accelerator, model = Accelerator(cpu=True), nn.Linear(2, 2)
        made = optimizer(model.parameters(), lr=0.1)
        accelerator.prepare(model, made, schedule(made))
        return accelerator

    def decay(optimizer):
        return optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def cosine(optimizer):
        return optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    make(optim.AdamW, decay).save_state(tmp_path / "c")
    with pytest.raises(ValueError, match="is of optimizer AdamW, this run has SGD"):
        make(optim.SGD, decay).load_state(tmp_path / "c")
    with pytest.raises(ValueError, match="is of scheduler ExponentialLR, this run has CosineAnnealingLR"):
        make(optim.AdamW, cosine).load_state(tmp_path / "c")
    make(optim.AdamW, decay).load_state(tmp_path / "c")


def test_what_this_run_does_not_know_is_not_passed_over(tmp_path, three):
    edited(tmp_path / "checkpoint_2", tmp_path / "c", **{"ema.safetensors": {"x": mytorch.ones(2)}})
    with pytest.raises(ValueError, match="holds 1 of kind ema, this run has 0"):
        three.load_state(tmp_path / "c")
    files = checkpoint.read(tmp_path / "checkpoint_2")
    checkpoint.write(tmp_path / "d", {name: obj for name, obj in files.items() if name != "sampler.bin"})
    with pytest.raises(ValueError, match="sampler.bin is not in manifest.json"):
        three.load_state(tmp_path / "d")


def test_another_number_of_processes_is_warned_of(tmp_path, three):
    state = mytorch.load(tmp_path / "checkpoint_2/accelerator.bin")
    path = edited(
        tmp_path / "checkpoint_2", tmp_path / "c", **{"accelerator.bin": {**state, "num_processes": 2}}
    )
    with pytest.warns(UserWarning, match="saved by 2 processes, and is loaded by 1"):
        three.load_state(path)
