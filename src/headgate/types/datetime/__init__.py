"""Dates, times, intervals and time zones as text: all forms of PostgreSQL's input, and its output styles (datetime.c).

Called by `types.text` and `types.binary`. Invariant: the meaning of a text depends on the session's time zone and DateStyle only if it does
in PostgreSQL.
"""
