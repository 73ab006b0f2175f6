# Written by python docs/make_stubs.py
from mytorch.aliases.nn_modules import *
from mytorch.nn.layers import *
