"""Sequences: CREATE, ALTER and DROP SEQUENCE, identity columns, and the numbers that defaults take from them (manual, 9.17).

Called by `execute`, by the statements on tables for serial and identity columns, and by `dml` for the defaults of rows.
"""
