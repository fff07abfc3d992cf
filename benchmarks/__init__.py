"""Benchmarks: one file a question, each beside a rival in the same run; see `scripts/bench`."""
