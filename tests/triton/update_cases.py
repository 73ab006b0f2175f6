"""The optimizers, and options of theirs, that the Triton kernels of their steps are tested with."""

from mytorch import optim

# name: (optimizer, its options); in float32
CASES = {
    "Adam": (optim.Adam, {"lr": 0.1}),
    "Adam weight decay": (optim.Adam, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    "Adam forgetful": (optim.Adam, {"lr": 0.01, "betas": (0.0, 0.5)}),
    "AdamW": (optim.AdamW, {"lr": 0.1, "betas": (0.9, 0.95), "weight_decay": 0.1}),
    "AdamW amsgrad": (optim.AdamW, {"lr": 0.1, "betas": (0.9, 0.6), "amsgrad": True}),
    "SGD": (optim.SGD, {"lr": 0.1}),
    "SGD weight decay": (optim.SGD, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    "SGD momentum": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "SGD nesterov": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "Lion": (optim.Lion, {"lr": 0.01, "weight_decay": 0.1}),
    "Lion maximize": (optim.Lion, {"lr": 0.01, "maximize": True}),
}
HALF = [
    ("Adam weight decay", "float16"), ("AdamW amsgrad", "bfloat16"), ("SGD nesterov", "float16"),
    ("SGD", "bfloat16"), ("Lion", "float16"), ("Lion maximize", "bfloat16"),
]
