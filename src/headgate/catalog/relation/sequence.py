"""Sequences: the columns that own them, restarting them, their next values, and their names in defaults.

Called by TRUNCATE … RESTART IDENTITY, as a statement (commands) and as a publisher's message (subscriber), by nextval, and by code that
writes or evaluates a default. A default has references to its sequences (`registry.reference`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from headgate.catalog import hold
from headgate.catalog.physical import Cursor, one, rows, run, update
from headgate.catalog.relation import relation as relations
from headgate.errors import PostgresError
from headgate.sql.names import split_identifiers
from headgate.types.registry import reference

CALL = re.compile(r"nextval\('((?:[^']|'')*)'::regclass\)")
"""A call of nextval in the text of a default. Its group is the sequence's name in a literal."""


def restart_owned(cursor: Cursor, database: int, relation: int, lock: Callable[[str, int], None]) -> None:
    """Reset each sequence that a column of the table owns to its start value, if the transaction commits.

    `lock` locks an object (its catalog, its oid) until then, so that calls of nextval wait.
    """
    for oid, _ in of_columns(cursor, database, relation):
        lock("pg_class", oid)
    run(
        cursor,
        "UPDATE hg.sequence_state SET is_called = false, last_value = s.seqstart FROM hg.pg_sequence s"
        " WHERE s.dbid = sequence_state.dbid AND s.seqrelid = sequence_state.seqrelid AND sequence_state.dbid = ?"
        " AND sequence_state.seqrelid IN (SELECT d.objid FROM hg.pg_depend d WHERE d.dbid = ? AND d.classid = 1259 AND d.refclassid = 1259"
        " AND d.refobjid = ? AND d.deptype IN ('a', 'i'))",
        [database, database, relation],
    )


def of_columns(cursor: Cursor, database: int, relation: int) -> list[tuple[int, str]]:
    """Return (oid, name) of the sequences that columns of a table own."""
    return rows(
        cursor,
        "SELECT c.oid, c.relname FROM hg.pg_depend d JOIN hg.pg_class c ON c.oid = d.objid AND c.dbid = d.dbid AND c.relkind = 'S'"
        " WHERE d.dbid = ? AND d.classid = 1259 AND d.refclassid = 1259 AND d.refobjid = ? AND d.deptype IN ('a', 'i')",
        [database, relation],
    )


def table_of(cursor: Cursor, database: int, sequence: int) -> str | None:
    """Return the name of the table with the column that owns the sequence, or None."""
    tables = rows(
        cursor,
        "SELECT c.relname FROM hg.pg_depend d JOIN hg.pg_class c ON c.oid = d.refobjid AND c.dbid = d.dbid"
        " WHERE d.dbid = ? AND d.classid = 1259 AND d.objid = ? AND d.refclassid = 1259 AND d.deptype IN ('a', 'i')",
        [database, sequence],
    )
    return str(tables[0][0]) if tables else None


def of_column(cursor: Cursor, database: int, table: int, attnum: int) -> int | None:
    """Return the sequence that a column owns, or None."""
    row = one(
        cursor,
        "SELECT d.objid FROM hg.pg_depend d JOIN hg.pg_class c ON c.oid = d.objid AND c.dbid = d.dbid AND c.relkind = 'S' WHERE d.dbid = ?"
        " AND d.refobjid = ? AND d.refobjsubid = ? AND d.classid = 1259 AND d.deptype IN ('a', 'i')",
        [database, table, attnum],
    )
    return None if row is None else int(row[0])


# ---- the next values -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Values:
    """Consecutive values of a sequence: `first`, then in steps of `step`.

    CYCLE: value number `turn`, counted from 0, and the following ones begin at `again`, and begin there again after `length` values.
    """

    first: int
    step: int
    turn: int = 2**63 - 1
    again: int = 0
    length: int = 1

    def value(self, number: int) -> int:
        """Return a value by its number, counted from 0."""
        if number < self.turn:
            return self.first + self.step * number
        return self.again + self.step * ((number - self.turn) % self.length)


Change = Callable[[Callable[[Cursor], Values | None]], Values | None]


def take(change: Change, cursor: Cursor, database: int, sequence: int, count: int) -> Values:
    """Return `count` values. Raise 2200H if the sequence is exhausted.

    As in PostgreSQL, values are not returned to the sequence after a rollback. `change` (`Catalog.change`) uses its own transaction if the
    sequence is committed. Otherwise the caller's is used.
    """
    advance = functools.partial(_advance, database, sequence, count)
    values: Values | None = None
    for waited in (False, True):
        try:
            values = change(advance) or advance(cursor)
            break
        except PostgresError as error:
            if error.sqlstate != "40001":
                raise
            if waited:
                values = advance(cursor)  # this transaction has restarted the sequence itself
            else:
                hold.use(cursor, "pg_class", sequence)  # another has restarted it: until its end
    if values is None:
        raise PostgresError("XX000", f"could not open relation with OID {sequence}")
    return values


def _advance(database: int, sequence: int, count: int, cursor: Cursor) -> Values | None:
    """Advance a sequence by `count` values and return them. Return None if the transaction of the cursor does not see the sequence."""
    row = one(
        cursor,
        "SELECT t.last_value, t.is_called, s.seqincrement, s.seqmax, s.seqmin, s.seqcycle, c.relname FROM hg.sequence_state t"
        " JOIN hg.pg_sequence s ON s.dbid = t.dbid AND s.seqrelid = t.seqrelid"
        " JOIN hg.pg_class c ON c.dbid = t.dbid AND c.oid = t.seqrelid"
        " WHERE t.dbid = ? AND t.seqrelid = ?",
        [database, sequence],
    )
    if row is None:
        return None
    last, called, increment, maximum, minimum, cycles, name = row
    first = last + increment if called else last
    values = Values(first, increment)
    if not minimum <= first + increment * (count - 1) <= maximum:
        if not cycles:
            word, bound = ("maximum", maximum) if increment > 0 else ("minimum", minimum)
            raise PostgresError("2200H", f'nextval: reached {word} value of sequence "{name}" ({bound})')
        turn = ((maximum - first) // increment if increment > 0 else (first - minimum) // -increment) + 1
        values = Values(first, increment, turn, minimum if increment > 0 else maximum, (maximum - minimum) // abs(increment) + 1)
    update(cursor, "sequence_state", {"dbid": database, "seqrelid": sequence}, last_value=values.value(count - 1), is_called=True)
    return values


# ---- in a default -----------------------------------------------------------------------------------------------------


def next_value(oid: int) -> str:
    """Return the call of nextval as in the text of a default."""
    return f"nextval('{reference(oid)}'::regclass)"


def split_name(name: str) -> tuple[str | None, str]:
    """Return (schema, name) of a sequence's name in a default or in a call."""
    parts = split_identifiers(name, ".") or [name]
    return parts[-2] if len(parts) > 1 else None, parts[-1]


def of_default(cursor: Cursor, database: int, default: str) -> list[int]:
    """Return the sequences (oids) whose nextval a default calls."""
    names = [split_name(quoted.replace("''", "'")) for quoted in CALL.findall(default)]
    oids = [relations.find_oid(cursor, database, schema, name) for schema, name in names]
    return [oid for oid in oids if oid is not None]
