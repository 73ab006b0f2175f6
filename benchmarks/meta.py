"""Time calls on meta tensors, which have no elements: with what is kept of rules, without, and in PyTorch.

    python -m benchmarks.meta [--jobs NAME ...] [--rounds N]

A training step is one of GPT-2 124M (transformers' in PyTorch), batch 1, context 1024: forward, backward,
clipping, AdamW.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness import MYTORCH, TORCH, Plan, Task, Variant, by_job, measure, parser, show

RULES = Variant("each rule run", "mytorch", options=("rules",))
SIZES = {"x + y": "8 × 128 × 768", "layer norm": "8 × 128 × 768", "step": "GPT-2 124M"}


def add(library: Any) -> Task:
    x, y = (library.empty(8, 128, 768, device="meta") for _ in range(2))
    return Task(partial(repeated, lambda: x + y, 1000), calls=1000)


def layer_norm(library: Any) -> Task:
    x = library.empty(8, 128, 768, device="meta")
    weight, bias = (library.empty(768, device="meta") for _ in range(2))
    run = partial(library.nn.functional.layer_norm, x, (768,), weight, bias)
    return Task(partial(repeated, run, 100), calls=100)


def repeated(run: Callable, times: int) -> float:
    for _ in range(times):
        result = run()
    return float(result.numel())


def step(library: Any) -> Task:
    with library.device("meta"):
        model, loss_of = (in_torch if library.__name__ == "torch" else in_mytorch)()
        tokens = library.empty(1, 1024, dtype=library.int64)
    optimizer = library.optim.AdamW(model.parameters())

    def run() -> float:
        loss_of(tokens).backward()
        library.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(sum(p.numel() for p in model.parameters()))

    return Task(run)


def in_mytorch() -> tuple[Any, Callable]:
    from mytorch.models import GPT2, GPT2Config

    model = GPT2(GPT2Config())
    return model, lambda tokens: model(tokens, tokens)[1]


def in_torch() -> tuple[Any, Callable]:
    import torch
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
    mask = torch.empty(1, 1, 1024, 1024, dtype=torch.bool)  # else transformers reads elements
    return model, lambda tokens: model(tokens, attention_mask=mask, labels=tokens).loss


JOBS = {"x + y": add, "layer norm": layer_norm, "step": step}


def jobs(library: Any, names: str, *options: str) -> list[partial]:
    if "rules" in options:
        from mytorch.backends.meta import cache

        cache._add = lambda *args: False  # no argument can be in a key
    return [partial(JOBS[name], library) for name in names.split(",")]


def main(argv: list[str] | None = None) -> None:
    options = parser("meta", __doc__, 5)
    options.add_argument("--jobs", nargs="*", default=list(JOBS), choices=JOBS, metavar="NAME")
    args = options.parse_args(argv)
    plan = Plan("meta", steps=5, warm_up=2, tolerance=0.0)
    named = [(name, SIZES[name]) for name in args.jobs]
    result = measure(plan, [RULES, MYTORCH, TORCH], [",".join(args.jobs)], named, args)
    show("Calls on meta tensors, ms", result, by_job(result), args)


if __name__ == "__main__":
    main()
