"""Which tests run which blocks of the package, and a copy of a checkout whose byte code can be replaced."""

import ast
import contextlib
import importlib.util
import json
import mmap
import os
import random
import re
import resource
import shutil
import signal
import tempfile
import time
import zlib
from collections import defaultdict
from importlib._bootstrap_external import _code_to_timestamp_pyc
from pathlib import Path

import psutil
from faults import AREAS, Faults, is_text

IN_AREAS = re.compile(f"mytorch/({'|'.join(pattern for pattern, _ in AREAS.values())})")  # no compiled code
SKIPPED = re.compile(  # they start whole programs, or say nothing about what the package computes
    r"tests/(benchmarks|triton|gpu|prepare_data|tools|strict_cupy)/|"
    r"test_(notebooks?|examples|train_gpt2|two_hosts|failures|machines|restart|readme\w*|scripts|setup|style|layers|"
    r"programs|reading|strict_cupy\w*|life|checks|threads|tune)\.py"
)
PARAMETERS = 60  # of a parametrised test; of each value of the first argument at least one
TESTS, SECONDS = 40, 6.0  # that a mutant gets
FILE_SECONDS = 30  # of CPU for all tests of a file, while they are measured


class Tree:
    """A copy of a checkout, whose compiled files can be replaced."""

    def __init__(self, checkout):
        self.root = Path(tempfile.mkdtemp(prefix="mutation-")) / "tree"
        shutil.copytree(checkout, self.root, ignore=shutil.ignore_patterns("*.pyc", ".git", ".venv"))
        self.map = self.root.parent / "hits"
        paths = (self.root / "mytorch").rglob("*.py")
        self.files = sorted(path.relative_to(self.root).as_posix() for path in paths)
        self.restore()

    def parse(self, path):
        return ast.parse((self.root / path).read_bytes())

    def write(self, path, tree):
        """The byte code of `path` from now on: Python takes it, as time and size of the source agree."""
        source = self.root / path
        code = compile(ast.fix_missing_locations(tree), str(source), "exec", dont_inherit=True)
        compiled = Path(importlib.util.cache_from_source(str(source)))
        compiled.parent.mkdir(exist_ok=True)
        stat = source.stat()
        compiled.write_bytes(_code_to_timestamp_pyc(code, int(stat.st_mtime), stat.st_size))

    def restore(self):
        for path in self.files:
            self.write(path, self.parse(path))

    def instrument(self):
        """Lets each block of the areas set its byte in a file; returns the blocks' names in that order."""
        names = []
        for path in self.files:
            if not IN_AREAS.match(path) and path != "mytorch/__init__.py":
                continue
            tree = self.parse(path)
            for block, body in Faults(tree).blocks.items():
                n = len(names)
                names.append(f"{path}:{block}")
                if isinstance(body, ast.Lambda):
                    noted = ast.parse(f"(__hits__.__setitem__({n}, 1), 0)[1]", mode="eval").body
                    noted.value.elts[1] = body.body
                    body.body = noted
                else:
                    doc = isinstance(body[0], ast.Expr) and is_text(body[0].value)
                    body[doc:doc] = ast.parse(f"__hits__[{n}] = 1").body
            if path == "mytorch/__init__.py":
                opened = f"mmap.mmap(os.open({str(self.map)!r}, os.O_RDWR), 0)"
                start = ast.parse(f"import builtins, mmap, os; builtins.__hits__ = {opened}").body
                future = [isinstance(s, ast.ImportFrom) and s.module == "__future__" for s in tree.body]
                at = future.index(True) + 1 if any(future) else 1
                tree.body[at:at] = start
            self.write(path, tree)
        self.map.write_bytes(bytes(len(names)))
        return names


class Sampler:
    """A pytest plugin: fewer parameters, and the first failure's name in a file."""

    def __init__(self, log):
        self.log = log

    def pytest_configure(self, config):
        from _pytest.python import Metafunc

        original = Metafunc.parametrize

        def parametrize(self, argnames, argvalues, *args, ids=None, **kwargs):
            values = list(argvalues)
            chosen = choose(values, max(1, PARAMETERS // max(1, len(self._calls))), self.function.__name__)
            if isinstance(ids, list | tuple) or hasattr(ids, "__next__"):
                ids = [i for n, i in enumerate(ids) if n in chosen]
            values = [v for n, v in enumerate(values) if n in chosen]
            return original(self, argnames, values, *args, ids=ids, **kwargs)

        Metafunc.parametrize = parametrize

    def pytest_runtest_logreport(self, report):
        if report.failed:
            write(self.log, {"failed": report.nodeid})

    def pytest_collectreport(self, report):
        if report.failed:
            write(self.log, {"failed": f"import of {report.nodeid}"})


def choose(values, most, seed):
    """The positions of about `most` values, of every first argument one; floating point first."""
    if len(values) <= most:
        return range(len(values))
    groups, draw = defaultdict(list), random.Random(zlib.crc32(seed.encode()))
    for n, value in enumerate(values):
        inside = getattr(value, "values", value)
        inside = inside if isinstance(inside, tuple | list) and inside else (inside,)
        is_other = not re.search("float(32|64)", str(inside))
        groups[str(getattr(inside[0], "name", inside[0]))].append((is_other, n))
    if len(groups) > most and all(len(group) == 1 for group in groups.values()):
        return set(draw.sample(range(len(values)), most))
    each, chosen = max(1, most // len(groups)), set()
    for group in groups.values():
        draw.shuffle(group)
        chosen.update(n for _, n in sorted(group, key=lambda pair: pair[0])[:each])
    return chosen


class Coverage(Sampler):
    """Writes for each test that passes its seconds and the blocks that it ran."""

    def __init__(self, log, path):
        super().__init__(log)
        with open(path, "r+b") as file:
            self.hits = mmap.mmap(file.fileno(), 0)
        self.started = time.perf_counter()

    def pytest_collection_finish(self):
        write(self.log, {"file": time.perf_counter() - self.started})

    def pytest_runtest_logreport(self, report):
        self.passed &= not report.failed and not report.skipped

    def pytest_runtest_logstart(self):
        self.hits[:] = bytes(len(self.hits))
        self.passed, self.test_started = True, time.perf_counter()

    def pytest_runtest_logfinish(self, nodeid):
        if self.passed:
            bits = int(bytes(self.hits).translate(bytes([48, 49]) + bytes(254))[::-1], 2)
            seconds = time.perf_counter() - self.test_started
            write(self.log, {"test": nodeid, "seconds": seconds, "hits": f"{bits:x}"})


def write(path, record):
    with open(path, "a") as file:
        file.write(json.dumps(record) + "\n")


def forked(tree, log, arguments, plugin, seconds):
    """Runs pytest in a fork; returns its exit status, or "timeout" after 2 * `seconds` of CPU, 4 in all."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        with open(log.with_suffix(".txt"), "w") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
        resource.setrlimit(resource.RLIMIT_CPU, (int(2 * seconds), int(2 * seconds) + 2))
        options = ["-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "--rootdir", str(tree.root)]
        status = 99
        with contextlib.suppress(BaseException):
            import pytest

            status = int(pytest.main([*options, *arguments], plugins=[plugin]))
        os._exit(status)
    deadline = time.monotonic() + 4 * seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "timeout" if code == -signal.SIGXCPU else code
        time.sleep(0.02)
    for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timeout"


def lines_of(log):
    with contextlib.suppress(FileNotFoundError):
        for line in log.read_text().splitlines():
            yield json.loads(line)


def measured(tree, cache):
    """Runs all tests; returns the blocks' names, the files' seconds, and each test's seconds and blocks."""
    names = tree.instrument()
    found = json.loads(cache.read_text()) if cache.exists() else {"names": names, "files": {}, "tests": {}}
    if found["names"] != names:
        raise SystemExit(f"{cache} is of another tree")
    for path in sorted((tree.root / "tests").rglob("test_*.py")):
        name, log = path.relative_to(tree.root).as_posix(), tree.root.parent / "log"
        if name in found["files"] or SKIPPED.search(name):
            continue
        log.unlink(missing_ok=True)
        status = forked(tree, log, [name], Coverage(log, tree.map), FILE_SECONDS)
        found["files"][name] = 0.0
        for record in lines_of(log):
            if "test" in record:
                found["tests"][record["test"]] = (record["seconds"], record["hits"])
            else:
                found["files"][name] = record["file"]
        print(f"{name}: {status}, {len(found['tests'])} tests", flush=True)
        cache.write_text(json.dumps(found))
    tree.restore()
    return found


class Selection:
    """Which tests run a block: the most specific first, spread over files, until the seconds are used up."""

    def __init__(self, found):
        self.bits = {name: n for n, name in enumerate(found["names"])}
        self.files = found["files"]
        self.tests = [(test, s, int(hits, 16)) for test, (s, hits) in found["tests"].items()]

    def __call__(self, block):
        """The names of the tests, and about how many seconds they take."""
        files, bit = defaultdict(list), self.bits[block]
        for test, seconds, hits in self.tests:
            if hits >> bit & 1:
                files[test.split("::")[0]].append((hits.bit_count(), seconds, test))
        # A test that runs few blocks is about them; a quick one leaves time for others.
        queues = [sorted(tests) for tests in files.values()]
        queues.sort(key=lambda queue: queue[0][0] * (1 + queue[0][1] + self.cost(queue[0][2])))
        chosen, seconds, opened = [], 0.0, set()
        for n in range(TESTS):
            for queue in queues:
                if n >= len(queue) or len(chosen) == TESTS:
                    continue
                _, cost, test = queue[n]
                file = test.split("::")[0]
                cost += 0 if file in opened else self.cost(test)
                if seconds + cost <= SECONDS or (not chosen and cost <= 2 * SECONDS):
                    chosen.append(test)
                    opened.add(file)
                    seconds += cost
        return sorted(chosen, key=self.cost), seconds

    def cost(self, test):
        return self.files[test.split("::")[0]]
