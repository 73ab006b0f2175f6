"""
Kills (signal 9) while checkpoints are written, and runs that resume.

A run saves after each step, and is killed one to three times: before one of its calls that touch the folder,
or at any time. After each kill all numbered checkpoints are whole and equal those of a run that was never
killed, none that `save_state` had finished is missing, and the next run continues with the same losses, bit
for bit.
"""

import hashlib
import json
import os
import select
import signal
import sys
import tempfile
import traceback
import warnings
from functools import cache
from pathlib import Path

import mytorch
from mytorch.accelerate import checkpoint
from tests.accelerate import train_and_save as program

DEADLINE = 300  # seconds
TRIES = 12
KNOWN = {}
STEPS, KEPT = 5, 2


def draw(random):
    mode, by = random.choice(["synchronous", "asynchronous"]), random.choice(["call", "time"])
    return f"{mode}, at a {by}", [random.random() for _ in range(random.randint(1, 3))]


def check(folder, kind, moments):
    asynchronous, at_call = kind.startswith("async"), kind.endswith("call")
    expected, sums = whole()
    saved = reached = 0
    for moment in [*moments, None]:
        calls = int(moment * count_of_calls(asynchronous)) if moment is not None and at_call else None
        lines = moment * 2 * STEPS if moment is not None and not at_call else None
        code, text = run(folder, asynchronous, KEPT, calls, lines)
        assert code in (0, -signal.SIGKILL), f"exit code {code}\n{text}"
        for line in text.split("\n")[:-1]:
            step, loss = line.split()
            if loss == "saved":
                saved = max(saved, int(step) - asynchronous)
                continue
            assert loss == expected[step], f"step {step}: the loss is {loss}, not {expected[step]}"
            assert int(step) <= reached + 1, f"step {step} after {reached}: one is left out"
            reached = int(step)
        reached = max(compare(folder, sums), default=0)
        assert reached >= saved, f"the checkpoint of step {saved} is gone; the last is of step {reached}"
        if code == 0:
            break
    assert reached == STEPS
    if "saved" in text:  # else nothing was left to do, and what a killed run left stays until the next save
        assert sorted(os.listdir(folder)) == [f"checkpoint_{n}" for n in range(STEPS - KEPT, STEPS)]


def compare(folder, sums):
    """The steps of the checkpoints in a folder, each of which equals that of the run that wasn't killed."""
    steps = []
    for number, path in checkpoint.numbered(folder).items():
        assert not checkpoint.find_problem(path), f"{path.name}: {checkpoint.find_problem(path)}"
        differing = [name for name, digest in sums_of(path).items() if digest != sums[number][name]]
        assert not differing, f"{path.name}: {differing} differ from those of a run without kills"
        steps.append(number + 1)
    return steps


def sums_of(path):
    """{file: hash of its content}, whatever order the keys of its header are in."""
    sums = {}
    for file in path.glob("*.[bs]*"):
        data = file.read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:end])
        del header["__metadata__"]["previous"]  # a hash that depends on that order
        header["__metadata__"]["mytorch"] = json.loads(header["__metadata__"]["mytorch"])
        header = json.dumps(header, sort_keys=True).encode()
        sums[file.name] = hashlib.sha256(header + data[end:]).hexdigest()
    assert sums.keys() == json.loads((path / checkpoint.MANIFEST).read_text())["files"].keys()
    return sums


@cache
def whole():
    """({step: loss}, the sums of each checkpoint) of a run that wasn't killed."""
    with tempfile.TemporaryDirectory() as folder:
        code, text = run(Path(folder), False, STEPS)
        assert code == 0, text
        lines = [line.split() for line in text.splitlines()]
        losses = {step: loss for step, loss in lines if loss != "saved"}
        return losses, {n: sums_of(path) for n, path in checkpoint.numbered(Path(folder)).items()}


@cache
def count_of_calls(asynchronous):
    """How many calls of a whole run touch its folder."""
    with tempfile.TemporaryDirectory() as folder:
        _, text = run(Path(folder), asynchronous, KEPT, calls=sys.maxsize)
        return int(text.split()[-1])


def run(folder, asynchronous, kept, calls=None, lines=None):
    """(exit code, what it wrote) of a run that is killed before so many calls, or after so many lines.

    It is a fork, so a case takes a tenth of a second; this process has computed nothing, and has no threads.
    """
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(source)
            train(folder, asynchronous, kept, calls, lambda *words: os.write(target, line_of(words)))
            code = 0
        except BaseException:
            os.write(target, traceback.format_exc().encode())
        os._exit(code)
    os.close(target)
    text = b""
    with open(source, "rb", 0) as file:
        while data := read(file, lines is not None and text.count(b"\n") >= int(lines), pid, lines):
            text += data
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.decode()


def read(file, is_due, pid, lines):
    """What the run writes next; if its end is due, it is killed within the time of a step or two."""
    if is_due and not select.select([file], [], [], lines % 1 * 0.02)[0]:
        os.kill(pid, signal.SIGKILL)
    return file.read(1 << 16)


def line_of(words):
    return (" ".join(map(str, words)) + "\n").encode()


def train(folder, asynchronous, kept, calls, tell):
    warnings.simplefilter("error")  # that a checkpoint is damaged would be one
    mytorch.use_fused(False)  # no kernel is compiled, and threads would not survive the next fork
    accelerator, *prepared = program.parts()
    counter = program.Counter()
    accelerator.register_for_checkpointing(counter)
    done = [0]
    if calls is not None:
        sys.addaudithook(lambda event, args: note_call(folder, event, args, calls, done))
    accelerator.load_state(folder, last_good=True)

    def save():
        accelerator.save_state(folder, keep_last=kept, asynchronous=asynchronous)
        tell(counter.step, "saved")

    for step, loss in program.losses(accelerator, *prepared, counter, STEPS, save):
        tell(step, loss.hex())
    accelerator.end_training()
    if calls == sys.maxsize:
        tell(done[0])


def note_call(folder, event, args, calls, done):
    """Counts Python's calls that name the folder, and ends the process before one of them."""
    if any(folder.name in str(arg) for arg in args if isinstance(arg, str | os.PathLike)):
        done[0] += 1
        if done[0] > calls:
            os.kill(os.getpid(), signal.SIGKILL)
