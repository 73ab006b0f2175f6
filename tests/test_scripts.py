"""train_gpt2.sh and run_tests.sh with a stand-in for Python, so that nothing is installed or trained."""

import os
import platform
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLAGS = ["mixed_precision", "fused", "log_wandb", "chinchilla"]
SCRIPTS = ["train_gpt2.sh", "run_tests.sh", ".ci/environment.sh", ".ci/run"]

# Answers as a supported Python in which all is installed, and writes down what it was called with.
PYTHON = """#!/bin/bash
case "$*" in
    "-c import cupy") exit "${FAKE_NO_CUPY:-0}" ;;
    -c*) exit "${FAKE_OLD:-0}" ;;
    --version) echo "Python 3.9.1"; exit 0 ;;
    "-m pip --version") exit 0 ;;
esac
echo "$@ OPENBLAS_CORETYPE=${OPENBLAS_CORETYPE:-}" >> "$LOG"
echo "$1 ${MYTORCH_SAMPLE_HINT:-}" >> "$LOG.hints"
case "$1" in */missing.py) echo "torch is missing"; exit "${FAKE_MISSING:-0}" ;; esac
"""
NVIDIA_SMI = """#!/bin/bash
[ -n "$FAKE_CUDA" ] || exit 9
if [ "${1:-}" = -L ]; then
    for i in $(seq "${FAKE_GPUS:-1}"); do echo "GPU $i: NVIDIA H200 (UUID: GPU-$i)"; done
    exit
fi
echo "| NVIDIA-SMI 580.65.06     Driver Version: 580.65.06     CUDA Version: $FAKE_CUDA     |"
"""


class Repo:
    """A copy of the scripts beside a stand-in environment and a stand-in nvidia-smi."""

    def __init__(self, folder):
        self.root, self.log = folder / "repo", folder / "log"
        environment, tools = folder / "environment", folder / "tools"
        for path, content in {environment / "bin/python": PYTHON, tools / "nvidia-smi": NVIDIA_SMI}.items():
            path.parent.mkdir(parents=True)
            path.write_text(content)
            path.chmod(0o755)
        for script in SCRIPTS:
            (self.root / script).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / script, self.root / script)
        self.env = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(environment),
            "LOG": str(self.log),
            "FAKE_CUDA": "",
        }

    def run(self, script, *arguments, **env):
        return subprocess.run(
            ["bash", str(self.root / script), *arguments],
            cwd=self.root.parent,
            env=self.env | env,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def call(self, script):
        (call,) = [call for call in self.calls() if call.startswith(script)]
        return call


@pytest.fixture
def repo(tmp_path):
    return Repo(tmp_path)


def options(call):
    return dict(re.findall(r"--(\w+) ([^-\s]\S*)", call))


@pytest.mark.parametrize("script", SCRIPTS)
def test_is_valid_bash(script):
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


@pytest.mark.parametrize("script", ["train_gpt2.sh", "run_tests.sh", ".ci/run"])
def test_can_be_executed(script):
    assert os.access(ROOT / script, os.X_OK)


def test_ci_runs_the_tests_script_and_checks_what_would_be_published():
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert lines[-1] == "bash run_tests.sh" and '"$PYTHON" .ci/package.py' in lines


def test_the_first_example_fails_where_it_shows_something_else_or_the_checkout_is_imported():
    """What .ci/package.py runs on the installed wheel; here mytorch is that of the checkout."""
    package = runpy.run_path(str(ROOT / ".ci/package.py"))
    example = package["first_example"]((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "\nassert loss.item() < 1e-3\n" in example
    with pytest.raises(AssertionError, match="mytorch/__init__.py"):
        exec(re.sub(r"range\(\d+\)", "range(0)", example).replace("loss.item()", "0"), {})
    with pytest.raises(SystemExit, match="shows no result"):
        package["first_example"]("```python\n1 + 1\n```\n")
    with pytest.raises(SystemExit, match="(?s)no such thing.*exit code 1"):
        package["run"]("python3", "-c", "raise SystemExit('no such thing')")
    assert {"mytorch/__init__.py", "mytorch/py.typed"} <= package["files_of_the_package"]()


def test_help_names_every_option(repo):
    done = repo.run("train_gpt2.sh", "--help")
    assert done.returncode == 0 and repo.calls() == []
    listed = repo.run("train_gpt2.sh", "shakespeare", "--nonsense").stderr
    others = ["num_gpus", "num_processes", "batch_size", "iterations", "device", "resume", "smoke", "help"]
    for name in [*FLAGS, *others]:
        assert f"--{name} " in done.stdout and f" --{name}" in listed
    assert "shakespeare|owt" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which data set? There are: shakespeare owt"),
        (["--fused"], "which data set? There are: shakespeare owt"),
        (["goethe"], "unknown data set 'goethe'; there are: shakespeare owt"),
        (["shakespeare", "owt"], "one data set at a time"),
        (["shakespeare", "--nonsense"], "unknown option '--nonsense'; there are: --device"),
        (["shakespeare", "-x"], "unknown option '-x'"),
        (["shakespeare", "--batch_size"], "--batch_size needs a value"),
        (["shakespeare", "--iterations"], "--iterations needs a value"),
        (["shakespeare", "--device"], "--device needs a value"),
        (["shakespeare", "--batch_size", "--fused"], "whole number above 0, got '--fused'"),
        (["shakespeare", "--batch_size", "0"], "whole number above 0, got '0'"),
        (["shakespeare", "--iterations=1e3"], "whole number above 0, got '1e3'"),
        (["shakespeare", "--num_gpus", "two"], "whole number above 0, got 'two'"),
        (["shakespeare", "--device", "tpu"], "--device takes cpu, cuda or cuda:N, got 'tpu'"),
        (["owt", "--chinchilla", "--iterations", "9"], "--chinchilla and --iterations 9 exclude each other"),
        (["shakespeare", "--num_gpus", "1", "--device", "cpu"], "does not go with --device cpu"),
        (["shakespeare", "--num_processes=0"], "whole number above 0, got '0'"),
        (["shakespeare", "--num_processes", "2", "--device", "cuda"], "--num_processes 2 is for a CPU"),
        (["shakespeare", "--num_processes", "2", "--num_gpus", "2"], "--num_processes 2 is for a CPU"),
        (["shakespeare", "--num_gpus", "2", "--device", "cuda:1"], "does not go with --device cuda:1"),
        (["--mixed_precision", "fp8", "shakespeare"], "--mixed_precision takes fp16 or bf16, got 'fp8'"),
        (["shakespeare", "--mixed_precision="], "--mixed_precision takes fp16 or bf16, got ''"),
        (["owt", "--num_processes", "3"], "3 processes can't divide 40 accumulation steps"),
    ],
)
def test_wrong_arguments(repo, arguments, message):
    done = repo.run("train_gpt2.sh", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and "Traceback" not in done.stderr
    assert repo.calls() == []


@pytest.mark.parametrize(
    ("arguments", "cuda", "message"),
    [
        (["--num_gpus", "2"], "12.4", "--num_gpus 2: nvidia-smi lists only 1"),
        (["--num_gpus", "1"], "", "there is no GPU to train on"),
        (["--device", "cuda"], "", "there is no GPU to train on"),
        (["--resume"], "", "there is no work_dir/gpt2-small-shakespeare to continue from"),
    ],
)
def test_what_this_machine_cannot_do(repo, arguments, cuda, message):
    done = repo.run("train_gpt2.sh", "shakespeare", *arguments, FAKE_CUDA=cuda)
    assert done.returncode == 1 and message in done.stderr
    assert repo.calls() == []


def test_all_stages_in_order(repo):
    done = repo.run("train_gpt2.sh", "shakespeare")
    assert done.returncode == 0, done.stderr
    scripts = [re.sub(rf"{repo.root}/| .*", "", call) for call in repo.calls()]
    assert scripts == [
        ".ci/missing.py",
        "prepare_data/prepare_shakespeare.py",
        "train_gpt2.py",
        "inference_gpt2.py",
    ]
    assert "--path_to_save data/shakespeare" in repo.call("prepare_data")
    assert "python inference_gpt2.py work_dir/gpt2-small-shakespeare/" in done.stdout.splitlines()[-1]
    hints = Path(f"{repo.log}.hints").read_text().splitlines()
    assert "train_gpt2.py 0" in hints  # that it prints none: the one above is the only one


def test_cpu_preset(repo):
    repo.run("train_gpt2.sh", "shakespeare")
    assert options(repo.call("train_gpt2.py")) == {
        "project_name": "gpt2-small-shakespeare",
        "working_directory": "work_dir",
        "path_to_data": "data/shakespeare",
        "device": "cpu",
        "model_size": "nano",
        "context_length": "64",
        "dropout_p": "0.0",
        "train_iterations": "2000",
        "batch_size": "12",
        "gradient_accumulation_steps": "1",
        "max_lr": "1e-3",
        "min_lr": "1e-4",
        "warmup_steps": "100",
        "beta1": "0.9",
        "beta2": "0.99",
        "weight_decay": "0.1",
        "max_grad_norm": "1.0",
        "eval_interval": "250",
        "eval_iterations": "20",
        "checkpoint_iterations": "250",
    }


@pytest.mark.parametrize(
    ("arguments", "cuda", "expected"),
    [
        (["shakespeare"], "12.4", "cuda small 256 64 5000 0.2"),
        (["shakespeare", "--device", "cpu"], "12.4", "cpu nano 64 12 2000 0.0"),
        (["shakespeare", "--device=cuda:0", "--num_gpus=1"], "13.0", "cuda:0 small 256 64 5000 0.2"),
        (["owt"], "12.4", "cuda base 1024 12 600000 0.0"),
        (["owt"], "", "cpu base 1024 12 600000 0.0"),
        (["--iterations", "50", "shakespeare", "--batch_size", "3"], "", "cpu nano 64 3 50 0.0"),
    ],
)
def test_presets(repo, arguments, cuda, expected):
    done = repo.run("train_gpt2.sh", *arguments, FAKE_CUDA=cuda)
    assert done.returncode == 0, done.stderr
    names = ["device", "model_size", "context_length", "batch_size", "train_iterations", "dropout_p"]
    given = options(repo.call("train_gpt2.py"))
    assert " ".join(given[name] for name in names) == expected
    assert int(given["warmup_steps"]) < int(given["train_iterations"]) >= int(given["eval_interval"])


@pytest.mark.parametrize(
    ("arguments", "env", "launched", "device"),
    [
        (["--num_processes", "2"], {}, "--num_processes 2 --cpu", "cpu"),
        (["--num_gpus=2"], {"FAKE_CUDA": "12.4", "FAKE_GPUS": "2"}, "--num_gpus 2", "cuda"),
    ],
)
def test_several_processes(repo, arguments, env, launched, device):
    done = repo.run("train_gpt2.sh", "owt", *arguments, **env)
    assert done.returncode == 0, done.stderr
    call = repo.call("-m mytorch.distributed.launch")
    assert call.startswith(f"-m mytorch.distributed.launch {launched} train_gpt2.py --project_name")
    given = options(call)
    assert (given["device"], given["gradient_accumulation_steps"]) == (device, "20")  # of 40, shared out


@pytest.mark.parametrize(("cuda", "batch"), [("", "1"), ("12.4", "12")])
def test_smoke_trains_and_does_nothing_else(repo, cuda, batch):
    done = repo.run("train_gpt2.sh", "owt", "--smoke", FAKE_CUDA=cuda)
    assert done.returncode == 0, done.stderr
    missing, call = repo.calls()
    assert call.startswith("-m benchmarks.smoke --project_name") and " --smoke " not in call
    assert f"/missing.py {'triton' if cuda else 'cpu'} OPENBLAS" in missing
    given = options(call)
    assert (given["model_size"], given["context_length"]) == ("base", "1024")
    assert (given["batch_size"], given["gradient_accumulation_steps"]) == (batch, "1")


def test_smoke_in_several_processes(repo):
    done = repo.run("train_gpt2.sh", "shakespeare", "--smoke", "--num_processes", "2")
    assert done.returncode == 0, done.stderr
    launched = "-m mytorch.distributed.launch --num_processes 2 --cpu"
    assert repo.calls()[1].startswith(f"{launched} -m benchmarks.smoke --project_name")


def test_chinchilla_is_passed_on(repo):
    repo.run("train_gpt2.sh", "owt", "--chinchilla")
    assert " --chinchilla " in repo.call("train_gpt2.py")


def test_hidden_gpus_are_not_used(repo):
    repo.run("train_gpt2.sh", "shakespeare", FAKE_CUDA="12.4", CUDA_VISIBLE_DEVICES="")
    assert options(repo.call("train_gpt2.py"))["device"] == "cpu"


def test_flags_are_passed_on(repo):
    (repo.root / "work_dir/gpt2-small-shakespeare").mkdir(parents=True)
    flags = [f"--{name}" for name in FLAGS]
    repo.run("train_gpt2.sh", "shakespeare", *flags, "--resume")
    call = repo.call("train_gpt2.py")
    assert " ".join(flags) in call and "--resume_from_checkpoint work_dir/gpt2-small-shakespeare " in call


@pytest.mark.parametrize(
    ("arguments", "passed_on"),
    [
        (["--mixed_precision", "shakespeare"], "--mixed_precision OPENBLAS"),
        (["shakespeare", "--mixed_precision"], "--mixed_precision OPENBLAS"),
        (["shakespeare", "--mixed_precision", "--fused"], "--mixed_precision --fused OPENBLAS"),
        (["--mixed_precision", "bf16", "shakespeare"], "--mixed_precision bf16 OPENBLAS"),
        (["shakespeare", "--mixed_precision=fp16"], "--mixed_precision fp16 OPENBLAS"),
    ],
)
def test_precision_is_passed_on(repo, arguments, passed_on):
    done = repo.run("train_gpt2.sh", *arguments)
    assert done.returncode == 0, done.stderr
    assert passed_on in repo.call("train_gpt2.py")


def test_data_that_is_there_is_not_prepared_again(repo):
    folder = repo.root / "data/shakespeare"
    folder.mkdir(parents=True)
    for name in ("train.bin", "val.bin"):
        (folder / name).touch()
    repo.run("train_gpt2.sh", "shakespeare")
    repo.call("prepare_data")  # without tokenizer.json the folder is incomplete
    repo.log.unlink()
    (folder / "tokenizer.json").touch()
    repo.run("train_gpt2.sh", "shakespeare")
    assert not [call for call in repo.calls() if call.startswith("prepare_data")]


@pytest.mark.parametrize("prepared", ["data/openwebtext", "data/owt"])
def test_openwebtext_is_found_where_it_was_prepared(repo, prepared):
    """Another download would be 54 GB."""
    repo.run("train_gpt2.sh", "owt")
    assert "--path_to_save data/openwebtext " in repo.call("prepare_data")
    repo.log.unlink()
    (repo.root / prepared).mkdir(parents=True)
    for name in ("train.bin", "val.bin", "tokenizer.json"):
        (repo.root / prepared / name).touch()
    repo.run("train_gpt2.sh", "owt")
    assert not [call for call in repo.calls() if call.startswith("prepare_data")]
    assert f"--path_to_data {prepared} " in repo.call("train_gpt2.py")


@pytest.mark.parametrize(
    ("arguments", "env", "extras"),
    [
        (["shakespeare"], {}, "plot cpu"),
        (["shakespeare", "--log_wandb"], {}, "train cpu"),
        (["shakespeare", "--fused"], {}, "plot cpu"),
        (["shakespeare", "--mixed_precision", "bf16"], {}, "plot cpu bf16"),
        (["owt"], {}, "train cpu"),
        (["shakespeare"], {"FAKE_CUDA": "12.9"}, "plot triton"),
        (["shakespeare"], {"FAKE_CUDA": "12.9", "FAKE_NO_CUPY": "1"}, "plot triton cuda12"),
        (["shakespeare", "--fused"], {"FAKE_CUDA": "13.1", "FAKE_NO_CUPY": "1"}, "plot triton cuda13"),
        (["shakespeare", "--num_processes", "2"], {}, "plot cpu mpi"),
        (["shakespeare", "--num_processes", "1"], {}, "plot cpu"),
        (["shakespeare", "--num_gpus", "2"], {"FAKE_CUDA": "12.9", "FAKE_GPUS": "2"}, "plot triton mpi"),
    ],
)
def test_extras(repo, arguments, env, extras):
    done = repo.run("train_gpt2.sh", *arguments, FAKE_MISSING="1", **env)
    assert done.returncode == 0, done.stderr
    assert f"/missing.py {extras} OPENBLAS" in repo.calls()[0]
    assert f"--editable {repo.root}[{extras.replace(' ', ',')}] " in repo.calls()[1]


def test_driver_that_is_too_old(repo):
    done = repo.run("train_gpt2.sh", "shakespeare", FAKE_CUDA="11.8", FAKE_NO_CUPY="1")
    assert done.returncode == 1 and "nvidia-smi shows CUDA 11 here" in done.stderr
    assert repo.calls() == []


def test_blas_kernels(repo):
    wanted = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
    flags = (
        re.search(r"^flags.*", Path("/proc/cpuinfo").read_text(), re.M)
        if platform.system() == "Linux"
        else None
    )
    chosen = "SkylakeX" if flags and wanted <= set(flags.group().split()) else ""
    for env, expected in (({}, chosen), ({"MYTORCH_TUNE": "0"}, ""), ({"OPENBLAS_CORETYPE": "Zen"}, "Zen")):
        repo.log.unlink(missing_ok=True)
        repo.run("train_gpt2.sh", "shakespeare", **env)
        assert repo.call("train_gpt2.py").endswith(f"OPENBLAS_CORETYPE={expected}")


def test_run_tests(repo):
    done = repo.run("run_tests.sh", "tests/nn", "-k", "gelu")
    assert done.returncode == 0, done.stderr
    checked, called = repo.calls()
    assert "/missing.py test " in checked
    assert called.startswith("-m pytest -n 2 --dist worksteal tests/nn -k gelu ")


def test_run_tests_help(repo):
    done = repo.run("run_tests.sh", "--help")
    assert done.returncode == 0 and "usage: bash run_tests.sh" in done.stdout and repo.calls() == []


@pytest.mark.parametrize("script", ["train_gpt2.sh", "run_tests.sh"])
@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"VIRTUAL_ENV": "/nonexistent"}, "the active environment /nonexistent has no working bin/python"),
        (
            {"VIRTUAL_ENV": "", "CONDA_PREFIX": "/gone"},
            "the active environment /gone has no working bin/python",
        ),
        ({"FAKE_OLD": "1"}, "has no working bin/python"),
    ],
)
def test_broken_environment(repo, script, env, message):
    done = repo.run(script, *(["shakespeare"] if script == "train_gpt2.sh" else []), **env)
    assert done.returncode == 1 and message in done.stderr and repo.calls() == []


@pytest.mark.parametrize(
    ("python3", "message"),
    [
        (None, "python3 is missing: install Python 3.10 or newer"),
        (
            "case $* in --version) echo Python 3.9.1 ;; *) exit 1 ;; esac",
            "python3 is Python 3.9.1, but mytorch needs",
        ),
        ('case "$*" in *ensurepip*) exit 1 ;; esac', "python3 comes without venv: install it"),
    ],
)
def test_no_python_to_make_an_environment(repo, tmp_path, python3, message):
    tools = tmp_path / "few"
    tools.mkdir()
    for name in ("bash", "dirname", "grep"):
        (tools / name).symlink_to(shutil.which(name))
    if python3 is not None:
        (tools / "python3").write_text(f"#!{tools}/bash\n{python3}\n")
        (tools / "python3").chmod(0o755)
    done = repo.run("train_gpt2.sh", "shakespeare", PATH=str(tools), VIRTUAL_ENV="")
    assert done.returncode == 1 and message in done.stderr
    assert not (repo.root / ".venv").exists()
