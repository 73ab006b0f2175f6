"""Where gradients are computed: those that only become `.grad` need no memory of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..program.instruction import Instruction, Value
from ..program.program import Program


def into_grads(program: Program) -> list[Instruction]:
    """Returns the instructions, each that makes a gradient `.grad` directly behind the vjp, or the product,
    that computes it, which leaves it to that instruction: the argument `lazy` has its position."""
    program = replace(program, instructions=_Stores(program).without_sums())
    stores, found, moved = _Stores(program), [], set()
    for i in program.instructions:
        if i not in moved:
            i, users = stores.with_users(i)
            found += [i, *users]
            moved.update(users)
    return found


class _Stores:
    """The gradients of a program that only become `.grad`, and the instructions that do so."""

    def __init__(self, program: Program):
        self._instructions, self._uses = program.instructions, program.uses()
        self._results = Counter(program.results())
        self._may_return_lazy = program.gives_lazy
        self._numbers = {i: number for number, i in enumerate(self._instructions)}
        self._only = {y: users[0] for y, users in self._uses.items() if self._becomes_grad(y, users)}
        vjps = [i for i in self._instructions if i.name == "kernel.vjp"]
        self._vjps = {y: self._numbers[i] for i in vjps for y in i.outputs}

    def _becomes_grad(self, y: Value, users: list[Instruction]) -> bool:
        """Whether a value has no other use than to become `.grad`."""
        names = [user.name for user in users]
        return names in (["host.set_grad"], ["host.add_grad"]) and y not in self._results

    def _is_left_to_caller(self, y: Value) -> bool:
        """Whether the caller gets a gradient, and nothing else does."""
        return self._may_return_lazy and self._results[y] == 1 and y not in self._uses

    def with_users(self, i: Instruction) -> tuple[Instruction, list[Instruction]]:
        """Returns an instruction, and those that make its results `.grad`, if they can be behind it."""
        users = [self._only[y] for y in i.outputs if y in self._only]
        if i.name == "kernel.vjp":
            pairs = zip(i.kwargs["wanted"], i.outputs, strict=True)
            lazy = tuple([k for k, y in pairs if y in self._only or self._is_left_to_caller(y)])
            return (replace(i, kwargs={**i.kwargs, "lazy": lazy}) if lazy else i), users
        is_product = i.name == "matmul" and users and users[0].args[1:] == i.outputs
        return i, users if is_product and self._sets_only(self._numbers[i], users[0]) else []

    def _sets_only(self, start: int, user: Instruction) -> bool:
        """Whether no object of Python sees in between what an instruction sets."""
        between = self._instructions[start : self._numbers[user] + 1]
        return all([i.name == "host.set_grad" for i in between if i.is_host])

    def without_sums(self) -> list[Instruction]:
        """Returns the instructions. A sum of two vjps' gradients that only becomes `.grad` (of a weight that
        two layers share) is not computed: the second term is added to the first one, where that is."""
        instead: dict[Instruction, list[Instruction]] = {}
        for i in self._instructions:
            terms = self._terms(i)
            if terms and self._sets_only(self._vjps[terms[0]], store := self._only[i.outputs[0]]):
                first, second = [replace(store, args=(store.args[0], x)) for x in terms]
                instead[i], instead[store] = [], [first, replace(second, name="host.add_grad", outputs=())]
        return [j for i in self._instructions for j in instead.get(i, [i])]

    def _terms(self, i: Instruction) -> list[Value]:
        """Returns the gradients that an instruction adds, in the order in which vjps make them; none unless
        the sum only becomes `.grad`."""
        if i.name != "add" or i.kwargs or i.outputs[0] not in self._only:
            return []
        terms = [x for x in i.args if isinstance(x, Value) and x in self._vjps and len(self._uses[x]) == 1]
        kinds = {(x.shape, x.dtype) for x in (*terms, *i.outputs)}
        is_plain = len(terms) == 2 and len(kinds) == 1 and self._results.keys().isdisjoint(terms)
        return sorted(terms, key=self._vjps.__getitem__) if is_plain else []
