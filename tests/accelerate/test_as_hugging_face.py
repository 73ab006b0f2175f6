"""What scripts written for Hugging Face's Accelerate expect beside the training loop."""

import pytest

import mytorch
from mytorch import nn, optim
from mytorch.accelerate import Accelerator, CheckpointError, notebook_launcher, operations, skip_first_batches
from mytorch.utils.data import DataLoader, RandomSampler, TensorDataset


def prepared(accelerator):
    model = nn.Linear(2, 1)
    return accelerator.prepare(model, optim.SGD(model.parameters(), lr=0.5))[0]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("keep_last, stay", [(None, [0, 1, 2]), (2, [1, 2])])
def test_checkpoints_without_a_folder_are_numbered(tmp_path, keep_last, stay, asynchronous):
    accelerator = Accelerator(cpu=True, project_dir=tmp_path)
    model, folder = prepared(accelerator), tmp_path / "checkpoints"
    for number in range(3):
        with mytorch.no_grad():
            model.weight.fill_(number)
        saved = accelerator.save_state(keep_last=keep_last, asynchronous=asynchronous)
        assert saved == str(folder / f"checkpoint_{number}")
    accelerator.wait_for_checkpoint()
    assert sorted(path.name for path in folder.iterdir()) == [f"checkpoint_{n}" for n in stay]
    with mytorch.no_grad():
        model.weight.fill_(9)
    assert accelerator.load_state() == saved
    assert model.weight.tolist() == [[2.0, 2.0]]
    assert accelerator.load_state(folder / "checkpoint_1") and model.weight.tolist() == [[1.0, 1.0]]


def test_there_is_no_folder_at_all(tmp_path):
    accelerator = Accelerator(cpu=True)
    prepared(accelerator)
    for call in (accelerator.save_state, accelerator.load_state):
        with pytest.raises(ValueError, match=rf"{call.__name__}\(\): expected a folder, or .* a project_dir"):
            call()
    empty = Accelerator(cpu=True, project_dir=tmp_path)
    with pytest.raises(CheckpointError, match=f"no checkpoint found in {tmp_path}/checkpoints"):
        empty.load_state()
    assert empty.load_state(last_good=True) is None


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_prepared_loader_shows_what_was_given(ranks, monkeypatch):
    data = TensorDataset(mytorch.arange(10))
    given = DataLoader(data, 3, sampler=RandomSampler(data), drop_last=True, collate_fn=list)
    monkeypatch.setattr("mytorch.accelerate.world.world_size", lambda group=None: ranks)
    loader = Accelerator(cpu=True).prepare(given)
    for name in ("batch_size", "collate_fn", "dataset", "drop_last", "num_workers", "pin_memory", "sampler"):
        assert getattr(loader, name) == getattr(given, name)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = loader.no_such_thing


FILLED = {"int64": (-100, -100), "float32": (0.5, 0.5), "bool": (True, True), "uint8": (3.0, 3)}


@pytest.mark.parametrize("dtype", FILLED)
def test_what_fills_up(dtype, monkeypatch):
    monkeypatch.setattr(operations.world, "all_gather_object", lambda mine: [mine, mine + 1])
    given, expected = FILLED[dtype]
    x = mytorch.zeros(1, dtype=getattr(mytorch, dtype))
    padded = operations.pad_across_processes(x, pad_index=given)
    assert padded.dtype == x.dtype and padded.tolist() == [0, expected]


@pytest.mark.parametrize("dtype, value", [("int64", 0.5), ("bool", -100), ("uint8", 2.5)])
def test_what_cannot_fill_up(dtype, value, monkeypatch):
    monkeypatch.setattr(operations.world, "all_gather_object", lambda mine: [mine, mine + 1])
    with pytest.raises(ValueError, match=rf"pad_across_processes\(\): no {dtype} is {value}"):
        operations.pad_across_processes(mytorch.zeros(1, dtype=getattr(mytorch, dtype)), pad_index=value)


SAID = {"CPU": ("nonsense", "expected true or false"), "LOG_WANDB": ("2", "expected true or false")}
SAID["GRADIENT_ACCUMULATION_STEPS"] = "four", "'four'"


@pytest.mark.parametrize("name", SAID)
def test_an_environment_that_means_nothing(name, monkeypatch):
    text, says = SAID[name]
    monkeypatch.setenv(f"MYTORCH_{name}", text)
    with pytest.raises(ValueError, match=f"environment variable MYTORCH_{name}: .*{says}"):
        Accelerator()


WRONG = {
    "skip": (lambda folder: skip_first_batches(DataLoader(range(3)), 1.5), "not negative, got 1.5"),
    "keep": (lambda folder: Accelerator(cpu=True).save_state(folder, keep_last=1.5), "at least 1, got 1.5"),
    "none": (lambda folder: notebook_launcher(prepared, num_processes=0), "a positive int, got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_count_that_is_none(name, tmp_path):
    call, says = WRONG[name]
    with pytest.raises(ValueError, match=says):
        call(tmp_path)
    assert not list(tmp_path.iterdir())
