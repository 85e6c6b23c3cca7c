"""The node as a Spark application: its session, its jars and archives, its Java's memory, its Python workers, its cluster.

Started by the node before its first job, and monitored by it. Invariant: a node has one session, in UTC and ANSI mode.
"""
