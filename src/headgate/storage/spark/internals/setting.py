"""Values of Spark's settings that name its private classes."""

from __future__ import annotations

CHECKPOINT_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Writes small files by the file system interface that the tables use. In this package since Spark 4.1, before that one above it."""
REORDERING_RULE = "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator"
"""The rule of the optimizer that combines constants of a sum. Since Spark 2.0."""
