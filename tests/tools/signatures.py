"""
One form for signatures: parameters that don't fit beside the name share the lines below it.

    def function(
        first: int, second: int, third: int,
        fourth: int = 0,
    ) -> int:

    python -m tests.tools.signatures FILE...     # rewrites those with a line for each parameter
    python -m tests.tools.signatures --check FILE...
"""

import io
import sys
import tokenize
from pathlib import Path

WIDTH = 110


def rewritten(text):
    """Returns the text with its signatures in this form, and the first lines of those that weren't."""
    lines, changed = text.splitlines(keepends=True), []
    for start, stop, packed in [*_signatures(text)][::-1]:
        if stop - start > len(packed):  # one line more than needed may group parameters that belong together
            lines[start - 1 : stop] = [line + "\n" for line in packed]
            changed.insert(0, start)
    return "".join(lines), changed


def _signatures(text):
    """Yields (first line, last line, the lines in this form) of the signatures that have several lines."""
    tokens = [*tokenize.generate_tokens(io.StringIO(text).readline)]
    for i, token in enumerate(tokens):
        if token.string == "def" and token.type == tokenize.NAME and tokens[i + 2].string == "(":
            opening = i + 2
            closing, commas = _closing(tokens, opening)
            end = next(k for k in range(closing, len(tokens)) if _ends(tokens, closing, k))
            inside = tokens[opening + 1 : end]
            is_plain = not any(t.type == tokenize.COMMENT for t in inside)
            if tokens[end].start[0] > token.start[0] and is_plain:
                yield _packed(text.splitlines(), tokens, opening, closing, commas, end)


def _closing(tokens, opening):
    """Returns the index of the bracket that closes, and those of the commas between."""
    depth, commas = 0, []
    for k in range(opening, len(tokens)):
        if tokens[k].string in ("(", "[", "{"):
            depth += 1
        elif tokens[k].string in (")", "]", "}"):
            depth -= 1
            if not depth:
                return k, commas
        elif tokens[k].string == "," and depth == 1:
            commas.append(k)


def _ends(tokens, closing, k):
    """Whether it is the colon behind the parameters, and the annotation of the result."""
    depth = sum((t.string in "([{") - (t.string in ")]}") for t in tokens[closing + 1 : k] if t.string)
    return tokens[k].string == ":" and not depth


def _packed(lines, tokens, opening, closing, commas, end):
    first, last = tokens[opening].start[0], tokens[end].start[0]
    bounds = [opening, *commas, closing]
    parameters = [
        _source(lines, inside[0].start, inside[-1].end)
        for left, right in zip(bounds, bounds[1:], strict=False)
        if (inside := [t for t in tokens[left + 1 : right] if t.type != tokenize.NL])
    ]
    head = lines[first - 1][: tokens[opening].end[1]]
    tail = _source(lines, tokens[closing].start, tokens[end].end) + lines[last - 1][tokens[end].end[1] :]
    indent = head[: len(head) - len(head.lstrip())]
    whole = head + ", ".join(parameters) + tail
    if len(whole) <= WIDTH:
        return first, last, [whole]
    if len(beside := f"{indent}    {', '.join(parameters)}") <= WIDTH:
        return first, last, [head, beside, indent + tail]
    filled = [f"{indent}   "]
    for parameter in parameters:
        if len(filled[-1]) + len(parameter) + 2 > WIDTH and filled[-1].strip():
            filled.append(f"{indent}   ")
        filled[-1] += f" {parameter},"
    return first, last, [head, *filled, indent + tail]


def _source(lines, start, end):
    """Returns the text between two places, its lines joined."""
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    between = [lines[start[0] - 1][start[1] :], *lines[start[0] : end[0] - 1], lines[end[0] - 1][: end[1]]]
    return " ".join(line.strip() for line in between)


def main(arguments):
    is_check = "--check" in arguments
    found = []
    for name in arguments:
        if name != "--check":
            path = Path(name)
            text, changed = rewritten(path.read_text(encoding="utf-8"))
            found += [f"{name}:{line}" for line in changed]
            if changed and not is_check:
                path.write_text(text, encoding="utf-8")
    print("\n".join(found), end="\n" if found else "")
    return int(is_check and bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
