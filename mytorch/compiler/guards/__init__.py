"""Guards: what a compiled program depends on, and whether it is still so."""
