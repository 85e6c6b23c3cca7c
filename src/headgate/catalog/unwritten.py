"""The rows that a transaction has inserted into catalogs, and that are not in DuckDB yet.

DuckDB plans each INSERT anew, which takes one to three milliseconds, while 500 rows of an Arrow table take four. So `CatalogCursor` keeps
the rows of plain INSERTs here, and writes all rows of a catalog at once: when a statement reads or changes the catalog in another way than
below, when there are `MOST_ROWS`, or at COMMIT.

A plain statement (`plain_statement`) includes the rows that are kept:

    INSERT    the rows are kept
    SELECT    rows of DuckDB, then the kept rows that match
    UPDATE    by oid: a kept row is changed in place, as no other row has its oid; by a new relation or LSN: all rows are
    DELETE    the kept rows that match are dropped; DuckDB deletes its own

DuckDB does not run a SELECT or DELETE that names a relation whose row of pg_class has been inserted here and whose rows were not written
since: no other transaction can have rows of it, because oids are never given twice. So it is with a transaction's provisional LSN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.catalog.plain_statement import BoundTerm, Plain, Term, analyse, bound, stored

PROVISIONAL = 1 << 63
"""LSNs from here on stand for transactions that have no place yet: PROVISIONAL + xid (`history`)."""
MOST_ROWS = 256
"""How many rows of a catalog are kept."""
_FEW_ROWS = 4
"""So many rows in an INSERT cost less than an Arrow table."""
CATALOGS = frozenset({
    "pg_attrdef", "pg_attribute", "pg_class", "pg_constraint", "pg_depend", "pg_description", "pg_index", "pg_inherits", "pg_type",
    "pg_partitioned_table", "pg_subscription_rel", "subscription_column", "history", "table_version",
})  # fmt: skip
"""The catalogs of which a new table has rows. Their values are the same in Python before and after DuckDB has stored them."""
_OF_RELATION = frozenset(
    {"oid", "attrelid", "adrelid", "conrelid", "confrelid", "indrelid", "indexrelid", "inhrelid", "partrelid", "objoid", "relid", "srrelid"}
)
"""Columns that contain the oid of a relation."""

Row = dict[str, Any]


def _analyse(sql: str) -> Plain | None:
    """Return the statement if it is plain and is about one of the catalogs whose rows are kept."""
    plain = analyse(sql)
    return plain if plain is not None and plain.table in CATALOGS else None


class UnwrittenRows:
    """See the module. For the thread of the transaction."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Row]] = {}
        self._moment = 0
        self._made: dict[int, int] = {}
        """The relations whose rows of pg_class were inserted, the provisional LSN, and when: moments of this transaction."""
        self._written: dict[str, int] = {}
        """When rows of a catalog went to DuckDB last."""
        self._written_any = 0

    def __bool__(self) -> bool:
        return bool(self._rows)

    def has(self, table: str) -> bool:
        """Return whether rows of a catalog are kept."""
        return table in self._rows

    def insert(self, sql: str, parameters: Sequence[object]) -> str | None:
        """Keep the rows of a plain INSERT and return the catalog, None if the statement is not one."""
        plain = _analyse(sql)
        if plain is None or plain.kind != "INSERT" or not parameters:
            return None
        self._moment += 1
        width = len(plain.columns)
        values: list[Any] = [stored(value) for value in parameters]
        kept = self._rows.setdefault(plain.table, [])
        for start in range(0, len(values), width):
            row = dict(zip(plain.columns, values[start : start + width], strict=True))
            kept.append(row)
            if plain.table == "pg_class":
                self._made[row["oid"]] = self._moment
            elif plain.table == "history" and row["lsn"] >= PROVISIONAL:
                self._made.setdefault(row["lsn"], self._moment)
        return plain.table

    def select(self, sql: str, parameters: Sequence[object]) -> tuple[list[tuple[Any, ...]], bool] | None:
        """Return the kept rows that a plain SELECT reads, and whether DuckDB has none; None if the statement is not one."""
        plain = _analyse(sql)
        if plain is None or plain.kind != "SELECT":
            return None
        terms = bound(plain.condition, parameters)
        found = [tuple([row.get(column) for column in plain.columns]) for row in self._matching(plain.table, terms)]
        return found, self._is_new(plain.table, terms)

    def update(self, sql: str, parameters: Sequence[object]) -> bool:
        """Change kept rows. Return whether this is all that a plain UPDATE does."""
        plain = _analyse(sql)
        if plain is None or plain.kind != "UPDATE":
            return False
        width = len(plain.columns)
        terms = bound(plain.condition, parameters[width:])
        is_all = self._is_new(plain.table, terms)
        if not is_all and not any(term.columns == ("oid",) for term in plain.condition):
            return False
        found = self._matching(plain.table, terms)
        for row in found:
            row.update(zip(plain.columns, map(stored, parameters[:width]), strict=True))
        return is_all or bool(found)

    def delete(self, sql: str, parameters: Sequence[object]) -> bool | None:
        """Drop the kept rows that a plain DELETE deletes. Return whether DuckDB has none; None if the statement is not one."""
        plain = _analyse(sql)
        if plain is None or plain.kind != "DELETE":
            return None
        terms = bound(plain.condition, parameters)
        gone = {id(row) for row in self._matching(plain.table, terms)}
        left = [row for row in self._rows.get(plain.table, ()) if id(row) not in gone]
        if left:
            self._rows[plain.table] = left
        else:
            self._rows.pop(plain.table, None)
        return self._is_new(plain.table, terms)

    def _matching(self, table: str, terms: Sequence[BoundTerm]) -> list[Row]:
        """Return the kept rows that match. The rows of one database are compared with its oid last."""
        found = self._rows.get(table, [])
        for term, values in sorted(terms, key=lambda bound: bound[0].columns == ("dbid",)):
            if len(values) == 1 and not term.or_zero:
                [column], [value] = term.columns, values
                found = [row for row in found if value is not None and row.get(column) == value]
            else:
                found = [row for row in found if _is_true(row, term, values)]
        return found

    def _is_new(self, table: str, terms: Sequence[BoundTerm]) -> bool:
        """Return whether rows that match cannot be in DuckDB: a term names a relation or LSN that is newer than what was written last."""
        written = max(self._written.get(table, 0), self._written_any)

        def is_newer(column: str, value: object) -> bool:
            if not isinstance(value, int) or written >= self._made.get(value, 0):
                return False
            return column in _OF_RELATION if value < PROVISIONAL else column == "lsn"

        return any(
            not term.or_zero and all(is_newer(column, value) for column, value in zip(term.columns, values, strict=True))
            for term, values in terms
        )

    def wrote(self, table: str | None) -> None:
        """Note that a statement writes a catalog in DuckDB (None: any of them)."""
        self._moment += 1
        if table is None:
            self._written_any = self._moment
        else:
            self._written[table] = self._moment

    def is_full(self, table: str) -> bool:
        """Return whether the rows of a catalog should be written now."""
        return len(self._rows.get(table, ())) >= MOST_ROWS

    def take(self, tables: Collection[str] | None) -> list[tuple[str, list[Row]]]:
        """Remove the rows of these catalogs (None: all) and return them with their catalogs."""
        return [(table, self._rows.pop(table)) for table in list(self._rows) if tables is None or table in tables]


def _is_true(row: Mapping[str, Any], term: Term, values: Sequence[object]) -> bool:
    """Return whether a term holds for a row; NULL equals nothing."""
    return any(
        (found := row.get(column)) is not None and (found == value or (term.or_zero and found == 0))
        for column, value in zip(term.columns, values, strict=True)
    )


def to_insert(table: str, rows: Sequence[Row]) -> tuple[str, list[object]] | None:
    """Return an INSERT of rows and its parameters, None if an Arrow table is faster."""
    names = tuple(rows[0])
    if len(rows) > _FEW_ROWS or any(tuple(row) != names for row in rows):
        return None
    marks = f"({', '.join('?' * len(names))})"
    values = [value for row in rows for value in row.values()]
    return f"INSERT INTO hg.{table} ({', '.join(names)}) VALUES {', '.join([marks] * len(rows))}", values


def to_arrow(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Return rows as a table with the columns that one of them has."""
    names = dict.fromkeys(name for row in rows for name in row)
    fields = [schema.field(name) for name in names]
    return pa.table([pa.array([row.get(field.name) for row in rows], field.type) for field in fields], pa.schema(fields))
