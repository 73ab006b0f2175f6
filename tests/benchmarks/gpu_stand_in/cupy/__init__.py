"""With the folder of this package on PYTHONPATH, `import cupy` gives the strict stand-in, in any process.

With TRITON_INTERPRET=1 Triton's kernels run on its arrays, in the interpreter. BREAK="kernel:how …" breaks
some of them: "wrong" adds 1 to its first array, "raise" raises, "exit" ends the process.
"""

import os

from tests import strict_cupy

cupy = strict_cupy.install(device_count=1)

from benchmarks.gpu import clock  # noqa: E402
from mytorch.backends import cublas  # noqa: E402 - it looks for cupy
from tests.strict_cupy.cublas import Cublas  # noqa: E402

clock.WARM_UP = 1
_blas = cublas.Library(Cublas())
cublas.library = lambda: _blas


def on_the_stand_in(launch, interpreter):
    """A mode of launches that interprets kernels on the stand-in's memory."""

    class OnTheStandIn(interpreter.Interpret):
        def launch(self, kernel, grid, pointers, meta):
            pointers = [launch.Pointer(p.array._numpy) if hasattr(p, "array") else p for p in pointers]
            ways = dict(pair.split(":") for pair in os.environ.get("BREAK", "").split())
            broken = ways.get(kernel.fn.__name__)
            if broken == "raise":
                raise RuntimeError("it was broken on purpose")
            if broken == "exit":
                os._exit(7)
            super().launch(kernel, grid, pointers, meta)
            if broken == "wrong":
                pointers[0].array += 1

    return OnTheStandIn()


if os.environ.get("TRITON_INTERPRET") == "1":
    from mytorch.nn.fused_ops.triton import launch
    from tests.triton import interpreter

    launch._mode = on_the_stand_in(launch, interpreter)
