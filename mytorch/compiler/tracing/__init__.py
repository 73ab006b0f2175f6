"""Tracing: a function runs on arrays without elements, and what it does with them is noted."""
