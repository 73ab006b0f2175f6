"""Graph breaks: where a trace has to end, and how a function is split there."""
