"""What test_restart.py kills: a small run that saves after each step, and says what it lost.

python train_and_save.py FOLDER STEPS PRECISION ASYNCHRONOUS [WHOLE]

With KILLED_IN_SAVE=N in its environment, the first attempt of a launcher is killed while it writes after step
N. A run that reaches its end is followed by another, from the beginning, in the folder WHOLE.
"""

import os
import signal
import sys

import numpy as np

import mytorch
from mytorch import nn, optim
from mytorch.accelerate import Accelerator, checkpoint, set_seed
from mytorch.utils.data import DataLoader, TensorDataset


def parts(precision="no", steps=1):
    """An accelerator and what it prepared: dropout, a shuffled loader, and a schedule."""
    set_seed(1)
    options = {"init_scale": 64.0, "growth_interval": 5}
    accelerator = Accelerator(steps, mixed_precision=precision, cpu=True, scaler_kwargs=options)
    model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Dropout(0.3), nn.Linear(40, 2))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 6)).astype(np.float32)
    loader = DataLoader(
        TensorDataset(mytorch.tensor(x), mytorch.tensor(x[:, :2] * x[:, 2:4])), 4, shuffle=True
    )
    return accelerator, *accelerator.prepare(model, optimizer, schedule, loader)


class Counter:
    def __init__(self):
        self.step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def losses(accelerator, model, optimizer, schedule, loader, counter, steps, after_step=lambda: None):
    """Yield (step, loss) up to `steps`, from where the counter is."""
    while counter.step < steps:
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = ((model(x) - y) ** 2).mean()
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            counter.step += 1
            yield counter.step, loss.item()
            after_step()
            if counter.step == steps:
                return


def die_in_save(counter, step):
    """Kill this process when the second file of the checkpoint after `step` is to be written."""
    real, files = checkpoint.save, []

    def save(obj, path):
        if counter.step == step:
            files.append(path)
            if len(files) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
        real(obj, path)

    checkpoint.save = save


def main():
    folder, steps, precision, asynchronous, *whole = sys.argv[1:]
    accelerator = Accelerator(cpu=True)  # the first one ends the process group
    for path in (folder, *whole):
        run(path, int(steps), precision, asynchronous == "True")
    accelerator.end_training()


def run(folder, steps, precision, asynchronous):
    accelerator, *prepared = parts(precision)
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    accelerator.load_state(folder, last_good=True)
    if "KILLED_IN_SAVE" in os.environ and os.environ["MYTORCH_RESTART_COUNT"] == "0":
        die_in_save(counter, int(os.environ["KILLED_IN_SAVE"]))

    def save():
        accelerator.save_state(folder, keep_last=2, asynchronous=asynchronous)

    for step, loss in losses(accelerator, *prepared, counter, steps, save):
        accelerator.print(step, loss.hex(), flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
