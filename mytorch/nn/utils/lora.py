"""
LoRA: fine-tuning a model by updates of low rank of some of its linear layers.

    nn.utils.add_lora(model, rank=8, targets=("c_attn",))    # trains < 1 % of GPT-2's parameters
    ...                                                      # training
    mytorch.save(nn.utils.lora_state_dict(model), "adapter.safetensors")
    nn.utils.merge_lora(model)                               # the model as it was, with new weights

Source: Hu et al., "LoRA", 2021, https://arxiv.org/abs/2106.09685
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...core.tensor import Tensor
from ..layers.linear import Linear
from ..layers.lora import LoRALinear
from ..module import Module

__all__ = ["add_lora", "lora_state_dict", "merge_lora"]


def add_lora(
    model: Module, rank: int, alpha: float | None = None,
    targets: Sequence[str] = ("c_attn", "q_proj", "v_proj"), dropout_p: float = 0.0,
) -> list[str]:
    """Freezes a model, and replaces the layers of these names by `LoRALinear`; returns the full names.

    Args:
        rank, alpha, dropout_p: see `LoRALinear`.
        targets: names of linear layers, or ends of them at a dot, as "c_attn" and "h.11.attn.c_attn". By
            default Llama's queries and values, as in the paper, and GPT-2's with the keys.

    Raises:
        TypeError: a layer of such a name is not linear.
        ValueError: no layer has such a name; one shares its weight with another layer, which a merge would
            change, too; see `LoRALinear`.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    >>> nn.utils.add_lora(model, rank=2, targets=["2"])
    ['2']
    >>> list(nn.utils.lora_state_dict(model))
    ['2.lora_A', '2.lora_B']
    >>> nn.utils.merge_lora(model)[2]
    Linear(in_features=8, out_features=4, bias=True)
    """
    targets = [targets] if isinstance(targets, str) else list(targets)
    found = [
        (parent, name, prefix)
        for parent, name, prefix in _children(model)
        if any(f".{prefix}".endswith(f".{target}") for target in targets)
    ]
    if not found:
        linear = {name for parent, name, _ in _children(model) if isinstance(parent._modules[name], Linear)}
        raise ValueError(f"no layer has one of the names {targets}; there are {sorted(linear)}")
    places = [id(p) for _, p in model.named_parameters(remove_duplicate=False)]
    for parent, name, prefix in found:
        weight = getattr(parent._modules[name], "weight", None)
        if weight is not None and places.count(id(weight)) > 1:
            raise ValueError(f"{prefix} shares its weight with another layer, which a merge would change")
    adapted = [LoRALinear(parent._modules[name], rank, alpha, dropout_p) for parent, name, _ in found]
    model.requires_grad_(False)
    for layer, (parent, name, _) in zip(adapted, found, strict=True):
        parent._modules[name] = layer.train(parent.training)
    return [prefix for _, _, prefix in found]


def merge_lora(model: Module) -> Module:
    """Replaces each `LoRALinear` by its linear layer, with the update in its weight; returns the model.

    The outputs are the same but for rounding; parameters remain frozen. For an example see `add_lora`.
    """
    for parent, name, _ in list(_children(model)):
        if isinstance(parent._modules[name], LoRALinear):
            parent._modules[name] = parent._modules[name].merge()
    return model


def lora_state_dict(model: Module) -> dict[str, Tensor]:
    """Returns the adapters' part of the state_dict, which `load_state_dict(…, strict=False)` takes.

    For an example see `add_lora`.
    """
    ends = (".lora_A", ".lora_B")
    return {name: value for name, value in model.state_dict().items() if f".{name}".endswith(ends)}


def _children(model: Module) -> Iterator[tuple[Module, str, str]]:
    """Yields (parent, name in the parent, full name) of every module below `model`."""
    for prefix, parent in list(model.named_modules()):
        for name, child in parent._modules.items():
            if child is not None:
                yield parent, name, f"{prefix}.{name}" if prefix else name
