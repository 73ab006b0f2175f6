"""Recorded runs of programs: each instruction of the program is one of the stream, for logs and profilers.

    with step3((v1, v2)) as block3:
        v4 = np.matmul(v1, v2)
        block3.outputs = (v4, )
"""

from __future__ import annotations

from ...core.grad_accumulator import LazyGrad
from ...core.grad_mode import _state
from ...core.op import as_raw
from ...nn.functional.composite import REGISTRY
from ...stream.instruction import BACKWARD
from ...stream.recorder import Block
from ...utils.nested import leaves
from ..program.instruction import Instruction, Value


class RecordedBlock(Block):
    """A block whose results may be NumPy's numbers, and gradients that are computed later; it keeps none."""

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        for k, x in enumerate(self.outputs):
            if type(x) is LazyGrad:
                x.compute = self.recorder.later(f"{self.instruction.name}.{k}", x.compute, self.instruction)
        self.outputs = tuple([as_raw(x) for x in self.outputs if type(x) is not LazyGrad])
        super().__exit__(kind, *exception)
        self.outputs = ()


class RecordedStep:
    """Begins a block for an instruction of a program, called with its arguments.

    Args:
        instruction: it.
        maker: of a vjp, the instruction of its kernel.
    """

    def __init__(self, instruction: Instruction, maker: Instruction | None):
        origin = instruction.origin
        self._phase = BACKWARD if origin.split(" ")[0] == BACKWARD else None  # None: that around it
        self._module = origin.removeprefix(BACKWARD).strip()
        self._name, self._signature = instruction.name.lstrip("."), ("left", "right")
        self._keywords: dict[str, object] = {}
        if instruction.name == "kernel":
            self._name = instruction.args[0]
            self._signature = REGISTRY[self._name].reference
        elif instruction.name == "kernel.vjp":
            self._name = f"{'kernel' if maker is None else maker.args[0]}_backward"
            self._signature = ("saved", "grad")
        elif instruction.name == "loop":
            steps = [step.name for step in instruction.kwargs["loop"].steps]
            self._signature, self._keywords = ("input",), {"steps": ",".join(dict.fromkeys(steps))}
        else:
            values = instruction.kwargs.items()
            kept = {k: x for k, x in values if not any([isinstance(y, Value) for y in leaves(x)])}
            self._keywords = kept

    def __call__(self, arguments: tuple, maker: RecordedBlock | None = None) -> RecordedBlock:
        recorder = _state.stream
        instruction = recorder.begin(
            self._name, self._phase, self._signature, arguments, self._keywords, self._module
        )
        if maker is not None:
            instruction.origin = maker.instruction
        return RecordedBlock(recorder, instruction)
