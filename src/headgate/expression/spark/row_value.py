"""Rows as values: ``ROW(…)`` and whole rows of tables, as text, as json, as what they are ordered by, and whether they are NULL.

Called by `compiler` and `implementation.json`. A row is held as the text that record_out prints; its fields stay at hand, planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.functions.json import json_building
from headgate.expression.node import Expression, RowExpr, TypeRef
from headgate.expression.spark import session_time
from headgate.expression.spark.array_element import as_item, item_rep, plain
from headgate.expression.spark.cast import text_form
from headgate.expression.spark.comparison import equal_keys
from headgate.expression.spark.value import BOOL, TEXT, Env, Field, Make, Rep, Value, settle
from headgate.expression.spark.vectorised import call
from headgate.types import registry
from headgate.types.text import record, text
from headgate.types.text_column import TextSettings

ROW = Rep("row")
_QUOTED = r"""[\s"\\(),]"""


def build(node: RowExpr, values: Sequence[Value], present: Value | None) -> Value:
    """The row of planned fields; `present`: NULL where an outer join found no row."""
    names = node.names or tuple(f"f{place}" for place in range(1, len(values) + 1))
    fields = tuple(Field(name, arg.type, value) for name, arg, value in zip(names, node.args, values, strict=True))
    items = [_field(_shown(each.value, each.type)) for each in fields]

    def make(env: Env) -> Column:
        return F.concat(F.lit("("), F.concat_ws(",", *(each(env) for each in items)), F.lit(")")) if items else F.lit("()")

    return _where_present(Value(TEXT, make, fields=fields), present)


def composite(kind: TypeRef) -> registry.PgType | None:
    """The composite type that a type is, or is a domain over; None for others."""
    found = registry.known().find(registry.known().base(kind.oid)[0])
    return found if found is not None and found.attributes else None


def of_composite(row: Expression, value: Value) -> Value:
    """A row as a value of a composite type: the text as it is stored, which depends on no setting."""
    if not isinstance(row, RowExpr):
        return value
    fields, present = split(value)
    items = [_field(as_item(each.value, each.type)) for each in fields]

    def make(env: Env) -> Column:
        made = F.concat(F.lit("("), F.concat_ws(",", *(each(env) for each in items)), F.lit(")"))
        return made if present is None else F.when(F.isnotnull(present(env)), made)

    return Value(TEXT, make)


def attribute(value: Value, kind: registry.PgType, name: str, target: TypeRef) -> Value:
    """``(value).name`` of a composite type."""
    place = next(place for place, each in enumerate(kind.attributes) if each.name == name)
    given = (len(kind.attributes), place, target.oid)
    return call(_attribute_of, item_rep(target.oid), [value], given=given, raises=False)


def _attribute_of(count: int, place: int, oid: int, value: str) -> Any:
    item = record.parse(value, count)[place]
    return None if item is None else plain(oid, item)


def with_attribute(value: Value, kind: registry.PgType, name: str, assigned: Value, assigned_type: TypeRef) -> Value:
    """Return a value of a composite type after an assignment to one of its attributes."""
    place = next(place for place, attribute in enumerate(kind.attributes) if attribute.name == name)
    items = [value, as_item(assigned, assigned_type)]
    return call(_with_attribute, TEXT, items, given=(len(kind.attributes), place), strict=False, raises=False)


def _with_attribute(count: int, place: int, value: str | None, item: str | None) -> str:
    items: list[str | None] = [None] * count if value is None else record.parse(value, count)
    items[place] = item
    return record.print_record(items)


def composite_null_test(value: Value, kind: registry.PgType, *, is_null: bool) -> Value:
    """IS NULL of a value of a composite type: it is NULL or all of its attributes are; IS NOT NULL: none of them is."""
    found = call(_all_null if is_null else _none_null, BOOL, [value], given=(len(kind.attributes),), raises=False)
    return Value(BOOL, lambda env: F.coalesce(found.make(env), F.lit(is_null)))


def _all_null(count: int, value: str) -> bool:
    return all(each is None for each in record.parse(value, count))


def _none_null(count: int, value: str) -> bool:
    return all(each is not None for each in record.parse(value, count))


def _shown(value: Value, kind: TypeRef) -> Value:
    """A field's text as the session prints it."""
    return _under(value, kind, session_time.forms())


def _under(value: Value, kind: TypeRef, forms: TextSettings) -> Value:
    return text_form(value, kind, forms) if text.depends_on(kind.oid, forms) else as_item(value, kind)


def _where_present(value: Value, present: Value | None) -> Value:
    if present is None:
        return value
    there = present.make
    return Value(
        TEXT,
        lambda env: F.when(F.isnotnull(there(env)), value.make(env)),
        fields=(*value.fields, Field("", TypeRef(registry.BOOL), present)),
    )


def split(value: Value) -> tuple[tuple[Field, ...], Make | None]:
    """(the fields, what is NULL where there is no row)."""
    fields = value.fields
    if fields and not fields[-1].name:
        return fields[:-1], fields[-1].value.make
    return fields, None


def _field(value: Value) -> Make:
    """record_out of one field: NULL is nothing, quotes where they are needed."""
    shown = settle(value)

    def make(env: Env) -> Column:
        made = shown(env)
        doubled = F.replace(F.replace(made, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('""'))
        odd = (made == "") | made.rlike(_QUOTED)
        return F.when(F.isnull(made), "").when(odd, F.concat(F.lit('"'), doubled, F.lit('"'))).otherwise(made)

    return make


def document(value: Value, kind: TypeRef) -> Value:
    """A value as json functions take it: a row as its json object, all else as its text, dates in ISO whatever the DateStyle."""
    if not value.fields:
        return _under(value, kind, session_time.forms().of_documents)
    fields, present = split(value)
    oids = tuple(json_building.writable(each.type.oid) for each in fields)
    items = [document(each.value, each.type) for each in fields]
    made = call(json_building.row, TEXT, items, given=(tuple(each.name for each in fields), oids), strict=False)
    if present is None:
        return made
    there = present
    return Value(TEXT, lambda env: F.when(F.isnotnull(there(env)), settle(made)(env)))


def key(value: Value) -> Value:
    """What orders and compares as record_cmp: field by field, NULLs last."""
    fields, present = split(value)
    keys = [settle(equal_keys(each.value, each.type)) for each in fields]

    def make(env: Env) -> Column:
        parts = [part for each in keys for made in [each(env)] for part in (F.isnull(made), made)]
        whole = F.struct(*(part.alias(f"p{place}") for place, part in enumerate(parts)))
        return whole if present is None else F.when(F.isnotnull(present(env)), whole)

    return Value(ROW, make)


def null_test(value: Value, *, is_null: bool) -> Value:
    """IS NULL: all fields are; IS NOT NULL: no field is."""
    fields, present = split(value)
    parts = [settle(each.value) for each in fields]

    def make(env: Env) -> Column:
        made = F.lit(True)
        for each in parts:
            made = made & (F.isnull(each(env)) if is_null else F.isnotnull(each(env)))
        if present is None:
            return made
        return F.isnull(present(env)) | made if is_null else F.isnotnull(present(env)) & made

    return Value(BOOL, make)
