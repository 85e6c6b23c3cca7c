"""Functions that act on the node or the session, called in queries: slots, sequences, headgate.verify() (manual, 9.27).

`functions` puts them together for a session; the others are its bases, one a subject.
"""
