"""Every collective against NumPy, on as many ranks as there are: what each check found goes to a folder."""

import importlib
import sys

from against_numpy import run_all

for topic in ("reductions", "movement", "messages", "groups"):
    importlib.import_module(f"checks_of_{topic}")
run_all(sys.argv[1])
