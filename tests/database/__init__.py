"""PyTorch's own databases of samples, run through mytorch: operators, modules, optimizers."""
