"""The sections of the benchmark: what each asks of which process, and how the answers become rows."""

import functools
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from benchmarks.gpu import vectors
from benchmarks.gpu.parity import questions
from benchmarks.gpu.sizes import SIZES, Size
from benchmarks.kernel_jobs import jobs
from benchmarks.processes import ask_all
from tests.triton.cases import CASES

TRAINERS = {
    "mytorch": ("mytorch", "eager"), "mytorch, captured": ("mytorch", "captured"),
    "PyTorch eager": ("torch", "eager"), "torch.compile": ("torch", "compiled"),
}  # fmt: skip


say = functools.partial(print, file=sys.stderr, flush=True)


class Group(NamedTuple):
    """Questions to one process of mytorch or torch, and the name under which its answers are shown."""

    who: str
    library: str
    questions: list[dict]
    env: dict[str, str] = {}


def run(
    groups: list[Group], size: str, limit: float, deadline: float, processes: int,
    save: Callable[[list[dict]], None],
) -> None:  # fmt: skip
    """Asks all, and saves the rows after each answer; a question without a result is a row with "failed".

    Args:
        limit, deadline: see `ask_all`.
        processes: at a time.
    """
    rows, lock = [], threading.Lock()

    def ask(group: Group) -> None:
        command, env = ["benchmarks.gpu.worker", group.library, size], own_cache | group.env
        for question, answer in ask_all(command, env, group.questions, limit, deadline):
            case = " ".join(str(value) for key, value in question.items() if key != "do")
            found = answer["result"] if "result" in answer else {"failed": answer["error"]}
            with lock:
                rows.append({"who": group.who, "library": group.library, "case": case, **question, **found})
                say(f"  {group.who}, {case}: {brief(found)}")
                save(rows)

    with (
        tempfile.TemporaryDirectory(prefix="mytorch-gpu-") as cache,
        ThreadPoolExecutor(processes) as pool,
    ):
        own_cache = {"MYTORCH_CACHE": cache} if processes > 1 else {}  # what is tuned in a crowd isn't kept
        list(pool.map(ask, groups))


def brief(found: dict) -> str:
    """Returns what went wrong, or the times and other figures of a result."""
    if wrong := found.get("failed") or found.get("wrong"):
        return f"{'FAILED' if 'failed' in found else 'WRONG'}, {reason(wrong)}"
    figures = {key: each["ms"] if isinstance(each, dict) else each for key, each in found.items()}
    return ", ".join(f"{key} {each:,.4g}" for key, each in figures.items() if isinstance(each, float))


def reason(error: str) -> str:
    """Returns the last line of a traceback, or of what else there is."""
    return (error.strip().splitlines() or ["unknown"])[-1][:200]


def timed_kernels(size: Size) -> list[str]:
    """Returns all whose time is measured."""
    return [job.name for job in jobs(size.kernels, size.images)] + list(vectors.BYTES)


def known_kernels() -> list[str]:
    """Returns all that `--kernels` can name."""
    return sorted({*CASES, *timed_kernels(SIZES["tiny"])})


def ceilings(size: Size, halves: list[str], chosen: list[str]) -> list[Group]:
    whats = ["copy", "add", "float32", "tf32", *halves]
    return [Group("mytorch", "mytorch", [{"do": "ceiling", "what": what} for what in whats])]


def trainers(task: str, dtypes: list[str]) -> list[Group]:
    """Each implementation in a fresh process."""
    return [
        Group(who, library, [{"do": task, "dtype": dtype, "mode": mode}])
        for dtype in dtypes
        for who, (library, mode) in TRAINERS.items()
    ]


def train(size: Size, halves: list[str], chosen: list[str]) -> list[Group]:
    return trainers("train", halves)


def profile(size: Size, halves: list[str], chosen: list[str]) -> list[Group]:
    """In bfloat16 if there is one: with a loss scale PyTorch's update waits for the GPU."""
    return trainers("profile", halves[-1:])


def parity(size: Size, halves: list[str], chosen: list[str]) -> list[Group]:
    """A process for each kernel: all of its cases."""
    names = [name for name in CASES if name in chosen]
    return [Group("mytorch", "mytorch", questions(name, size, ["float32", *halves])) for name in names]


def kernels(size: Size, halves: list[str], chosen: list[str]) -> list[Group]:
    """A process for each implementation, which times all kernels in float16; and one that times attention
    with either backward pass, whichever is chosen."""
    names = [name for name in timed_kernels(size) if name in chosen]
    eager = [{"do": "kernel_time", "kernel": name, "mode": "eager"} for name in names]
    compiled = [{**each, "mode": "compiled"} for each in eager if each["kernel"] not in vectors.BYTES]
    passes = [
        {"do": "attention_time", "kernel": f"self_attention, {products} products", "products": products}
        for products in (7, 5)
        if "self_attention" in chosen
    ]
    return [
        Group("mytorch", "mytorch", eager),
        Group("mytorch", "mytorch", passes),
        Group("CuPy alone", "mytorch", eager, {"USE_FUSED_OPS": "0"}),
        Group("PyTorch eager", "torch", eager),
        Group("torch.compile", "torch", compiled),
    ]


SECTIONS = {"ceilings": ceilings, "train": train, "profile": profile, "parity": parity, "kernels": kernels}
LIMITS = {"ceilings": 120.0, "train": 540.0, "profile": 540.0, "parity": 300.0, "kernels": 240.0}
