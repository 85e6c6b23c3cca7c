"""Benchmarks that compare a node with native PostgreSQL on one machine. `make bench` runs them; README.md describes them."""
