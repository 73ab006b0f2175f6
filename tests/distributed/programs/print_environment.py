"""Prints its environment as one line of JSON per rank."""

import json
import os
import sys

NAMES = [
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
]
seen = {name: os.environ.get(name) for name in NAMES}
main = sys.modules["__main__"]
seen |= {"argv": sys.argv, "name": __name__, "is_main": main.seen is seen, "path": sys.path[0]}
sys.stdout.write(json.dumps(seen) + "\n")
