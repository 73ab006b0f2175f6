"""Makes the pages of the repository a site: the hooks of `mkdocs build`, see mkdocs.yml.

The README is the first page. Links to files that are no pages lead to the repository. The pages below
api/ that mkdocs.yml lists are made from docstrings.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path
from unittest import mock

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # mkdocs takes it out again
import reference  # noqa: E402

import mytorch  # noqa: E402, F401 - this very checkout

PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?")


def on_config(config):
    with mock.patch("setuptools.setup"):  # the one place that says where the repository is
        config.repo_url = runpy.run_path(str(ROOT / "setup.py"))["URL"]
    config.repo_name = config.repo_url.partition("github.com/")[2]
    return config


def on_files(files, config):
    for path, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    for path in (ROOT / "src").iterdir():
        files.append(File.generated(config, f"src/{path.name}", abs_src_path=str(path)))
    for name in re.findall(r"api/([\w.]+)\.md", str(config.nav)):
        files.append(File.generated(config, f"api/{name}.md", content=reference.page(name, config.repo_url)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Returns the page with links that work on the site; links to nothing are left for mkdocs to report."""
    if page.file.src_uri.startswith("api/"):
        return markdown
    here = ROOT if page.file.src_uri in PAGES.values() else ROOT / "docs"

    def rewrite(link):
        path = Path(os.path.normpath(here / link[1]))
        if not path.exists():
            return link[0]
        name = path.relative_to(ROOT).as_posix()
        target = PAGES.get(name, name.removeprefix("docs/"))
        if files.get_file_from_path(target) is None:
            target = f"{config.repo_url}/{'tree' if path.is_dir() else 'blob'}/main/{name}"
        return target + (link[2] or "")

    return LINK.sub(rewrite, markdown)
