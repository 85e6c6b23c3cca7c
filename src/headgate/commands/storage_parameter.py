"""The storage parameters of tables, indexes and views: WITH (…) of CREATE, SET (…) and RESET (…) of ALTER (reloptions.c).

The rooms `table` and `view` call it. PostgreSQL's parameters are checked, stored and shown as in PostgreSQL, but have no effect.
headgate's parameters set what the table's files require of their readers (docs/readers.md). `TableDdl.create` and `alter_settings`
apply them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation import pg_class
from headgate.errors import PostgresError, not_supported
from headgate.settings.definition import read_bool
from headgate.sql.names import qualified, quote_ident
from headgate.sql.options import Option, options
from headgate.sql.parser import unwrap
from headgate.types import registry

if TYPE_CHECKING:
    from headgate.commands.alteration import Alteration

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
"""The accepted values of a parameter, and those that a DETAIL lists."""
LOCATION = "location"
"""The folder of an external table (`external_table`)."""
_FILLED: Mapping[str, tuple[int, int] | None] = {"fillfactor": (10, 100)}
_OF_INDEXES: Mapping[str, Mapping[str, tuple[int, int] | None]] = {
    "btree": {**_FILLED, "deduplicate_items": None},
    "hash": _FILLED,
    "spgist": _FILLED,
    "gist": {**_FILLED, "buffering": None},
    "gin": {"fastupdate": None, "gin_pending_list_limit": (64, 2147483647)},
    "brin": {"pages_per_range": (1, 131072), "autosummarize": None},
}
"""The options of indexes by access method, with the bounds of numeric ones."""
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_TOAST = re.compile(r"autovacuum_|log_autovacuum_|vacuum_")


def read(nodes: Iterable[pb.Node], kind: str) -> list[str]:
    """Return the parameters of a table of this relkind in the form of pg_class.reloptions.

    Raise 22023 for an unknown name or an invalid value. Parameters of the TOAST table (`toast.`) are checked and ignored.
    """
    parameters: dict[str, str] = {}
    elements = list(nodes)
    for node, option in zip(elements, options(elements), strict=True):
        namespace = unwrap(node).defnamespace
        if namespace not in ("", "toast"):
            raise PostgresError("22023", f'unrecognized parameter namespace "{namespace}"')
        if option.name == "oids" and not namespace:
            if option.boolean():
                raise PostgresError("0A000", "tables declared WITH OIDS are not supported")
            continue
        value = _check(option, kind, toast=namespace == "toast")
        if not namespace:
            if option.name in parameters:
                raise PostgresError("22023", f'parameter "{option.name}" specified more than once')
            parameters[option.name] = value
    return [f"{name}={value}" for name, value in parameters.items()]


def check_index(nodes: Iterable[pb.Node], method: str) -> None:
    """Raise 22023 for an option that an index of this access method does not have, or for an invalid value."""
    for option in options(nodes):
        if option.name not in _OF_INDEXES.get(method, {}):
            raise PostgresError("22023", f'unrecognized parameter "{option.name}"')
        bounds = _OF_INDEXES[method][option.name]
        value = "true" if option.value is None else option.value
        if bounds is not None:
            _check_number(option.name, value, "integer", bounds, whole=True)
        elif option.name != "buffering":
            check_boolean(option.name, value)


def check_column(nodes: Iterable[pb.Node]) -> None:
    """Raise 22023 for an option that a column does not have (ALTER COLUMN … SET)."""
    for option in options(nodes):
        if option.name not in ("n_distinct", "n_distinct_inherited"):
            raise PostgresError("22023", f'unrecognized parameter "{option.name}"')


def _check(option: Option, kind: str, *, toast: bool) -> str:
    name, value = option.name, "true" if option.value is None else option.value
    is_known = name in _BOOLEAN or name in _INTEGER or name in _REAL or name in _CHOSEN or name == LOCATION
    if not is_known or kind != "r" or (toast and not _TOAST.match(name)):
        raise PostgresError("22023", f'unrecognized parameter "{name}"')
    if name in _BOOLEAN:
        check_boolean(name, value)
    if name in _INTEGER:
        _check_number(name, value, "integer", _INTEGER[name], whole=True)
    if name in _REAL:
        _check_number(name, value, "floating point", _REAL[name], whole=False)
    if name in _CHOSEN and value.lower() not in _CHOSEN[name][0]:
        detail = f"Valid values are {_CHOSEN[name][1]}."
        raise PostgresError("22023", f'invalid value for enum option "{name}": {value}', detail=detail)
    return value


def check_boolean(name: str, value: str) -> None:
    if read_bool(value) is None:
        raise PostgresError("22023", f'invalid value for boolean option "{name}": {value}')


def _check_number(name: str, value: str, word: str, bounds: tuple[int, int], *, whole: bool) -> None:
    if not _NUMBER.fullmatch(value.strip()):
        raise PostgresError("22023", f'invalid value for {word} option "{name}": {value}')
    number = float(value)
    if whole and abs(number) > _MOST:
        raise PostgresError("22023", f'invalid value for {word} option "{name}": {value}')
    if not bounds[0] <= (round(number) if whole else number) <= bounds[1]:
        low, high = (str(limit) if whole else f"{limit:f}" for limit in bounds)
        detail = f'Valid values are between "{low}" and "{high}".'
        raise PostgresError("22023", f'value {value} out of bounds for option "{name}"', detail=detail)


def changed(before: Iterable[str], command: pb.AlterTableCmd, read: Callable[[Iterable[pb.Node]], list[str]]) -> list[str]:
    """Return reloptions after SET (…) or RESET (…). `read` checks the new options. Raise 42601 for a RESET with a value."""
    nodes = unwrap(getattr(command, "def")).items
    is_reset = command.subtype == pb.AT_ResetRelOptions
    if is_reset and any(option.value is not None for option in options(nodes)):
        raise PostgresError("42601", "RESET must not include values for parameters")
    new_options = [] if is_reset else read(nodes)
    option_names = {option.name for option in options(nodes)}
    return [*(setting for setting in before if setting.split("=", 1)[0] not in option_names), *new_options]


def alter(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ALTER TABLE … SET (…) or RESET (…)."""
    relation = alteration.relation
    option_names = {option.name for option in options(unwrap(getattr(command, "def")).items)}
    if LOCATION in option_names:
        raise not_supported("the location of a table cannot be changed")
    settings = changed(relation.options, command, functools.partial(read, kind=relation.kind))
    pg_class.set_class(alteration.cursor, relation, "reloptions", settings or None)
    alteration.refresh()
    if "array_storage" in option_names:
        _explain_columns(alteration)
    if option_names & set(OWN):
        alteration.transaction.ddl.alter_settings(alteration.relation)


def _explain_columns(alteration: Alteration) -> None:
    """Report that existing columns stay as they are stored, and how to change them."""
    columns = [
        column
        for column in alteration.relation.columns
        if (column_type := registry.known().find(column.type_oid)) is not None and column_type.is_array
    ]
    if columns:
        changes = ", ".join(
            f"ALTER COLUMN {quote_ident(column.name)} TYPE {registry.format_type(column.type_oid, column.typmod)}" for column in columns
        )
        alteration.session.notices.notice(
            "array_storage counts for columns that are made from now on",
            detail=f"Columns that keep their storage: {', '.join(column.name for column in columns)}.",
            hint=f"To write them anew: ALTER TABLE {qualified(alteration.relation.schema, alteration.relation.name)} {changes}",
        )
