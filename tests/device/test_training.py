"""Training and generating on a GPU (the strict stand-in for CuPy), step by step as on the CPU."""

import json

import numpy as np
import pytest

import inference_gpt2
import mytorch
import train_gpt2
from mytorch import Tensor, optim
from mytorch.models import GPT2, GPT2Config
from mytorch.nn.utils import clip_grad_norm_
from mytorch.tokenizers import CharTokenizer
from mytorch.utils.data import DataLoader, TensorDataset, default_collate
from tests.every import every
from tests.on_device import DEVICE, never_waiting, same
from tests.test_train_gpt2 import newest

rng = np.random.default_rng(0)
TOKENS = rng.integers(0, 13, (6, 3, 9))  # batches, rows, tokens


def tiny(device, **changes):
    """The same model on any device."""
    mytorch.manual_seed(0)
    shape = {"vocab_size": 13, "context_length": 8, "n_layer": 2, "n_head": 2, "n_embd": 8}
    return GPT2(GPT2Config(**{**shape, **changes})).to(device)


def train(model, optimizer, batches, scheduler=None, max_norm=0.5):
    """The losses and gradient norms of a few steps."""
    seen = []
    for tokens in batches:
        tokens = mytorch.from_numpy(tokens).to(model.lm_head.weight.device)
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        seen += [loss.item(), norm.item()]
    return seen


def agree(there, here, rtol=1e-4, atol=1e-5):
    """Every parameter of the model there is on its device, and that of the model here."""
    for (name, p), (_, q) in zip(there.named_parameters(), here.named_parameters(), strict=True):
        assert p.device == DEVICE and q.device == "cpu" and (p.grad is None or p.grad.device == DEVICE)
        np.testing.assert_allclose(p.numpy(force=True), q.numpy(force=True), rtol, atol, err_msg=name)


OPTIMIZERS = {
    "SGD": (optim.SGD, {"lr": 0.1}),
    "SGD with everything": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "Adam": (optim.Adam, {"lr": 1e-2, "weight_decay": 0.1}),
    "AdamW": (optim.AdamW, {"lr": 1e-2, "betas": (0.9, 0.95)}),
    "AdamW with amsgrad": (optim.AdamW, {"lr": 1e-2, "amsgrad": True, "maximize": True}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(fake_cuda, name):
    kind, options = OPTIMIZERS[name]
    runs = []
    for device in ("cpu", DEVICE):
        model = tiny(
            device, bias=False
        )  # the gradient of a key's bias is 0, but for rounding, which Adam blows up
        params = model.parameter_groups(0.1) if kind is optim.AdamW else model.parameters()
        optimizer = kind(params, **options)
        scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
        runs.append((model, optimizer, train(model, optimizer, TOKENS[:4], scheduler)))
    (here, _, losses), (there, optimizer, got) = runs
    np.testing.assert_allclose(got, losses, rtol=1e-4)
    agree(there, here)
    for state in optimizer.state.values():
        assert {v.device for k, v in state.items() if k != "step"} <= {DEVICE}


@pytest.mark.parametrize("name", ["SGD with everything", "AdamW"])
def test_half_precision(fake_cuda, name):
    kind, options = OPTIMIZERS[name]
    runs = []
    for device in ("cpu", DEVICE):
        model = tiny(device, bias=False).half()  # as above: a key's bias has no gradient but rounding
        runs.append((model, train(model, kind(model.parameters(), **options), TOKENS[:2])))
    np.testing.assert_allclose(runs[1][1], runs[0][1], rtol=1e-2)
    agree(runs[1][0], runs[0][0], 2e-2, 2e-2)


def test_gradients_accumulate_and_stay_in_the_flat_vector(fake_cuda):
    model = tiny(DEVICE)
    optimizer = optim.AdamW(model.parameters())
    for n in range(2):
        tokens = mytorch.from_numpy(TOKENS[n]).to(DEVICE)
        (model(tokens[:, :-1], tokens[:, 1:])[1] / 2).backward()
    (flat,) = optimizer.flat_buffers()
    total = sum(float((p.grad * p.grad).sum()) for p in model.parameters())
    assert flat.device == DEVICE and total > 0
    assert mytorch.Array(flat.grad).norm().item() == pytest.approx(total**0.5, rel=1e-5)
    optimizer.zero_grad(set_to_none=False)
    assert mytorch.Array(flat.grad).norm().item() == 0


def test_a_run_goes_on_where_a_checkpoint_was_saved(fake_cuda, tmp_path):
    """… on the GPU, or on the CPU."""
    model = tiny(DEVICE)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    train(model, optimizer, TOKENS[:2])
    path = tmp_path / "checkpoint.safetensors"
    rng_state = mytorch.get_rng_state(DEVICE)
    mytorch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": rng_state}, path)
    want = train(model, optimizer, TOKENS[2:4])
    for device, map_location in ((DEVICE, DEVICE), (DEVICE, None), ("cpu", DEVICE), ("cpu", None)):
        saved = mytorch.load(path, map_location=map_location)
        assert {p.device for p in saved["model"].values()} == {map_location or "cpu"}
        again = tiny(device)
        resumed = optim.AdamW(again.parameters(), lr=1.0)
        again.load_state_dict(saved["model"])
        resumed.load_state_dict(saved["optimizer"])
        got = train(again, resumed, TOKENS[2:4])
        if device == DEVICE:
            assert got == want
            mytorch.set_rng_state(saved["rng"].cpu(), DEVICE)
        else:
            np.testing.assert_allclose(got, want, rtol=1e-4)


def test_dropout_in_training(fake_cuda):
    """The same seed drops the same; evaluation drops nothing."""
    model = tiny(DEVICE, dropout_p=0.5)
    tokens = mytorch.from_numpy(TOKENS[0]).to(DEVICE)

    def loss(seed):
        mytorch.manual_seed(seed)
        return model(tokens[:, :-1], tokens[:, 1:])[1]

    assert loss(1).item() == loss(1).item() != loss(2).item()
    loss(1).backward()
    assert every(p.grad.device == DEVICE for p in model.parameters())
    model.eval()
    assert loss(1).item() == loss(2).item()


@pytest.mark.parametrize("options", [{"temperature": 0}, {"top_k": 3}, {"temperature": 0.7}], ids=str)
def test_generation(fake_cuda, options):
    model = tiny(DEVICE).eval()
    prompt = mytorch.tensor(TOKENS[0][:2, :3], device=DEVICE)
    texts = [
        model.generate(
            prompt, 9, use_cache=cache, generator=mytorch.Generator(DEVICE).manual_seed(1), **options
        )
        for cache in (True, False)
    ]
    assert texts[0].device == DEVICE and texts[0].shape == (2, 12)
    same(texts[0], texts[1].cpu())
    if options == {"temperature": 0}:
        same(texts[0], tiny("cpu").eval().generate(prompt.cpu(), 9, **options))


def test_batches_of_a_loader(fake_cuda):
    data = TensorDataset(mytorch.from_numpy(rng.standard_normal((7, 4))), mytorch.arange(7))
    on_gpu = TensorDataset(*(t.to(DEVICE) for t in data.tensors))
    batches = list(DataLoader(data, 3, shuffle=True, generator=mytorch.Generator().manual_seed(0)))
    for other in (on_gpu, data):
        loader = DataLoader(other, 3, shuffle=True, generator=mytorch.Generator().manual_seed(0))
        for (x, y), batch in zip(loader, batches, strict=True):
            for got, want in zip((x.to(DEVICE), y.to(DEVICE)), batch, strict=True):
                same(got, want)


def test_collating_what_is_on_a_gpu(fake_cuda):
    x = mytorch.arange(6.0, device=DEVICE).reshape(2, 3)
    batch = default_collate([{"x": row, "raw": row.data, "n": i} for i, row in enumerate(x)])
    same(batch["x"], Tensor(x.cpu().numpy()))
    same(batch["raw"], Tensor(x.cpu().numpy()))
    assert batch["n"].device == "cpu" and batch["n"].tolist() == [0, 1]
    with pytest.raises(RuntimeError, match=f"same device, got cpu and {DEVICE}"):
        default_collate([x, x.cpu()])


# The scripts.


@pytest.fixture
def data(tmp_path):
    """Token files as prepare_data/ makes them, of a text of 5 characters."""
    for split, count in (("train", 200), ("val", 20)):
        (np.arange(count) % 7 % 5).astype(np.uint16).tofile(tmp_path / f"{split}.bin")
    CharTokenizer("abcde").save(tmp_path / "tokenizer.json")
    return tmp_path


def run_training(monkeypatch, data, *options):
    """train_gpt2.py in this process, where the stand-in is; its signal handlers would stay."""
    monkeypatch.setattr("signal.signal", lambda *handler: None)
    monkeypatch.setattr(train_gpt2, "save_loss_curve", lambda folder: None)
    monkeypatch.setitem(train_gpt2.SIZES, "nano", (1, 2, 8))
    options = (
        "--path_to_data", data, "--working_directory", data, "--context_length", 8, "--batch_size", 2,
        "--eval_interval", 100, "--eval_iterations", 1, "--warmup_steps", 0, "--max_lr", 1e-3,
        "--min_lr", 1e-3, "--dropout_p", 0.1, "--log_iter", 1, *options,
    )
    monkeypatch.setattr("sys.argv", ["train_gpt2.py", *map(str, options)])
    train_gpt2.main()


def test_the_training_script_resumes_exactly(fake_cuda, monkeypatch, data):
    run_training(monkeypatch, data, "--device", DEVICE, "--project_name", "whole", "--train_iterations", 6)
    run_training(monkeypatch, data, "--device", DEVICE, "--project_name", "part", "--train_iterations", 3)
    resume = ("--resume_from_checkpoint", data / "part", "--train_iterations")
    run_training(monkeypatch, data, "--device", DEVICE, *resume, 6)
    whole, part = (mytorch.load(newest(data / name) / "model.safetensors") for name in ("whole", "part"))
    for name, p in whole.items():
        np.testing.assert_array_equal(p.numpy(), part[name].numpy(), err_msg=name)
    run_training(monkeypatch, data, "--device", "cpu", *resume, 7)  # another kind of device goes on, too
    assert mytorch.load(newest(data / "part") / "custom_checkpoint.bin")["iteration"] == 7


def test_the_inference_script_writes_the_same_on_both(fake_cuda, monkeypatch, capsys, data):
    model = tiny("cpu", vocab_size=5)
    folder = data / "model"
    folder.mkdir()
    mytorch.save(model.state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(model.config.to_dict()))
    CharTokenizer("abcde").save(folder / "tokenizer.json")
    texts = []
    for device in ("cpu", DEVICE):
        options = [folder, "--device", device, "--prompt", "abc", "--max_new_tokens", 12, "--temperature", 0]
        monkeypatch.setattr("sys.argv", ["inference_gpt2.py", *map(str, options)])
        inference_gpt2.main()
        texts.append(capsys.readouterr().out.partition("\n")[0])
    assert texts[0] == texts[1] and len(texts[0]) == 15


def test_a_step_never_waits_for_the_gpu(fake_cuda, monkeypatch):
    """Reading a number, or a size that depends on one, would stop the queue of kernels."""
    model = tiny(DEVICE, dropout_p=0.1)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    tokens = mytorch.from_numpy(TOKENS[0]).to(DEVICE)
    repeats = mytorch.tensor([1, 0, 2], device=DEVICE)

    def step():
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        logits = (
            model(tokens[:, :3])
            .topk(2)
            .values.masked_fill(tokens[:, :3, None] > 5, 0)
            .gather(2, tokens[:, :3, None] * 0)
        )
        return logits.repeat_interleave(repeats, 1, output_size=3)

    step()  # what is made once may take its time
    with never_waiting(monkeypatch, fake_cuda):
        step()
        with pytest.raises(AssertionError, match="waits"):
            tokens.sum().item()
