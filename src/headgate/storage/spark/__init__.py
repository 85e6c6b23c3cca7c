"""Spark's jobs: to whom they belong, how they end and fail, what is kept of their rows, and how these come to the driver and back.

Used by whoever runs a job; the session that runs them, with its jars and workers, is in `application`.
"""
