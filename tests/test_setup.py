import os
import re
import runpy
import shutil
from pathlib import Path

import pytest
import setuptools

from tests.every import every

ROOT = Path(__file__).parents[1]


@pytest.fixture
def arguments(monkeypatch):
    """What setup.py hands to setuptools."""
    seen = {}
    monkeypatch.setattr(setuptools, "setup", lambda **given: seen.update(given))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    return seen


def test_the_core_needs_two_packages(arguments):
    assert arguments["install_requires"] == ["numpy>=2.0", "tqdm"]
    assert arguments["python_requires"] == ">=3.10"


def test_metadata_names_licence_and_place(arguments):
    assert arguments["license"] == "MIT" and (ROOT / arguments["license_files"][0]).exists()
    assert every(link.startswith(arguments["url"]) for link in arguments["project_urls"].values())
    assert (ROOT / "mytorch/py.typed").exists() and "*.pyi" in arguments["package_data"][""]


def test_every_link_of_the_description_works_elsewhere(arguments):
    text = arguments["long_description"]
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links and every(link.startswith("https://") for link in links)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    pictures = [link for link in pictures if not link.endswith("/colab-badge.svg")]
    assert pictures and every("/raw/main/src/" in picture for picture in pictures)


def test_version_is_the_packages_own(arguments):
    import mytorch

    assert arguments["version"] == mytorch.__version__


def test_torch_is_for_the_tests_alone(arguments):
    extras = arguments["extras_require"]
    assert {"cuda12", "cuda13", "triton", "cpu", "train", "mpi", "test", "notebooks"} <= set(extras)
    with_torch = {name for name, needs in extras.items() if any(need.startswith("torch") for need in needs)}
    assert with_torch == {"test"} and "torch==2.13.0" in extras["test"]


def test_the_oracles_of_the_tokenizers_are_for_the_tests_alone(arguments):
    extras = arguments["extras_require"]
    for package in ("tokenizers", "transformers"):
        assert {name for name, needs in extras.items() if package in needs} == {"test"}
    for package, extra in {"tiktoken": "train", "gguf": "models", "huggingface_hub": "models"}.items():
        assert {name for name, needs in extras.items() if package in needs} == {extra, "test"}


def test_bfloat16_comes_with_what_computes(arguments):
    extras = arguments["extras_require"]
    with_it = {name for name, needs in extras.items() if "ml_dtypes" in needs}
    assert with_it == {"cuda12", "cuda13", "triton", "cpu", "bf16", "test"}


def test_every_package_is_found(arguments):
    folders = {path.parent for path in (ROOT / "mytorch").rglob("*.py")}
    packages = {".".join(path.relative_to(ROOT).parts) for path in folders}
    assert set(arguments["packages"]) == packages | {"mytorch-stubs"}


def test_extras_are_missing_until_installed(tmp_path, monkeypatch):
    """.ci/missing.py compares what is installed with this very checkout."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/missing.py", tmp_path / ".ci/missing.py")
    for name in ("setup.py", "mytorch/version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    missing = runpy.run_path(str(tmp_path / ".ci/missing.py"))["missing"]
    site = tmp_path / "site"
    info = site / "mytorch-0.1.0.dist-info"
    info.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(site))
    needs = ["numpy>=2.0", "no-such-core", 'no-such-extra>=2; extra == "plot"']

    here = tmp_path.as_uri()

    def install(needs, url=here, editable="true"):
        metadata = ["Metadata-Version: 2.1", "Name: mytorch", "Version: 0.1.0"]
        (info / "METADATA").write_text(
            "\n".join(metadata + [f"Requires-Dist: {need}" for need in needs]) + "\n"
        )
        (info / "direct_url.json").write_text(f'{{"url": "{url}", "dir_info": {{"editable": {editable}}}}}')

    install(needs)
    assert missing([]) == "no-such-core is missing"
    install([needs[0], needs[2]])
    assert missing([]) == "" and missing(["plot"]) == "no-such-extra is missing"
    monkeypatch.setattr("platform.system", lambda: "Linux")
    install([needs[0], 'no-such-wheel>=3; platform_system == "Linux" and extra == "plot"'])
    assert missing(["plot"]) == "no-such-wheel is missing"
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert missing(["plot"]) == ""
    install([], url="file:///elsewhere")
    assert missing([]) == "another mytorch is installed"
    install([], editable="false")
    assert missing([]) == "another mytorch is installed"
    install([])
    (tmp_path / "setup.py").write_text("# newer")
    later = (info / "direct_url.json").stat().st_mtime + 10

    os.utime(tmp_path / "setup.py", (later, later))
    assert missing([]) == "setup.py has changed"
