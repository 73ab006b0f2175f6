"""
Writes docs/reading.md: every function of mytorch that a training step of a GPT-2 runs, in order.

    python docs/reading.py             write the page
    python docs/reading.py --check     exit 1 if page and code name different functions
    python docs/reading.py --counts    print the table alone; with --tree PATH that of another checkout

The step is one of train_gpt2.py's nano model on plain NumPy, without compiled kernels, after two steps that
allocate; `sys.setprofile` sees its calls.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reading.md"
PHASES = {
    "Batch": "`rows = mytorch.from_numpy(rows)`, `x, y = rows[:, :-1], rows[:, 1:]`",
    "Forward": "`logits = model(x)`",
    "Loss": "`loss = F.cross_entropy(logits.view(-1, vocab_size), y.reshape(-1))`",
    "Backward": "`loss.backward()`",
    "Clipping": "`nn.utils.clip_grad_norm_(model.parameters(), 1.0)`",
    "Optimizer": "`optimizer.step()`",
    "Clearing the gradients": "`optimizer.zero_grad()`",
    "Generating": "`model.generate(prompt, 2, top_k=10)`: a token from the prompt, one from the cache",
}
SPINE = "In a training step: "  # of the line in which a page says what it is about
FOLDED = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


@dataclass
class Trace:
    """What ran in a phase: the functions by their first call, and how many calls there were."""

    codes: dict[CodeType, int] = field(default_factory=dict)
    crossings: int = 0

    @contextmanager
    def recording(self, package: str) -> Iterator[None]:
        def profile(frame, event, _):
            if event != "call" or not frame.f_code.co_filename.startswith(package):
                return
            self.codes[frame.f_code] = self.codes.get(frame.f_code, 0) + 1
            caller = frame.f_back
            while caller is not None and not caller.f_code.co_filename.startswith(package):
                caller = caller.f_back
            self.crossings += caller is None or caller.f_code.co_filename != frame.f_code.co_filename

        sys.setprofile(profile)
        try:
            yield
        finally:
            sys.setprofile(None)


def traces(package: str) -> dict[str, Trace]:
    """Trains three steps, generates two tokens, and returns the last step's phases and the generation's."""
    import numpy as np

    import mytorch
    from mytorch import nn
    from mytorch.models import GPT2, GPT2Config
    from mytorch.nn import functional as F

    mytorch.manual_seed(0)
    mytorch.use_fused(False)
    config = GPT2Config.of_size("nano", vocab_size=65, context_length=64, bias=False)
    model = GPT2(config)
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    rows = np.random.default_rng(0).integers(config.vocab_size, size=(12, config.context_length + 1))
    for _ in range(3):
        found = {phase: Trace() for phase in PHASES}
        with found["Batch"].recording(package):
            batch = mytorch.from_numpy(rows)
            x, y = batch[:, :-1], batch[:, 1:]
        with found["Forward"].recording(package):
            logits = model(x)
        with found["Loss"].recording(package):
            loss = F.cross_entropy(logits.view(-1, config.vocab_size), y.reshape(-1))
        with found["Backward"].recording(package):
            loss.backward()
        with found["Clipping"].recording(package):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with found["Optimizer"].recording(package):
            optimizer.step()
        with found["Clearing the gradients"].recording(package):
            optimizer.zero_grad()
    model.eval()
    with found["Generating"].recording(package):
        model.generate(x[:1, :8], 2, top_k=10)
    return found


@dataclass(frozen=True)
class Place:
    """A function that is in no other function, or a closure of one."""

    path: str
    name: str
    line: int
    last: int
    doc: str  # the first sentence


@cache
def places(filename: str) -> list[Place]:
    """The functions of a file that are in no other function: its functions and its classes' methods."""
    found = []

    def visit(body, prefix):
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                text = ast.get_docstring(node) or ""
                found.append(Place(path, prefix + node.name, first, node.end_lineno, first_sentence(text)))
            elif isinstance(node, ast.If | ast.Try | ast.With):
                visit(node.body + getattr(node, "orelse", []), prefix)
            else:
                names = re.match(r"[\w, ]+", ast.unparse(node))
                name = names.group().strip() if isinstance(node, ast.Assign | ast.AnnAssign) else "a table"
                found.append(Place(path, prefix + name, node.lineno, node.end_lineno, ""))

    path = "mytorch" + filename.rpartition("/mytorch")[2]
    visit(ast.parse(Path(filename).read_text()).body, "")
    return found


def first_sentence(doc: str) -> str:
    paragraph = " ".join(doc.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0].rstrip(":")


def place_of(code: CodeType) -> Place:
    return next(p for p in places(code.co_filename) if p.line <= code.co_firstlineno <= p.last)


def by_phase(found: dict[str, Trace]) -> dict[str, list[Place]]:
    """Returns for each phase the functions that run in it first, and closures of those of earlier phases."""
    phase_of, phases, known = {}, {}, set()
    for phase, trace in found.items():
        new = dict.fromkeys(code for code in trace.codes if code not in known and code.co_name not in FOLDED)
        known.update(trace.codes)
        listed = {}  # by name: a function may have several lambdas
        for code in new:
            place = place_of(code)
            if phase_of.setdefault((place.path, place.name), phase) == phase:
                listed[place.path, place.name] = place
            elif code.co_firstlineno != place.line:
                name = f"{place.name} → {code.co_name.strip('<>')}"
                listed[place.path, name] = Place(place.path, name, code.co_firstlineno, place.last, "")
        phases[phase] = list(listed.values())
    return phases


def counts(found: dict[str, Trace]) -> str:
    """Returns the table: of the training step, and of generating."""
    parts = [[found[phase] for phase in PHASES if phase != "Generating"], [found["Generating"]]]
    columns = []
    for part in parts:
        codes = {code for trace in part for code in trace.codes}
        files, functions = {code.co_filename for code in codes}, set(map(place_of, codes))
        columns.append({
            "files": len(files),
            "lines of these files": sum(len(Path(file).read_text().splitlines()) for file in files),
            "functions, with their closures": len(functions),
            "lines of these functions": sum(p.last - p.line + 1 for p in functions),
            "functions, closures and comprehensions": len(codes),
            "calls": sum(sum(trace.codes.values()) for trace in part),
            "calls into another file": sum(trace.crossings for trace in part),
        })
    rows = [f"| {name} | {' | '.join(f'{column[name]:,}' for column in columns)} |" for name in columns[0]]
    return "\n".join(["| | a training step | generating |", "|---|--:|--:|", *rows])


def page(found: dict[str, Trace]) -> str:
    phases = by_phase(found)
    parts = [INTRODUCTION, f"Chapters about all of it: {chapters('reading.md')}.", counts(found)]
    for number, (phase, functions) in enumerate(phases.items(), 1):
        parts.append(f"## {number}. {phase}\n\n{PHASES[phase]}")
        if pages := chapters(f"reading.md#{number}-{phase.lower().replace(' ', '-')}"):
            parts.append(f"Chapters: {pages}.")
        ran = {place_of(code) for code in found[phase].codes}
        again = len(ran - set(functions))
        for path in dict.fromkeys(p.path for p in functions):
            parts += [f"**{path}**", "\n".join(entry(p) for p in functions if p.path == path)]
        if again:
            parts.append(f"Functions from above that run again: {again}.")
    return "\n\n".join(parts) + "\n"


def chapters(link: str) -> str:
    """Returns links to the pages whose line below the title has this link: where they are in the step."""
    found = []
    for path in sorted(PAGE.parent.glob("*.md")):
        title, _, place, *_ = [*path.read_text(encoding="utf-8").split("\n", 3), "", ""]
        if place.startswith(SPINE) and f"({link})" in place:
            found.append(f"[{title.removeprefix('# ')}]({path.name})")
    return ", ".join(found)


def entry(place: Place) -> str:
    link = f"- [`{place.name}`](../{place.path}#L{place.line})"
    return f"{link}: {place.doc}" if place.doc else link


INTRODUCTION = """# A training step, function by function

Everything of mytorch that runs when a small GPT-2 is trained for one step and generates two tokens, on plain
NumPy (without compiled kernels). Each function stands where it is called first, under its file; a closure
that runs in a later phase than its function, most often a vjp in the backward pass, stands there as
`function → closure`. To read the functions in this order is to read the whole step.

This page is made by `python docs/reading.py`; a test compares its names with the code."""


def names(text: str) -> set[tuple[str, str, str]]:
    """(phase, file, function) of each line of a page."""
    found, phase = set(), ""
    for line in text.splitlines():
        if heading := re.match(r"## \d+\. (.*)", line):
            phase = heading[1]
        elif entry := re.match(r"- \[`(.*?)`\]\(\.\./(.*?)#L\d+\)", line):
            found.add((phase, entry[2], entry[1]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the page's names with the code's")
    parser.add_argument("--counts", action="store_true", help="print the table and write nothing")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout whose mytorch/ is traced")
    options = parser.parse_args()
    tree = options.tree.resolve()
    sys.path.insert(0, str(tree))
    found = traces(f"{tree}/mytorch/")
    if options.counts:
        print(counts(found))
        return 0
    text = page(found)
    if not options.check:
        PAGE.write_text(text)
        return 0
    code, written = names(text), names(PAGE.read_text())
    for phase, path, name in sorted(code ^ written):
        what = "runs, but isn't listed" if (phase, path, name) in code else "is listed, but doesn't run"
        print(f"{path}: {name} {what} in {phase}; python docs/reading.py writes the page anew")
    return int(code != written)


if __name__ == "__main__":
    sys.exit(main())
