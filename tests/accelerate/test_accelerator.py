"""The Accelerator in one process: the same training as without it."""

import json
import math
import os
import signal
import sys
import types

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.accelerate import (
    Accelerator,
    JsonlTracker,
    Tracker,
    find_executable_batch_size,
    notebook_launcher,
    release_memory,
    set_seed,
)
from mytorch.backends import dtypes
from mytorch.utils.data import DataLoader, IterableDataset, TensorDataset

SAMPLES = 26


def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((SAMPLES, 4)).astype(np.float32)
    return mytorch.tensor(x), mytorch.tensor(x[:, :1] * x[:, 1:2] + x.sum(1, keepdims=True))


def loader(batch_size=4, **options):
    return DataLoader(TensorDataset(*data()), batch_size, **options)


def network():
    mytorch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def sgd(model):
    return optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def mse(model, x, y):
    return ((model(x) - y) ** 2).mean()


def weights(model):
    return [p.detach().numpy().astype(np.float32).copy() for p in model.parameters()]


def train(accelerator, epochs=2, clip=None, make=loader):
    """The weights, and the norms of the gradients."""
    model = network()
    optimizer = sgd(model)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.8)
    model, optimizer, schedule, batches = accelerator.prepare(model, optimizer, schedule, make())
    norms = []
    for _ in range(epochs):
        for x, y in batches:
            with accelerator.accumulate(model):
                accelerator.backward(mse(model, x, y))
                if clip:
                    norms.append(accelerator.clip_grad_norm_(model.parameters(), clip))
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    return weights(model), norms, schedule.last_epoch


def plain(steps, epochs=2, clip=None):
    """What it must be: every window's mean over its micro-batches, the short last one included."""
    model = network()
    optimizer = sgd(model)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.8)
    norms = []
    for _ in range(epochs):
        batches = list(loader())
        for start in range(0, len(batches), steps):
            window = batches[start : start + steps]
            for x, y in window:
                (mse(model, x, y) / len(window)).backward()
            if clip:
                norms.append(nn.utils.clip_grad_norm_(model.parameters(), clip).item())
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return weights(model), norms, schedule.last_epoch


def same(ours, expected, rtol=1e-5, atol=1e-6):
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 10])
def test_windows_and_the_short_last_one(steps, clip):
    ours, norms, last = train(Accelerator(steps, cpu=True), clip=clip)
    expected, expected_norms, expected_last = plain(steps, clip=clip)
    same(ours, expected)
    assert last == expected_last
    same([n.item() for n in norms if n is not None], expected_norms)


class Stream(IterableDataset):
    def __iter__(self):
        return zip(*data(), strict=True)


def test_a_stream_whose_end_nobody_knows():
    ours, _, _ = train(Accelerator(3, cpu=True), make=lambda: DataLoader(Stream(), 4))
    same(ours, plain(3)[0])


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("precision, rtol, atol", [("fp16", 0.02, 0.005), ("bf16", 0.04, 0.02)])
def test_half_precision_follows_single(clip, precision, rtol, atol):
    accelerator = Accelerator(3, mixed_precision=precision, cpu=True, scaler_kwargs={"init_scale": 256.0})
    ours, norms, _ = train(accelerator, epochs=3, clip=clip)
    expected, expected_norms, _ = plain(3, epochs=3, clip=clip)
    same(ours, expected, rtol=rtol, atol=atol)
    same([n.item() for n in norms if n is not None], expected_norms, rtol=rtol)
    assert {str(n.dtype) for n in norms if n is not None} == ({"float32"} if clip else set())


@pytest.mark.parametrize("precision, half", [(True, "float16"), ("fp16", "float16"), ("bf16", "bfloat16")])
def test_half_precision_casts_inputs_and_outputs(precision, half):
    accelerator = Accelerator(mixed_precision=precision, cpu=True)
    model = accelerator.prepare(network())
    x, _ = data()
    with accelerator.autocast():
        assert model[0].weight.dtype == half and model(x).dtype == np.float32
    bare = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    assert bare is model and bare(x.to(half)).dtype == half


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_float32_weights_are_those_before_halving(precision):
    for together in (True, False):
        accelerator = Accelerator(mixed_precision=precision, cpu=True)
        model = network()
        before, optimizer = weights(model), sgd(model)
        if together:
            model, optimizer = accelerator.prepare(model, optimizer)
        else:
            model = accelerator.prepare(model)
            optimizer = accelerator.prepare(optimizer)
        same([m.numpy() for m in optimizer.optimizer.masters()], before, rtol=0, atol=0)


def test_a_skipped_step_holds_the_schedule():
    accelerator = Accelerator(mixed_precision="fp16", cpu=True)
    model = network()
    optimizer = sgd(model)
    model, optimizer, schedule = accelerator.prepare(
        model, optimizer, optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    )
    x, y = data()
    seen = []
    for factor in (1.0, float("inf"), 1.0):
        accelerator.backward(mse(model, x, y) * factor * 1e-3)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        seen.append((accelerator.optimizer_step_was_skipped, schedule.last_epoch))
    assert seen == [(False, 1), (True, 1), (False, 2)]
    assert accelerator.scaler.get_scale() == 2.0**15


def test_tokens_weigh_losses_when_windows_differ():
    """The gradient is that of the mean over all tokens of a window, however they are spread."""
    x, y = data()
    cuts = [(0, 3), (3, 4), (4, 11), (11, 13), (13, 26)]
    for precision, tolerance in (("no", 1e-5), ("fp16", 0.01), ("bf16", 0.02)):
        accelerator = Accelerator(3, mixed_precision=precision, cpu=True, scaler_kwargs={"init_scale": 64.0})
        model = network()
        model, optimizer = accelerator.prepare(model, optim.SGD(model.parameters(), lr=0.1))
        reference = network()
        oracle = optim.SGD(reference.parameters(), lr=0.1)
        for i, (start, stop) in enumerate(cuts[:3]):
            with accelerator.accumulate(model):
                accelerator.backward(mse(model, x[start:stop], y[start:stop]), num_items=stop - start)
                assert accelerator.sync_grad is (i == 2)
                optimizer.step()
        mse(reference, x[:11], y[:11]).backward()
        oracle.step()
        same(weights(model), weights(reference), rtol=tolerance, atol=tolerance)


def test_windows_can_be_changed_manually():
    accelerator = Accelerator(cpu=True)
    model = network()
    model, optimizer = accelerator.prepare(model, sgd(model))
    x, y = data()
    accelerator.sync_gradients = False
    before = weights(model)
    accelerator.backward(mse(model, x, y))
    optimizer.step()
    same(weights(model), before, rtol=0, atol=0)
    accelerator.sync_gradients, accelerator.gradient_accumulation_steps = True, 3
    ends = []
    for _ in range(4):
        with accelerator.accumulate(model):
            ends.append(accelerator.sync_grad)
    assert ends == [False, False, True, False]


def test_nothing_steps_while_gradients_add_up():
    accelerator = Accelerator(2, cpu=True)
    model = network()
    model, optimizer = accelerator.prepare(model, sgd(model))
    before = weights(model)
    x, y = data()
    with accelerator.accumulate(model):
        accelerator.backward(mse(model, x, y))
        assert accelerator.clip_grad_norm_(model.parameters(), 1.0) is None
        optimizer.step()
        optimizer.zero_grad()
        assert not accelerator.sync_gradients and model[0].weight.grad is not None
    same(weights(model), before, rtol=0, atol=0)


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_clipping_some_parameters_only(precision):
    accelerator = Accelerator(mixed_precision=precision, cpu=True, scaler_kwargs={"init_scale": 64.0})
    model = network()
    model, optimizer = accelerator.prepare(model, optim.SGD(model.parameters(), lr=1.0))
    before, (x, y) = weights(model), data()
    accelerator.backward(mse(model, x, y))
    norm = accelerator.clip_grad_norm_(model[2].parameters(), 0.01)
    assert norm.item() > 0.1
    optimizer.step()
    moved = [a - b for a, b in zip(weights(model), before, strict=True)]
    assert np.sqrt(sum((m**2).sum() for m in moved[2:])) == pytest.approx(0.01, rel=0.05)
    assert np.sqrt(sum((m**2).sum() for m in moved[:2])) > 0.05


def test_several_of_each_come_back_in_order():
    accelerator = Accelerator(cpu=True)
    first, second = network(), network()
    one, other = sgd(first), sgd(second)
    batches, b, o2, a, o1 = accelerator.prepare(loader(), second, other, first, one)
    assert a is first and b is second and o1.optimizer is one and o2.optimizer is other
    assert len(batches) == 7 and accelerator.prepare(a) is a and accelerator.prepare(o1) is o1


WRONG = {
    "precision": (lambda: Accelerator(mixed_precision="fp8"), ValueError, "got 'fp8'"),
    "steps": (lambda: Accelerator(0), ValueError, "positive integer, got 0"),
    "tracker": (lambda: Accelerator(log_with="paper", cpu=True), ValueError, "unknown tracker 'paper'"),
    "a list": (lambda: Accelerator(cpu=True).prepare([network()]), TypeError, "of type list"),
    "a class": (lambda: Accelerator(cpu=True).prepare(optim.SGD), TypeError, "of type type"),
    "no state": (
        lambda: Accelerator(cpu=True).register_for_checkpointing(3), ValueError, "int has no state_dict"),
    "only a state": (
        lambda: Accelerator(cpu=True).register_for_checkpointing(types.SimpleNamespace(state_dict=dict)),
        ValueError, "SimpleNamespace has no state_dict"),
    "only a way to load": (
        lambda: Accelerator(cpu=True).register_for_checkpointing(types.SimpleNamespace(load_state_dict=0)),
        ValueError, "SimpleNamespace has no state_dict"),
    "items": (
        lambda: Accelerator(cpu=True).backward(mytorch.ones(()), num_items=0), ValueError, "positive, got 0"),
    "reduce": (lambda: Accelerator(cpu=True).reduce(mytorch.ones(1), "max"), ValueError, "got 'max'"),
    "gather": (lambda: Accelerator(cpu=True).gather([3]), TypeError, "got int"),
    "objects": (
        lambda: Accelerator(cpu=True).gather_for_metrics({"text": "a"}), TypeError, "each sample, got dict"),
    "later steps": (
        lambda: setattr(Accelerator(cpu=True), "gradient_accumulation_steps", 0.5), ValueError, "got 0.5"),
    "split": (
        lambda: Accelerator(cpu=True).split_between_processes({"a": [1], "b": []}).__enter__(),
        ValueError, "lengths differ"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_so(name):
    call, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        call()


def test_bfloat16_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.delitem(vars(dtypes), "bfloat16", raising=False)
    with pytest.raises(ImportError, match="ml_dtypes.*: pip install ml_dtypes"):
        Accelerator(mixed_precision="bf16", cpu=True)


def test_one_process_is_the_main_process():
    accelerator = Accelerator(cpu=True)
    assert accelerator.is_main_process and accelerator.is_local_main_process and accelerator.is_last_process
    assert (accelerator.num_processes, accelerator.process_index, accelerator.device) == (1, 0, "cpu")
    x = {"a": (mytorch.ones(2), mytorch.tensor(3.0))}
    gathered = accelerator.gather(x)
    assert gathered["a"][1].shape == (1,) and gathered["a"][0].tolist() == [1, 1]
    assert (
        accelerator.reduce(x, "mean")["a"][1].item() == 3
        and accelerator.reduce(x, scale=2)["a"][1].item() == 6
    )
    assert accelerator.gather_object([1, 2]) == [1, 2] and accelerator.gather_object("a") == ["a"]
    assert accelerator.pad_across_processes(mytorch.ones(2)).tolist() == [1, 1]
    accelerator.wait_for_everyone()
    with accelerator.main_process_first(), accelerator.split_between_processes([1, 2]) as part:
        assert part == [1, 2]


def test_trackers(tmp_path):
    class Mine(Tracker):
        name = "mine"
        seen, tracker = [], "a run"

        def log(self, values, step=None, **kwargs):
            self.seen.append((values, step))

    mine = Mine()
    accelerator = Accelerator(cpu=True, log_with=["jsonl", mine], project_dir=tmp_path / "logs")
    accelerator.init_trackers("run", {"lr": 0.1})
    accelerator.log({"loss": mytorch.tensor(2.5), "epoch": 1}, step=3)
    assert accelerator.get_tracker("mine") is mine and accelerator.get_tracker("mine", unwrap=True) == "a run"
    with pytest.raises(ValueError, match=r"unknown tracker 'other'; .* started \['jsonl', 'mine'\]"):
        accelerator.get_tracker("other")
    accelerator.end_training()
    assert json.loads((tmp_path / "logs/run.jsonl").read_text()) == {"step": 3, "loss": 2.5, "epoch": 1}
    assert json.loads((tmp_path / "logs/run.json").read_text()) == {"lr": 0.1}
    assert mine.seen == [({"loss": 2.5, "epoch": 1}, 3)]


def test_a_log_goes_on_from_a_step(tmp_path):
    """What a resumed run writes again is dropped, and so is what a killed one has left half-written."""

    def log(steps, **options):
        tracker = JsonlTracker("log", tmp_path, "iteration", **options)
        for step in steps:
            tracker.log({"loss": 0.5}, step)
        tracker.finish()
        lines = (tmp_path / "log.jsonl").read_text().splitlines()
        return [json.loads(line)["iteration"] for line in lines]

    assert log([0, 5, 10]) == [0, 5, 10]
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"iteration": 1')
    assert log([6, 7], start=5) == [0, 5, 6, 7]
    assert log([8]) == [0, 5, 6, 7, 8]
    assert log([0, 1], start=0) == [0, 1]


def test_a_log_and_settings_with_numbers_that_are_not_finite(tmp_path):
    """Every JSON reader takes them, and a run that resumes."""
    accelerator = Accelerator(cpu=True, log_with="jsonl", project_dir=tmp_path)
    accelerator.init_trackers("run", {"max_lr": math.inf, "betas": (0.9, math.nan)})
    for step in (1, 2, 3):
        accelerator.log({"loss": mytorch.tensor(math.nan), "each": mytorch.tensor([1.0, -math.inf])}, step)
    accelerator.end_training()
    settings = json.loads((tmp_path / "run.json").read_text(), parse_constant=pytest.fail)
    assert settings == {"max_lr": None, "max_lr_nonfinite": "Infinity", "betas": [0.9, None],
                        "betas_nonfinite": [None, "NaN"]}
    JsonlTracker("run", tmp_path, start=2).finish()
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == [
        {"step": step, "loss": None, "loss_nonfinite": "NaN", "each": [1.0, None],
         "each_nonfinite": [None, "-Infinity"]}
        for step in (1, 2)
    ]


def test_a_log_that_is_damaged_or_no_file(tmp_path):
    path = tmp_path / "log.jsonl"
    for line in ("{", "[]", '{"step": "a"}', "[" * 100_000, "\0" * 9):
        path.write_text('{"step": 1, "loss": NaN}\n' + line + "\n")
        whole = path.read_bytes()
        with pytest.raises(ValueError, match="log.jsonl.* is damaged: "):
            JsonlTracker("log", tmp_path, start=1)
        assert path.read_bytes() == whole
    path.write_text('{"step": 1, "loss": NaN}\n' + "\0" * 9)  # as a crash may leave the end
    JsonlTracker("log", tmp_path, start=1).finish()
    assert path.read_text() == '{"step": 1, "loss": NaN}\n'
    path.unlink()
    os.mkfifo(path)
    for start in (None, 0, 1):
        with pytest.raises(OSError, match="log.jsonl: it is a FIFO"):
            JsonlTracker("log", tmp_path, start=start)


def test_a_log_is_shortened_atomically(tmp_path, monkeypatch):
    tracker = JsonlTracker("log", tmp_path)
    for step in range(1, 4):
        tracker.log({"loss": 0.5}, step)
    tracker.finish()

    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        JsonlTracker("log", tmp_path, start=1)
    with pytest.raises(KeyboardInterrupt):
        tracker.store_init_configuration({"lr": 1})
    assert (tmp_path / "log.jsonl").read_text().count("\n") == 3 and os.listdir(tmp_path) == ["log.jsonl"]


def test_wandb_is_asked_for_what_is_logged(monkeypatch):
    calls = []

    class Run:
        class config:  # noqa: N801 - wandb's name
            update = staticmethod(lambda values, **_: calls.append(("config", values)))

        log = staticmethod(lambda values, step=None: calls.append(("log", values, step)))
        finish = staticmethod(lambda: calls.append(("finish",)))

    class Wandb:
        init = staticmethod(lambda project, **options: calls.append(("init", project, options)) or Run)

    monkeypatch.setitem(sys.modules, "wandb", Wandb)
    accelerator = Accelerator(cpu=True, log_wandb=True)
    accelerator.init_trackers("gpt", {"lr": 1}, {"wandb": {"mode": "offline"}})
    accelerator.log({"loss": 1.0}, step=2)
    accelerator.end_training()
    assert calls == [
        ("init", "gpt", {"mode": "offline"}), ("config", {"lr": 1}), ("log", {"loss": 1.0}, 2), ("finish",),
    ]


def tensorboard_stand_in(calls):
    """With the functions of tensorboardX's SummaryWriter that the tracker may call, as they are defined."""

    class SummaryWriter:
        def __init__(self, logdir=None, comment="", purge_step=None, max_queue=10):
            calls.append(("open", logdir, max_queue))

        def add_text(self, tag, text_string, global_step=None, walltime=None):
            calls.append(("text", tag, text_string, global_step))

        def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
            calls.append(("scalar", tag, scalar_value, global_step))

        def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
            calls.append(("scalars", main_tag, tag_scalar_dict, global_step))

        def flush(self):
            pass

        def close(self):
            calls.append(("close",))

    return types.SimpleNamespace(SummaryWriter=SummaryWriter)


def log_to_tensorboard(folder):
    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=folder)
    accelerator.init_trackers("run", {"lr": 1}, {"tensorboard": {"max_queue": 5}})
    both = {"a": 1, "b": mytorch.tensor([2.0])}
    accelerator.log({"loss": mytorch.tensor(0.5), "note": "good", "both": both}, step=2)
    with pytest.raises(TypeError, match=r"got \[1.0, 1.0\] for 'many'"):
        accelerator.log({"many": mytorch.ones(2)})
    accelerator.end_training()


def test_tensorboard_is_asked_for_what_is_logged(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setitem(sys.modules, "tensorboardX", tensorboard_stand_in(calls))
    log_to_tensorboard(tmp_path)
    assert calls == [
        ("open", str(tmp_path / "run"), 5), ("text", "config", '{\n  "lr": 1\n}', None),
        ("scalar", "loss", 0.5, 2), ("text", "note", "good", 2), ("scalars", "both", {"a": 1, "b": 2.0}, 2),
        ("close",),
    ]


def test_tensorboard_writes_its_files(tmp_path):
    """With the real package."""
    pytest.importorskip("tensorboardX")
    log_to_tensorboard(tmp_path)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("events.*"))
    assert b"loss" in written and b"good" in written and b"both" in written


def test_trackers_that_start_again_end_what_they_began(tmp_path):
    accelerator = Accelerator(cpu=True, log_with="jsonl", project_dir=tmp_path)
    for run in ("one", "sub/two"):
        accelerator.init_trackers(run)
        accelerator.log({"run": run, "nested": {"x": mytorch.ones(1, 1), "y": [np.arange(2)]}})
    accelerator.end_training()
    for run in ("one", "sub/two"):
        assert json.loads((tmp_path / f"{run}.jsonl").read_text()) == {
            "run": run, "nested": {"x": 1.0, "y": [[0, 1]]},
        }


def test_find_executable_batch_size(monkeypatch):
    tried, cleared = [], []
    monkeypatch.setattr("mytorch.accelerate.memory.clear", lambda: cleared.append(True))

    @find_executable_batch_size(starting_batch_size=64)
    def run(batch_size, limit):
        tried.append(batch_size)
        if batch_size > limit:
            raise MemoryError
        return batch_size

    assert run(20) == 16 and tried == [64, 32, 16] and len(cleared) == 3
    with pytest.raises(RuntimeError, match="reached zero"):
        run(0)
    with pytest.raises(TypeError, match="passes the batch size itself"):
        run(8, 20)
    for first in (0, -1):
        with pytest.raises(RuntimeError, match="reached zero"):
            find_executable_batch_size(run, first)()

    @find_executable_batch_size(starting_batch_size=10, reduce_batch_size_fn=lambda size: size - 3)
    def libraries_say_so(batch_size):
        if batch_size > 5:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return batch_size

    assert libraries_say_so() == 4

    @find_executable_batch_size(reduce_batch_size_fn=lambda size: size)
    def never_smaller(batch_size):
        raise MemoryError

    with pytest.raises(ValueError, match="makes 128 of 128: not smaller"):
        never_smaller()

    @find_executable_batch_size
    def fails(batch_size):
        raise KeyError("other")

    with pytest.raises(KeyError):
        fails()


def test_memory_and_seeds():
    assert release_memory(1, 2) == [None, None]
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(network())
    assert accelerator.free_memory(1) == [None] and accelerator._models == []
    draws = []
    for _ in range(2):
        set_seed(7)
        draws.append((mytorch.rand(1).item(), np.random.rand(), __import__("random").random()))
    assert draws[0] == draws[1]


def test_notebook_launcher_in_one_process():
    seen = []
    notebook_launcher(lambda *args: seen.append(args), (1, 2), num_processes=1)
    assert seen == [(1, 2)]
    precisions = []
    notebook_launcher(lambda: precisions.append(Accelerator(cpu=True).mixed_precision), (), 1, "fp16")
    assert precisions == ["fp16"] and Accelerator(cpu=True).mixed_precision == "no"
    with pytest.raises(ValueError, match="can't see"):
        notebook_launcher(lambda: 0, num_processes=2)


SETTINGS = {
    "what the launcher says": ({}, (3, "fp16")),
    "the script comes first": (
        {"gradient_accumulation_steps": 2, "mixed_precision": False}, (2, "no"),
    ),
}


@pytest.mark.parametrize(("options", "expected"), SETTINGS.values(), ids=SETTINGS)
def test_settings_come_from_the_script_or_the_launcher(monkeypatch, options, expected):
    for name, value in {"GRADIENT_ACCUMULATION_STEPS": "3", "MIXED_PRECISION": "fp16", "CPU": "True"}.items():
        monkeypatch.setenv(f"MYTORCH_{name}", value)
    accelerator = Accelerator(**options)
    assert (accelerator.gradient_accumulation_steps, accelerator.mixed_precision) == expected
    assert accelerator.device == "cpu"


def test_without_either_they_are_the_defaults(monkeypatch):
    monkeypatch.setenv("MYTORCH_MIXED_PRECISION", "")
    accelerator = Accelerator(cpu=True)
    assert (accelerator.gradient_accumulation_steps, accelerator.mixed_precision) == (1, "no")


def test_the_trigger_leaves_ignored_signals_ignored():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        Accelerator(cpu=True).set_trigger_on_signals()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert callable(signal.getsignal(signal.SIGTERM))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
