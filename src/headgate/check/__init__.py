"""Whether all that a node keeps on disk fits together, as PostgreSQL's amcheck and pg_amcheck ask it of a cluster.

`course.run` looks at a `subject.Subject` part by part and gives a `finding.Finding` for each thing that is wrong. Called by
``headgate check`` on a stopped node's directory and by the server on a running node. Changes nothing.
"""
