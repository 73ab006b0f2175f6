# Written by python docs/make_stubs.py
from mytorch.aliases.nn_modules_utils import *
