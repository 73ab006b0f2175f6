"""What other programs and users leave, as readers: pages, logs, settings, and the launcher's arguments."""

import contextlib
import io
import json
import os
import struct
from unittest import mock

import mytorch
from mytorch.backends.functions import KINDS
from mytorch.cli import settings, top
from mytorch.distributed import launch
from mytorch.profiler import record_function
from mytorch.profiler.chrome_trace import trace_events
from mytorch.stream import page, start, stop
from mytorch.stream.log import LogWriter, read_log
from mytorch.stream.timeline import make_timeline
from mytorch.stream.timeline_html import write_timeline
from tests.campaigns.mutations import NUMBERS, TEXTS

ODD = [
    "cloat32", "-1", "1e999", "nan", "9" * 30, "9" * 5000, "\x1b[2J", "\r", "|", " | ", "%", "[", "]", "@",
    *TEXTS,
]
WORDS = [b"\xff" * 8, b"\x1b[2J\r\n\0\0", b"\xe2\x80\xae" * 5, b"x" * 64, b" " * 64, b"mtp1" + b"\xff" * 60]
ALIASES = "nnodes: [" + ", ".join(f"&l{n} [{f'*l{n - 1}, ' * 10 * bool(n)}x]" for n in range(9)) + "]\n"
YAML = [
    "a: &a [x, x]\nb: &b [*a, *a]\n", ALIASES, "[" * 3000, "{a: " * 3000, "- " * 3000, "? [a]\n: 1\n",
    "<<: {nnodes: 2}\n", "!!python/object/apply:os.getcwd []\n", "nnodes: 0x" + "f" * 9000, "cpu: 2001-01-01",
    "timeout: 1:" + "9:" * 2000 + "1", "nnodes: !!binary aGFsbG8=\n", "%YAML 9.9\n", "--- \n--- \n",
    "nnodes: 2\n" * 50, "nnodes: |\n  2\n", "&a &b\n", "*a\n", "\ufeff", "'" * 3, "\x07",
]


def fields(random, data, change):
    """The edit of a line of text: one of its words becomes another."""
    lines = data.decode(errors="surrogateescape").split("\n")
    at = random.randrange(len(lines))
    between = random.choice([" ", " ", " | ", ":", "=", ".", "[", ","])
    words = lines[at].split(between)
    words[random.randrange(len(words))] = random.choice([*ODD, *words])
    lines[at] = between.join(words)
    return "\n".join(lines).encode(errors="surrogatepass")


def yaml(random, data, change):
    """The edit of a YAML file: something is added that only YAML has."""
    lines = data.decode(errors="replace").splitlines(keepends=True)
    lines.insert(random.randrange(len(lines) + 1), random.choice(YAML))
    return "".join(lines).encode()


def numbers(random, data, change):
    """The edit of a page: a number or a text in it becomes another."""
    places = [0, 4, 8, 12, 16, 24, 64, page._REPORT_AT, page._REPORT_AT + 8, page._REQUEST_AT, page._DONE_AT]
    at = random.choice([*places, *range(page._NOW_AT, page._KINDS_AT + page._KINDS.size, 8)])
    value = random.choice([struct.pack("<d", random.choice(NUMBERS)), *WORDS])
    return data[:at] + value + data[at + len(value) :]


def make_log(folder):
    for rank in range(2):
        writer = LogWriter(folder / "ops.log", with_site=True, ranks=(rank, 2))
        start(writer)
        with record_function("a block", "with text"):
            x = mytorch.ones(2, 3, requires_grad=True)
            (x.exp() @ mytorch.ones(3)).sum().backward()
        stop(writer)


def read_timeline(folder):
    with contextlib.redirect_stderr(io.StringIO()):
        found = read_log(folder / "ops.log")
    for i in found:
        assert (i.name + i.module + i.site).isprintable()
    if all(i.kind == "annotation" for i in found):
        return  # nothing to draw
    line = make_timeline(found)
    json.dumps(trace_events(line.instructions, line.first))
    write_timeline(line, folder / "t.html", "title")


def make_page(folder):
    with mock.patch.multiple(page, _PROCESSES=folder / "none", folder=lambda: folder):
        made = page.Page(0, 2, "mytorchrun-1-x")
        made.begin("matmul", KINDS[0], 1.0)
        made.end(KINDS[0], 0.5, 1.5, True)
        made.report(7, 1000.0)
        os.close(made._descriptor)


def read_page(folder):
    with mock.patch.multiple(page, _PROCESSES=folder / "none", folder=lambda: folder):
        ranks, refused = {}, []
        (path,) = folder.iterdir()
        path.rename(folder / page._name())  # that of this process
        for _ in range(2):
            refused += top.watch(ranks, None)
        lines = top.lines_of(ranks)
        assert "".join([*lines, *refused]).isprintable(), (lines, refused)
        for reading in page.read_pages():
            number = page.ask_for_trace(reading, 1.0, 5, "x.log")
            page.withdraw_request(reading, number)


def make_arguments(folder):
    arguments = ["--cpu", "--num_processes", "4", "--nnodes", "2", "--node_rank", "0", "--max_restarts", "1"]
    arguments += ["--master_addr", "10.0.0.5", "--master_port", "29500", "--timeout", "60", __file__, "--lr"]
    (folder / "arguments").write_text(json.dumps(arguments))


def read_arguments(folder):
    """The launcher takes them, or ends with 2; nothing is started."""
    try:
        arguments = json.loads((folder / "arguments").read_text(errors="surrogateescape"))
        b"".join(os.fsencode(text) for text in arguments)
        "\0".join(arguments).encode(errors="surrogateescape")
    except (ValueError, TypeError, AttributeError, RecursionError):
        return  # no command line
    if any("\0" in text for text in arguments):
        return
    silence = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    nothing = mock.patch.multiple(launch, run_job=lambda *_: 0, join_job=lambda *_: 0)
    with silence[0], silence[1] as error, nothing:
        try:
            code = launch.main(arguments)
        except SystemExit as end:  # argparse
            code = end.code
    assert code in (0, 2) and (code == 0 or error.getvalue()), (code, error.getvalue())


def make_settings(folder):
    settings.write(folder / "s.yaml", {"nnodes": 2, "timeout": 9.0, "cpu": True, "mixed_precision": "fp16"})


def read_settings(folder):
    try:
        settings.read(folder / "s.yaml")
    except settings.SettingsError as error:
        assert len(str(error)) < 3000, f"{str(error):.300}"
        raise


def readers(Reader, whole):
    return {
        "instruction log": Reader(make_log, read_timeline, (ValueError,), (fields,)),
        "page": Reader(make_page, read_page, (), (numbers,)),
        "arguments": Reader(make_arguments, read_arguments, (), (whole,), is_named=False),
        "settings, YAML": Reader(make_settings, read_settings, (settings.SettingsError,), (yaml, fields)),
    }
