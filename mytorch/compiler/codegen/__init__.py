"""Code generation: instructions in one pass over elements, as data and as source in Numba, Triton, Python."""
