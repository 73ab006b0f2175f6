"""Running: the executable of a program, on a CPU or a GPU, and what it calls."""
