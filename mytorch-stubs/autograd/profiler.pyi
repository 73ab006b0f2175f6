# Written by python docs/make_stubs.py
from mytorch.aliases.autograd_profiler import *
