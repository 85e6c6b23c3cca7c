"""Row values (``ROW(…)`` and whole rows of tables) in Spark: as text, as json, as sort keys, and their IS NULL test.

Called by `compiler` and `implementation.json`. A row is represented by the text that record_out prints. Its planned fields stay available.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.errors import not_supported
from headgate.expression.functions.json import json_building
from headgate.expression.node import Expression, RowExpr, TypeRef
from headgate.expression.spark import session_time
from headgate.expression.spark.array_element import as_item, plain
from headgate.expression.spark.cast import text_form
from headgate.expression.spark.comparison import equal_keys
from headgate.expression.spark.value import BOOL, BYTES, TEXT, Env, Field, Make, Rep, Value, rep_of, settle
from headgate.expression.spark.vectorised import call
from headgate.types import order, registry
from headgate.types.text import record, text
from headgate.types.text_column import TextSettings

ROW = Rep("row")
_QUOTED = r"""[\s"\\(),]"""


def build(node: RowExpr, values: Sequence[Value], present: Value | None) -> Value:
    """Return the row of planned fields. It is NULL if `present` is, which means that an outer join found no row."""
    names = node.names or tuple(f"f{number}" for number in range(1, len(values) + 1))
    fields = tuple(Field(name, arg.type, value) for name, arg, value in zip(names, node.args, values, strict=True))
    items = [_field(_show(field.value, field.type)) for field in fields]

    def make(env: Env) -> Column:
        return F.concat(F.lit("("), F.concat_ws(",", *(item(env) for item in items)), F.lit(")")) if items else F.lit("()")

    return _where_present(Value(TEXT, make, fields=fields), present)


def composite(kind: TypeRef) -> registry.PgType | None:
    """Return the composite type that a type is, or is a domain over. Return None for other types."""
    base = registry.known().find(registry.known().base(kind.oid)[0])
    return base if base is not None and base.attributes else None


def of_composite(row: Expression, value: Value) -> Value:
    """Return a row as a value of a composite type: the stored text, which does not depend on any setting."""
    if not isinstance(row, RowExpr):
        return value
    fields, present = split(value)
    items = [_field(as_item(field.value, field.type)) for field in fields]

    def make(env: Env) -> Column:
        row_text = F.concat(F.lit("("), F.concat_ws(",", *(item(env) for item in items)), F.lit(")"))
        return row_text if present is None else F.when(F.isnotnull(present(env)), row_text)

    return Value(TEXT, make)


def attribute(value: Value, kind: registry.PgType, name: str, target: TypeRef) -> Value:
    """Return ``(value).name`` for a value of a composite type."""
    index = next(index for index, candidate in enumerate(kind.attributes) if candidate.name == name)
    arguments = (len(kind.attributes), index, target.oid)
    return call(_attribute_of, rep_of(target.oid), [value], prefix=arguments, raises=False)


def _attribute_of(count: int, place: int, oid: int, value: str) -> object:
    item = record.parse(value, count)[place]
    return None if item is None else plain(oid, item)


def with_attribute(value: Value, kind: registry.PgType, name: str, assigned: Value, assigned_type: TypeRef) -> Value:
    """Return a value of a composite type after an assignment to one of its attributes."""
    place = next(place for place, attribute in enumerate(kind.attributes) if attribute.name == name)
    items = [value, as_item(assigned, assigned_type)]
    return call(_with_attribute, TEXT, items, prefix=(len(kind.attributes), place), strict=False, raises=False)


def _with_attribute(count: int, place: int, value: str | None, item: str | None) -> str:
    items: list[str | None] = [None] * count if value is None else record.parse(value, count)
    items[place] = item
    return record.print_record(items)


def composite_null_test(value: Value, kind: registry.PgType, *, is_null: bool) -> Value:
    """Return IS NULL (the value or all its attributes are NULL) or IS NOT NULL (no attribute is NULL) of a composite value."""
    test = call(_all_null if is_null else _none_null, BOOL, [value], prefix=(len(kind.attributes),), raises=False)
    return Value(BOOL, lambda env: F.coalesce(test.make(env), F.lit(is_null)))


def _all_null(count: int, value: str) -> bool:
    return all(field is None for field in record.parse(value, count))


def _none_null(count: int, value: str) -> bool:
    return all(field is not None for field in record.parse(value, count))


def _show(value: Value, kind: TypeRef) -> Value:
    """Return a field's text as the session prints it."""
    return _under(value, kind, session_time.forms())


def _under(value: Value, kind: TypeRef, forms: TextSettings) -> Value:
    return text_form(value, kind, forms) if text.depends_on(kind.oid, forms) else as_item(value, kind)


def _where_present(value: Value, present: Value | None) -> Value:
    if present is None:
        return value
    make_present = present.make
    return Value(
        TEXT,
        lambda env: F.when(F.isnotnull(make_present(env)), value.make(env)),
        fields=(*value.fields, Field("", TypeRef(registry.BOOL), present)),
    )


def split(value: Value) -> tuple[tuple[Field, ...], Make | None]:
    """Return the fields, and a Column builder that is NULL if the row does not exist, or None if the row always exists."""
    fields = value.fields
    if fields and not fields[-1].name:
        return fields[:-1], fields[-1].value.make
    return fields, None


def _field(value: Value) -> Make:
    """Return one field as record_out prints it: nothing for NULL, quoted if needed."""
    field_text = settle(value)

    def make(env: Env) -> Column:
        plain_text = field_text(env)
        doubled = F.replace(F.replace(plain_text, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('""'))
        odd = (plain_text == "") | plain_text.rlike(_QUOTED)
        return F.when(F.isnull(plain_text), "").when(odd, F.concat(F.lit('"'), doubled, F.lit('"'))).otherwise(plain_text)

    return make


def document(value: Value, kind: TypeRef) -> Value:
    """Return a value as the json functions expect it: a row as a json object, any other value as text, dates in ISO for any DateStyle."""
    if not value.fields:
        if kind.oid == registry.RECORD and not value.is_null:
            raise not_supported("a row whose columns are not known in json is not supported")
        return _under(value, kind, session_time.forms().of_documents)
    fields, present = split(value)
    oids = tuple(json_building.writable(field.type.oid) for field in fields)
    items = [document(field.value, field.type) for field in fields]
    json = call(json_building.row, TEXT, items, prefix=(tuple(field.name for field in fields), oids), strict=False)
    if present is None:
        return json
    make_present = present
    return Value(TEXT, lambda env: F.when(F.isnotnull(make_present(env)), settle(json)(env)))


def key(value: Value) -> Value:
    """Return a struct that orders and compares as record_cmp does: field by field, NULLs last."""
    fields, present = split(value)
    keys = [settle(sort_key(field.value, field.type)) for field in fields]

    def make(env: Env) -> Column:
        parts = [part for field_key in keys for column in [field_key(env)] for part in (F.isnull(column), column)]
        whole = F.struct(*(part.alias(f"p{place}") for place, part in enumerate(parts)))
        return whole if present is None else F.when(F.isnotnull(present(env)), whole)

    return Value(ROW, make)


def sort_key(value: Value, kind: TypeRef) -> Value:
    """Return a value that orders, groups and joins as values of a type do, rows included."""
    if value.fields:
        return key(value)
    return _key_of_text(value, kind) if kind.oid == registry.RECORD and kind.fields else equal_keys(value, kind)


def _key_of_text(value: Value, kind: TypeRef) -> Value:
    """Return the bytes by which rows order (record_cmp), of rows that are only known as text: those of a subquery."""
    return call(_key_of_row, BYTES, [value], prefix=(_shape(kind),), raises=False)


Shape: TypeAlias = "tuple[int | Shape, ...]"
"""The types of the fields of a row. A field that is a row has a shape itself."""


def _shape(kind: TypeRef) -> Shape:
    """Return the shape of a row. Raise 0A000 for a field whose values cannot be compared by their texts."""
    forms = session_time.forms()
    for _, field in kind.fields:
        if field.oid == registry.RECORD and field.fields:
            continue
        order.key_of(field.oid)
        if text.depends_on(field.oid, forms):
            name = registry.format_type(field.oid)
            raise not_supported(f"comparison of rows of a subquery with a field of type {name} is not supported with these settings")
    return tuple(_shape(field) if field.oid == registry.RECORD else field.oid for _, field in kind.fields)


def _key_of_row(shape: Shape, row: str) -> bytes:
    keys = [functools.partial(_key_of_row, field) if isinstance(field, tuple) else order.remembered(field) for field in shape]
    return order.of_record(record.parse(row, len(shape)), keys)


def null_test(value: Value, *, is_null: bool) -> Value:
    """Return IS NULL (all fields are NULL) or IS NOT NULL (no field is NULL) of a row."""
    fields, present = split(value)
    parts = [settle(field.value) for field in fields]

    def make(env: Env) -> Column:
        test = F.lit(True)
        for part in parts:
            test = test & (F.isnull(part(env)) if is_null else F.isnotnull(part(env)))
        if present is None:
            return test
        return F.isnull(present(env)) | test if is_null else F.isnotnull(present(env)) & test

    return Value(BOOL, make)
