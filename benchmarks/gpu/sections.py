"""The sections of the benchmark: what each asks of which process, and how the answers become rows."""

import argparse
import datetime
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from benchmarks.gpt import flops_per_token
from benchmarks.gpu import vectors
from benchmarks.gpu.sizes import SIZES
from benchmarks.kernel_jobs import jobs
from benchmarks.processes import ask_all
from tests.triton.cases import CASES

LIMITS = {"ceilings": 120.0, "parity": 300.0, "kernels": 240.0, "train": 540.0, "fp16": 540.0}  # s a question


@dataclass
class Context:
    """What a section is run with; questions that brought no result are in `failures`."""

    name: str
    args: argparse.Namespace
    libraries: list[str]  # mytorch, and torch if it is there
    halves: list[str]  # "float16", and "bfloat16" if CuPy has it
    deadline: float  # time.monotonic() at which the section has to end
    failures: list[dict] = field(default_factory=list)

    def __post_init__(self):
        self.size = SIZES[self.args.size]

    def ask(self, library: str, questions: list[dict], **env: str) -> Iterator[tuple[dict, dict]]:
        """Yields each question that has a result with it; one that failed is noted."""
        if library not in self.libraries:
            return
        command = ["benchmarks.gpu.worker", library]
        for question, answer in ask_all(command, env, questions, LIMITS[self.name], self.deadline):
            if "result" in answer:
                yield question, answer["result"]
            else:
                what = " ".join(str(v) for key, v in question.items() if key not in ("do", "size"))
                self.failures.append({"library": library, "what": what, "error": answer["error"]})
                say(f"  {library}, {what}: FAILED, {reason(answer['error'])}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def reason(error: str) -> str:
    """Returns the last line of a traceback, or of what else there is."""
    return (error.strip().splitlines() or ["unknown"])[-1][:200]


def known_kernels() -> set[str]:
    """Returns all that `--kernels` can name."""
    size = SIZES["tiny"]
    return {*CASES, *vectors.BYTES, *(job.name for job in jobs(size.kernels, size.images))}


def run(context: Context) -> dict:
    """Returns a section, whatever becomes of it."""
    begin, rows, error = time.monotonic(), [], ""
    try:
        rows = SECTIONS[context.name](context)
    except Exception:
        error = traceback.format_exc()
        say(f"  BROKEN: {reason(error)}")
    date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    seconds = round(time.monotonic() - begin, 1)
    return {"date": date, "seconds": seconds, "rows": rows, "failures": context.failures, "error": error}


def ceilings(context: Context) -> list[dict]:
    """Bandwidths and matrix rates."""
    rows, whats = [], ["copy", "add", "float32", "tf32", *context.halves]
    questions = [{"do": "ceiling", "size": context.args.size, "what": what} for what in whats]
    for question, result in context.ask("mytorch", questions):
        rows.append({"what": question["what"], **result})
        say(f"  {question['what']}: {result['value']:,.1f} {result['unit']}")
    return rows


def train(context: Context) -> list[dict]:
    """Tokens a second in float16, each implementation in a fresh process."""
    config, rows = context.size.train, []
    for who, (library, mode) in {
        "mytorch": ("mytorch", "eager"), "mytorch, captured": ("mytorch", "captured"),
        "PyTorch eager": ("torch", "eager"), "torch.compile": ("torch", "compiled"),
    }.items():  # fmt: skip
        question = {"do": "train", "size": context.args.size, "mode": mode}
        for _, result in context.ask(library, [question]):
            ms = statistics.median(result["windows_ms"])
            rows.append({
                "who": who, **result, "ms": ms, "tokens_per_second": config.tokens / ms * 1e3,
                "flops_per_token": flops_per_token(config), "config": str(config),
            })  # fmt: skip
            say(f"  {who}: {ms:.1f} ms a step, {rows[-1]['tokens_per_second']:,.0f} tokens/s")
    return rows


def parity(context: Context) -> list[dict]:
    """All cases of all kernels: rows with "wrong", "" where all is right."""
    from benchmarks.gpu.parity import questions  # makes all arrays of the cases

    by_kernel: dict[str, list[dict]] = {}
    for question in questions(context.size.rows, context.size.real, context.args.kernels):
        if question["dtype"] in ("float32", *context.halves):
            by_kernel.setdefault(question["kernel"], []).append(question)

    def compare(asked: list[dict]) -> list[dict]:
        rows = [question | result for question, result in context.ask("mytorch", asked, MYTORCH_CACHE=cache)]
        wrong = [row for row in rows if row["wrong"]]
        say(f"  {asked[0]['kernel']}: {len(rows) - len(wrong)} of {len(asked)} right")
        for row in wrong[:3]:
            say(f"    {row['table']} {row['row']} {row['dtype']}: {row['wrong'][:200]}")
        return rows

    with (
        tempfile.TemporaryDirectory(prefix="mytorch-gpu-") as cache,  # what is tuned in a crowd isn't kept
        ThreadPoolExecutor(context.args.jobs) as pool,
    ):
        return [row for rows in pool.map(compare, by_kernel.values()) for row in rows]


def kernels(context: Context) -> list[dict]:
    """Times of all jobs in float16, by implementation; costs are bytes and operations of both passes."""
    size, n = context.size, context.size.kernels.parameters
    found = [
        (job.name, job.size, (2 * job.cost.forward, 2 * job.cost.backward, *job.cost[2:]))
        for job in jobs(size.kernels, size.images)
    ]
    found += [(name, f"{n}", (cost * n, 0, 0, 0)) for name, cost in vectors.BYTES.items()]
    rows = {
        name: {"kernel": name, "size": shape, "cost": cost, "times": {}}
        for name, shape, cost in found
        if not context.args.kernels or name in context.args.kernels
    }
    for who, (library, compiled, env) in {
        "mytorch": ("mytorch", False, {}), "CuPy alone": ("mytorch", False, {"USE_FUSED_OPS": "0"}),
        "PyTorch eager": ("torch", False, {}), "torch.compile": ("torch", True, {}),
    }.items():  # fmt: skip
        same = {"do": "kernel_time", "size": context.args.size, "compiled": compiled}
        questions = [{**same, "job": name} for name in rows if not (compiled and name in vectors.BYTES)]
        for question, result in context.ask(library, questions, **env):
            rows[question["job"]]["times"][who] = result
            say(f"  {who}, {question['job']}: {(result['both'] or result['forward'])['ms']:.4f} ms")
    return list(rows.values())


def fp16(context: Context) -> list[dict]:
    """The losses of a run in float16 and of one in bfloat16, beside PyTorch's."""
    rows = []
    for dtype in context.halves:
        for library in ("mytorch", "torch"):
            question = {"do": "losses", "size": context.args.size, "dtype": dtype}
            for _, result in context.ask(library, [question]):
                rows.append({"library": library, "dtype": dtype, **result})
                say(f"  {library}, {dtype}: loss {result['losses'][0]:.4f} to {result['losses'][-1]:.4f}")
    return rows


SECTIONS: dict[str, Callable[[Context], list[dict]]] = {
    "ceilings": ceilings, "train": train, "parity": parity, "kernels": kernels, "fp16": fp16,
}  # fmt: skip
