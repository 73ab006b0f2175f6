"""Every collective against NumPy, on as many ranks as there are: what each check found goes to a folder."""

import importlib
import sys

from against_numpy import found_by_all, run_all  # noqa: F401 - the first for ranks that are threads

import mytorch.distributed as dist

for topic in ("reductions", "movement", "messages", "groups"):
    importlib.import_module(f"checks_of_{topic}")
if __name__ == "__main__":
    dist.init_process_group(sys.argv[2] if len(sys.argv) > 2 else None)
    run_all(sys.argv[1])
