"""Measures what a training step takes: `python peak.py CONFIG BATCH_SIZE OPTIMIZER`, prints bytes as JSON.

Arrays of NumPy are counted by tracemalloc, from before the model is made to the peak of a later step.
"""

import json
import sys
import tracemalloc

import mytorch
from mytorch.models import GPT2, GPT2Config


def train(config, batch_size, name, steps, measure=lambda: None):
    model = GPT2(config)
    make = {"adamw": mytorch.optim.AdamW, "sgd": mytorch.optim.SGD}[name]
    optimizer = make(model.parameters(), lr=1e-3)
    idx = mytorch.randint(0, config.vocab_size, (batch_size, config.context_length))
    targets = mytorch.randint(0, config.vocab_size, (batch_size, config.context_length))
    for step in range(steps):
        if step == steps - 1:
            measure()
        _, loss = model(idx, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.num_parameters()


def main():
    config, batch_size, name = GPT2Config(**json.loads(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    train(config, batch_size, name, 2)  # compiling or loading the kernels that it needs takes memory, too
    tracemalloc.start()
    count = train(config, batch_size, name, 3, tracemalloc.reset_peak)
    print(json.dumps({"number_of_parameters": count, "total": tracemalloc.get_traced_memory()[1]}))


if __name__ == "__main__":
    main()
