"""`use_deterministic_algorithms`: the setting is kept."""

from __future__ import annotations

from types import SimpleNamespace

_determinism = SimpleNamespace(mode=False, warn_only=False)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Keeps the setting, which chooses no kernel: those on the CPU are deterministic.

    Args:
        mode: what `are_deterministic_algorithms_enabled` returns.
        warn_only: what `is_deterministic_algorithms_warn_only_enabled` returns.
    """
    _determinism.mode, _determinism.warn_only = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Returns what `use_deterministic_algorithms` was given."""
    return _determinism.mode


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Returns whether that was with `warn_only`."""
    return _determinism.warn_only
