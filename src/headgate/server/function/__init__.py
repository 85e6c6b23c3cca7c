"""SQL functions that act on the node or the session: slots, sequences, headgate.verify() (manual, 9.27).

`functions` combines them for a session. The other modules are its base classes, one per subject.
"""
