"""Measurements of a node beside native PostgreSQL, in one run on one machine: `make bench`; see README.md."""
