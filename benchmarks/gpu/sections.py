"""The sections of the benchmark: what each asks of which process, and how the answers become rows."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from benchmarks.gpu.sizes import SIZES, Size, flops_per_token, least_loss
from benchmarks.gpu.stream import ask_all
from benchmarks.gpu.tables import FAILED

OURS, THEIRS = "benchmarks.gpu.worker", "benchmarks.gpu.torch_worker"
# who: (the module that is the process, what it finds in its environment)
WHO: dict[str, tuple[str, dict[str, str]]] = {
    "mytorch": (OURS, {}),
    "mytorch, captured": (OURS, {}),
    "CuPy alone": (OURS, {"USE_FUSED_OPS": "0"}),
    "PyTorch eager": (THEIRS, {}),
    "torch.compile": (THEIRS, {}),
}
LIMITS = {"ceilings": 120.0, "parity": 300.0, "kernels": 240.0, "train": 540.0, "fp16": 540.0}  # s an item


@dataclass
class Context:
    """What a section is run with, and what it finds.

    Attributes:
        size: a name in SIZES.
        kernels: only these are compared and timed; all if there are none.
        dtypes: that the kernels are timed in.
        peer: whether PyTorch is there.
        no_bfloat16: why there is none; "" if there is.
        jobs: processes that compare kernels at the same time: most of it is compiling.
        deadline: time.monotonic() at which the section has to end.
        say: prints a line of progress.
        failures: items that brought no result, with the reason.
        notes: what else a reader must know.
    """

    name: str
    size: str
    kernels: list[str]
    dtypes: list[str]
    peer: bool
    no_bfloat16: str
    jobs: int
    deadline: float
    say: Callable[[str], None]
    failures: list[dict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def sizes(self) -> Size:
        return SIZES[self.size]

    def ask(self, who: str, items: list[dict], **env: str) -> Iterator[tuple[dict, dict | None]]:
        """Each item with its result; None for one that failed, which is noted."""
        module, always = WHO[who]
        if module == THEIRS and not self.peer:
            return
        for item, answer in ask_all(module, always | env, items, LIMITS[self.name], self.deadline):
            if "error" in answer:
                self.failures.append({"who": who, "item": item, "error": answer["error"]})
                self.say(f"  {who}, {label(item)}: FAILED, {reason(answer['error'])}")
            yield item, answer.get("result")


def label(item: dict) -> str:
    """An item in a few words."""
    return " ".join(str(value) for name, value in item.items() if name not in ("do", "size"))


def reason(error: str) -> str:
    """The last line of a traceback, or what else there is in a line."""
    return (error.strip().splitlines() or ["unknown"])[-1][:200]


def has_peer() -> bool:
    return importlib.util.find_spec("torch") is not None


def known_kernels() -> set[str]:
    """All that `--kernels` can name."""
    from benchmarks.gpu.jobs import jobs
    from tests.triton.cases import CASES

    return {*CASES, *(job.name for job in jobs(SIZES["tiny"].kernels, 2))}


def run(context: Context) -> dict:
    """A section, whatever becomes of it: {"date", "seconds", "rows", "failures", "notes", "error"}."""
    begin, rows, error = time.monotonic(), [], ""
    try:
        rows = SECTIONS[context.name](context)
    except Exception:
        error = traceback.format_exc()
        context.say(f"  BROKEN: {reason(error)}")
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - begin, 1),
        "rows": rows,
        "failures": context.failures,
        "notes": context.notes,
        "error": error,
    }


def ceilings(context: Context) -> list[dict]:
    """Bandwidths and matrix rates."""
    whats = ["copy", "triad", "float32", "tf32", "float16", "bfloat16"]
    if context.no_bfloat16:
        whats.remove("bfloat16")
        context.notes.append(f"Nothing was done in bfloat16: {context.no_bfloat16}.")
    rows = []
    for item, result in context.ask(
        "mytorch", [{"do": "ceiling", "size": context.size, "what": what} for what in whats]
    ):
        if result is not None:
            rows.append({"what": item["what"], **result})
            context.say(f"  {item['what']}: {result['value']:,.1f} {result['unit']}")
    return rows


def parity(context: Context) -> list[dict]:
    """All cases of all kernels: rows with "wrong", "" where all is right."""
    from benchmarks.gpu.parity import items  # makes all arrays of the cases

    wanted = items(context.sizes.rows, context.sizes.real, context.kernels)
    if context.no_bfloat16:
        wanted = [item for item in wanted if item["dtype"] != "bfloat16"]
        context.notes.append(f"Nothing was compared in bfloat16: {context.no_bfloat16}.")
    by_kernel: dict[str, list[dict]] = {}
    for item in wanted:
        by_kernel.setdefault(item["kernel"], []).append({"do": "compare", **item})
    with (
        tempfile.TemporaryDirectory(prefix="mytorch-gpu-") as cache,  # what is tuned in a crowd isn't kept
        ThreadPoolExecutor(context.jobs) as pool,
    ):
        ours = [pool.submit(_compare, context, items, cache) for items in by_kernel.values()]
        rows = [row for future in ours for row in future.result()]
        before = len(context.failures)
        theirs = [pool.submit(list, context.ask("PyTorch eager", items)) for items in by_kernel.values()]
        peers = {_key(item): result for future in theirs for item, result in future.result()}
    del context.failures[before + 20 :]  # a peer that is broken says so often enough
    return [{**row, "peer": peers.get(_key(row))} for row in rows]


def _compare(context: Context, items: list[dict], cache: str) -> list[dict]:
    """The rows of a kernel, from a process of its own."""
    failed = {"size": "", "error": None, "gradient_error": None, "wrong": FAILED}
    answers = context.ask("mytorch", items, MYTORCH_CACHE=cache)
    rows = [{**item, **(result or failed)} for item, result in answers]
    for row in rows:
        del row["do"]
    wrong = [row for row in rows if row["wrong"]]
    context.say(f"  {items[0]['kernel']}: {len(rows) - len(wrong)} of {len(rows)} right")
    for row in wrong[:3]:
        context.say(f"    {row['table']} {row['row']} {row['dtype']}: {row['wrong'][:200]}")
    return rows


def _key(row: dict) -> tuple:
    return row["kernel"], row["table"], row["row"], row["dtype"]


def kernels(context: Context) -> list[dict]:
    """Times of all jobs, by implementation."""
    from benchmarks.gpu.jobs import jobs
    from benchmarks.gpu.times import ITEMSIZE

    rows: dict[tuple, dict] = {}
    for dtype in context.dtypes:
        for job in jobs(context.sizes.kernels, ITEMSIZE[dtype]):
            if not context.kernels or job.name in context.kernels:
                rows[job.name, dtype] = {
                    "kernel": job.name, "dtype": dtype, "size": str(job),
                    "cost": dataclasses.asdict(job.cost), "built": job.build is not None, "times": {},
                }  # fmt: skip
    for who in ("mytorch", "CuPy alone", "PyTorch eager", "torch.compile"):
        items = [
            {"do": "kernel_time", "size": context.size, "job": name, "dtype": dtype}
            for (name, dtype), row in rows.items()
            if not (row["built"] and who == "torch.compile")
        ]
        if WHO[who][0] == THEIRS:
            items = [{**item, "compiled": who == "torch.compile"} for item in items]
        for item, result in context.ask(who, items):
            if result is not None:
                rows[item["job"], item["dtype"]]["times"][who] = result
                whole = (result["total"] or result["forward"])["ms"]
                context.say(f"  {who}, {item['job']} {item['dtype']}: {whole:.4f} ms")
    return list(rows.values())


def train(context: Context) -> list[dict]:
    """Tokens a second, each implementation in a fresh process."""
    config, rows = context.sizes.train, []
    for who, option in {
        "mytorch": {"captured": False}, "mytorch, captured": {"captured": True},
        "PyTorch eager": {"compiled": False}, "torch.compile": {"compiled": True},
    }.items():  # fmt: skip
        for _, result in context.ask(who, [{"do": "train", "size": context.size, **option}]):
            if result is not None:
                ms = statistics.median(result["ms"])
                rows.append({
                    "who": who, **result, "windows_ms": result["ms"], "ms": ms, "tokens": config.tokens,
                    "tokens_per_second": config.tokens / ms * 1e3, "config": dataclasses.asdict(config),
                    "flops_per_token": flops_per_token(config),
                })  # fmt: skip
                context.say(f"  {who}: {ms:.1f} ms a step, {rows[-1]['tokens_per_second']:,.0f} tokens/s")
    return rows


def fp16(context: Context) -> list[dict]:
    """The losses of a run in float16, beside PyTorch's."""
    config, rows = context.sizes.half, []
    for who in ("mytorch", "PyTorch eager"):
        for _, result in context.ask(who, [{"do": "train_half", "size": context.size}]):
            if result is not None:
                losses = result["losses"]
                rows.append({
                    "who": who, **result, "least_loss": least_loss(config),
                    "config": dataclasses.asdict(config),
                })  # fmt: skip
                context.say(f"  {who}: {len(losses)} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")
    return rows


SECTIONS: dict[str, Callable[[Context], list[dict]]] = {
    "ceilings": ceilings,
    "parity": parity,
    "kernels": kernels,
    "train": train,
    "fp16": fp16,
}
