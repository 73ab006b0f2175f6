"""train_gpt2.py and inference_gpt2.py as a user runs them, on a few lines of text."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest

import mytorch
from tests.distributed.launched import ROOT, needs_mpi, surroundings

TEXT = "the quick brown fox jumps over the lazy dog. " * 60
SHORT = [
    "--model_size", "nano", "--context_length", "16", "--batch_size", "4", "--eval_interval", "6",
    "--eval_iterations", "2", "--log_iter", "1", "--checkpoint_iterations", "4", "--warmup_steps", "2",
    "--device", "cpu", "--dropout_p", "0.1",
]  # fmt: skip


# train_gpt2.py, whose process is killed in iteration 7 the first time.
KILLED = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
import train_gpt2
step = train_gpt2.train_step
def killed(accelerator, model, optimizer, tokens, iteration, args):
    if iteration == 7 and os.environ["MYTORCH_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), 9)
    return step(accelerator, model, optimizer, tokens, iteration, args)
train_gpt2.train_step = killed
train_gpt2.main()
"""


def run(*command, cwd, ok=True):
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=300,
        env=surroundings(),
    )  # fmt: skip
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done


def script(folder, processes):
    launcher = ["-m", "mytorch.distributed.launch", "--cpu", "-n", processes] if processes > 1 else []
    return [*launcher, ROOT / "train_gpt2.py", "--path_to_data", folder / "data", *SHORT]


def train(folder, *options, ok=True, processes=1):
    return run(*script(folder, processes), *options, cwd=folder, ok=ok)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with prepared data and a short finished run in work_dir/run."""
    folder = tmp_path_factory.mktemp("gpt2")
    (folder / "text.txt").write_text(TEXT)
    prepare = ROOT / "prepare_data/prepare_text.py"
    run(prepare, folder / "text.txt", "--path_to_save", folder / "data", cwd=folder)
    train(folder, "--project_name", "run", "--train_iterations", "12")
    return folder


def metrics(path, key):
    text = (path / "metrics.jsonl").read_text()
    text = text[: text.rfind("\n") + 1]  # the last line may be half-written
    lines = [json.loads(line) for line in text.splitlines()]
    return {m["iteration"]: m[key] for m in lines if key in m}


def newest(run):
    """The last checkpoint of a run."""
    return max((run / "checkpoints").glob("checkpoint_*"), key=lambda path: int(path.name.split("_")[1]))


def test_a_run_leaves_model_metrics_and_picture(folder):
    out = folder / "work_dir/run"
    assert {p.name for p in out.iterdir()} == {
        "checkpoints", "model.safetensors", "config.json", "tokenizer.json", "metrics.jsonl", "loss.png",
    }  # fmt: skip
    losses = metrics(out, "loss")
    assert list(losses) == list(range(1, 13)) and losses[12] < losses[1]
    assert set(metrics(out, "val_loss")) == {0, 6, 12} and metrics(out, "whole_split") == {12: True}
    assert metrics(out, "lr")[2] == pytest.approx(1e-3 * 2 / 3)
    assert min(metrics(out, "tokens_per_second").values()) > 0


def test_the_last_state_is_saved_once(folder):
    saved = sorted((folder / "work_dir/run/checkpoints").glob("checkpoint_*"), key=lambda path: path.name)
    states = [mytorch.load(path / "custom_checkpoint.bin") for path in saved]
    assert [path.name for path in saved] == ["checkpoint_1", "checkpoint_2"]
    assert [state["iteration"] for state in states] == [8, 12]
    lines = map(json.loads, (folder / "work_dir/run/metrics.jsonl").read_text().splitlines())
    assert states[1]["best_val_loss"] == min(line["val_loss"] for line in lines if "train_loss" in line)


@needs_mpi
def test_two_processes_learn_as_one_with_twice_the_batch(folder):
    """Also where each of them adds up several batches, and from a checkpoint of the other."""
    common = ["--dropout_p", "0", "--gradient_accumulation_steps", "2", "--train_iterations"]
    train(folder, "--project_name", "two", "--batch_size", "2", *common, "8", processes=2)
    train(folder, "--project_name", "one", "--batch_size", "4", *common, "8")
    train(folder, "--resume_from_checkpoint", "work_dir/two", "--batch_size", "4", *common, "12")
    train(folder, "--resume_from_checkpoint", "work_dir/one", "--batch_size", "2", *common, "12", processes=2)
    one, two = folder / "work_dir/one", folder / "work_dir/two"
    assert {p.name for p in one.iterdir()} == {p.name for p in two.iterdir()}
    for key, count in (("loss", 12), ("train_loss", 4), ("val_loss", 4), ("lr", 12)):
        assert len(metrics(one, key)) == count and metrics(two, key) == pytest.approx(
            metrics(one, key), rel=1e-5
        )
    lines = [(path / "metrics.jsonl").read_text().count("\n") for path in (one, two)]
    assert lines[0] == lines[1]  # only one of the processes writes


@needs_mpi
def test_two_processes_draw_dropout_of_their_own(folder):
    """With the same masks on both, the loss would be that of one process; it is not."""
    options = ["--dropout_p", "0.5", "--train_iterations", "1"]
    first = []
    for name, batch, processes in (("own-1", "4", 1), ("own-2", "2", 2)):
        train(folder, "--project_name", name, "--batch_size", batch, *options, processes=processes)
        first.append(metrics(folder / "work_dir" / name, "loss")[1])
    assert first[0] != pytest.approx(first[1], rel=1e-5) and first[0] == pytest.approx(first[1], rel=0.1)


CONSTANT = ["--max_lr", "1e-3", "--min_lr", "1e-3", "--warmup_steps", "0", "--dropout_p", "0"]


@pytest.fixture(scope="module")
def single(folder):
    """The losses of a run in float32."""
    train(folder, "--project_name", "single", *CONSTANT, "--train_iterations", "12")
    return metrics(folder / "work_dir/single", "loss")


@pytest.mark.parametrize("given, precision", [([], "fp16"), (["bf16"], "bf16")])
def test_half_precision_learns_as_float32_and_resumes_exactly(folder, single, given, precision):
    common = [*CONSTANT, "--train_iterations"]
    half = ["--mixed_precision", *given, *common]
    path = f"work_dir/{precision}"
    train(folder, "--project_name", precision, *half, "6")
    train(folder, "--resume_from_checkpoint", path, *half, "12")
    train(folder, "--project_name", f"{precision}-whole", *half, "12")
    found, whole = (metrics(folder / name, "loss") for name in (path, f"{path}-whole"))
    assert found == pytest.approx(single, rel=0.01) and found != single
    assert [found[i] for i in range(7, 13)] == [whole[i] for i in range(7, 13)]
    state = mytorch.load(newest(folder / path) / "mp_config.bin")
    assert state["precision"] == precision and (state["scaler"] is None) == (precision == "bf16")
    done = train(folder, "--resume_from_checkpoint", path, *common, "13", ok=False)
    assert "saved with mixed precision" in done.stderr and "Traceback" not in done.stderr
    out = run(ROOT / "inference_gpt2.py", path, "--prompt", "the", "--device", "cpu", cwd=folder).stdout
    assert out.startswith("the")


def test_it_starts_again_from_the_last_checkpoint(folder):
    """Killed in the middle, and started again by mytorchrun: as if nothing had happened."""
    options = ["--train_iterations", "9", "--dropout_p", "0.1", "--project_name"]
    train(folder, *options, "undisturbed")
    launcher = ["-m", "mytorch.distributed.launch", "--cpu", "--max_restarts", "1", folder / "killed.py"]
    (folder / "killed.py").write_text(KILLED)
    done = run(*launcher, *script(folder, 1)[1:], *options, "killed", cwd=folder)
    assert "restart 1 of 1" in done.stderr
    losses = [metrics(folder / "work_dir" / name, "loss") for name in ("undisturbed", "killed")]
    assert list(losses[0]) == list(range(1, 10)) and losses[0] == losses[1]


def test_a_new_run_puts_the_checkpoints_of_the_old_one_aside(folder):
    for iterations in ("4", "2"):
        train(folder, "--project_name", "again", "--train_iterations", iterations)
    found = [folder / "work_dir/again" / name for name in ("checkpoints.old", "checkpoints")]
    states = [mytorch.load(max(path.glob("checkpoint_*")) / "custom_checkpoint.bin") for path in found]
    assert [state["iteration"] for state in states] == [4, 2]


def test_a_damaged_checkpoint_is_refused_by_name(folder):
    shutil.copytree(folder / "work_dir/run", folder / "work_dir/damaged")
    path = newest(folder / "work_dir/damaged") / "optimizer.bin"
    path.write_bytes(path.read_bytes()[:-1])
    done = train(folder, "--resume_from_checkpoint", "work_dir/damaged", ok=False)
    assert "optimizer.bin has" in done.stderr and "the last good checkpoint is" in done.stderr
    assert "Traceback" not in done.stderr


@needs_mpi
def test_two_processes_stop_together_and_resume_exactly(folder):
    constant = ["--max_lr", "1e-3", "--min_lr", "1e-3", "--warmup_steps", "0", "--eval_interval", "1000000"]
    stopped = stop_after(folder, "both", 5, *constant, processes=2)
    end = mytorch.load(newest(stopped) / "custom_checkpoint.bin")["iteration"] + 5
    resumed = ["--resume_from_checkpoint", stopped, "--train_iterations", end]
    train(folder, *constant, *resumed, processes=2)
    train(folder, *constant, "--project_name", "both-whole", "--train_iterations", end, processes=2)
    assert list(metrics(stopped, "loss")) == list(range(1, end + 1))
    assert metrics(stopped, "loss") == metrics(folder / "work_dir/both-whole", "loss")  # bit for bit


def test_resuming_continues_exactly(folder):
    constant = ["--max_lr", "1e-3", "--min_lr", "1e-3", "--warmup_steps", "0", "--eval_interval", "1000000"]
    stopped = stop_after(folder, "stopped", 7, *constant)
    reached = mytorch.load(newest(stopped) / "custom_checkpoint.bin")["iteration"]
    end = reached + 6
    train(folder, *constant, "--resume_from_checkpoint", stopped, "--train_iterations", end)
    train(folder, *constant, "--project_name", "whole", "--train_iterations", end)
    whole = folder / "work_dir/whole"
    assert reached >= 7 and list(metrics(stopped, "loss")) == list(range(1, end + 1))
    assert metrics(stopped, "loss") == metrics(whole, "loss")  # bit for bit
    a, b = (mytorch.load(newest(out) / "model.safetensors") for out in (stopped, whole))
    for name, value in a.items():
        assert (value.numpy() == b[name].numpy()).all(), name


def stop_after(folder, name, iteration, *options, processes=1):
    """Start an endless run, press Ctrl-C once it has logged an iteration; its folder."""
    out = folder / "work_dir" / name
    process = subprocess.Popen(
        [sys.executable, *map(str, script(folder, processes)), *options, "--project_name", name,
         "--train_iterations", "1000000"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=surroundings(),
    )  # fmt: skip
    deadline = time.time() + 300
    while time.time() < deadline and process.poll() is None:
        if (out / "metrics.jsonl").exists() and iteration in metrics(out, "loss"):
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=300)[0]
    assert process.returncode == 130, text
    assert "continue with --resume_from_checkpoint" in text and "Traceback" not in text
    return out


def test_inference_writes_the_same_text_with_and_without_cache(folder):
    options = [
        "work_dir/run/", "--prompt", "the q", "--max_new_tokens", "30", "--seed", "5", "--device", "cpu",
    ]  # fmt: skip
    texts = []
    for extra in ([], ["--no_cache"], ["--temperature", "0", "--topk", "1"]):
        out = run(ROOT / "inference_gpt2.py", *options, *extra, cwd=folder).stdout
        text, _, rest = out.partition("\n\n[")
        assert text.startswith("the q") and len(text) == 5 + 30 and rest.startswith("30 tokens")
        texts.append(text)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        ("train_gpt2.py", ["--path_to_data", "nowhere"], "nowhere/train.bin is missing; make it with"),
        ("train_gpt2.py", ["--path_to_data", "data", "--context_length", "100000"],
         "too few for a context of 100000"),
        ("train_gpt2.py", ["--model_size", "tiny"], "invalid choice: 'tiny'"),
        ("train_gpt2.py", ["--mixed_precision", "fp8"], "invalid choice: 'fp8'"),
        ("train_gpt2.py", ["--batch_size", "0"], "--batch_size must be at least 1, got 0"),
        ("train_gpt2.py",
         ["--path_to_data", "data", "--model_size", "small", "--resume_from_checkpoint", "work_dir/run"],
         "of another model"),
        ("train_gpt2.py", ["--path_to_data", "data", "--resume_from_checkpoint", "nothing"],
         "nothing holds no checkpoint"),
        ("inference_gpt2.py", ["nothing"], "nothing holds no model.safetensors"),
        ("inference_gpt2.py", ["work_dir/run", "--prompt", "THE"], "--prompt.*'T'"),
        ("inference_gpt2.py", ["work_dir/run", "--topk", "-1"], "--topk at least 0"),
    ],
)  # fmt: skip
def test_wrong_calls_end_in_one_line(folder, program, options, message):
    done = run(ROOT / program, *options, cwd=folder, ok=False)
    import re

    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_every_option():
    text = run(ROOT / "train_gpt2.py", "--help", cwd=ROOT).stdout
    for name in [
        "project_name", "working_directory", "context_length", "model_size", "dropout_p", "path_to_data",
        "train_iterations", "eval_interval", "eval_iterations", "batch_size", "gradient_accumulation_steps",
        "max_lr", "min_lr", "warmup_steps", "weight_decay", "max_grad_norm", "beta1", "beta2", "log_iter",
        "fused", "mixed_precision", "log_wandb", "seed", "device", "resume_from_checkpoint",
        "checkpoint_iterations",
    ]:  # fmt: skip
        assert f"--{name} " in text or f"--{name}\n" in text, name
