"""Integers, floating point, numeric and money: their operators and functions, and the casts between numbers (manual, 8.1, 8.2 and 9.3)."""
