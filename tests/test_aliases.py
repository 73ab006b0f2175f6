"""PyTorch's second names lie in one folder, and are found as if each had a file at its path."""

import subprocess
import sys
from pathlib import Path

import pytest

import mytorch
from mytorch.aliases import FILES, FORWARDS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mytorch"
NAMES = sorted({**FILES, **FORWARDS})


def python(*arguments):
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_top_of_the_package_is_read_at_a_glance():
    assert len([*PACKAGE.glob("*.py")]) <= 12


def test_each_file_of_the_folder_has_a_path():
    files = {path.stem for path in (PACKAGE / "aliases").glob("*.py")} - {"__init__"}
    assert files == set(FILES.values()) and not FILES.keys() & FORWARDS.keys()
    paths = [PACKAGE.joinpath(*name.split(".")) for name in NAMES]
    assert [path for path in paths if path.is_dir() or path.with_suffix(".py").exists()] == []


def test_import_loads_none_and_each_is_found_by_each_way_to_import():
    code = f"""
import importlib, importlib.util, sys
import mytorch
names = {NAMES!r}
print([name for name in names if f"mytorch.{{name}}" in sys.modules])
for name in names:
    package, _, last = f"mytorch.{{name}}".rpartition(".")
    above = importlib.import_module(package)
    assert last in dir(above), name
    by_attribute = getattr(above, last)
    exec(f"from {{package}} import {{last}} as by_from")
    assert by_attribute is by_from is importlib.import_module(f"mytorch.{{name}}"), name
    del sys.modules[by_from.__name__]
    spec = importlib.util.find_spec(f"mytorch.{{name}}")
    assert spec.name == by_from.__name__ == f"mytorch.{{name}}" and by_from.__doc__, name
    assert importlib.import_module(spec.name) is not by_from, name
"""
    assert python("-c", code) == "[]\n"


@pytest.mark.parametrize("name", ["overrides", "nn.modules.conv", "backends.cuda", "hub"])
def test_each_runs_as_a_module_that_does_nothing(name):
    assert python("-m", f"mytorch.{name}") == ""


def test_a_file_has_one_name():
    """Else its classes would be there twice."""
    for file in set(FILES.values()):
        with pytest.raises(ModuleNotFoundError):
            __import__(f"mytorch.aliases.{file}")
    assert mytorch.jit.script.__module__ == "mytorch.jit"
    with pytest.raises(ModuleNotFoundError, match="mytorch.nn.modules.no_such_layer"):
        __import__("mytorch.nn.modules.no_such_layer")


def test_a_file_runs_as_a_program():
    assert python("-m", "mytorch.special") == ""
    assert python("-c", "import mytorch.nn.modules.conv as conv; print(conv.Conv2d.__name__)") == "Conv2d\n"


def test_settings_of_libraries_are_kept_apart():
    cudnn, mkldnn = mytorch.backends.cudnn, mytorch.backends.mkldnn
    with cudnn.flags(enabled="here", further=1):
        assert cudnn.enabled == "here" and cudnn.further == 1 and mkldnn.enabled is False
    assert cudnn.enabled is True and not hasattr(cudnn, "further")
