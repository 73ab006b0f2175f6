"""The old import path of `@op`, which now lies in `mytorch.core.op`."""

from ..core.op import op

__all__ = ["op"]
