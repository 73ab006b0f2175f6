"""docs/reading.md lists the functions that a training step runs."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_names_the_functions_that_run():
    command = [sys.executable, "docs/reading.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_says_how_much_there_is_to_read():
    """Of the page's table: the functions and the files; the lines to two digits."""
    page, readme = ((ROOT / name).read_text() for name in ("docs/reading.md", "README.md"))
    rows = dict(re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", page, re.MULTILINE))
    files, functions = rows["files"], rows["functions, with their closures"]
    said = re.search(r"runs (\d+) functions of\s+([\d,]+) lines in (\d+) files", readme)
    assert (said[1], said[3]) == (functions, files)
    lines = int(rows["lines of these functions"].replace(",", ""))
    assert abs(int(said[2].replace(",", "")) - lines) < 0.02 * lines
