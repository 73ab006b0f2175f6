"""The rendered site: no page is missing, no link is broken, chapters are in the order of a training step."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.every import every

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
SPINE = "In a training step: "
NO_CHAPTERS = {"reading.md", "surface.md", "differences.md", "files.md", "tests.md", "faq.md", "releasing.md"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr  # of warnings, too, unless they are silenced
    return folder


def html(site, page):
    return (site / page / "index.html").read_text(encoding="utf-8")


def test_links_lead_to_pages_pictures_and_the_repository(site):
    url = re.search(r'URL = "(.+?)"', (ROOT / "setup.py").read_text(encoding="utf-8"))[1]
    page = html(site, "autograd")
    assert f'href="{url}/blob/main/mytorch/core/engine.py"' in page
    assert 'src="../src/autograd.svg"' in page and (site / "src" / "autograd.svg").exists()
    first = html(site, "")
    assert 'href="autograd/"' in first and f'href="{url}/tree/main/examples"' in first
    everything = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    assert not re.findall(r'(?:href|src)="\.\./[^"]*\.(?:py|sh|json|md)[#"]', everything)


def test_the_reference_has_what_decorators_and_loops_make(site):
    functions = html(site, "api/mytorch")
    for name in ("add", "zeros_like", "einsum", "save", "no_grad"):
        assert f'<h2 id="{name}">' in functions, name
    assert '<h2 id="layer_norm">' in html(site, "api/mytorch.nn.functional")
    assert "<code>exp_</code>" in html(site, "api/mytorch.Tensor")
    optimizer = html(site, "api/mytorch.optim")
    assert '<h2 id="adamw">' in optimizer and "/blob/main/mytorch/optim/adamw.py" in optimizer


def test_every_page_is_in_the_readmes_map():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in DOCS.glob("*.md") if f"](docs/{path.name})" not in readme] == []


def test_every_chapter_says_where_it_is_in_the_step_and_the_step_links_it():
    reading = (DOCS / "reading.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (?=\d+\. )", reading, flags=re.M)
    anchors = {"": parts[0]}
    for part in parts[1:]:
        title = part.partition("\n")[0]
        anchors["#" + title.lower().replace(". ", "-").replace(" ", "-")] = part
    for path in DOCS.glob("*.md"):
        if path.name in NO_CHAPTERS:
            continue
        line = path.read_text(encoding="utf-8").splitlines()[2]
        assert line.startswith(SPINE), path.name
        links = re.findall(r"\(reading\.md(#[^)]*)?\)", line)
        assert links and every(f"]({path.name})" in anchors[link] for link in links), path.name


def test_chapters_are_in_the_order_of_the_step():
    step = CONFIG.partition("The training step:")[2].partition("Seeing the step:")[0]
    first = {}
    for page in re.findall(r": (\w+\.md)", step):
        line = (DOCS / page).read_text(encoding="utf-8").splitlines()[2]
        numbers = re.findall(r"reading\.md#(\d)", line)
        if numbers:
            first[page] = int(numbers[0])
    assert list(first.values()) == sorted(first.values()) and first
