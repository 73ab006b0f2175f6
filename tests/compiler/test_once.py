"""What Python would do once for all calls of a graph: it isn't traced, and the error says what it is."""

import pytest

import mytorch
import mytorch.distributed as dist
from mytorch import nn, optim
from mytorch.accelerate import Accelerator
from mytorch.amp import GradScaler
from mytorch.distributed.ddp import DistributedDataParallel
from mytorch.utils.checkpoint import checkpoint
from mytorch.utils.data import DataLoader
from tests.each import each


def scaled():
    """A scaler and an optimizer whose gradients are there."""
    p = mytorch.ones(2, requires_grad=True)
    scaler, optimizer = GradScaler(init_scale=4), optim.SGD([p], lr=1.0)
    scaler.scale(p.sum()).backward()
    return scaler, optimizer


def scale():
    scaler, _ = scaled()
    return lambda x: scaler.scale(x)


def unscale():
    scaler, optimizer = scaled()
    return lambda x: scaler.unscale_(optimizer) or x


def step():
    scaler, optimizer = scaled()
    return lambda x: scaler.step(optimizer) or x


def update():
    scaler, optimizer = scaled()
    scaler.step(optimizer)
    return lambda x: scaler.update() or x


def accelerator():
    made = Accelerator(cpu=True)
    return lambda x: made.backward((x.requires_grad_() * 2).sum()) or x


def in_ddp():
    model = DistributedDataParallel(nn.Linear(3, 3))
    return lambda x: model(x)


def reduced():
    return lambda x: dist.barrier() or x


def drawn():
    generator = mytorch.Generator().manual_seed(1)
    return lambda x: generator.get_state()[:3].float() + x


ONCE = {
    "the scale of a GradScaler, which changes": scale, "unscales of a GradScaler": unscale,
    "steps of a GradScaler": step, "updates of a GradScaler": update,
    "what an Accelerator counts": accelerator,
    "DDP: compile the module in it": in_ddp, "barrier\\(\\) of a process group": reduced,
    "a checkpoint": lambda: lambda x: checkpoint(lambda y: y * 2, x),
    "manual_seed\\(\\)": lambda: lambda x: mytorch.manual_seed(1) and x,
    "the state of a generator": drawn,
    "a histogram": lambda: lambda x: mytorch.histc(x, 3),
    "a loop over a DataLoader": lambda: lambda x: next(iter(DataLoader([1.0, 2.0]))) + x,
    "the elements of an array": lambda: lambda x: str(x) and x,
}


@pytest.fixture(scope="module")
def alone():
    dist.init_process_group("single")
    yield
    dist.destroy_process_group()


@each("reason", ONCE)
def test_what_a_graph_would_not_repeat(reason, alone):
    function = ONCE[reason]()
    with pytest.raises(RuntimeError, match=reason):
        mytorch.capture(function, mytorch.ones(3))
