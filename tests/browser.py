"""A headless Chromium for the tests of pages; skips them where there is none, unless one is required."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
    "chrome",
)
REQUIRED = "MYTORCH_REQUIRE_BROWSER"  # set by .ci/run


@contextmanager
def chromium():
    """Context whose value is a new page; it fails if that logs anything or opens more than files."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing = "no Chromium: apt install chromium"
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(missing)
    from playwright.sync_api import sync_playwright

    problems = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])  # root needs that
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(5000)
        page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url))
        try:
            yield page
        finally:
            browser.close()
    assert [problem for problem in problems if not problem.startswith("file:")] == []
