"""Computes once what is computed twice."""

from __future__ import annotations

from collections import Counter

from ..program.instruction import Instruction, Value
from ..program.program import Program
from .rewriting import Rewrite


def merge_common_subexpressions(program: Program) -> Program:
    """Returns the program without instructions that repeat an earlier one.

    %2 = exp(%0); %3 = exp(%0); %4 = add(%2, %3)     becomes     %2 = exp(%0); %4 = add(%2, %2)

    Those stay that write or call a Python object, whose result is returned (the caller gets an array of its
    own) or is written to later, and whose arguments have been written to in between.
    """
    made, first = Rewrite(program), {}
    changed, returned = program.changed_storages(), {x.storage for x in program.results()}
    writes: Counter[Value] = Counter()  # so far, by storage
    for i in map(made.renamed, program.instructions):
        writes.update(i.written)
        same = i if _has_to_stay(i, changed, returned) else first.setdefault(_key(i, writes), i)
        if same is i:
            made.keep(i)
        for y, now in zip(i.outputs, same.outputs, strict=True) if same is not i else ():
            made.replace(y, now)
    return made.program()


def _has_to_stay(i: Instruction, changed: set[Value], returned: set[Value]) -> bool:
    storages = {y.storage for y in i.outputs}
    new = storages.intersection(i.outputs)  # but for views, which nothing writes to as such
    return bool(i.written) or i.is_host or not storages.isdisjoint(returned) or not new.isdisjoint(changed)


def _key(i: Instruction, writes: Counter[Value]) -> str:
    """Returns what instructions have in common that compute the same; values have numbers of their own."""
    kwargs = {**i.kwargs, "error": "", "text": ""} if i.name == "check" else i.kwargs  # the first says it
    return repr((i.name, i.args, sorted(kwargs.items()), [writes[x.storage] for x in i.inputs()]))
