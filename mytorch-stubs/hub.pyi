# Written by python docs/make_stubs.py
from mytorch.aliases.hub import *
