"""Running: the Python function of a program, the memory that it needs, and its kernels and loops."""
