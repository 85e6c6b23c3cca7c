"""The one Spark session of a node, its jars, its Java, its Python workers and the temporary files of its jobs.

Started by the node; used by whoever runs a job. What must hold: a node has one session, in UTC and ANSI mode.
"""
