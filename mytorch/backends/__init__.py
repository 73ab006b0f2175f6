"""What touches a vendor library, the C allocator or a thread pool."""

from ..aliases import lazily as _lazily

__getattr__, __dir__ = _lazily(globals())
