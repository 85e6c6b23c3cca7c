"""The application that a node is to Spark: its session, its jars and archives, its Java's memory, its Python workers, its cluster.

Started by the node before there is a job, and watched by it. What must hold: a node has one session, in UTC and ANSI mode.
"""
