"""All ranks add up some megabytes, and say which host they are on."""

import os
import socket
import sys

import numpy as np

import mytorch.distributed as dist

dist.init_process_group()
x = np.full(int(sys.argv[1]) // 4, dist.get_rank() + 1, np.float32)
dist.all_reduce(x)
total = sum(range(1, dist.get_world_size() + 1))
right = "right" if (x == total).all() else "wrong"
print(socket.gethostname(), dist.get_rank(), os.environ["LOCAL_RANK"], os.environ.get("MINE"), right)
