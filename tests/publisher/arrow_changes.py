"""Read the result of headgate.changes in Arrow, and return it as the texts of `slots.messages`."""

from __future__ import annotations

import psycopg
import pyarrow as pa


def read(connection: psycopg.Connection, query: str) -> pa.Table:
    with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT arrow)") as copy:  # type: ignore[call-overload]
        return pa.ipc.open_stream(b"".join(bytes(piece) for piece in copy)).read_all()


def as_texts(changes: pa.Table, table: str) -> list[str]:
    """Return changes as the texts of `slots.messages`."""
    names = {"I": "Insert", "U": "Update", "D": "Delete", "T": "Truncate"}
    columns = [name for name in changes.column_names if not name.startswith("_")]
    descriptions = []
    for row in changes.to_pylist():
        new, old = _row(row, columns), "" if row["_old"] is None else f" {_row(row['_old'], columns)}"
        end = "" if row["_op"] == "T" else f" {table}{old}{'' if row['_op'] == 'D' else f' {new}'}"
        descriptions.append(names[row["_op"]] + end)
    return descriptions


def _row(row: dict[str, object], columns: list[str]) -> str:
    return "(" + ", ".join("null" if row[name] is None else str(row[name]) for name in columns) + ")"
