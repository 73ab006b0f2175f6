# Written by python docs/make_stubs.py
from mytorch.aliases.nn_attention import *
