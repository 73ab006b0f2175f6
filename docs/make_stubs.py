"""Writes the stubs, from which type checkers and editors know what the package attaches when it is imported.

    python docs/make_stubs.py            writes them
    python docs/make_stubs.py --check    exits with 1 if one is not up to date
"""

import argparse
import ast
import builtins
import dataclasses
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import numpy as np

import mytorch
from mytorch.aliases import FILES
from mytorch.compiler.program import program
from mytorch.core import array, tensor
from mytorch.methods import OPERATORS
from mytorch.nn import functional
from mytorch.ops.cast import TensorType
from mytorch.ops.dims import _NAMES, numpy_names
from mytorch.ops.out import accepts_out

ROOT = Path(__file__).resolve().parent.parent
ALIASED = ROOT / "mytorch-stubs"  # partial stubs, see PEP 561
TYPES = {  # the names of annotations, with their modules; any other is written as Any
    "Any": "typing", "Self": "typing_extensions",
    "Callable": "collections.abc", "Iterator": "collections.abc", "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "Tensor": "mytorch.core.tensor", "Array": "mytorch.core.array",
    "Size": "mytorch.core.size", "Node": "mytorch.core.graph", "RemovableHandle": "mytorch.core.hook",
    "ValuesIndices": "mytorch.ops.minmax", "MinMax": "mytorch.ops.minmax", "Dims": "mytorch.ops.dims",
    "Histogram": "mytorch.ops.search", "Number": "mytorch.ops.scalars",
    "DTypeLike": "mytorch.backends.dtypes", "DeviceLike": "mytorch.backends.device",
    "Generator": "mytorch.random", "IntOrInts": "mytorch.nn.functional.types",
    "Program": "mytorch.compiler.program.program", "Value": "mytorch.compiler.program.instruction",
    "Instruction": "mytorch.compiler.program.instruction", "Memory": "mytorch.compiler.memory.peak",
    "Chunked": "mytorch.compiler.parts.chunking", "Stream": "mytorch.compiler.parts.streaming",
    "Strategies": "mytorch.compiler.running.execution", "Picture": "mytorch.autograd.picture",
    "Placed": "mytorch.compiler.parts.placed",
}
ATTRIBUTES = {  # those that are no annotated properties
    "data": "Array", "grad": "Array | Any", "grad_fn": "Node | Any", "shape": "Size",
    "dtype": "np.dtype[Any]", "ndim": "builtins.int", "itemsize": "builtins.int", "nbytes": "builtins.int",
    "is_leaf": "builtins.bool",
    "is_cpu": "builtins.bool", "is_cuda": "builtins.bool", "is_meta": "builtins.bool",
    "requires_grad": "builtins.bool", "device": "device_", "T": "Tensor",
    "mT": "Tensor", "H": "Tensor", "mH": "Tensor",
}
HEAD = "# Written by python docs/make_stubs.py\nimport builtins\nimport os\n\nimport numpy as np"
SPECIAL = {"__init__", "__hash__", "__array__", "__dlpack__", "__dlpack_device__", "__array_priority__"}
NUMPYS, OUT = (wrapper(inspect.unwrap).__code__ for wrapper in (numpy_names, accepts_out))


class Stub:
    """The text of one stub; it collects the names that its annotations need."""

    def __init__(self, module: ModuleType):
        self.module, self.own = module, module.__name__
        self.class_name = ""  # of the class that is being written
        self.lines: list[str] = []

    def text(self, names: Iterable[str]) -> str:
        for name in names:
            self.add(name, getattr(self.module, name))
        body = "\n".join(self.lines)
        used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
        imports = [
            f"from {module} import {name}" for name, module in TYPES.items()
            if name in used and module != self.own and f"import {name} as " not in body
        ]
        if "weakref" in used:
            imports.append("import weakref")
        if "device_" in used:
            imports.append("from mytorch.backends.device import device as device_")
        return "\n".join([HEAD, *sorted(imports), body, ""])

    def add(self, name: str, value: object) -> None:
        """Adds a name of the module: what is defined elsewhere is imported."""
        if isinstance(value, ModuleType):
            path = FILES.get(value.__name__.removeprefix("mytorch."))
            parent, _, child = (f"mytorch.aliases.{path}" if path else value.__name__).rpartition(".")
            if parent.startswith("mytorch"):
                self.lines.append(f"from {parent} import {child} as {name}")
        elif isinstance(value, TensorType):
            self.lines.append(f"{name}: builtins.type[Tensor]")
        elif isinstance(value, type) and value.__module__ == self.own:
            self.add_class(value)
        elif isinstance(value, type):
            self.lines.append(f"from {value.__module__} import {value.__qualname__} as {name}")
        elif callable(value):
            self.lines.append(self.function(name, value))
        else:
            kind = {np.dtype: "np.dtype", float: "builtins.float"}
            found = next((text for base, text in kind.items() if isinstance(value, base)), "Any")
            self.lines.append(f"{name}: {found}")

    def add_class(self, cls: type) -> None:
        bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
        if bases:
            bases = f"({bases.replace('NDArrayOperatorsMixin', 'np.lib.mixins.NDArrayOperatorsMixin')})"
        self.lines.append(f"class {cls.__name__}{bases}:")
        self.class_name = cls.__name__
        is_data = dataclasses.is_dataclass(cls)  # whose other special methods aren't the same in each Python
        fields = [x for x in dataclasses.fields(cls) if x.init] if is_data else []
        self.lines += [f"    {x.name}: {self.annotation(x.type)}" for x in fields]
        for name, value in vars(cls).items():
            if name in [x.name for x in fields]:
                continue
            special = name.startswith("__") and callable(value) or name in SPECIAL
            special &= not is_data or name in ("__init__", "__call__")
            if special or not name.startswith("_"):
                self.lines += [f"    {line}" for line in self.member(name, value).splitlines()]
        self.class_name = ""

    def member(self, name: str, value: object) -> str:
        if isinstance(value, staticmethod):
            return f"@staticmethod\n{self.function(name, value.__func__)}"
        if callable(value) and not inspect.isclass(value):
            if self.class_name == "Array" and name in array.NUMPY_METHODS:  # NumPy's calls fit, too
                return f"def {name}(self, *args: Any, **kwargs: Any) -> Any: ..."
            return self.function(name, value, method=True)
        if name in ATTRIBUTES:
            kind = ATTRIBUTES[name].replace("Tensor", self.class_name)
        else:
            annotation = getattr(getattr(value, "fget", None), "__annotations__", {}).get("return", "Any")
            kind = self.result(annotation)
        if isinstance(value, property) and value.fset is None:
            return f"@property\ndef {name}(self) -> {kind}: ..."
        return f"{name}: {kind}"

    def function(self, name: str, function: Callable, method: bool = False) -> str:
        signature = inspect.signature(function)
        parameters = self.parameters(function, list(signature.parameters.values()), method)
        returns = signature.return_annotation
        if returns is signature.empty and getattr(function, "__module__", self.own) == self.own:  # no op
            returns = "None" if name == "__init__" else "Any"
        kind = self.result(returns)
        if method and kind == self.class_name and is_inplace(name):
            kind = "Self"
        return f"def {name}({', '.join(parameters)}) -> {kind}: ..."

    def parameters(self, function: Callable, parameters: list[inspect.Parameter], method: bool) -> list[str]:
        layers = list(wrappers(function))
        by_numpy = set(_NAMES.values()) & {p.name for p in parameters} if NUMPYS in layers else set()
        extra = [f"{theirs}: Any = ..." for theirs, ours in _NAMES.items() if ours in by_numpy]
        extra += ["out: Any = None"] * (OUT in layers)
        if isinstance(function, functional.Composite):
            extra += ["auto: builtins.bool = False", "fused: builtins.bool | None = None"]
        shown, rest = ["self"] * method, []
        for i, p in enumerate(parameters[method:], method):
            if p.kind is p.VAR_KEYWORD:
                rest = [f"**{p.name}: Any"]
                continue
            if p.kind is p.KEYWORD_ONLY and not any(s.startswith("*") for s in shown):
                shown.append("*")
            optional = p.name in by_numpy and all(q.default is not q.empty for q in parameters[i + 1 :])
            shown.append(self.parameter(p, optional))
        if extra and not any(s.startswith("*") for s in shown):
            shown.append("*")
        return [*shown, *extra, *rest]

    def parameter(self, p: inspect.Parameter, optional: bool) -> str:
        if p.annotation is not p.empty:
            kind = self.annotation(p.annotation, argument=True)
        else:
            kind = {"dtype": "DTypeLike", "device": "DeviceLike"}.get(p.name, "Any")
            kind = "builtins.bool" if isinstance(p.default, bool) else kind
        star = "*" if p.kind is p.VAR_POSITIONAL else ""
        return f"{star}{p.name}: {kind}{default(p, optional)}"

    def result(self, annotation: object) -> str:
        """Returns the annotation of a result: an op's is a Tensor, an optional one need not be tested.

        Which of several classes it is depends on the arguments, so that is Any.
        """
        if annotation is inspect.Signature.empty:
            return self.class_name or "Tensor"
        text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        node = ast.parse(text, mode="eval").body
        if isinstance(node, ast.BinOp):
            is_optional = isinstance(node.right, ast.Constant) and not isinstance(node.left, ast.BinOp)
            return f"{self.annotation(ast.unparse(node.left))} | Any" if is_optional else "Any"
        return self.annotation(annotation)

    def annotation(self, annotation: object, argument: bool = False) -> str:
        text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        return ast.unparse(_Rename(self.class_name, argument).visit(ast.parse(text, mode="eval")))


class _Rename(ast.NodeTransformer):
    """Makes the names of an annotation those of the stub: `float` may be a dtype there, or a method."""

    def __init__(self, class_name: str, argument: bool):
        self.class_name, self.argument = class_name, argument

    def visit_Name(self, node: ast.Name) -> ast.expr:  # noqa: N802
        name = node.id
        if name == "Tensor" and self.argument:
            name = "Tensor | Array"
        elif name == "Tensor" and self.class_name == "Array":
            name = "Array"
        elif name == "device":
            name = "device_"
        elif hasattr(builtins, name):
            name = f"builtins.{name}"
        elif name not in TYPES and name not in ("np", "os", "builtins"):
            name = "Any"
        return ast.parse(name, mode="eval").body

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:  # noqa: N802
        if ast.unparse(node.value) == "Callable":
            return ast.parse("Callable[..., Any]", mode="eval").body
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:  # noqa: N802
        return node


def wrappers(function: Callable) -> Iterable:
    """Yields the code of the function and of those that it wraps."""
    while function is not None:
        yield getattr(function, "__code__", None)
        function = getattr(function, "__wrapped__", None)


def is_inplace(name: str) -> bool:
    return name.endswith("_") != name.startswith("__") or name[:3] == "__i" and name[3:-2] in OPERATORS


def default(p: inspect.Parameter, optional: bool) -> str:
    if p.default is p.empty:
        return " = ..." if optional else ""
    plain = p.default is None or type(p.default) in (bool, int, str)
    plain = plain or (type(p.default) is float and math.isfinite(p.default))
    return f" = {p.default!r}" if plain else " = ..."


def public(module: ModuleType) -> list[str]:
    """Returns the names that a stub has to have."""
    if module is functional:
        return sorted(functional.__all__)
    names = {name for name in dir(module) if not name.startswith("_")}
    if module is mytorch:
        return sorted(names | {"bfloat16"})
    return sorted(name for name in names if is_ours(getattr(module, name)))


def is_ours(value: object) -> bool:
    return getattr(value, "__module__", "mytorch").startswith("mytorch")


def stubs() -> dict[Path, str]:
    """Returns the text of each stub by its path."""
    found = {}
    for module in (mytorch, functional, tensor, array, program):
        path = Path(module.__file__).with_suffix(".pyi")
        found[path] = Stub(importlib.import_module(module.__name__)).text(public(module))
    return found | aliases()


def aliases() -> dict[Path, str]:
    """Returns the stubs of the modules that no type checker finds at their paths: see mytorch/aliases."""
    found = {ALIASED / "py.typed": "partial\n"}
    for name, file in FILES.items():
        if file == name.replace(".", "_"):  # the only module of this file
            is_package = any(other.startswith(f"{name}.") for other in FILES)
            path = ALIASED.joinpath(*name.split("."), *["__init__"] * is_package).with_suffix(".pyi")
            sources = [f"mytorch.aliases.{file}", *star_imports(ROOT / f"mytorch/aliases/{file}.py")]
            lines = [f"from {source} import *\n" for source in sources]
            found[path] = "".join(["# Written by python docs/make_stubs.py\n", *lines])
    return found


def star_imports(path: Path) -> list[str]:
    """Returns the modules all of whose names a file has: mypy doesn't follow `__all__ = [*other.__all__]`."""
    nodes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
    return [node.module for node in nodes if node.names[0].name == "*"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    for path, text in stubs().items():
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            return 1
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
