"""Exit code 0 if this checkout of mytorch is installed with the given extras; else say what is missing."""

import json
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent


def missing(extras: list[str]) -> str:
    """Why the package must be installed, or an empty string."""
    try:
        package = distribution("mytorch")
    except PackageNotFoundError:
        return "mytorch is not installed yet"
    origin = Path(package.locate_file(f"mytorch-{package.version}.dist-info/direct_url.json"))
    if not origin.is_file() or not is_editable_here(json.loads(origin.read_text())):
        return "another mytorch is installed"
    sources = (ROOT / "setup.py", ROOT / "mytorch" / "version.py")
    if max(source.stat().st_mtime for source in sources) > origin.stat().st_mtime:
        return "setup.py has changed"
    for requirement in package.requires or ():
        name, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra == ['\"](.+?)['\"]", requirement)
        elsewhere = 'platform_system == "Linux"' in requirement and platform.system() != "Linux"
        if not elsewhere and (extra is None or extra.group(1) in extras):
            try:
                distribution(name.group())
            except PackageNotFoundError:
                return f"{name.group()} is missing"
    return ""


def is_editable_here(origin: dict) -> bool:
    folder = Path(unquote(urlsplit(origin["url"]).path))
    return bool(origin.get("dir_info", {}).get("editable")) and folder.resolve() == ROOT


if __name__ == "__main__":
    reason = missing(sys.argv[1:])
    print(reason)
    sys.exit(bool(reason))
