"""The instruction log: what it says, that a killed or hanging process has said it, several ranks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.cli import main
from mytorch.core.grad_mode import _state
from mytorch.profiler import record_function
from mytorch.stream import start, stop
from mytorch.stream.log import LogWriter, _why_not, read_log
from tests.every import every

ROOT = Path(__file__).parents[2]


def program(code, log, **variables):
    environment = {**os.environ, "MYTORCH_INSTRUCTION_LOG": str(log), "PYTHONPATH": str(ROOT), **variables}
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)


@pytest.fixture
def logged(tmp_path):
    writer = LogWriter(tmp_path / "ops.log")
    layer = nn.Linear(3, 2)
    start(writer)
    with mytorch.no_grad():
        layer(mytorch.ones(4, 3)) + mytorch.ones(4, 1, dtype=mytorch.int64)
    with pytest.raises(RuntimeError):
        mytorch.ones(2) + mytorch.ones(3)
    stop(writer)
    return writer.path


def test_lines(logged):
    lines = [line[13:] for line in logged.read_text().splitlines()[1:]]
    assert lines[0] == (
        "START | rank 0 | forward       | #1 linear | x=%1:float32[4,3] weight=%2:float32[2,3] "
        "bias=%3:float32[2] | Linear"
    )
    assert lines[1].startswith("END   | rank 0 | forward       | #1 linear | result=%4:float32[4,2] | ")
    add = "#2 add | left=%4:float32[4,2] right=%5:int64[4,1] | -"
    assert lines[2] == f"START | rank 0 | forward       | {add}"
    assert lines[5].startswith("FAILED| rank 0 | forward       | #3 add |  | ")


def test_it_is_read_back(logged):
    linear, add, failed = read_log(logged)
    assert (linear.name, linear.module, linear.kind) == ("linear", "Linear", "product")
    assert linear.outputs == (add.named["left"],) and add.inputs[1].dtype == np.int64
    assert add.inputs[1].nbytes == 32 and 0 < linear.duration < 10 and abs(linear.start - time.time()) < 60
    assert failed.failed and not add.failed


def test_the_last_line_of_a_killed_process_is_the_operation_that_hangs(tmp_path):
    code = """
import time, mytorch
@mytorch.core.op.op
def stuck(x):
    time.sleep(600)
mytorch.ones(2).exp()
stuck(mytorch.ones(7))
"""
    log = tmp_path / "ops.log"
    process = program(code, log)
    try:
        wait_for(lambda: log.exists() and "stuck" in log.read_text())
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert "START | rank 0 | forward       | #2 stuck | x=%" in log.read_text().splitlines()[-1]
    done, hangs = read_log(log)
    assert done.duration is not None and hangs.duration is None and hangs.inputs[0].shape == (7,)


def test_a_line_that_was_cut_off_is_left_out_and_a_strange_one_is_an_error(logged):
    text = logged.read_text()
    logged.write_text(text[:-20])
    assert len(read_log(logged)) == 3
    logged.write_text(text.replace("START | rank 0", "START | rang 0", 1))
    with pytest.raises(ValueError, match="ops.log:2 is no line of an instruction log"):
        read_log(logged)
    logged.write_text("hello\n")
    with pytest.raises(ValueError, match="is no instruction log"):
        read_log(logged)
    with pytest.raises(FileNotFoundError, match="no other.rank0.log of its ranks"):
        read_log(logged.with_name("other.log"))


@pytest.mark.parametrize(
    "right, wrong",
    [
        (":float32[", ":cloat32["), (":float32[", ":O["), (":float32[", ":datetime64["), ("[  0.", "[  0.0."),
        ("rank 0 ", f"rank {'9' * 5000} "), ("#1 ", f"#{'9' * 5000} "),
        (" ms\n", "\n"), (" ms\n", " | ms\n"), (" ms\n", "x ms\n"),
    ],
)
def test_every_field_that_is_damaged_is_an_error_of_its_line(logged, right, wrong):
    text = logged.read_text()
    changed = text.replace(right, wrong, 1)
    number = next(n for n, line in enumerate(changed.split("\n"), 1) if line not in text.split("\n"))
    logged.write_text(changed)
    with pytest.raises(ValueError, match=f"ops.log:{number} is no line of an instruction log"):
        read_log(logged)


def test_a_line_without_end_is_an_error(logged):
    """As of a sparse file: it isn't read into memory."""
    with open(logged, "ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="is no line of an instruction log"):
        read_log(logged)
    sparse = logged.with_name("sparse.log")
    sparse.touch()
    os.truncate(sparse, 1 << 40)
    with pytest.raises(ValueError, match="is no instruction log"):
        read_log(sparse)


def test_what_is_no_file_is_not_opened(logged, capsys):
    fifo = logged.with_name("fifo.log")
    os.mkfifo(fifo)
    os.mkfifo(logged.with_name("other.rank0.log"))
    for path, what in ((fifo, "a FIFO"), ("/dev/zero", "a device"), (logged.parent, "a folder"),
                       (logged.with_name("other.log"), "a FIFO")):
        with pytest.raises(OSError, match=f"it is {what}"):
            read_log(path)
        assert main(["timeline", str(path)]) == 2
        assert f"it is {what}" in capsys.readouterr().err


def test_no_text_of_a_log_commands_the_terminal(logged, capsys):
    lines = logged.read_text().splitlines(keepends=True)
    lines = [line.replace("linear", "\x1b[2Jlinear\u202e") for line in lines if "END" not in line]
    logged.write_text("".join(lines))
    odd = logged.with_name("ops.rank1\x1b[2J.log")
    odd.write_text(lines[0].replace("time=", "time=1.0 time="))
    assert main(["timeline", str(logged), "--output", str(logged.with_suffix(".json"))]) == 0
    out = capsys.readouterr().out
    assert "?[2Jlinear? in Linear never ended" in out and every(map(str.isprintable, out.splitlines()))
    odd.write_text("none")
    assert main(["timeline", str(logged)]) == 2
    assert every(map(str.isprintable, capsys.readouterr().err.splitlines()))


def test_any_name_of_a_block_and_any_text_are_read_back(tmp_path):
    writer = LogWriter(tmp_path / "ops.log")
    start(writer)
    for name in ("two\nlines", "a | b", "page\x0cbreak", ""):
        with record_function(name, "a\ttext\u2028here"):
            mytorch.ones(2).exp()
    stop(writer)
    found = read_log(writer.path)
    assert [i.name for i in found[::2]] == ["two lines", "a / b", "page break", ""]
    assert {i.kind for i in found[::2]} == {"annotation"} and {i.name for i in found[1::2]} == {"exp"}
    assert every(i.duration is not None for i in found)


def test_any_name_of_a_module_is_read_back(tmp_path):
    writer, model = LogWriter(tmp_path / "ops.log"), nn.Sequential()
    for name in ("a|b", "two\nlines"):
        model.add_module(name, nn.ReLU())
    start(writer)
    model(mytorch.ones(2))
    stop(writer)
    assert [i.module for i in read_log(writer.path)] == ["a/b", "two lines"]


def test_instructions_that_fail_later(tmp_path):
    """As a collective whose end its `Work` notices."""
    writer = LogWriter(tmp_path / "ops.log")
    start(writer)
    for failed in (False, True):
        x = np.ones(3)
        _state.stream.begin_collective("all_reduce", x, "WORLD", 1, "", None).end(failed=failed)
    stop(writer)
    assert [i.failed for i in read_log(writer.path)] == [False, True]


def run(code, log, folder):
    paths = os.pathsep.join(filter(None, sys.path))
    env = {**os.environ, "MYTORCH_INSTRUCTION_LOG": log, "PYTHONPATH": paths}
    return subprocess.run([sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("log", "message"), [("no/x.log", "there is no such folder"), (".", "it is a folder"), ("", "")]
)
def test_a_log_that_cannot_be_is_an_error_at_the_start(tmp_path, log, message):
    found = run("import mytorch; mytorch.ones(2).exp()", log, tmp_path)
    assert (found.returncode == 1) is bool(message) and message in found.stderr
    assert found.stderr.count("\n") <= 1 and [*tmp_path.iterdir()] == []


def test_a_file_may_be_written_where_its_folder_may_not(tmp_path, monkeypatch):
    """As a device, for users that may not write to /dev."""
    (tmp_path / "x.log").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: path == tmp_path / "x.log")
    assert _why_not(tmp_path / "x.log") == "" and _why_not(tmp_path / "y.log") == "it may not be written"


def test_a_relative_path_is_that_of_the_start(tmp_path):
    run("import os, mytorch; os.chdir('/'); mytorch.ones(2).exp()", "x.log", tmp_path)
    assert [i.name for i in read_log(tmp_path / "x.log")] == ["exp"]


@pytest.mark.parametrize("rest", ["", ": rank=0", ": rank=0 world=1 pid=3 host=vm time=", ": time=1.5"])
def test_a_first_line_that_was_cut_off_is_an_error(tmp_path, rest):
    path = tmp_path / "ops.log"
    path.write_text(f"# mytorch instruction log{rest}\n")
    with pytest.raises(ValueError, match="is no instruction log: its first line"):
        read_log(path)


def test_a_file_that_cannot_be_written_is_explained(tmp_path):
    writer = LogWriter(tmp_path / "no" / "ops.log")
    start(writer)
    with pytest.raises(FileNotFoundError, match="no instruction log: .*ops.log"):
        mytorch.ones(2).exp()
    stop(writer)


def test_a_full_disk_ends_the_log_and_not_the_program(tmp_path):
    code = """
import resource, signal, mytorch
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for _ in range(20):
    mytorch.ones(2).exp()
print("trained")
"""
    done = run(code, "ops.log", tmp_path)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.count("the instruction log ends here: File too large") == 1
    found = read_log(tmp_path / "ops.log")
    assert 2 <= len(found) < 20 and {i.name for i in found} == {"exp"}


def test_the_log_of_an_earlier_run_with_one_rank_is_not_read(tmp_path, monkeypatch):
    def write(rank, age):
        monkeypatch.setenv("RANK", str(rank))
        writer = LogWriter(tmp_path / "ops[1].log")
        start(writer)
        mytorch.ones(2).exp()
        stop(writer)
        os.utime(writer.path, (1e9 - age, 1e9 - age))

    write(0, age=2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    write(0, age=1)
    write(1, age=1)
    assert [i.rank for i in read_log(tmp_path / "ops[1].log")] == [0, 1]
    monkeypatch.delenv("WORLD_SIZE")
    write(0, age=0)
    assert [i.rank for i in read_log(tmp_path / "ops[1].log")] == [0]


def test_ranks_have_files_of_their_own_which_are_merged_by_time(tmp_path, monkeypatch):
    """A file of a rank that this run doesn't have is an earlier run's."""
    monkeypatch.setenv("WORLD_SIZE", "3")
    writers = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        writers.append(LogWriter(tmp_path / "ops.log"))
        monkeypatch.setenv("WORLD_SIZE", "2")
    for writer in (*writers, writers[0]):
        start(writer)
        mytorch.ones(2).exp()
        stop(writer)
    assert [w.path.name for w in writers] == ["ops.rank0.log", "ops.rank1.log", "ops.rank2.log"]
    text = writers[0].path.read_text()
    writers[0].path.write_text(text.replace("world=3", "world=2"))
    assert [i.rank for i in read_log(tmp_path / "ops.log")] == [0, 1, 0]
    assert [i.rank for i in read_log(writers[1].path)] == [1]


@pytest.mark.parametrize("seconds, hangs, ranks", [
    (700, False, [0]), (700, True, [0]), (60, False, [0]), (60, True, [0, 1]), (5, False, [0, 1]),
])
def test_a_rank_that_wrote_no_log_does_not_show_an_earlier_run(
    tmp_path, monkeypatch, capsys, seconds, hangs, ranks
):
    """What has no end may be of a rank that hangs, while another began late."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        writer = LogWriter(tmp_path / "ops.log")
        start(writer)
        mytorch.ones(2).exp()
        stop(writer)
    header, began, ended = writer.path.read_text().splitlines()
    before, time = header.split("time=")
    lines = [f"{before}time={float(time) - seconds:.6f}", began, *([] if hangs else [ended])]
    writer.path.write_text("\n".join(lines) + "\n")
    assert sorted(i.rank for i in read_log(tmp_path / "ops.log")) == ranks
    said = "" if len(ranks) == 2 else "left out, of an earlier run: ops.rank1.log\n"
    assert capsys.readouterr().err == said


def test_a_restarted_job_keeps_the_log_of_what_failed(tmp_path):
    for restarts, op in enumerate(("exp", "sin", "cos")):
        code = f"import mytorch; mytorch.ones(2).{op}()"
        assert program(code, tmp_path / "ops.log", MYTORCH_RESTART_COUNT=str(restarts)).wait() == 0
    found = {path.name: [i.name for i in read_log(path)] for path in tmp_path.iterdir()}
    assert found == {"ops.log": ["exp"], "ops.restart1.log": ["sin"], "ops.restart2.log": ["cos"]}


SPAWNING = """
import sys, mytorch
def rank(i):
    mytorch.ones(2 + i).exp()
if __name__ == "__main__":
    mytorch.ones(2).sin()
    mytorch.multiprocessing.spawn(rank, nprocs=2, start_method=sys.argv[1])
    mytorch.ones(2).cos()
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_that_spawn_starts_are_ranks_with_a_log(tmp_path, method, monkeypatch):
    script, log = tmp_path / "train.py", tmp_path / "ops.log"
    script.write_text(SPAWNING)
    monkeypatch.setenv("MYTORCH_INSTRUCTION_LOG", str(log))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    subprocess.run([sys.executable, script, method], check=True)
    assert sorted((i.rank, i.name, i.inputs[0].shape) for i in read_log(log)) == [
        (0, "exp", (2,)), (1, "exp", (3,))
    ]
    own = log.read_text()
    assert " sin " in own and " cos " in own and " exp " not in own


def test_only_the_process_that_computes_writes(tmp_path):
    """Neither one that imports mytorch, nor a child, nor a forked process."""
    code = """
import os, subprocess, sys, mytorch
if sys.argv[1:] != ["child"]:
    mytorch.ones(2).exp()
    subprocess.run([sys.executable, "-c", "import mytorch; mytorch.ones(2).sin()"], check=True)
    if not os.fork():
        mytorch.ones(2).cos()
        os._exit(0)
    os.wait()
"""
    log = tmp_path / "ops.log"
    assert program("import mytorch", log).wait() == 0 and not log.exists()
    assert program(code, log).wait() == 0
    assert [i.name for i in read_log(log)] == ["exp"]
