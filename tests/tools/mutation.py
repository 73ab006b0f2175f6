"""
Counts how many planted faults the tests notice.

    python tests/tools/mutation.py --tree . --cache /tmp/coverage.json --out /tmp/mutants.json --table

A fault (a "mutant") is one small change of one function: + for -, < for <=, a deleted call. First the tests
run once (of a parametrised test a part) in a copy of the tree whose byte code notes which blocks of functions
ran. Then each mutant gets tests that run its block: the most specific first, spread over files, within a few
seconds. It is killed when a test fails, crashes or doesn't end. Every test that killed is run again without
any fault, and what it killed is decided anew should it fail.

Only byte code is changed, never a source file: tests of style don't see the faults, subprocesses do. PyTorch
and pytest are imported once, and each mutant is a fork of that process.
"""

import argparse
import contextlib
import importlib
import json
import os
import shutil
import sys
import time
from pathlib import Path

from covering import Sampler, Selection, Tree, forked, lines_of, measured
from faults import AREAS, Faults, planned

PRELOADED = (
    "numpy", "scipy.special", "numba", "torch", "torch.testing._internal.common_methods_invocations",
    "torch.testing._internal.common_modules", "hypothesis.extra.numpy", "pytest",
)


def decide(tree, mutant, select):
    """Runs the tests of a mutant; writes into it its `fate`, and which test killed it."""
    start = time.perf_counter()
    tests, seconds = select(f"{mutant['path']}:{mutant['block']}")
    mutant.update(tests=len(tests), fate="not run by any test", by=None)
    if tests:
        changed = tree.parse(mutant["path"])
        Faults(changed).sites[mutant["n"]][3]()
        tree.write(mutant["path"], changed)
        (log := tree.root.parent / "log").unlink(missing_ok=True)
        status = forked(tree, log, ["-x", *tests], Sampler(log), 4 + seconds)
        tree.write(mutant["path"], tree.parse(mutant["path"]))
        fates = {0: "survived", 1: "killed", "timeout": "killed: no end"}
        mutant["fate"] = fates.get(status, f"killed: {status}")
        mutant["by"] = next((record["failed"] for record in lines_of(log)), None)
    mutant["seconds"] = round(time.perf_counter() - start, 1)


def table(mutants):
    yield "| area | planted | killed | of these by their time | not run by any test | killed, percent |"
    yield "|---|--:|--:|--:|--:|--:|"
    for area in [*AREAS, "all"]:
        fates = [m["fate"] for m in mutants if "fate" in m and area in (m["area"], "all")]
        killed = sum(fate.startswith("killed") for fate in fates)
        slow, unseen = fates.count("killed: no end"), fates.count("not run by any test")
        percent = 100 * killed / max(1, len(fates))
        yield f"| {area} | {len(fates)} | {killed} | {slow} | {unseen} | {percent:.0f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().split("\n")[0])
    add = parser.add_argument
    add("--tree", type=Path, default=Path("."), help="a checkout with mytorch/ and tests/")
    add("--seed", type=int, default=0, help="chooses the faults")
    add("--count", type=int, default=300, help="each area has its share of it, all have 1.7 of it")
    add("--areas", nargs="+", choices=AREAS, default=[*AREAS], help="those that are wanted; by default all")
    add("--cache", type=Path, required=True, help="file: which test runs what; an interrupted run goes on")
    add("--out", type=Path, required=True, help="file: the mutants; what is in it already isn't run again")
    add("--table", action="store_true", help="print a Markdown table at the end")
    options = parser.parse_args()
    out, cache = options.out.resolve(), options.cache.resolve()

    tree = Tree(options.tree.resolve())
    os.chdir(tree.root)
    os.environ.update(PYTHONPATH=str(tree.root), OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    sys.path[:] = [str(tree.root), *(p for p in sys.path if p not in ("", str(Path(__file__).parent)))]
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert "mytorch" not in sys.modules
    found = measured(tree, cache)
    mutants = json.loads(out.read_text()) if out.exists() else planned(tree, options.count, options.seed)
    for again in range(2):
        select = Selection(found)
        for n, mutant in enumerate(mutants):
            if "fate" not in mutant and mutant["area"] in options.areas:
                decide(tree, mutant, select)
                out.write_text(json.dumps(mutants, indent=1))
                shown = (mutant[k] for k in ("path", "line", "what", "fate", "by", "tests", "seconds"))
                print(n, *shown, flush=True)
        if not again:
            forget(tree, mutants, found)
    if options.table:
        print(*table(mutants), sep="\n")
    shutil.rmtree(tree.root.parent)


def forget(tree, mutants, found):
    """Runs each test that killed without a fault; those that fail are dropped, and their mutants' fates."""
    killers = sorted({m["by"] for m in mutants if m.get("by") in found["tests"]})
    log = tree.root.parent / "log"
    log.unlink(missing_ok=True)
    forked(tree, log, killers, Sampler(log), 300)
    for failed in {record["failed"] for record in lines_of(log)}:
        print("fails without a fault:", failed)
        found["tests"].pop(failed, None)
        for mutant in mutants:
            if mutant.get("by") == failed:
                del mutant["fate"]


if __name__ == "__main__":
    main()
