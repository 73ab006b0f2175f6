"""PyTorch Hub: its functions raise, since they run code of repositories that is written for PyTorch."""

from __future__ import annotations

from typing import NoReturn


def _refuse(*args: object, **kwargs: object) -> NoReturn:
    """Raises: nothing is downloaded.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "mytorch has no hub: download the weights as safetensors and load them with mytorch.load"
    )


load = list = help = download_url_to_file = load_state_dict_from_url = get_dir = set_dir = _refuse
