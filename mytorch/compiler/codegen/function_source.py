"""Prints the Python function of a program."""

from __future__ import annotations

from ...backends.device import CPU, move
from ..memory.live_ranges import last_uses
from ..memory.plan import planned
from ..program.instruction import Instruction, Value
from ..program.program import Program
from ..running.checked import Checks
from ..running.recorded import RecordedStep
from .loop_printer import indented
from .lowering import lowered
from .python_source import PythonPrinter, name_of

_READ_ONLY = "diagonal", "broadcast_to"  # functions of which NumPy returns views that can't be written


def transposed_state(program: Program) -> dict[Value, Value]:
    """Returns the transposes of matrices of the state, which are made once, and not in each run."""
    found = [i for i in program.instructions if i.name == ".T" and i.args[0] in program.state]
    return {i.outputs[0]: i.args[0] for i in found}


class FunctionPrinter(PythonPrinter):
    """Prints the function `run` of a program.

    Args:
        is_recorded: with a block for each instruction (see `recorded`).
        is_checked: with checks of what each instruction makes (see `checked`).

    Attributes:
        loops: the name of each loop, which isn't in the namespace.
    """

    def __init__(self, program: Program, is_recorded: bool = False, is_checked: bool = False):
        self.program, self.is_recorded = program, is_recorded
        instructions, contiguous = planned(program), _contiguous(program)
        loops = {i: f"loop{number}" for number, i in enumerate(instructions) if i.name == "loop"}
        super().__init__(program.device, contiguous, loops)
        self.numbers = {i: number for number, i in enumerate(instructions)}
        self.instructions = instructions if is_recorded else lowered(program, instructions, contiguous)
        self.is_once = transposed_state(program).keys()
        self.writable = _writable_storages(program, instructions)
        constants = {value: move(raw, program.device) for value, raw in program.constants.items()}
        self.namespace |= {name_of(value): raw for value, raw in {**program.state, **constants}.items()}
        self.checks = Checks(program, self.instructions) if is_checked else None
        self.namespace |= {"checks": self.checks} if is_checked else {}

    def text(self) -> str:
        """Returns the source."""
        inputs, body = self.program.inputs, []
        body += [f"{name_of(x)} = arranged({name_of(x)}, {x.strides})" for x in self.program.loose]
        if self.checks is not None:
            args = ", ".join(map(name_of, (*inputs, *self.program.state)))
            body.append(f"bounds = checks.begin({args})")
        unused = last_uses(self.program, self.instructions)
        for k, (i, last) in enumerate(zip(self.instructions, unused, strict=True)):
            if not (i.outputs and i.outputs[0] in self.is_once):
                body += self._instruction(k, i)
                last = [name_of(value) for value in last if value not in self.is_once]
                body += [f"del {', '.join(last)}"] if last else []
        body.append(f"return {self.argument(self.program.outputs)}")
        return "\n".join([f"def run({', '.join(map(name_of, inputs))}):", *indented(body)])

    def _instruction(self, k: int, i: Instruction) -> list[str]:
        """Returns the lines of an instruction, and of what is done with its results."""
        lines = self.lines(i) + [line for y in i.outputs for line in self._result(i, y)]
        if self.is_recorded and not i.is_host:  # these record themselves
            lines = self._recorded(i, lines)
        if self.checks is not None and i.outputs:
            lines.append(f"checks.after({k}, bounds, {self.argument(i.outputs)})")
        return lines

    def _result(self, i: Instruction, y: Value) -> list[str]:
        """Returns the lines that make a result what the program declares: CuPy may lay it out in another
        order than NumPy; NumPy returns numbers for arrays without dims, and some views that are read-only."""
        if self.target is not CPU:
            is_function = not i.is_host and i.name not in ("loop", "kernel", "kernel.vjp")
            is_any = is_function and y.of is None and y.ndim > 1
            return [f"{name_of(y)} = arranged({name_of(y)}, {y.strides})"] if is_any else []
        if y.storage not in self.writable:
            return []
        if i.name.lstrip(".") in _READ_ONLY and y.of is not None:
            return [f"{name_of(y)} = as_writable({name_of(y)}, {name_of(i.inputs()[0])})"]
        return [] if y.shape or i.name == "loop" else [f"{name_of(y)} = np.asarray({name_of(y)})"]

    def _recorded(self, i: Instruction, lines: list[str]) -> list[str]:
        """Returns the lines of an instruction within a block of the instruction stream."""
        number, is_vjp = self.numbers[i], i.name == "kernel.vjp"
        maker = next((x for x in self.instructions if is_vjp and i.args[0] in x.outputs), None)
        self.namespace[f"step{number}"] = RecordedStep(i, maker)
        args = self.argument(tuple(i.args[i.name == "kernel" :]))
        origin = "" if maker is None else f", block{self.numbers[maker]}"
        made = self.argument(tuple([x for x in i.outputs if x.dtype.kind != "O"]))
        head = f"with step{number}({args}{origin}) as block{number}:"
        return [head, *indented([*lines, f"block{number}.outputs = {made}"])]


def _writable_storages(program: Program, instructions: list[Instruction]) -> set[Value]:
    """Returns the storages whose arrays must be writable: the program writes to them, or the caller may.

    Kernels and Python's objects take arrays, not the numbers that NumPy makes of those without dims.
    """
    takers = [i for i in instructions if i.name.startswith("kernel") or i.is_host]
    numbers = {x.storage for i in takers for x in i.inputs() if not x.ndim and x.dtype.kind != "O"}
    returned = {x.storage for x in program.results() if x.ndim}
    return program.changed_storages() - {*program.gradients()} | numbers | returned


def _contiguous(program: Program) -> set[Value]:
    """Returns values that are known to be in C order and writeable."""
    made = [y for i in program.instructions if i.name in ("loop", "matmul") for y in i.outputs]
    known = {y for y in made if y.is_c_order}
    held = (*program.state.items(), *program.constants.items())
    return known | {x for x, raw in held if raw.flags.c_contiguous and getattr(raw.flags, "writeable", True)}
