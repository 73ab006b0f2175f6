"""Loops: several instructions in one pass over the elements, as data and as source in Numba or Triton."""
