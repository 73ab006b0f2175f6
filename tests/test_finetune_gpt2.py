"""finetune_gpt2.py in this process, on a tiny model and a few lines of text."""

import json
import os
import re
import signal

import numpy as np
import pytest

import finetune_gpt2
import inference_gpt2
import mytorch
from mytorch.models import GPT2, GPT2Config
from mytorch.tokenizers import CharTokenizer
from prepare_data import prepare_text
from tests.every import every

TEXT = "the quick brown fox jumps over the lazy dog. " * 20
CONFIG = GPT2Config(len(set(TEXT)), 16, n_layer=3, n_head=2, n_embd=16, bias=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with data and, as train_gpt2.py leaves it, a model in run/."""
    folder = tmp_path_factory.mktemp("finetune")
    (folder / "text.txt").write_text(TEXT)
    assert prepare_text.main([str(folder / "text.txt"), "--path_to_save", str(folder / "data")]) == 0
    (folder / "run").mkdir()
    mytorch.manual_seed(0)
    mytorch.save(GPT2(CONFIG).state_dict(), folder / "run/model.safetensors")
    CONFIG.save(folder / "run/config.json")
    CharTokenizer.load(folder / "data/tokenizer.json").save(folder / "run/tokenizer.json")
    return folder


def finetune(folder, name, *options, base="run"):
    """The model that finetune_gpt2.py leaves, and its folder."""
    options = [
        folder / base, "--path_to_data", folder / "data", "--path_to_save", folder / name, "--device", "cpu",
        "--train_iterations", 6, "--eval_interval", 3, "--eval_iterations", 2, "--warmup_steps", 0,
        "--max_lr", 3e-3, *options,
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["finetune_gpt2.py", *map(str, options)])
        finetune_gpt2.main()
    return GPT2.from_pretrained(folder / name), folder / name


def losses(out):
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line["val_loss"] for line in lines if "val_loss" in line]


def changed(folder, model):
    """The names of the weights that differ from those of the run."""
    before = dict(GPT2.from_pretrained(folder / "run").named_parameters())
    after = dict(model.named_parameters())
    new = [name for name in after if name not in before]  # zeros: the run has no biases
    assert every(name.endswith("bias") and not after[name].any() for name in new)
    return [name for name in before if (after[name] != before[name]).any()]


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_adapters(folder, precision, monkeypatch, capsys):
    options = ["--lora_rank", 2, "--lora_alpha", 4, "--lora_targets", "c_attn", "c_fc", "--freeze_layers", 1]
    model, out = finetune(folder, f"lora-{precision}", *options, "--mixed_precision", precision)
    assert {path.name for path in out.iterdir()} == {
        "adapter.safetensors", "checkpoints", "config.json", "metrics.jsonl", "model.safetensors",
        "tokenizer.json",
    }
    adapter = mytorch.load(out / "adapter.safetensors")
    layers = [f"transformer.h.{i}.{name}" for i in (1, 2) for name in ("attn.c_attn", "mlp.c_fc")]
    assert sorted(adapter) == sorted(f"{layer}.lora_{part}" for layer in layers for part in "AB")
    assert sum(value.numel() for value in adapter.values()) == 2 * (2 * (16 + 48) + 2 * (16 + 64))
    assert changed(folder, model) == [f"{layer}.weight" for layer in layers]
    before = GPT2.from_pretrained(folder / "run").state_dict()
    for layer in layers:
        update = adapter[f"{layer}.lora_B"] @ adapter[f"{layer}.lora_A"] * (4 / 2)
        expected = (before[f"{layer}.weight"] + update).numpy()
        np.testing.assert_allclose(
            model.state_dict()[f"{layer}.weight"].numpy(), expected, rtol=1e-5, atol=1e-6
        )
    found = losses(out)
    assert len(found) == 3 and found[-1] < found[0]
    assert "576 of 10,608 parameters are trained" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["inference_gpt2.py", str(out), "--device", "cpu", "--prompt", "the",
                                     "--max_new_tokens", "5"])
    inference_gpt2.main()
    assert capsys.readouterr().out.startswith("the")


def test_frozen_layers(folder):
    model, out = finetune(folder, "frozen", "--freeze_layers", 2)
    names = changed(folder, model)
    assert names and every(name.startswith(("transformer.h.2.", "transformer.ln_f.")) for name in names)
    assert not list(out.glob("*ed.safetensors")) and losses(out)[-1] < losses(out)[0]


def test_all_layers(folder):
    model, out = finetune(folder, "all")
    assert len(changed(folder, model)) == len(list(GPT2(CONFIG).parameters()))
    assert losses(out)[-1] < losses(out)[0]


def test_a_second_fine_tuning_of_the_result(folder):
    """Of Hugging Face's layout."""
    finetune(folder, "first", "--freeze_layers", 2)
    model, _ = finetune(folder, "second", "--lora_rank", 1, base="first")
    assert model.config.bias
    names = {name.split(".", 2)[2] for name in changed(folder, model) if ".h." in name}
    assert {"0.attn.c_attn.weight", "1.attn.c_attn.weight"} < names and "2.mlp.c_fc.weight" in names
    assert not any(name.startswith(("0.mlp", "1.mlp")) for name in names)


WRONG = {
    "layers": (["--freeze_layers", "3", "--lora_rank", "1"], "--freeze_layers 3: the model has 3 layers"),
    "rank": (["--lora_rank", "99"], "rank must be from 1 to 16"),
    "target": (["--lora_rank", "2", "--lora_targets", "c_att"], "no layer has one of the names"),
    "context": (["--context_length", "99999"], "a context of 99999 needs at least"),
    "data": (["--path_to_data", "nowhere"], "nowhere/train.bin does not exist"),
    "batch": (["--batch_size", "0"], "--batch_size must be at least 1, got 0"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_calls_end_in_one_line(folder, kind, capsys):
    options, message = WRONG[kind]
    with pytest.raises(SystemExit) as caught:
        finetune(folder, "wrong", *options)
    text = capsys.readouterr().err if caught.value.code == 2 else str(caught.value.code)
    assert re.search(message, text) and not (folder / "wrong").exists()


RESUMED = {
    "adapters": ["--lora_rank", 2, "--lora_targets", "c_attn", "c_fc", "--lora_dropout_p", 0.3],
    "adapters, fp16": ["--lora_rank", 2, "--mixed_precision", "fp16", "--lora_dropout_p", 0.3],
    "frozen layers": ["--freeze_layers", 2],
}


@pytest.fixture
def interrupted(monkeypatch):
    """Ctrl-C at the end of the second step; the signal handlers of before afterwards."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    step, losses = finetune_gpt2.train_step, []

    def train_step(*args):
        losses.append(step(*args))
        if len(losses) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return losses[-1]

    monkeypatch.setattr(finetune_gpt2, "train_step", train_step)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("kind", RESUMED)
def test_resuming_continues_exactly(folder, kind, interrupted, capsys):
    """After Ctrl-C; after the end nothing is left to do."""
    name, options = f"stopped-{kind}", RESUMED[kind]
    with pytest.raises(SystemExit, match="130"):
        finetune(folder, name, *options)
    assert "stopped after iteration 2; continue with --resume" in capsys.readouterr().out
    assert not (folder / name / "model.safetensors").exists()
    model, out = finetune(folder, name, *options, "--resume")
    whole, expected = finetune(folder, f"whole-{kind}", *options)
    found = [(path / "metrics.jsonl").read_text().splitlines() for path in (out, expected)]
    found = [[{k: v for k, v in json.loads(line).items() if k != "time"} for line in file] for file in found]
    assert found[0] == found[1] and len(losses(out)) == 3  # bit for bit
    model_again, _ = finetune(folder, name, *options, "--resume")
    for each in (model, model_again):
        for key, value in each.state_dict().items():
            assert (value == whole.state_dict()[key]).all(), key


def test_what_can_not_be_resumed(folder):
    with pytest.raises(SystemExit, match="can't resume from .*nothing: no checkpoint found in .*nothing"):
        finetune(folder, "nothing", "--resume")
    assert not (folder / "nothing").exists()
    finetune(folder, "of-rank-1", "--lora_rank", 1)
    for rank in (0, 2):
        with pytest.raises(SystemExit, match="of another model, not .*'lora_rank': " + str(rank)):
            finetune(folder, "of-rank-1", "--lora_rank", rank, "--resume")
    finetune(folder, "of-rank-1", "--lora_rank", 2)  # a new run in the same folder
    assert (folder / "of-rank-1/checkpoints.old").exists()


def test_a_run_that_diverges_ends(folder):
    with pytest.raises(SystemExit, match="the validation loss is (nan|inf); a lower --max_lr may help"):
        finetune(folder, "diverged", "--max_lr", 1e38, "--min_lr", 1e38, "--max_grad_norm", 0)


def test_data_of_another_tokenizer_is_refused(folder, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT.upper())
    assert prepare_text.main([str(tmp_path / "text.txt"), "--path_to_save", str(tmp_path / "data")]) == 0
    with pytest.raises(SystemExit, match="is not the tokenizer of the model"):
        finetune(folder, "wrong", "--path_to_data", tmp_path / "data")
