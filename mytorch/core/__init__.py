"""What a training step stands on: Array, Tensor, `@op`, the graph and the backward pass.

Read `array`, `tensor`, `op` and `engine` in this order. No operation is defined here: they are in `ops`.
"""
