"""All that can be measured on a GPU, with one command: `python -m benchmarks.gpu --out DIR`."""
