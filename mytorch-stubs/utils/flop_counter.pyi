# Written by python docs/make_stubs.py
from mytorch.aliases.utils_flop_counter import *
