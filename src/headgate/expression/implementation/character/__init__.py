"""Strings and bytes: their functions and operators, and patterns (manual, 8.3, 8.4, 9.4, 9.5 and 9.7)."""
