"""What a training step stands on: Array, Tensor, `@op`, the graph and the backward pass.

Read `array`, `tensor`, `op` and `engine` in this order. No operation is defined here: they are in `ops`.
`flat_buffer` is for those who lay many gradients end to end: optimizers and what exchanges gradients.
"""
