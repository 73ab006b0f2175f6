"""The instruction stream of several ranks: logs, the timeline's arrows, pages and traces of a running job."""

import json
import subprocess
import sys

from mytorch.cli import main
from mytorch.stream.log import read_log
from mytorch.stream.page import read_pages
from mytorch.stream.timeline import make_timeline
from tests.distributed.launched import finish, needs_mpi, start, surroundings, wait_for
from tests.every import every

PROGRAM = """
import pathlib, sys
import mytorch
from mytorch import distributed, nn, optim
distributed.init_process_group("mpi")
model = distributed.DistributedDataParallel(nn.Linear(8, 8))
optimizer = optim.SGD(model.parameters())
stop = mytorch.zeros(1)
while not stop:
    model(mytorch.ones(4, 8)).sum().backward()
    optimizer.step()
    stop += pathlib.Path(sys.argv[1]).exists()
    distributed.all_reduce(stop)
distributed.destroy_process_group()
"""


@needs_mpi
def test_a_job_of_two_ranks_is_logged_watched_and_traced(tmp_path, capsys):
    script, end, log = tmp_path / "train.py", tmp_path / "end", tmp_path / "ops.log"
    script.write_text(PROGRAM)
    process = start("--num_processes", 2, script, end, MYTORCH_INSTRUCTION_LOG=str(log))
    try:
        wait_for(lambda: len(ranks(process)) == 2 and all(r.count > 30 for r in ranks(process)))
        assert [(r.rank, r.world_size) for r in ranks(process)] == [(0, 2), (1, 2)]
        pid = ranks(process)[1].pid
        assert main(["trace", "--pid", str(pid), "-n", "12", "--dir", str(tmp_path)]) == 0
        assert "12 operations of 1 rank" in capsys.readouterr().out
    finally:
        end.touch()
    code, _, err = finish(process, 60)
    assert code == 0, err
    assert {i.rank for i in read_log(tmp_path / f"trace-{pid}.log")} == {1}

    found = read_log(log)
    assert {(i.rank, i.name) for i in found} >= {(r, n) for r in (0, 1) for n in ("linear", "SGD.step")}
    reduced = [i for i in found if i.name == "all_reduce"]
    assert {i.named["group"] for i in reduced} == {"WORLD"} and every(i.duration for i in reduced)
    line = make_timeline(found)
    collectives = {(i.name, i.named["group"], i.named["seq"]) for i in found if i.phase == "communication"}
    assert line.ranks == [0, 1] and len(line.arrows) == len(collectives)
    page = tmp_path / "timeline.html"
    command = [sys.executable, "-m", "mytorch.cli", "timeline", str(log), "--output", str(page)]
    subprocess.run(command, check=True, capture_output=True)
    assert json.loads(page.read_text().split("const data = ")[1].split(";\n")[0])["ranks"] == [0, 1]


NOTEBOOK = """
import mytorch
from mytorch.accelerate import notebook_launcher
def train():
    mytorch.distributed.init_process_group()
    mytorch.distributed.all_reduce(mytorch.ones(2))
if __name__ == "__main__":
    mytorch.ones(3).exp()
    notebook_launcher(train, num_processes=2, use_cpu=True)
    mytorch.ones(3).exp()
"""


@needs_mpi
def test_the_ranks_of_a_notebook_are_logged(tmp_path):
    script, log = tmp_path / "train.py", tmp_path / "ops.log"
    script.write_text(NOTEBOOK)
    environment = surroundings(MYTORCH_INSTRUCTION_LOG=str(log))
    subprocess.run([sys.executable, script], check=True, env=environment)
    assert sorted((i.rank, i.name) for i in read_log(log)) == [(0, "all_reduce"), (1, "all_reduce")]
    assert "exp" in log.read_text()


def ranks(process):
    """The pages of the job that this launcher started."""
    return [reading for reading in read_pages() if f"-{process.pid}-" in reading.job]
