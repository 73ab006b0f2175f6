"""The position of prepared loaders, and of loaders whose first batches are skipped."""

import pytest

import mytorch
from mytorch.accelerate import Accelerator, skip_first_batches, world
from mytorch.utils import data
from tests.utils.data.datasets import Stream, plain, seeded_generator, within
from tests.utils.data.test_position import LOADERS, a_state, leave, taken


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


def prepared(loader):
    return Accelerator(cpu=True).prepare(loader)


KINDS = {"plain": lambda loader: loader, "prepared": prepared}
SKIPPED = {  # what was done before; the epoch and the first batch of the pass that skips 2 batches
    "nothing": (lambda loader: None, 0, 2),
    "break": (leave, 1, 2),
    "in a pass": (taken, 1, 2),
    "set_epoch": (lambda loader: loader.set_epoch(3), 3, 2),
    "break, set_epoch": (lambda loader: (leave(loader), loader.set_epoch(0))[1], 0, 2),
    "loaded after one": (lambda loader: loader.load_state_dict(state_in(loader, 1)), 3, 2),
    "loaded after two": (lambda loader: loader.load_state_dict(state_in(loader, 2)), 3, 2),
    "loaded after three": (lambda loader: loader.load_state_dict(state_in(loader, 3)), 3, 3),
    "loaded, another epoch set": (
        lambda loader: (loader.load_state_dict(state_in(loader, 3)), loader.set_epoch(1))[1], 1, 2),
}


def state_in(loader, batches):
    return {**loader.state_dict(), **a_state(getattr(loader, "loader", loader), 3, batches)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["shuffled", "a stream", "in order"])
@pytest.mark.parametrize("case", SKIPPED)
def test_batches_that_are_skipped(name, kind, case):
    act, epoch, first = SKIPPED[case]
    loader, whole = (KINDS[kind](LOADERS[name](generator=seeded_generator(9))) for _ in range(2))
    current = act(loader)
    skipped = skip_first_batches(loader, 2)
    found = [plain(b) for b in skipped]
    whole.set_epoch(epoch)
    assert found == [plain(b) for b in whole][first:]
    del current
    assert [plain(b) for b in loader] == [plain(b) for b in whole]  # the epoch after it
    leave(skipped, 1)
    assert loader.state_dict()["epoch"] == epoch + 3 and loader.state_dict()["batches"] == 0


@pytest.mark.parametrize("name", ["shuffled", "a stream"])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_evaluation_left_by_break_before_save_state(tmp_path, name, workers):
    def start():
        accelerator = Accelerator(cpu=True)
        loaders = [LOADERS[name](generator=seeded_generator(seed), num_workers=workers) for seed in (1, 2)]
        return accelerator, *accelerator.prepare(*loaders)

    def evaluated(loader):
        return [plain(batch) for _, batch in zip(range(2), loader, strict=False)]

    accelerator, train, val = start()
    for number, _ in enumerate(train):
        if number == 1:
            for _ in val:
                break
            accelerator.save_state(tmp_path / "state")
            break
        evaluated(val)
    rest = start()
    rest[0].load_state(tmp_path / "state")
    resumed = [plain(b) for b in rest[1]], evaluated(rest[2]), evaluated(rest[2]), [plain(b) for b in rest[1]]
    accelerator, train, val = start()
    for number, _ in enumerate(train):
        evaluated(val)
        if number == 1:
            break
    val.set_epoch(2)
    assert resumed[1] == evaluated(val) and resumed[2] == evaluated(val)
    train.set_epoch(0)
    assert resumed[0] == [plain(b) for b in train][2:] and resumed[3] == [plain(b) for b in train]


@pytest.mark.parametrize("name", ["shuffled", "a stream"])
def test_a_state_that_is_saved_in_an_evaluation_continues_it(name):
    loader = prepared(LOADERS[name](generator=seeded_generator(9)))
    seen = []
    for batch in loader:
        seen.append(plain(batch))
        if len(seen) == 3:
            state = loader.state_dict()
    resumed = prepared(LOADERS[name](generator=seeded_generator(1)))
    resumed.load_state_dict(state)
    assert [plain(b) for b in resumed] == seen[3:]


@pytest.mark.parametrize("kind", ["map", "stream", "own iterator"])
def test_the_last_batch_is_known_where_the_same_loader_is_iterated_over_in_the_loop(kind):
    class Own(data.DataLoader):
        def __iter__(self):
            yield from super().__iter__()

    dataset = Stream((9,)) if kind == "stream" else data.TensorDataset(mytorch.arange(9))
    loader = prepared((Own if kind == "own iterator" else data.DataLoader)(dataset, 2))
    ends = []
    for _ in loader:
        ends.append(loader.end_of_dataloader)
        if kind != "own iterator" or len(ends) == 2:
            leave(loader, 1)
    assert ends == [False] * 4 + [kind != "own iterator"]  # whose pass is no longer the current one
    assert [loader.end_of_dataloader for _ in loader] == [False] * 4 + [True]


@pytest.mark.parametrize("workers", [0, 2])
def test_set_epoch_before_batches_are_skipped_by_two_processes(monkeypatch, workers):
    """Each process gets its part of the epoch that was set, by the seed of process 0."""
    monkeypatch.setattr(world, "world_size", lambda group=None: 2)
    states = []

    def broadcast(state, src=0):
        states.append(state)
        return states[0]

    monkeypatch.setattr(world, "broadcast_object", broadcast)
    found = []
    for rank in range(2):
        monkeypatch.setattr(world, "rank", lambda group=None, rank=rank: rank)
        loader = prepared(data.DataLoader(range(20), 2, shuffle=True, generator=seeded_generator(rank),
                                          num_workers=workers))
        loader.set_epoch(1)
        found.append([batch.tolist() for batch in skip_first_batches(loader, 2)])
    one = data.DataLoader(range(20), 2, shuffle=True, generator=seeded_generator(0))
    one.set_epoch(1)
    assert [batch for step in zip(*found, strict=True) for batch in step] == [b.tolist() for b in one][4:]
