"""One implementation of the training step a file; `benchmarks.gpt_step` runs each in a process of its own."""
