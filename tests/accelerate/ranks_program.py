"""What test_ranks.py runs on every rank."""

import sys
import threading
import warnings
from pathlib import Path
from unittest import mock

import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn, optim
from mytorch.accelerate import Accelerator, CheckpointError, checkpoint
from mytorch.distributed.zero import ZeroRedundancyOptimizer
from mytorch.utils.data import DataLoader, IterableDataset, TensorDataset
from tests.distributed.on_ranks import run_cases

TOGETHER, EPOCHS = 12, 3  # samples in a batch of all ranks


def ranks():
    return dist.get_world_size() if dist.is_initialized() else 1


def data(samples):
    x = np.random.default_rng(0).standard_normal((samples, 4)).astype(np.float32)
    return mytorch.tensor(x), mytorch.tensor(x[:, :1] * x[:, 1:2]), mytorch.arange(samples)


def loader(samples, **options):
    return DataLoader(TensorDataset(*data(samples)), TOGETHER // ranks(), **options)


def network(seed):
    mytorch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def adamw(model):
    return optim.AdamW(model.parameters(), lr=0.02)


def zero(model):
    return ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, lr=0.02)


def weights(model):
    return {n.removeprefix("module."): p.detach().float().numpy() for n, p in model.named_parameters()}


def start(steps=1, precision="no", make=adamw, seed=0, samples=48, **options):
    options = {"scaler_kwargs": {"init_scale": 64.0}, **options}
    accelerator = Accelerator(steps, mixed_precision=precision, cpu=True, **options)
    model = network(seed + accelerator.process_index)  # rank 0's is the one that counts
    optimizer = make(model)
    mytorch.manual_seed(accelerator.process_index)  # so is the order of its data
    return accelerator, *accelerator.prepare(model, optimizer, loader(samples, shuffle=True))


def train(accelerator, model, optimizer, batches, epochs=EPOCHS, clip=0.2):
    losses, norms = [], []
    for _ in range(epochs):
        for x, y, _ in batches:
            with accelerator.accumulate(model):
                loss = ((model(x) - y) ** 2).mean()
                accelerator.backward(loss)
                norm = accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.reduce(loss, "mean").item())
            norms += [] if norm is None else [norm.item()]
    return {"losses": losses, "norms": norms, **weights(model)}


def training():
    return train(*start())


def accumulation():
    return train(*start(steps=3))  # four batches an epoch: windows of three and of one


def train_plainly(accelerator, model, optimizer, batches, clip=0.2):
    """`train` without `accumulate()`: the loop counts by itself."""
    losses, norms = [], []
    for _ in range(EPOCHS):
        for x, y, _ in batches:
            loss = ((model(x) - y) ** 2).mean()
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(clip)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss).item())
            norms += [norm.item()] if accelerator.sync_grad else []
    return {"losses": losses, "norms": norms, **weights(model)}


def plain_accumulation():
    return train_plainly(*start(steps=3))


def plain_half():
    return train_plainly(*start(steps=2, precision="fp16"))


def half():
    return train(*start(steps=2, precision="fp16"))


def sharded_optimizer():
    return train(*start(make=zero))


def sharded_half():
    return train(*start(steps=2, make=zero, precision="fp16"))


class Stream(IterableDataset):
    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return zip(*data(self.samples), strict=True)


def metrics():
    """The samples that gather_for_metrics sees, in each epoch."""
    out = {}
    for samples in (24, 26, 35, 5, 1):
        for kind, batches in (
            ("map", loader(samples)),
            ("drop", loader(samples, drop_last=True)),
            ("split", DataLoader(TensorDataset(*data(samples)), TOGETHER)),
            ("uneven", loader(samples)),
            ("stream", DataLoader(Stream(samples), TOGETHER // ranks())),
            ("worker", DataLoader(Stream(samples), TOGETHER // ranks(), num_workers=1)),
        ):
            if kind == "uneven" and samples not in (24, 35):  # some ranks would have no last batch
                continue
            if kind == "worker" and samples not in (26, 5):  # starting workers takes a while
                continue
            is_even, is_split = kind != "uneven", kind == "split"
            accelerator = Accelerator(cpu=True, even_batches=is_even, split_batches=is_split)
            batches = accelerator.prepare(batches)
            for epoch in range(2):
                seen = [accelerator.gather_for_metrics({"i": i})["i"].numpy() for _, _, i in batches]
                out[f"{kind} {samples} {epoch}"] = np.concatenate(seen) if seen else np.zeros(0)
    objects = []
    batches = accelerator.prepare(loader(26))
    for _, _, i in batches:
        objects += accelerator.gather_for_metrics([int(k) for k in i], use_gather_object=True)
    return {**out, "objects": objects}


def uneven(precision="no"):
    """Ranks have other numbers of batches; what an optimizer, a schedule and a loss scale are in the end."""
    scaling = {"init_scale": 64.0, "growth_interval": 3}
    accelerator = Accelerator(mixed_precision=precision, cpu=True, scaler_kwargs=scaling)
    model = network(0)
    optimizer = adamw(model)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    model, optimizer, schedule, batches = accelerator.prepare(model, optimizer, schedule, loader(26))
    seen = []
    for _ in range(EPOCHS):
        with accelerator.join_uneven_inputs([model], even_batches=False):
            for x, y, i in batches:
                seen.append(i.numpy())
                with accelerator.accumulate(model):
                    accelerator.backward(((model(x) - y) ** 2).mean())
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
    kept = {"weights": [*weights(model).values()], "lr": [optimizer.param_groups[0]["lr"]]}
    kept["exp_avg"] = [entry["exp_avg"].numpy() for entry in optimizer.state_dict()["state"].values()]
    if precision != "no":
        kept["masters"] = [master.numpy() for master in optimizer.optimizer.masters()]
        kept["rounded"] = [p.detach().float().numpy() for p in model.parameters()]
    if accelerator.scaler is not None:
        kept["scale"] = [accelerator.scaler.get_scale()]
    flat = {name: np.concatenate([np.ravel(value) for value in found]) for name, found in kept.items()}
    is_even = len({len(list(batches)) for _ in range(2)}) == 1 and batches.even_batches
    return {**flat, "seen": np.concatenate(seen), "is_even": is_even}


def joining_wrongly():
    """What join_uneven_inputs(), and backward() in it, say to what can't be."""
    accelerator = Accelerator(cpu=True, even_batches=False)
    model = accelerator.prepare(network(0))
    said = []

    def attempt(joinables, inside=lambda: None):
        try:
            with accelerator.join_uneven_inputs(joinables):
                inside()
            said.append("")
        except (ValueError, TypeError, RuntimeError) as error:
            said.append(f"{type(error).__name__}: {error}")

    attempt([])
    attempt([network(0)])
    attempt([model], lambda: accelerator.backward(model(mytorch.ones(1, 4)).sum(), num_items=3))
    accelerator.prepare(zero(model))
    attempt([model])
    return {"said": said}


def skipping():
    accelerator, _, _, batches = start(samples=60)
    whole = [i.numpy() for _, _, i in batches]
    batches.set_epoch(0)
    rest = [i.numpy() for _, _, i in accelerator.skip_first_batches(batches, 2)]
    second = [i.numpy() for _, _, i in batches]
    fresh = start(samples=60)[-1]
    fresh.set_epoch(1)
    found = [i.numpy() for _, _, i in accelerator.skip_first_batches(fresh, 2)]
    same = np.array_equal(whole[2:], rest) and np.array_equal(second[2:], found)
    return {"same": same, "left": len(rest)}


def tokens():
    """Every rank has other numbers of samples in its micro-batches."""
    accelerator = Accelerator(2, cpu=True)
    model = network(0)
    model, optimizer = accelerator.prepare(model, optim.SGD(model.parameters(), lr=1.0))
    x, y, _ = data(48)
    rank = accelerator.process_index
    start_at = sum(7 + 3 * k for k in range(rank))
    for stop in (start_at + 2 + rank, start_at + 7 + 3 * rank):
        with accelerator.accumulate(model):
            loss = ((model(x[start_at:stop]) - y[start_at:stop]) ** 2).mean()
            accelerator.backward(loss, num_items=stop - start_at)
            optimizer.step()
        start_at = stop
    return weights(model)


def collectives():
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    x = mytorch.arange(3) + 10 * rank
    with accelerator.split_between_processes(list(range(7))) as part:
        parts = accelerator.gather_object(part)
    with accelerator.split_between_processes(mytorch.arange(7), apply_padding=True) as part:
        padded = accelerator.gather(part)
    return {
        "gather": accelerator.gather(x).numpy(),
        "scalar": accelerator.gather(mytorch.tensor(float(rank))).numpy(),
        "sum": accelerator.reduce(x).numpy(),
        "mean": accelerator.reduce(x.float(), "mean", scale=2.0).numpy(),
        "padded": accelerator.pad_across_processes(mytorch.ones(rank + 1, 2), pad_index=-1).numpy(),
        "first": accelerator.pad_across_processes(mytorch.ones(rank + 1), pad_first=True).numpy(),
        "objects": accelerator.gather_object(["a" * (rank + 1)]),
        "parts": parts,
        "split": padded.numpy(),
        "is_main": accelerator.is_main_process,
        "is_last": accelerator.is_last_process,
    }


def checkpoints(make=adamw, precision="no"):
    """Two epochs, against one epoch, a checkpoint, and another run that resumes from it."""
    folder = Path(sys.argv[1]) / f"{make.__name__}-{precision}"
    whole = start(make=make, precision=precision)
    train(*whole, epochs=1)
    whole[0].save_state(folder)
    expected = train(*whole, epochs=1)
    resumed = start(make=make, precision=precision, seed=50)
    resumed[0].load_state(folder)
    found = train(*resumed, epochs=1)
    return {"same": all((found[k] == np.asarray(v)).all() for k, v in expected.items()), **expected}


def held():
    """64 micro-batches, whose gradients float16 can't add up: 2048 + 1 = 2048."""
    accelerator = Accelerator(64, mixed_precision="fp16", cpu=True, scaler_kwargs={"init_scale": 64.0})
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    model, optimizer = accelerator.prepare(model, optim.SGD(model.parameters(), lr=1.0))
    for i in range(64):
        with accelerator.accumulate(model):
            x = (2048.0 if i == 0 else 1.0) * (1 + accelerator.process_index)
            accelerator.backward(model(mytorch.full((1, 1), x)).sum())
            optimizer.step()
            optimizer.zero_grad()
    return {"weight": optimizer.optimizer.masters()[0].item()}


def stuck():
    """The last rank's loss is always NaN: all leave out the step, and in the end give up."""
    accelerator = Accelerator(mixed_precision="fp16", cpu=True, scaler_kwargs={"init_scale": 4.0})
    model = network(0)
    model, optimizer = accelerator.prepare(model, adamw(model))
    before, said, steps = weights(model), "", 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while not said and steps < 100:
            loss = model(mytorch.ones(1, 4)).sum() * (float("nan") if accelerator.is_last_process else 1.0)
            accelerator.backward(loss)
            steps += 1
            try:
                optimizer.step()
            except FloatingPointError as error:
                said = str(error)
            optimizer.zero_grad()
    same = all((value == before[name]).all() for name, value in weights(model).items())
    return {"said": said, "steps": steps, "same": same}


def nan_loss():
    """What backward() says to the NaN of the last rank, and what it does for the others."""
    said = []
    nan, inf = float("nan"), float("inf")
    for bad, precision in ((nan, "no"), (nan, "bf16"), (-inf, "no"), (1.0, "bf16")):
        accelerator = Accelerator(mixed_precision=precision, cpu=True)
        model = accelerator.prepare(network(0))
        with accelerator.no_sync(model):
            loss = (model(mytorch.ones(1, 4)) ** 2).sum() * (bad if accelerator.is_last_process else 1.0)
            try:
                accelerator.backward(loss)
                said.append("")
            except FloatingPointError as error:
                said.append(str(error))
    return {"said": said}


def words():
    """What isn't numbers: objects of samples, triggers, decorators, objects that are prepared twice."""
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    names, losses = [], []
    for _, _, i in accelerator.prepare(loader(26)):
        names += accelerator.gather_for_metrics([f"sample {int(k)}" for k in i])
        losses.append(accelerator.gather_for_metrics({"loss": mytorch.tensor(float(rank))})["loss"].tolist())
    called = [
        mark(lambda: rank)() is not None
        for mark in (
            accelerator.on_main_process, accelerator.on_local_main_process, accelerator.on_last_process,
            accelerator.on_process(process_index=1), accelerator.on_local_process(local_process_index=0),
        )
    ]
    triggers = [accelerator.check_trigger()]
    if accelerator.is_last_process:
        accelerator.set_trigger()
    triggers += [accelerator.check_trigger(), accelerator.check_trigger()]
    model = network(0)
    first = accelerator.prepare(model)
    same = accelerator.prepare(model) is first and accelerator.prepare(first) is first
    accelerator.prepare(adamw(network(2)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            accelerator.backward(mytorch.ones((), requires_grad=True) * 1.0)
    warned = [str(warning.message) for warning in caught]
    folder = Path(sys.argv[1]) / "weights"
    accelerator.save_model(first, folder)
    accelerator.save({"by": rank}, folder / "by.bin")
    accelerator.wait_for_everyone()
    saved = mytorch.load(folder / "model.safetensors")
    empty = accelerator.prepare(nn.Tanh())
    bare = accelerator.prepare_model(network(1), evaluation_mode=True)
    return {
        "names": names,
        "losses": losses,
        "called": called,
        "triggers": triggers,
        "same": same,
        "warned": warned,
        "saved": sorted(saved),
        "by": mytorch.load(folder / "by.bin")["by"],
        "empty": empty(mytorch.zeros(1)).item(),
        "bare": isinstance(bare, nn.Sequential),
        "type": accelerator.distributed_type,
    }


def waiting():
    """All ranks wait for the one that writes, and raise its errors."""
    accelerator, *_ = start()
    folder, said = Path(sys.argv[1]) / "waiting", []
    for call, error in ((lambda: accelerator.save_state(__file__), FileExistsError),
                        (lambda: accelerator.load_state("nowhere"), CheckpointError)):
        try:
            call()
        except error:
            said.append("refused")
    real, may_write = checkpoint.save, threading.Event()
    with mock.patch.object(checkpoint, "save", lambda obj, path: may_write.wait() and real(obj, path)):
        accelerator.save_state(folder, asynchronous=True)
        threading.Timer(0.5, may_write.set).start()  # a rank that doesn't wait finds nothing
        said.append("loaded" if accelerator.load_state(folder) == str(folder) else "elsewhere")
    return {"said": said}


def write_rank(folder, values):
    """For the notebook_launcher."""
    accelerator = Accelerator(cpu=True)
    total = accelerator.reduce(values["x"]).tolist()
    (Path(folder) / str(accelerator.process_index)).write_text(str(total))
    accelerator.end_training()


CASES = {
    "training": training, "accumulation": accumulation, "half": half,
    "plain_accumulation": plain_accumulation, "plain_half": plain_half,
    "sharded_optimizer": sharded_optimizer,
    "sharded_half": sharded_half, "checkpoints_zero_half": lambda: checkpoints(zero, "fp16"),
    "uneven": uneven, "uneven_half": lambda: uneven(precision="fp16"),
    "joining_wrongly": joining_wrongly,
    "metrics": metrics, "skipping": skipping, "tokens": tokens, "collectives": collectives,
    "checkpoints": checkpoints, "checkpoints_zero": lambda: checkpoints(zero),
    "bfloat16": lambda: train(*start(steps=2, precision="bf16")),
    "checkpoints_bfloat16": lambda: checkpoints(precision="bf16"),
    "uneven_bfloat16": lambda: uneven(precision="bf16"),
    "held": held, "stuck": stuck, "nan_loss": nan_loss, "words": words,
    "checkpoints_half": lambda: checkpoints(precision="fp16"), "waiting": waiting,
}

if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    run_cases(CASES, accelerator.process_index)
    accelerator.end_training()
