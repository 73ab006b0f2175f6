"""Programs that measure mytorch beside its peers; run them as `python -m benchmarks.<name>`."""

import os

os.environ["MYTORCH_COMPILE"] = "wait"  # what is measured runs on kernels from the first call on
