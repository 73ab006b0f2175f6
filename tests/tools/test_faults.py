"""The faults of a mutation run."""

import ast

from tests.tools.faults import Faults

SOURCE = '''
def f(x: int = 0, flag=True):
    """The docstring has 1 number."""
    y = x + 1 if x < 2 and not flag else x
    if y is None:
        raise ValueError(f"{x + 1} has no value")
    self.count += 1
    check(y)
    return lambda g: g * y

LIMIT = 4
'''
PLANTED = [
    "0 → 1", "True → False",
    "x + 1 if x < 2 and (not flag) else x → x", "x < 2 and (not flag) → x < 2 or not flag", "x < 2 → LtE",
    "2 → 3", "not flag → flag", "x + 1 → x - 1", "1 → 2",
    "if y is None → negated", "y is None → IsNot",
    "self.count += 1 → self.count -= 1", "self.count += 1 → pass", "1 → 2", "check(y) → pass",
    "g * y → g / y",
]


def test_what_is_planted():
    """Not in docstrings, annotations, errors, nor outside of functions."""
    assert [what for _, _, what, _ in Faults(ast.parse(SOURCE)).sites] == PLANTED


def test_each_fault_changes_the_code_once():
    changed = set()
    for n in range(len(PLANTED)):
        tree = ast.parse(SOURCE)
        Faults(tree).sites[n][3]()
        compile(ast.fix_missing_locations(tree), "source", "exec")
        changed.add(ast.unparse(tree))
    assert len(changed - {ast.unparse(ast.parse(SOURCE))}) == len(PLANTED)


def test_blocks():
    """The function, the body of `if` and the lambda: what runs as a whole."""
    assert list(Faults(ast.parse(SOURCE)).blocks) == ["3", "6", "9:11"]
