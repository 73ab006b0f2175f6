"""train_gpt2.py and inference_gpt2.py as a user runs them, on a few lines of text.

Trainings of one process run in this process, which saves its start; those of two run one after the other in
a single launch of train_gpt2_program.py.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

import inference_gpt2
import mytorch
import train_gpt2
from mytorch.models import GPT2, GPT2Config
from tests import train_gpt2_program as program
from tests.distributed.launched import ROOT, launch, needs_mpi, surroundings

TEXT = "the quick brown fox jumps over the lazy dog. " * 60
SHORT = [
    "--model_size", "nano", "--context_length", "16", "--batch_size", "4", "--eval_interval", "6",
    "--eval_iterations", "2", "--log_iter", "1", "--checkpoint_iterations", "4", "--warmup_steps", "2",
    "--device", "cpu", "--dropout_p", "0.1", "--sample_tokens", "8",
]


def run(*command, cwd):
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=300,
        env=surroundings(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def options_of(folder, name, *options):
    """The options of a short run; `name` is the folder of the run."""
    return ["--path_to_data", str(folder / "data"), "--working_directory", str(folder / "work_dir"), *SHORT,
            "--project_name", name, *map(str, options)]


def train(folder, name, *options):
    """Runs train_gpt2.main(); returns the exit code or message of SystemExit, 0 without one."""
    return program.run_main(options_of(folder, name, *options))


def resume(folder, name):
    return "--resume_from_checkpoint", folder / "work_dir" / name


@pytest.fixture(scope="module", autouse=True)
def without_launcher():
    """No variable of a launcher around the tests, and the signal handlers of before afterwards."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MYTORCH_")]:
            patch.delenv(name)
        patch.setenv("MYTORCH_COMPILE", "wait")
        yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with prepared data and a short finished run in work_dir/run, made by the scripts."""
    folder = tmp_path_factory.mktemp("gpt2")
    (folder / "text.txt").write_text(TEXT)
    prepare = ROOT / "prepare_data/prepare_text.py"
    run(prepare, folder / "text.txt", "--path_to_save", folder / "data", cwd=folder)
    run(ROOT / "train_gpt2.py", *options_of(folder, "run", "--train_iterations", 12), cwd=folder)
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
    }
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


ADDING = ["--dropout_p", "0", "--gradient_accumulation_steps", "2", "--train_iterations"]
DROPPING = ["--dropout_p", "0.5", "--train_iterations", "1"]
CONSTANT = ["--max_lr", "1e-3", "--min_lr", "1e-3", "--warmup_steps", "0"]
DIVERGING = ["--warmup_steps", "0", "--train_iterations", "8", "--eval_interval", "1000000", "--max_lr"]
ENDLESS = [*CONSTANT, "--eval_interval", "1000000", "--train_iterations"]


@pytest.fixture(scope="module")
def together(folder):
    """The trainings of two processes: {name: what SystemExit had, 0 without one}, from both processes.

    work_dir/one was trained by one process, and is continued by two.
    """
    assert train(folder, "one", *ADDING, 8) == 0
    runs = {
        "two": options_of(folder, "two", "--batch_size", "2", *ADDING, 8),
        "one continued": options_of(folder, "one", "--batch_size", "2", *ADDING, 12, *resume(folder, "one")),
        "dropout": options_of(folder, "dropout-2", "--batch_size", "2", *DROPPING),
        "stopped 5": options_of(folder, "both", *ENDLESS, 1000000),
        "resumed": options_of(folder, "both", *ENDLESS, 8, *resume(folder, "both")),
        "whole": options_of(folder, "both-whole", *ENDLESS, 8),
        "diverging": options_of(folder, "both-nan", *DIVERGING, "1e30"),
        "diverging on": options_of(folder, "both-nan-on", *DIVERGING, "1e30", "--allow_nan"),
    }
    (folder / "runs.json").write_text(json.dumps(runs))
    code, out, err = launch("-n", 2, program.__file__, folder / "runs.json", limit=300)
    assert code == 0, out + err
    return [json.loads((folder / f"runs.json.{rank}").read_text()) for rank in range(2)], out


@needs_mpi
def test_two_processes_learn_as_one_with_twice_the_batch(folder, together):
    """Also where each of them adds up several batches, and from a checkpoint of the other."""
    assert train(folder, "two", *ADDING, 12, *resume(folder, "two")) == 0
    one, two = folder / "work_dir/one", folder / "work_dir/two"
    assert {p.name for p in one.iterdir()} == {p.name for p in two.iterdir()}
    for key, count in (("loss", 12), ("train_loss", 4), ("val_loss", 4), ("lr", 12)):
        assert len(metrics(one, key)) == count and metrics(two, key) == pytest.approx(
            metrics(one, key), rel=1e-5
        )
    lines = [(path / "metrics.jsonl").read_text().count("\n") for path in (one, two)]
    assert lines[0] == lines[1]  # only one of the processes writes


LOSS = r"iteration \d: the training loss is (?:nan|inf)"
WEIGHTS = r"iteration \d: \d+ of \d+ weights are inf or NaN"
# How a run diverges: further options, and what it ends with.
DIVERGED = {
    "loss": (["1e30"], LOSS),
    "rarely logged": (["1e30", "--log_iter", "4"], LOSS.replace(r"\d", "4", 1)),
    "bf16": (["1e30", "--mixed_precision", "bf16"], LOSS),
    "weights to save": (["1e39", "--checkpoint_iterations", "1"], WEIGHTS),
    "weights of fp16": (["1e39", "--mixed_precision", "fp16"], WEIGHTS),
}


@pytest.mark.parametrize("name", DIVERGED)
def test_a_run_that_diverges_ends(name, folder):
    options, message = DIVERGED[name]
    end = train(folder, f"nan-{name}", *DIVERGING, *options)
    assert re.match(f"{message}.*; --allow_nan trains on$", end)
    assert not (folder / f"work_dir/nan-{name}/checkpoints").exists()


def test_a_run_that_diverges_goes_on_if_allowed(folder):
    assert train(folder, "nan-on", *DIVERGING, "1e30", "--allow_nan") == 0
    path = folder / "work_dir/nan-on"
    assert len(metrics(path, "loss")) == 8
    text = (path / "metrics.jsonl").read_text()
    lines = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert any("loss_nonfinite" in line and line["loss"] is None for line in lines)


def test_losses_that_fp16_skips_end_no_run(folder, monkeypatch):
    step = train_gpt2.train_step
    monkeypatch.setattr(train_gpt2, "train_step", lambda *args: step(*args) * float("nan"))
    assert train(folder, "fp16-nan", "--mixed_precision", "fp16", "--train_iterations", 2) == 0


@needs_mpi
def test_two_processes_that_diverge_end_together(folder, together):
    message = r"iteration \d: backward\(\): the loss on rank \d is .*; --allow_nan trains on"
    for ends in together[0]:
        assert re.match(message, ends["diverging"])
        assert ends["diverging on"] == 0
    assert len(metrics(folder / "work_dir/both-nan-on", "loss")) == 8


@needs_mpi
def test_two_processes_draw_dropout_of_their_own(folder, together):
    """With the same masks on both, the loss would be that of one process; it is not."""
    assert train(folder, "dropout-1", *DROPPING) == 0
    first = [metrics(folder / f"work_dir/dropout-{processes}", "loss")[1] for processes in (1, 2)]
    assert first[0] != pytest.approx(first[1], rel=1e-5) and first[0] == pytest.approx(first[1], rel=0.1)


@needs_mpi
def test_two_processes_stop_together_and_resume_exactly(folder, together):
    """Only the second process gets the signal."""
    exits, out = together
    for ends in exits:
        assert {**ends, "diverging": 0} == {name: 130 if name == "stopped 5" else 0 for name in ends}
    both = folder / "work_dir/both"
    assert f"stopped after iteration 5; continue with --resume_from_checkpoint {both}" in out
    assert list(metrics(both, "loss")) == list(range(1, 9))
    assert metrics(both, "loss") == metrics(folder / "work_dir/both-whole", "loss")  # bit for bit


@pytest.fixture(scope="module")
def single(folder):
    """The losses of a run in float32."""
    assert train(folder, "single", *CONSTANT, "--dropout_p", 0, "--train_iterations", 8) == 0
    return metrics(folder / "work_dir/single", "loss")


@pytest.mark.parametrize("given, precision", [([], "fp16"), (["bf16"], "bf16")])
def test_half_precision_learns_as_float32_and_resumes_exactly(folder, single, given, precision):
    common = [*CONSTANT, "--dropout_p", 0, "--train_iterations"]
    half = ["--mixed_precision", *given, *common]
    whole, out = f"{precision}-whole", folder / "work_dir" / precision
    assert train(folder, precision, *half, 4) == train(folder, whole, *half, 8) == 0
    assert train(folder, precision, *half, 8, *resume(folder, precision)) == 0
    found, expected = metrics(out, "loss"), metrics(folder / "work_dir" / whole, "loss")
    assert found == pytest.approx(single, rel=0.01) and found != single
    assert found == expected  # bit for bit
    state = mytorch.load(newest(out) / "mp_config.bin")
    assert state["precision"] == precision and (state["scaler"] is None) == (precision == "bf16")
    assert "saved with mixed precision" in train(folder, precision, *common, 9, *resume(folder, precision))


def test_the_schedule_is_that_of_the_options(folder):
    """Linear warm-up and cosine, also for more iterations and another rate than those of the checkpoint."""
    rates = ["--max_lr", "1e-2", "--min_lr", "1e-3", "--warmup_steps", "2", "--train_iterations"]
    assert train(folder, "lr", "--train_iterations", 3) == 0
    assert train(folder, "lr", *rates, 6, *resume(folder, "lr")) == 0
    expected = {4: 0.00868198051533946, 5: 0.0055, 6: 0.00231801948466054}
    found = metrics(folder / "work_dir/lr", "lr")
    assert {i: lr for i, lr in found.items() if i > 3} == pytest.approx(expected)


# train_gpt2.py, whose process is killed in iteration 7 the first time.
KILLED = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
import train_gpt2
step, steps = train_gpt2.train_step, []
def killed(*args):
    steps.append(1)
    with open(__file__ + ".steps", "a") as file:
        file.write("step ")
    if len(steps) == 7 and os.environ["MYTORCH_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), 9)
    return step(*args)
train_gpt2.train_step = killed
train_gpt2.main()
"""


def test_it_starts_again_from_the_last_checkpoint(folder):
    """Killed in the middle, and started again by mytorchrun: to the last digit as if not."""
    (folder / "killed.py").write_text(KILLED)
    options = options_of(folder, "killed", "--train_iterations", 12)
    code, out, err = launch("-n", 1, "--max_restarts", 1, folder / "killed.py", *options, limit=300)
    assert code == 0 and "restart 1 of 1" in err, out + err
    losses = [metrics(folder / "work_dir" / name, "loss") for name in ("run", "killed")]
    assert list(losses[0]) == list(range(1, 13)) and losses[0] == losses[1]
    assert len((folder / "killed.py.steps").read_text().split()) == 7 + 8  # after iteration 4


def test_a_new_run_puts_the_checkpoints_of_the_old_one_aside(folder):
    for iterations in (4, 2):
        assert train(folder, "again", "--train_iterations", iterations) == 0
    found = [folder / "work_dir/again" / name for name in ("checkpoints.old", "checkpoints")]
    states = [mytorch.load(max(path.glob("checkpoint_*")) / "custom_checkpoint.bin") for path in found]
    assert [state["iteration"] for state in states] == [4, 2]


def test_a_damaged_checkpoint_is_refused_by_name(folder):
    shutil.copytree(folder / "work_dir/run", folder / "work_dir/damaged")
    path = newest(folder / "work_dir/damaged") / "optimizer.bin"
    path.write_bytes(path.read_bytes()[:-1])
    message = train(folder, "damaged", *resume(folder, "damaged"))
    assert "optimizer.bin has" in message and "the last good checkpoint is" in message


def test_resuming_continues_exactly(folder, capsys):
    """After Ctrl-C, which saves a checkpoint."""
    stop = program.interrupted_after(7)
    assert stop(options_of(folder, "stopped", *ENDLESS, 1000000)) == 130
    stopped, whole = folder / "work_dir/stopped", folder / "work_dir/whole"
    text = f"stopped after iteration 7; continue with --resume_from_checkpoint {stopped}"
    assert text in capsys.readouterr().out
    assert mytorch.load(newest(stopped) / "custom_checkpoint.bin")["iteration"] == 7
    assert train(folder, "stopped", *ENDLESS, 12, *resume(folder, "stopped")) == 0
    assert train(folder, "whole", *ENDLESS, 12) == 0
    assert list(metrics(stopped, "loss")) == list(range(1, 13))
    assert metrics(stopped, "loss") == metrics(whole, "loss")  # bit for bit
    a, b = (mytorch.load(newest(out) / "model.safetensors") for out in (stopped, whole))
    for name, value in a.items():
        assert (value.numpy() == b[name].numpy()).all(), name


def test_a_second_signal_ends_at_once(folder):
    with pytest.raises(KeyboardInterrupt):
        program.interrupted_after(3, times=2)(options_of(folder, "twice", *ENDLESS, 1000000))
    assert not (folder / "work_dir/twice/checkpoints").exists()


def test_inference_writes_the_same_text_with_and_without_cache(folder, capsys, monkeypatch):
    options = ["work_dir/run/", "--prompt", "the q", "--max_new_tokens", "30", "--device", "cpu"]
    texts = [run(ROOT / "inference_gpt2.py", *options, cwd=folder)]
    monkeypatch.chdir(folder)
    for extra in (["--no_cache"], ["--temperature", "0", "--topk", "1"]):
        monkeypatch.setattr("sys.argv", ["inference_gpt2.py", *options, *extra])
        inference_gpt2.main()
        texts.append(capsys.readouterr().out)
    for i, out in enumerate(texts):
        texts[i], _, rest = out.partition("\n\n[")
        assert texts[i].startswith("the q") and len(texts[i]) == 5 + 30 and rest.startswith("30 tokens")
    assert texts[0] == texts[1]


def test_the_hint_at_the_end_runs_where_the_path_has_no_python(folder, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    said = []
    for value in ("", "0"):  # train_gpt2.sh prints a hint itself
        monkeypatch.setenv("MYTORCH_SAMPLE_HINT", value)
        assert train(folder, "hint", "--train_iterations", 1, "--sample_tokens", 0) == 0
        said.append(re.findall("^a sample of its text: (.+)$", capsys.readouterr().out, re.M))
    ((hint,), silent) = said
    command = ["/bin/sh", "-c", f"{hint} --max_new_tokens 2 --device cpu"]
    environment = {**surroundings(), "PATH": "/nonexistent"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert silent == [] and done.returncode == 0 and "[2 tokens" in done.stdout, (hint, done.stderr)


OUT_OF_RANGE = {
    "beta1": ("2", "at least 0 and below 1, got 2.0"), "beta2": ("1", "at least 0 and below 1, got 1.0"),
    "dropout_p": ("-0.1", "at least 0 and below 1, got -0.1"), "max_lr": ("-1", "at least 0, got -1.0"),
    "min_lr": ("nan", "at least 0, got nan"), "warmup_steps": ("-1", "at least 0, got -1"),
    "weight_decay": ("inf", "at least 0, got inf"), "max_grad_norm": ("-1", "at least 0, got -1.0"),
    "batch_size": ("0", "at least 1, got 0"), "context_length": ("0", "at least 1, got 0"),
    "eval_interval": ("-2", "at least 1, got -2"), "sample_tokens": ("-1", "at least 0, got -1"),
    "seed": ("-1", "at least 0, got -1"), "peak_flops": ("0", "at least 1, got 0.0"),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_options_out_of_range_end_in_one_line(name, monkeypatch, capsys):
    value, says = OUT_OF_RANGE[name]
    monkeypatch.setattr("sys.argv", ["train_gpt2.py", f"--{name}={value}"])
    with pytest.raises(SystemExit) as caught:
        train_gpt2.main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: --{name} must be {says}\n")


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        (train_gpt2, ["--path_to_data", "nowhere"], "nowhere/train.bin does not exist; create it with"),
        (train_gpt2, ["--path_to_data", "data", "--context_length", "100000"],
         "a context of 100000 needs at least"),
        (train_gpt2, ["--model_size", "tiny"], "invalid choice: 'tiny'"),
        (train_gpt2, ["--mixed_precision", "fp8"], "invalid choice: 'fp8'"),
        (train_gpt2, ["--batch_size", "0"], "--batch_size must be at least 1, got 0"),
        (train_gpt2,
         ["--path_to_data", "data", "--model_size", "small", "--resume_from_checkpoint", "work_dir/run"],
         "of another model"),
        (train_gpt2, ["--path_to_data", "data", "--resume_from_checkpoint", "nothing"],
         "can't resume from nothing: no checkpoint found in nothing/checkpoints"),
        (train_gpt2, ["--path_to_data", "data", "--working_directory", "data/train.bin"],
         "can't make the folder data/train.bin/gpt2-small-shakespeare: "),
        (inference_gpt2, ["nothing"], "nothing contains no model.safetensors"),
        (inference_gpt2, ["work_dir/run", "--prompt", "THE"], "--prompt.*'T'"),
        (inference_gpt2, ["work_dir/run", "--topk", "-1"], "--topk at least 0"),
    ],
)
def test_wrong_calls_end_in_one_line(folder, script, options, message, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", [script.__file__, *options])
    with pytest.raises(SystemExit) as caught:
        script.main()
    text = capsys.readouterr().err if caught.value.code == 2 else str(caught.value.code)
    assert re.search(message, text) and "Traceback" not in text


DAMAGED_DATA = {  # a file in the folder of the data, its content: what is said
    "odd": ("train.bin", bytes(1001), "data/train.bin is damaged: 1,001 bytes are no whole number"),
    "train id": ("train.bin", b"\0\1" * 100, "data/train.bin: token 0 has the id 256, but the vocabulary"),
    "val id": ("val.bin", bytes(200) + b"\xff\xff", "data/val.bin: token 100 has the id 65535"),
    "tokenizer": ("tokenizer.json", b'{"type": "char", "characters": 3}', "tokenizer.json is not a char"),
    "no tokenizer": ("tokenizer.json", b"[", "tokenizer.json is damaged"),
}


@pytest.mark.parametrize("kind", DAMAGED_DATA)
def test_damaged_data_is_refused_before_the_training(folder, tmp_path, kind):
    name, content, message = DAMAGED_DATA[kind]
    shutil.copytree(folder / "data", tmp_path / "data")
    (tmp_path / "data" / name).write_bytes(content)
    assert message in train(tmp_path, "run") and not (tmp_path / "work_dir").exists()
    (tmp_path / "data" / name).unlink()
    os.mkfifo(tmp_path / "data" / name)
    assert f"data/{name}: it is a FIFO" in train(tmp_path, "run")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("config.json", b'{"n_layer": "4"}', "config.json is no configuration of a GPT-2: n_layer must"),
        ("config.json", b'{"n_layers": 4}', "config.json is no configuration.*'n_layers'"),
        ("config.json", b"[]", "config.json: expected a JSON object, got list"),
        ("config.json", b'{"n_layer": Infinity}', "config.json is damaged: Infinity is no number"),
        ("config.json", b'{"n_layer": 1}', "run: tensor .* has shape"),
        ("tokenizer.json", b"{}", "tokenizer.json is damaged: expected a tokenizer"),
        ("model.safetensors", b"", "model.safetensors: it is not a safetensors file"),
        ("model.safetensors", None, "model.safetensors: it is a FIFO"),
    ],
)
def test_a_damaged_run_generates_nothing(folder, tmp_path, monkeypatch, name, content, message):
    shutil.copytree(folder / "work_dir/run", tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "run" / name).unlink()
    if content is None:
        os.mkfifo(tmp_path / "run" / name)
    else:
        (tmp_path / "run" / name).write_bytes(content)
    monkeypatch.setattr("sys.argv", ["inference_gpt2.py", str(tmp_path / "run"), "--device", "cpu"])
    with pytest.raises(SystemExit, match=f"(?s){message}"):
        inference_gpt2.main()


def test_damaged_metrics_are_refused(folder, tmp_path):
    shutil.copytree(folder / "work_dir/run", tmp_path / "work_dir/run")
    shutil.copytree(folder / "data", tmp_path / "data")
    with open(tmp_path / "work_dir/run/metrics.jsonl", "a") as file:
        file.write("no JSON\n")
    message = train(tmp_path, "run", *resume(tmp_path, "run"))
    assert "can't resume from" in message and "metrics.jsonl, line" in message


def test_the_mfu_is_logged(folder):
    """For a peak at which it is one millionth of the tokens a second."""
    assert train(folder, "mfu", "--train_iterations", 2, "--peak_flops", 1e12) == 0
    config = json.loads((folder / "work_dir/mfu/config.json").read_text())
    flops = GPT2(GPT2Config(**config)).flops_per_token()
    speed, mfu = (metrics(folder / "work_dir/mfu", key) for key in ("tokens_per_second", "mfu"))
    assert mfu == pytest.approx({i: tokens * flops / 1e12 for i, tokens in speed.items()}, rel=1e-3)
    assert min(metrics(folder / "work_dir/run", "mfu").values()) > 0  # of the peak that was measured


def test_gradient_norms_and_samples_are_logged(folder, capsys):
    """Sampling changes nothing: the losses are those of a run without samples, bit for bit."""
    samples, norms = (metrics(folder / "work_dir/run", key) for key in ("sample", "grad_norm"))
    assert list(samples) == [0, 6, 12] and list(norms) == list(range(1, 13)) and min(norms.values()) > 0
    assert {len(text) for text in samples.values()} == {8} and set("".join(samples.values())) <= set(TEXT)
    for name, count in (("talking", 8), ("silent", 0)):
        assert train(folder, name, "--train_iterations", 12, "--sample_tokens", count) == 0
    silent = folder / "work_dir/silent"
    assert set(metrics(silent, "sample").values()) == {""}
    assert metrics(silent, "loss") == metrics(folder / "work_dir/talking", "loss")
    assert train(folder, "free", "--train_iterations", 1, "--max_grad_norm", 0) == 0
    printed = capsys.readouterr().out.splitlines()
    assert not metrics(folder / "work_dir/free", "grad_norm")
    before = metrics(folder / "work_dir/free", "sample")[0]
    assert printed[printed.index(f"    {before}".rstrip()) - 1].startswith("iteration 0: train ")


def test_chinchilla_sets_the_iterations(folder, monkeypatch):
    """20 tokens for each parameter; a tenth of the iterations at most is the warm-up."""
    given = []
    monkeypatch.setattr(train_gpt2, "train", lambda *args: given.append(args[-1]))
    options = ["--chinchilla", "--batch_size", 50, "--gradient_accumulation_steps", 3, "--warmup_steps"]
    for warmup, expected in ((10**6, None), (1, 1)):
        train(folder, "chinchilla", *options, warmup)
        args = given.pop()
        config = json.loads((folder / "work_dir/chinchilla/config.json").read_text())
        tokens, wanted = 50 * 3 * 16, 20 * GPT2(GPT2Config(**config)).num_parameters()
        assert tokens * (args.train_iterations - 1) < wanted <= tokens * args.train_iterations
        assert args.warmup_steps == (expected or args.train_iterations // 10)


def test_help_names_every_option(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["train_gpt2.py", "--help"])
    with pytest.raises(SystemExit):
        train_gpt2.main()
    text = capsys.readouterr().out
    for name in [
        "project_name", "working_directory", "context_length", "model_size", "dropout_p", "path_to_data",
        "train_iterations", "eval_interval", "eval_iterations", "batch_size", "gradient_accumulation_steps",
        "max_lr", "min_lr", "warmup_steps", "weight_decay", "max_grad_norm", "beta1", "beta2", "log_iter",
        "fused", "mixed_precision", "log_wandb", "seed", "device", "resume_from_checkpoint",
        "checkpoint_iterations", "chinchilla", "peak_flops", "sample_tokens",
    ]:
        assert f"--{name} " in text or f"--{name}\n" in text, name
