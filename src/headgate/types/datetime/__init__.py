"""Dates, times, intervals and time zones as text: PostgreSQL's input in all its forms, and its output styles (datetime.c).

Called by `types.text` and `types.binary`. What must hold: what a text means depends on the session's zone and DateStyle only where
PostgreSQL says so.
"""
