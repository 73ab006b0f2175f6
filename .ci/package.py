"""Builds the sdist and the wheel as docs/releasing.md does, checks them, installs the wheel into an empty
environment, and runs the README's first example there, outside of the checkout. Needs build and twine."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT)  # the wheel from the sdist
        sdist, wheel = sorted(folder.glob("dist/*"), key=lambda path: path.suffix)
        run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
        if missing := files_of_the_package() - set(zipfile.ZipFile(wheel).namelist()):
            raise SystemExit(f"{wheel.name} lacks {', '.join(sorted(missing))}")
        run(sys.executable, "-m", "venv", folder / "empty")
        programs = folder / "empty" / "bin"
        run(programs / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", wheel)
        (folder / "example.py").write_text(first_example((ROOT / "README.md").read_text(encoding="utf-8")))
        run(programs / "python", "-I", "example.py", cwd=folder)
        run(programs / "mytorchrun", "--help", cwd=folder)
    print(f"{sdist.name} and {wheel.name}: built, checked, installed; the README's first example runs")


def files_of_the_package() -> set[str]:
    """Returns the sources, stubs and marker that a wheel has to have."""
    kinds, files = {".py", ".pyi", ".typed"}, [*ROOT.glob("mytorch/**/*"), *ROOT.glob("mytorch-stubs/**/*")]
    return {path.relative_to(ROOT).as_posix() for path in files if path.suffix in kinds}


def first_example(readme: str) -> str:
    """Returns the first block of Python; what it shows as True is asserted, and where mytorch is."""
    block = re.search(r"^```python\n(.*?)^```$", readme, re.M | re.S)[1]
    code, count = re.subn(r"^(.+?)  # -> True$", r"assert \1", block, flags=re.M)
    if not count:
        raise SystemExit("README.md: the first example shows no result that is True")
    return f"{code}\nimport sys\n\nassert mytorch.__file__.startswith(sys.prefix), mytorch.__file__\n"


def run(*command: object, cwd: Path = ROOT) -> None:
    """Runs a program without the paths of this environment; ends this one with its output if it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nerror: {' '.join(map(str, command))}: exit code {done.returncode}")


if __name__ == "__main__":
    main()
