# %% [markdown]
# # Two processes
#
# One process trains as fast as it can. Two processes train on twice the data in the same time, if they
# agree on the gradients. You will write the function that makes them agree, `all_reduce`, train with it,
# and see that `DistributedDataParallel` and the `Accelerator` compute the same.

# %%
import os
import tempfile

import mytorch
import mytorch.distributed as dist
from mytorch import nn, stream
from mytorch.accelerate import Accelerator, notebook_launcher
from mytorch.nn import functional as F
from mytorch.nn.parallel import DistributedDataParallel
from mytorch.stream.log import LogWriter, read_log
from mytorch.stream.timeline import make_timeline
from mytorch.stream.timeline_picture import draw_timeline
from mytorch.utils.data import DataLoader, TensorDataset

try:
    import matplotlib.pyplot as plt
except ImportError:
    plt = None
    print("matplotlib is missing, so there are no pictures: pip install matplotlib")

SHORT = bool(os.environ.get("MYTORCH_NOTEBOOK_SHORT"))
FOLDER = tempfile.mkdtemp()  # what the processes write, and this one reads
RANKS = 2 if dist.is_available() else 1
if RANKS == 1:
    print("mpi4py is missing, so there is one process instead of two: pip install 'mytorch[mpi]'")

# %% [markdown]
# ## Who am I?
#
# All processes run the same function, from its first line to its last. They differ in one number, the
# *rank*. `notebook_launcher` starts them. Each is a new Python, which gets the source of the function and
# of what it uses from this notebook: it doesn't see the results of other cells, and we don't see its
# variables. So the processes print, or write a file.


# %%
def hello():
    dist.init_process_group()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}, process {os.getpid()}", flush=True)
    dist.destroy_process_group()


print(f"the notebook is process {os.getpid()}")
notebook_launcher(hello, num_processes=RANKS, use_cpu=True)

# %% [markdown]
# ## A sum over all processes, by hand
#
# Each rank has a vector, its gradient. Each needs the sum of all of them. The plain way: all send their
# vector to rank 0, which adds them up and sends the sum back. Then rank 0 receives and sends `ranks - 1`
# vectors, and the others wait.
#
# In a *ring* nobody waits. Rank r sends to rank r + 1 only, and the last to the first. The vector is cut
# into as many parts as there are ranks:
#
# 1. *reduce-scatter*: each rank sends a part, and adds the part that arrives to its own. After `ranks - 1`
#    steps each rank has one part of the sum.
# 2. *all-gather*: the finished parts go around the ring once more.
#
# Each rank sends `2 (ranks - 1) / ranks` vectors, less than two, however many ranks there are
# ([Patarasuk & Yuan, 2009](https://doi.org/10.1016/j.jpdc.2008.09.002)).


# %%
def exchange(sent, received):
    """Sends to the next rank and receives from the one before, at the same time."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    request = dist.isend(sent, (rank + 1) % ranks)  # returns at once
    dist.recv(received, (rank - 1) % ranks)
    request.wait()


def ring_all_reduce(x):
    """Replaces x by the sum over all ranks; returns the bytes that this rank has sent."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = list(x.chunk(ranks))  # views: what is written to them is in x
    arrived = mytorch.empty_like(parts[0])
    for step in range(ranks - 1):
        exchange(parts[(rank - step) % ranks], arrived)
        parts[(rank - step - 1) % ranks] += arrived
    for step in range(ranks - 1):
        exchange(parts[(rank - step + 1) % ranks], parts[(rank - step) % ranks])
    return 2 * (ranks - 1) * parts[0].nbytes


# %% [markdown]
# `isend` starts to send and returns. With the blocking `send` instead, both ranks could wait for the other
# to receive, forever. Now the test: the ring against `dist.all_reduce`, which does the same by MPI (on
# GPUs, by NCCL).


# %%
def compare():
    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x = mytorch.arange(8.0) + 10 * rank
    expected = x.clone()
    dist.all_reduce(expected)
    print(f"rank {rank} has  {x.tolist()}", flush=True)
    sent = ring_all_reduce(x)
    dist.barrier()
    assert mytorch.equal(x, expected)
    assert sent == 2 * (ranks - 1) / ranks * x.nbytes
    if rank == 0:
        print(f"the sum is  {x.tolist()}; each rank has sent {sent} bytes for {x.nbytes}", flush=True)
    dist.destroy_process_group()


notebook_launcher(compare, num_processes=RANKS, use_cpu=True)

# %% [markdown]
# ## A task, and one process
#
# Points on three spirals; which spiral is a point on? The points and the first weights are the same in every
# process, since all use the same seeds. First the usual training, with the whole batch.


# %%
def spirals(count):
    """Returns (count, 2) points, shuffled, and which of the three spirals each is on."""
    generator = mytorch.Generator().manual_seed(0)
    label = mytorch.arange(count) % 3
    radius = mytorch.rand(count, generator=generator)
    angle = 4 * radius + label * (2 * mytorch.pi / 3) + 0.1 * mytorch.randn(count, generator=generator)
    points = mytorch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    order = mytorch.randperm(count, generator=generator)
    return points[order], label[order]


def make():
    """Returns the model and its optimizer, with the same weights in every process."""
    mytorch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
    return model, mytorch.optim.AdamW(model.parameters(), lr=5e-3)


POINTS, LABELS = spirals(1536)
BATCH = 64
STEPS = 24 if SHORT else 240


def batches():
    for step in range(STEPS):
        rows = slice(step * BATCH % len(POINTS), step * BATCH % len(POINTS) + BATCH)
        yield POINTS[rows], LABELS[rows]


def train(model, optimizer, batches, after_backward=None):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if after_backward is not None:
            after_backward(model)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return mytorch.tensor(losses)


alone = train(*make(), batches())
print(f"loss {alone[0].item():.4f} at the first step, {alone[-1].item():.4f} at the last")

# %% [markdown]
# ## Several processes, a part of the batch each
#
# The loss is a mean over the batch. The mean over 64 points is the mean of the means over the first 32 and
# the last 32, and so are the gradients:
#
# $$\nabla \frac{1}{64} \sum_{i=1}^{64} \ell_i = \frac{1}{2} \left(
# \nabla \frac{1}{32} \sum_{i=1}^{32} \ell_i + \nabla \frac{1}{32} \sum_{i=33}^{64} \ell_i \right)$$
#
# So each rank computes the gradients of its part, and they are averaged before the update. Then all ranks
# make the same update of the same weights, and have the same weights again. Nobody ever sends a weight.


# %%
def my_batches():
    rank, size = dist.get_rank(), BATCH // dist.get_world_size()
    for x, y in batches():
        yield x[rank * size : (rank + 1) * size], y[rank * size : (rank + 1) * size]


def mean_over_ranks(x):
    dist.all_reduce(x)
    return x / dist.get_world_size()


def average_gradients(model):
    for p in model.parameters():
        p.grad = mean_over_ranks(p.grad)  # all of data parallel training


def train_by_hand():
    return mean_over_ranks(train(*make(), my_batches(), average_gradients))


# %% [markdown]
# ## DistributedDataParallel
#
# This waits: first all gradients are computed, then all are sent, one tensor at a time. The wrapper
# `DistributedDataParallel` averages the same gradients during `backward()`. The loop is that of one process.


# %%
def train_ddp():
    model, optimizer = make()
    return mean_over_ranks(train(DistributedDataParallel(model), optimizer, my_batches()))


# %% [markdown]
# ## The Accelerator
#
# It also divides the data: `batch_size` is that of a rank, and each gets every second batch of the loader.
# On a GPU it moves the model and the batches there. This loop runs on a laptop and on a cluster.
#
# Then all three are run, on two processes. Rank 0 writes the losses to a file, and this notebook reads it.


# %%
def train_with_accelerator(accelerator):
    model, optimizer = make()
    loader = DataLoader(TensorDataset(POINTS, LABELS), batch_size=BATCH // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    while len(losses) < STEPS:
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return mean_over_ranks(mytorch.tensor(losses))


def train_all(file):
    dist.init_process_group()
    accelerator = Accelerator(cpu=True)
    losses = {"by hand": train_by_hand(), "DistributedDataParallel": train_ddp()}
    losses["Accelerator"] = train_with_accelerator(accelerator)
    if accelerator.is_main_process:
        mytorch.save(losses, file)
    dist.destroy_process_group()


file = f"{FOLDER}/losses.safetensors"
notebook_launcher(train_all, (file,), num_processes=RANKS, use_cpu=True)

for name, losses in mytorch.load(file).items():
    difference = (losses - alone).abs().max().item()
    print(f"{name:<24} last loss {losses[-1].item():.4f}, at most {difference:.1e} from one process")
    assert len(losses) == STEPS and difference < 1e-3

if plt:
    plt.plot(alone.numpy(), linewidth=5, alpha=0.3, label="one process")
    for name, losses in mytorch.load(file).items():
        plt.plot(losses.numpy(), linewidth=1, label=f"{RANKS} processes, {name}")
    plt.gca().set(xlabel="step", ylabel="loss")
    plt.legend()
    plt.show()

# %% [markdown]
# Four trainings that are one. The differences are roundings: two halves of a sum, added up, aren't the whole
# sum to the last bit, and each step starts from the differences of the one before.
#
# ## What happens when: buckets and overlap
#
# A small all-reduce takes little less time than a large one, as most of it is waiting for the other rank. So
# the wrapper sends *buckets*, the gradients of several layers at once. And it doesn't wait for the end:
# backward computes the gradients of the last layers first, and as soon as a bucket is full, its all-reduce
# starts, while backward computes the layers before. Here a larger model, and what both ranks did in one
# training step, from the [log of instructions](../docs/stream.md).


# %%
def logged(file):
    dist.init_process_group()
    mytorch.manual_seed(dist.get_rank())
    layers = [layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=2)
    optimizer = mytorch.optim.AdamW(model.parameters())
    log = LogWriter(file)
    for step in range(4):
        if step == 3:
            dist.barrier()
            stream.start(log)
        model(mytorch.randn(256, 512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    stream.stop(log)
    dist.destroy_process_group()


notebook_launcher(logged, (f"{FOLDER}/ops.log",), num_processes=RANKS, use_cpu=True)
timeline = make_timeline(read_log(f"{FOLDER}/ops.log"))
for rank in timeline.ranks:
    sent = [bar.instruction for bar in timeline.bars.get((rank, "communication"), [])]
    print(f"rank {rank}: {[i.name for i in sent]}")

if plt:
    draw_timeline(timeline, f"{FOLDER}/timeline.png", "One step of each rank", dpi=100)
    plt.figure(figsize=(13, 4.5))
    plt.imshow(plt.imread(f"{FOLDER}/timeline.png"))
    plt.axis("off")
    plt.show()

# %% [markdown]
# A band is a rank. In its upper lane are the computations, in the lower one the all-reduces. Those begin
# before the backward pass has ended. An arrow starts where the last rank joined an all-reduce, and ends
# where the one that had waited for it went on.
#
# ## When one process fails
#
# A rank that stops leaves the others waiting in their next all-reduce. So the launcher ends all of them,
# and prints the error of the one that failed first.


# %%
def fails():
    dist.init_process_group()
    if dist.get_rank() == RANKS - 1:
        raise ZeroDivisionError("this rank divides by zero")
    dist.barrier()  # would wait for the other one forever


try:
    notebook_launcher(fails, num_processes=RANKS, use_cpu=True)
except (RuntimeError, ZeroDivisionError) as error:
    print(error)

# %% [markdown]
# ## Where this is in mytorch
#
# - [`collectives.py`](../mytorch/distributed/collectives.py): `all_reduce` and the others
# - [`ddp.py`](../mytorch/distributed/ddp.py), [`bucket.py`](../mytorch/distributed/bucket.py) and
#   [`reducer.py`](../mytorch/distributed/reducer.py): the wrapper, its buckets, and when they are sent
# - [`launchers.py`](../mytorch/accelerate/launchers.py) and
#   [`notebook_source.py`](../mytorch/accelerate/notebook_source.py): how a function of this notebook got
#   there
# - [docs/distributed.md](../docs/distributed.md): scripts, several machines, checkpoints, errors
#
# ## Try
#
# 1. Run `compare` with `num_processes=4`. How many bytes does each rank send now?
# 2. Let `average_gradients` do nothing. The ranks' losses still fall. What is
#    wrong with the model in the end?
# 3. Change `bucket_cap_mb` to 0.5, then to 25. Count the all-reduces, and look where in the picture they
#    begin.
