"""Consistency check of everything that a node keeps on disk, like PostgreSQL's amcheck and pg_amcheck.

`course.run` examines a `subject.Subject` part by part and yields a `finding.Finding` for each problem. Called by ``headgate check`` on a
stopped node's directory and by the server on a running node. It changes nothing.
"""
