"""The private classes of PySpark, Spark and Py4J that a node uses: one module for each subject.

No other module outside `storage.delta.internals` uses them. Each function says what it relies on and in which versions that exists.
`tests/storage/test_spark_internals.py` calls each one on a real session. The list, with the reasons, is in docs/architecture.md. To try a
new version of Spark, run these tests first.
"""
