"""The storage parameters of tables: WITH (…) of CREATE TABLE, SET (…) and RESET (…) of ALTER TABLE (reloptions.c).

Called by `table` and `alter_table`. PostgreSQL's own are checked, kept and shown as it does, and mean nothing here; those of a node say
what the table's files need of their readers (docs/readers.md), and `Transaction.create_table` and `alter_settings` have them done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation import pg_class
from headgate.errors import PostgresError
from headgate.settings.definition import read_bool
from headgate.sql.names import qualified, quote_ident
from headgate.sql.options import Option, options
from headgate.sql.parser import unwrap
from headgate.types import registry

if TYPE_CHECKING:
    from headgate.commands.table.alteration import Alteration

OWN = ("column_mapping", "deletion_vectors")
_MOST = 2147483647
_BOOLEAN = (*OWN, "autovacuum_enabled", "user_catalog_table", "vacuum_truncate")
_INTEGER: Mapping[str, tuple[int, int]] = {
    "fillfactor": (10, 100),
    "autovacuum_vacuum_threshold": (0, _MOST),
    "autovacuum_vacuum_insert_threshold": (-1, _MOST),
    "autovacuum_analyze_threshold": (0, _MOST),
    "autovacuum_vacuum_cost_limit": (1, 10000),
    "autovacuum_freeze_min_age": (0, 1000000000),
    "autovacuum_multixact_freeze_min_age": (0, 1000000000),
    "autovacuum_freeze_max_age": (100000, 2000000000),
    "autovacuum_multixact_freeze_max_age": (10000, 2000000000),
    "autovacuum_freeze_table_age": (0, 2000000000),
    "autovacuum_multixact_freeze_table_age": (0, 2000000000),
    "log_autovacuum_min_duration": (-1, _MOST),
    "toast_tuple_target": (128, 8160),
    "parallel_workers": (0, 1024),
}
_REAL: Mapping[str, tuple[int, int]] = {
    "autovacuum_vacuum_cost_delay": (-1, 100),
    "autovacuum_vacuum_scale_factor": (0, 100),
    "autovacuum_vacuum_insert_scale_factor": (0, 100),
    "autovacuum_analyze_scale_factor": (0, 100),
}
_CHOSEN: Mapping[str, tuple[tuple[str, ...], str]] = {
    "vacuum_index_cleanup": (("auto", "on", "off", "true", "false", "yes", "no", "1", "0"), '"on", "off", and "auto"'),
    "array_storage": (("text", "array"), '"text" and "array"'),
}
"""The values that a parameter takes, and those that a DETAIL names."""
_FILLED: Mapping[str, tuple[int, int] | None] = {"fillfactor": (10, 100)}
_OF_INDEXES: Mapping[str, Mapping[str, tuple[int, int] | None]] = {
    "btree": {**_FILLED, "deduplicate_items": None},
    "hash": _FILLED,
    "spgist": _FILLED,
    "gist": {**_FILLED, "buffering": None},
    "gin": {"fastupdate": None, "gin_pending_list_limit": (64, 2147483647)},
    "brin": {"pages_per_range": (1, 131072), "autosummarize": None},
}
"""By access method the options of indexes, with the bounds of those that are numbers."""
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_TOAST = re.compile(r"autovacuum_|log_autovacuum_|vacuum_")


def read(nodes: Iterable[pb.Node], kind: str) -> list[str]:
    """The parameters of a table of this relkind as pg_class.reloptions has them; 22023 for what is none, or none of its values.

    Those of the table of PostgreSQL's large values (`toast.`) are checked and let go: there is none.
    """
    found: dict[str, str] = {}
    given = list(nodes)
    for node, option in zip(given, options(given), strict=True):
        namespace = unwrap(node).defnamespace
        if namespace not in ("", "toast"):
            raise PostgresError("22023", f'unrecognized parameter namespace "{namespace}"')
        if option.name == "oids" and not namespace:
            if option.boolean():
                raise PostgresError("0A000", "tables declared WITH OIDS are not supported")
            continue
        value = _checked(option, kind, toast=namespace == "toast")
        if not namespace:
            if option.name in found:
                raise PostgresError("22023", f'parameter "{option.name}" specified more than once')
            found[option.name] = value
    return [f"{name}={value}" for name, value in found.items()]


def check_index(nodes: Iterable[pb.Node], method: str) -> None:
    """Raise 22023 for an option that an index of this access method does not have, or for a value that it does not take."""
    for option in options(nodes):
        if option.name not in _OF_INDEXES.get(method, {}):
            raise PostgresError("22023", f'unrecognized parameter "{option.name}"')
        bounds = _OF_INDEXES[method][option.name]
        value = "true" if option.value is None else option.value
        if bounds is not None:
            _check_number(option.name, value, "integer", bounds, whole=True)
        elif option.name != "buffering" and read_bool(value) is None:
            raise PostgresError("22023", f'invalid value for boolean option "{option.name}": {value}')


def check_column(nodes: Iterable[pb.Node]) -> None:
    """Raise 22023 for an option that a column does not have (ALTER COLUMN … SET)."""
    for option in options(nodes):
        if option.name not in ("n_distinct", "n_distinct_inherited"):
            raise PostgresError("22023", f'unrecognized parameter "{option.name}"')


def _checked(option: Option, kind: str, *, toast: bool) -> str:
    name, value = option.name, "true" if option.value is None else option.value
    known = name in _BOOLEAN or name in _INTEGER or name in _REAL or name in _CHOSEN
    if not known or kind != "r" or (toast and not _TOAST.match(name)):
        raise PostgresError("22023", f'unrecognized parameter "{name}"')
    if name in _BOOLEAN and read_bool(value) is None:
        raise PostgresError("22023", f'invalid value for boolean option "{name}": {value}')
    if name in _INTEGER:
        _check_number(name, value, "integer", _INTEGER[name], whole=True)
    if name in _REAL:
        _check_number(name, value, "floating point", _REAL[name], whole=False)
    if name in _CHOSEN and value.lower() not in _CHOSEN[name][0]:
        detail = f"Valid values are {_CHOSEN[name][1]}."
        raise PostgresError("22023", f'invalid value for enum option "{name}": {value}', detail=detail)
    return value


def _check_number(name: str, value: str, word: str, bounds: tuple[int, int], *, whole: bool) -> None:
    if not _NUMBER.fullmatch(value.strip()):
        raise PostgresError("22023", f'invalid value for {word} option "{name}": {value}')
    number = float(value)
    if whole and abs(number) > _MOST:
        raise PostgresError("22023", f'invalid value for {word} option "{name}": {value}')
    if not bounds[0] <= (round(number) if whole else number) <= bounds[1]:
        low, high = (str(each) if whole else f"{each:f}" for each in bounds)
        detail = f'Valid values are between "{low}" and "{high}".'
        raise PostgresError("22023", f'value {value} out of bounds for option "{name}"', detail=detail)


def alter(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """ALTER TABLE … SET (…) and RESET (…)."""
    relation = alteration.relation
    nodes = unwrap(getattr(command, "def")).items
    named = {option.name for option in options(nodes)}
    if command.subtype == pb.AT_ResetRelOptions:
        if any(option.value is not None for option in options(nodes)):
            raise PostgresError("42601", "RESET must not include values for parameters")
        given = []
    else:
        given = read(nodes, relation.kind)
    kept = [each for each in relation.options if each.split("=", 1)[0] not in named]
    pg_class.set_class(alteration.cursor, relation, "reloptions", [*kept, *given] or None)
    alteration.refresh()
    if "array_storage" in named:
        _explain_columns(alteration)
    if named & set(OWN):
        alteration.transaction.alter_settings(alteration.relation)


def _explain_columns(alteration: Alteration) -> None:
    """Tell that the columns that the table has stay as they are stored, and how to change them."""
    columns = [
        column for column in alteration.relation.columns if (found := registry.known().find(column.type_oid)) is not None and found.is_array
    ]
    if columns:
        changes = ", ".join(
            f"ALTER COLUMN {quote_ident(column.name)} TYPE {registry.format_type(column.type_oid, column.typmod)}" for column in columns
        )
        alteration.session.notices.notice(
            "array_storage counts for columns that are made from now on",
            detail=f"Stored as they were made: {', '.join(column.name for column in columns)}.",
            hint=f"To write them anew: ALTER TABLE {qualified(alteration.relation.schema, alteration.relation.name)} {changes}",
        )
