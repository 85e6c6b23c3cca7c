"""The rows that a transaction has inserted into catalogs, and that are not in DuckDB yet.

DuckDB plans each INSERT anew, which takes one to three milliseconds, while inserting 500 rows from an Arrow table takes four. So
`CatalogCursor` buffers the rows of plain INSERTs here, and writes all rows of a catalog at once: when a statement reads or changes the
catalog in a way that is not listed below, when there are `MOST_ROWS`, or at COMMIT.

A plain statement (`plain_statement`) includes the buffered rows:

    INSERT    the rows are buffered
    SELECT    rows of DuckDB, followed by the buffered rows that match
    UPDATE    by oid: a buffered row is changed in place, as no other row has its oid; by a new relation or LSN: all its rows are buffered
    DELETE    the buffered rows that match are dropped; DuckDB deletes its own

DuckDB does not run a SELECT or DELETE for a relation whose row of pg_class has been inserted here, and whose rows have not been written
since. No other transaction can have rows of it, because an oid is never assigned twice. The same holds for a transaction's provisional LSN.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from headgate.catalog.plain_statement import BoundTerm, Plain, Term, analyse, bound, stored

PROVISIONAL = 1 << 63
"""LSNs from this one on stand for transactions without a position in the log: PROVISIONAL + xid (`history`)."""
MOST_ROWS = 256
"""Maximum number of buffered rows of a catalog."""
_FEW_ROWS = 4
"""Maximum number of rows for which an INSERT is faster than an Arrow table."""
CATALOGS = frozenset({
    "pg_attrdef", "pg_attribute", "pg_class", "pg_constraint", "pg_depend", "pg_description", "pg_index", "pg_inherits", "pg_type",
    "pg_partitioned_table", "pg_subscription_rel", "pg_trigger", "subscription_column", "history", "table_version",
})  # fmt: skip
"""The catalogs that have rows for a new table. Their values are the same in Python before and after DuckDB has stored them."""
_OF_RELATION = frozenset(
    {
        "oid",
        "attrelid",
        "adrelid",
        "conrelid",
        "confrelid",
        "indrelid",
        "indexrelid",
        "inhrelid",
        "partrelid",
        "objoid",
        "relid",
        "srrelid",
        "tgrelid",
    }
)
"""Columns that contain the oid of a relation."""

Row = dict[str, Any]


def _analyse(sql: str) -> Plain | None:
    """Return the statement if it is plain and concerns a catalog whose rows are buffered."""
    plain = analyse(sql)
    return plain if plain is not None and plain.table in CATALOGS else None


class UnwrittenRows:
    """The buffered rows of one transaction (see the module). For the thread of the transaction."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Row]] = {}
        self._moment = 0
        self._made: dict[int, int] = {}
        """When rows of pg_class of relations, or the provisional LSN, were inserted, as moments of this transaction."""
        self._last_write: dict[str, int] = {}
        """When rows of each catalog were last written to DuckDB."""
        self._written_any = 0

    def __bool__(self) -> bool:
        return bool(self._rows)

    def has(self, table: str) -> bool:
        return table in self._rows

    def insert(self, sql: str, parameters: Sequence[object]) -> str | None:
        """Buffer the rows of a plain INSERT and return the catalog, or None if the statement is not one."""
        plain = _analyse(sql)
        if plain is None or plain.kind != "INSERT" or not parameters:
            return None
        self._moment += 1
        width = len(plain.columns)
        values: list[Any] = [stored(value) for value in parameters]
        buffered = self._rows.setdefault(plain.table, [])
        for start in range(0, len(values), width):
            row = dict(zip(plain.columns, values[start : start + width], strict=True))
            buffered.append(row)
            if plain.table == "pg_class":
                self._made[row["oid"]] = self._moment
            elif plain.table == "history" and row["lsn"] >= PROVISIONAL:
                self._made.setdefault(row["lsn"], self._moment)
        return plain.table

    def select(self, sql: str, parameters: Sequence[object]) -> tuple[list[tuple[object, ...]], bool] | None:
        """Return the buffered rows that a plain SELECT reads, and whether DuckDB has none. Return None if the statement is not one."""
        plain = _analyse(sql)
        if plain is None or plain.kind != "SELECT":
            return None
        terms = bound(plain.condition, parameters)
        matching = [tuple([row.get(column) for column in plain.columns]) for row in self._matching(plain.table, terms)]
        return matching, self._is_new(plain.table, terms)

    def update(self, sql: str, parameters: Sequence[object]) -> bool:
        """Change buffered rows. Return whether this completes a plain UPDATE."""
        plain = _analyse(sql)
        if plain is None or plain.kind != "UPDATE":
            return False
        width = len(plain.columns)
        terms = bound(plain.condition, parameters[width:])
        is_all = self._is_new(plain.table, terms)
        if not is_all and not any(term.columns == ("oid",) for term in plain.condition):
            return False
        matching = self._matching(plain.table, terms)
        for row in matching:
            row.update(zip(plain.columns, map(stored, parameters[:width]), strict=True))
        return is_all or bool(matching)

    def delete(self, sql: str, parameters: Sequence[object]) -> bool | None:
        """Drop the buffered rows that a plain DELETE deletes. Return whether DuckDB has none, or None if the statement is not one."""
        plain = _analyse(sql)
        if plain is None or plain.kind != "DELETE":
            return None
        terms = bound(plain.condition, parameters)
        deleted = {id(row) for row in self._matching(plain.table, terms)}
        left = [row for row in self._rows.get(plain.table, ()) if id(row) not in deleted]
        if left:
            self._rows[plain.table] = left
        else:
            self._rows.pop(plain.table, None)
        return self._is_new(plain.table, terms)

    def _matching(self, table: str, terms: Sequence[BoundTerm]) -> list[Row]:
        """Return the buffered rows that match. The condition on the database is tested last."""
        matching = self._rows.get(table, [])
        for term, values in sorted(terms, key=lambda bound: bound[0].columns == ("dbid",)):
            if len(values) == 1 and not term.or_zero:
                [column], [value] = term.columns, values
                matching = [row for row in matching if value is not None and row.get(column) == value]
            else:
                matching = [row for row in matching if _is_true(row, term, values)]
        return matching

    def _is_new(self, table: str, terms: Sequence[BoundTerm]) -> bool:
        """Return whether matching rows cannot be in DuckDB, because a term names a relation or LSN that is newer than the last write."""
        last_written = max(self._last_write.get(table, 0), self._written_any)

        def is_newer(column: str, value: object) -> bool:
            if not isinstance(value, int) or last_written >= self._made.get(value, 0):
                return False
            return column in _OF_RELATION if value < PROVISIONAL else column == "lsn"

        return any(
            not term.or_zero and all(is_newer(column, value) for column, value in zip(term.columns, values, strict=True))
            for term, values in terms
        )

    def wrote(self, table: str | None) -> None:
        """Record that a statement writes a catalog in DuckDB (None: any of them)."""
        self._moment += 1
        if table is None:
            self._written_any = self._moment
        else:
            self._last_write[table] = self._moment

    def is_full(self, table: str) -> bool:
        """Return whether the rows of a catalog should be written now."""
        return len(self._rows.get(table, ())) >= MOST_ROWS

    def take(self, tables: Collection[str] | None) -> list[tuple[str, list[Row]]]:
        """Remove the rows of these catalogs (None: all) and return them with their catalogs."""
        return [(table, self._rows.pop(table)) for table in list(self._rows) if tables is None or table in tables]


def _is_true(row: Row, term: Term, values: Sequence[object]) -> bool:
    """Return whether a term holds for a row; NULL equals nothing."""
    return any(
        (row_value := row.get(column)) is not None and (row_value == value or (term.or_zero and row_value == 0))
        for column, value in zip(term.columns, values, strict=True)
    )


def to_insert(table: str, rows: Sequence[Row]) -> tuple[str, list[object]] | None:
    """Return an INSERT of rows and its parameters, or None if an Arrow table is faster."""
    names = tuple(rows[0])
    if len(rows) > _FEW_ROWS or any(tuple(row) != names for row in rows):
        return None
    marks = f"({', '.join('?' * len(names))})"
    values = [value for row in rows for value in row.values()]
    return f"INSERT INTO hg.{table} ({', '.join(names)}) VALUES {', '.join([marks] * len(rows))}", values


def to_arrow(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Return rows as a table, with the columns that at least one of them has."""
    names = dict.fromkeys(name for row in rows for name in row)
    fields = [schema.field(name) for name in names]
    return pa.table([pa.array([row.get(field.name) for row in rows], field.type) for field in fields], pa.schema(fields))
