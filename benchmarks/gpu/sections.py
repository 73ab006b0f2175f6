"""The sections of the benchmark: what each asks of which process, and how the answers become rows."""

import functools
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from benchmarks.gpu import vectors
from benchmarks.gpu.sizes import SIZES, Size
from benchmarks.kernel_jobs import jobs
from benchmarks.processes import ask_all
from tests.triton.cases import CASES
from tests.triton.on_gpu import questions

TRAINERS = {
    "mytorch": ("mytorch", "eager"), "mytorch, captured": ("mytorch", "captured"),
    "PyTorch eager": ("torch", "eager"), "torch.compile": ("torch", "compiled"),
}
COMPILERS = {
    "mytorch": ("mytorch", ""), "mytorch.compile": ("mytorch", "default"),
    "as a CUDA graph": ("mytorch", "reduce-overhead"), "PyTorch eager": ("torch", ""),
    "torch.compile": ("torch", "default"), "torch, as a CUDA graph": ("torch", "reduce-overhead"),
}
LIMIT = 540.0  # seconds for one question
say = functools.partial(print, file=sys.stderr, flush=True)


class Group(NamedTuple):
    """Questions to one process of mytorch or torch, and the name under which its answers are shown."""

    who: str
    library: str
    questions: list[dict]
    env: dict[str, str] = {}


def run(
    groups: list[Group], size: str, deadline: float, processes: int, save: Callable[[list[dict]], None]
) -> None:
    """Asks all, with so many processes at a time, and saves the rows after each answer; a question without a
    result is a row with "failed". For the deadline see `ask_all`."""
    rows, lock = [], threading.Lock()

    def ask(group: Group) -> None:
        command, env = ["benchmarks.gpu.worker", group.library, size], own_cache | group.env
        for question, answer in ask_all(command, env, group.questions, LIMIT, deadline):
            case = " ".join(str(value) for key, value in question.items() if key != "do")
            found = answer["result"] if "result" in answer else {"failed": answer["error"]}
            with lock:
                rows.append({"who": group.who, "library": group.library, "case": case, **question, **found})
                wrong = found.get("failed") or found.get("wrong")
                say(f"  {group.who}, {case}" + (f": {reason(wrong)}" if wrong else ""))
                save(rows)

    with (
        tempfile.TemporaryDirectory(prefix="mytorch-gpu-") as cache,
        ThreadPoolExecutor(processes) as pool,
    ):
        own_cache = {"MYTORCH_CACHE": cache} if processes > 1 else {}  # what is tuned in a crowd isn't kept
        list(pool.map(ask, groups))


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


def train(size: Size, halves: list[str], chosen: list[str], task: str = "train") -> list[Group]:
    """Each implementation in a fresh process."""
    return [
        Group(who, library, [{"do": task, "dtype": dtype, "mode": mode}])
        for dtype in halves
        for who, (library, mode) in TRAINERS.items()
    ]


def profile(size: Size, halves: list[str], chosen: list[str]) -> list[Group]:
    """In bfloat16 if there is one: with a loss scale PyTorch's update waits for the GPU."""
    return train(size, halves[-1:], chosen, "profile")


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


def programs(size: Size, halves: list[str], chosen: list[str]) -> list[Group]:
    """A process for each implementation, with all jobs."""
    return [
        Group(who, library, [{"do": "program_time", "job": job, "mode": mode} for job in size.programs])
        for who, (library, mode) in COMPILERS.items()
    ]


SECTIONS = {
    "ceilings": ceilings, "train": train, "profile": profile, "programs": programs, "parity": parity,
    "kernels": kernels,
}
