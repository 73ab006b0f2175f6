"""Writes docs/files.md: every file of the package, with the first sentence of its docstring.

    python docs/make_files.py            writes the page
    python docs/make_files.py --check    exits with 1 if the page is not up to date
"""

# ruff: noqa: E501 - the rows of tables
import argparse
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "files.md"
HEAD = """\
# The files

Written by `python docs/make_files.py` from the first sentence of each file. A folder's `__init__.py` says what is in it.
Imports point one way: a layer uses those listed before it, and a test holds that.

![The layers of the package, and a dot for each layer that a layer imports](../src/layers.svg)

| beside the package | |
|---|---|
| [`train_gpt2.sh`](../train_gpt2.sh), [`train_gpt2.py`](../train_gpt2.py) | the first command: from nothing to a trained GPT |
| [`finetune_gpt2.py`](../finetune_gpt2.py) | trains a pretrained one further: all of it, its last layers, or adapters (LoRA) |
| [`inference_gpt2.py`](../inference_gpt2.py) | generates text with a trained one |
| [`run_folder.py`](../run_folder.py) | what a training leaves: checkpoints, metrics, samples of text, the loss curve |
| [`prepare_data/`](../prepare_data) | Tiny Shakespeare, OpenWebText or any text, as files of tokens |
| [`run_tests.sh`](../run_tests.sh), [`tests/`](../tests) | the second command; the tests mirror the package |
| [`benchmarks/`](../benchmarks) | timings beside PyTorch's, and their results |
| [`docs/`](../docs), [`notebooks/`](../notebooks), [`examples/`](../examples), [`src/`](../src) | these pages, notebooks, small programs, pictures |
"""
ORDER = ["backends", "core", "ops", "autograd", "nn", "nn/functional", "nn/layers", "nn/fused_ops", "nn/utils", "distributions", "optim", "optim/lr_scheduler", "utils", "stream", "compiler", "compiler/program", "compiler/tracing", "compiler/guards", "compiler/graph_breaks", "compiler/passes", "compiler/codegen", "compiler/memory", "compiler/running", "compiler/files", "compiler/parts", "compiler/placing", "profiler", "distributed", "accelerate", "models", "tokenizers", "cuda", "cli"]


def first_sentence(path: Path) -> str:
    """The first sentence of the file's docstring, or else of its first class or function that has one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    definitions = [n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
    text = next(filter(None, map(ast.get_docstring, [tree, *definitions])), "")
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) |:$", paragraph)[0].replace("|", "\\|")


def folder_key(name: str) -> tuple:
    known = [i for i, prefix in enumerate(ORDER) if f"{name}/".startswith(f"{prefix}/")]
    return (max(known) if known else -1, name)


def page() -> str:
    folders: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "mytorch").rglob("*.py")):
        folders.setdefault(path.parent.relative_to(ROOT / "mytorch").as_posix(), []).append(path)
    lines = [HEAD]
    for name in sorted(folders, key=folder_key):
        title = "mytorch" if name == "." else f"mytorch/{name}"
        lines.append(f"## {title}\n")
        lines.append(f"{first_sentence(folders[name][0].parent / '__init__.py')}\n")
        lines.append("| file | |\n|---|---|")
        for path in folders[name]:
            link = path.relative_to(ROOT).as_posix()
            if path.name not in ("__init__.py", "__main__.py") and link != "mytorch/version.py":
                lines.append(f"| [`{path.name}`](../{link}) | {first_sentence(path)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    if parser.parse_args().check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
