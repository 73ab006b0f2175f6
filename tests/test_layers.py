"""Imports point one way: a module may use the layers above it in this list, never those below; and no files
import each other, in however many steps. Imports within functions and by names in strings count, too."""

import graphlib

import pytest

from tests.imports import FILES, ROOT, file_of, imported, name_of, names_in, names_of

# A file belongs to the longest entry that its path begins with.
LAYERS = [
    ("version", "aliases", "utils/atomic", "utils/reading", "utils/start", "utils/writing"),
    ("backends", "aliases/backends_settings"),
    ("core",),
    ("random", "ops"),
    ("autograd",),
    ("fft", "linalg", "methods", "numpy_protocol", "cuda"),
    ("nn/functional",),
    ("nn/fused_ops", "nn"),
    (
        "func", "distributions", "aliases/accelerator", "aliases/foreach", "aliases/hub", "aliases/jit",
        "aliases/nn_attention", "aliases/nn_modules", "aliases/nn_modules_utils", "aliases/special",
    ),
    ("optim",),
    ("amp", "aliases/cuda_amp"),
    ("serialization", "tokenizers", "utils", "aliases/utils_checkpoint"),
    ("stream", "profiler", "debug", "aliases/utils_flop_counter", "aliases/autograd_profiler"),
    ("compiler",),
    ("distributed", "multiprocessing"),
    ("models", "utils/einops"),  # from here on files may be written as a user's program: `import mytorch`
    ("accelerate",),
    ("cli", "chat"),
    (ROOT,),
]


def layer(name: str) -> int:
    matches = [
        (len(prefix), i) for i, prefixes in enumerate(LAYERS) for prefix in prefixes if is_in(name, prefix)
    ]
    assert matches, f"{name} belongs to no layer: add it to LAYERS"
    return max(matches)[1]


def is_in(name: str, folder: str) -> bool:
    return f"{name}/".startswith(f"{folder}/")


def lowest(target: str) -> int:
    """Returns the first layer whose files may import this one."""
    return layer("models" if target == ROOT else target)


def test_imports_point_one_way():
    wrong = []
    for path in FILES:
        here = name_of(path)
        for target in imported(path):
            if lowest(target) > layer(here):
                wrong.append(f"{here} imports {target}, which lies below it")
    assert not wrong, "\n".join(wrong)


def test_no_files_import_each_other():
    graph = {name_of(path): imported(path, runtime=True) for path in FILES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise AssertionError(" imports ".join(error.args[1][::-1])) from None


IMPORTS = {  # in the file nn/parallel
    "import mytorch.optim.adam": {"optim/adam"},
    "def f():\n    from ..optim import adam, SGD": {"optim/adam", "optim/__init__"},
    "from mytorch import Tensor, amp": {"__init__", "amp/__init__"},
    "importlib.import_module('mytorch.distributed')": {"distributed/__init__"},
    "import_module('..distributed', __package__)": {"distributed/__init__"},
    "import_module(f'{__package__}.utils.{name}')": {"nn/utils/__init__"},
    "__import__('mytorch.amp')": {"amp/__init__"},
    "import_module(name), import_module('cupy')": set(),
    "_lazily(globals(), {'utils': None, 'x': 'amp.precision'}, dict.fromkeys('ab', 'stream'))": {
        "nn/parallel", "amp/precision", "stream/__init__",
    },
    "if TYPE_CHECKING:\n    from .module import Module": {"nn/module"},
}


@pytest.mark.parametrize("text", IMPORTS)
def test_imports_are_found(text):
    found = {file_of(name) for name in names_in("nn/parallel", text)} - {None}
    assert found == IMPORTS[text]


def test_at_runtime_types_and_unknown_names_are_not_imported():
    text = "if TYPE_CHECKING:\n    from .module import Module\nimport_module(f'{__package__}.utils.{name}')"
    assert not {*names_in("nn/parallel", text, runtime=True)} - {""}


def test_pytorch_is_never_imported():
    names = [(path, name) for path in FILES for name in names_of(path)]
    wrong = [f"{path} imports {name}" for path, name in names if name.partition(".")[0] == "torch"]
    assert len(names) > 1000 and not wrong, "\n".join(wrong)
