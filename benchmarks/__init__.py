"""Programs that measure mytorch beside its peers; run them as `python -m benchmarks.<name>`."""
