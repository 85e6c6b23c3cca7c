"""The stored expressions of tables: bind DEFAULT, CHECK and GENERATED and store them as the text of pg_get_expr.

CREATE and ALTER TABLE store the text. INSERT and UPDATE bind the text again to evaluate it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from headgate.catalog.physical import Cursor, rows, update
from headgate.catalog.pretty import pretty
from headgate.catalog.relation import attribute, key_text
from headgate.catalog.relation.index import expression_texts
from headgate.catalog.relation.relation import Column, Relation
from headgate.errors import PostgresError
from headgate.expression import builtin, rewriting
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import EMPTY, Scope, ScopeColumn, relation_scope
from headgate.expression.deparsing import deparse
from headgate.expression.node import ColumnRef, Const, Expression, FuncExpr, Relabel, SqlValue, TypeRef, UserCall, walk
from headgate.sql.names import quote_ident
from headgate.sql.parser import ParseNode, parse_expression
from headgate.types import registry
from headgate.types.text_column import PLAIN, TextSettings


def context(forms: TextSettings = PLAIN) -> BindContext:
    """Return the context to bind an expression of a table, with the current thread's types.

    `forms`: of the session that writes constants.
    """
    return BindContext(refuse_subquery="cannot use subquery in this context", forms=forms)


def _stored_context() -> BindContext:
    """Return the context to bind a text from the catalog, which was written under another search path than the session's."""
    return context().within(types=registry.known().anywhere(), stored=True)


def type_of(column: Column) -> TypeRef:
    return TypeRef(column.type_oid, column.typmod, column.collation)


def scope_of(columns: Iterable[Column], table: str, schema: str | None = None, relation: int = 0) -> Scope:
    """Return the scope of an expression over one table. The key of a column is its name."""
    live = [ScopeColumn(column.name, column.attnum, type_of(column), column.name) for column in columns if not column.dropped]
    return relation_scope(table, schema, live, relation)


def default(node: ParseNode, column: Column, forms: TextSettings) -> str | None:
    """Return the text of a DEFAULT, coerced to the column's type, or None for DEFAULT NULL."""
    bind = context(forms).within(refuse_subquery="cannot use subquery in DEFAULT expression")
    bound = binder.bind_default(node, type_of(column), column.name, context=bind)
    for node_part in walk(bound):
        if isinstance(node_part, ColumnRef):
            raise PostgresError("0A000", "cannot use column reference in DEFAULT expression", location=node_part.location)
    if isinstance(bound, Const) and bound.value is None:
        return None
    return deparse.stored(bound)


def check(node: ParseNode, columns: Iterable[Column], table: str, forms: TextSettings) -> tuple[str, tuple[int, ...]]:
    """Return the text of a CHECK and the attnums that it uses."""
    bind = context(forms).within(refuse_subquery="cannot use subquery in check constraint")
    bound = binder.bind_condition(node, scope_of(columns, table), "CHECK", context=bind)
    for part in walk(bound):
        if isinstance(part, ColumnRef) and part.attnum < 0 and part.name != "tableoid":
            raise PostgresError("42P10", f'system column "{part.name}" reference in check constraint is invalid', location=part.location)
    return deparse.stored(bound), tuple(sorted({part.attnum for part in walk(bound) if isinstance(part, ColumnRef) and part.attnum > 0}))


def generated(
    node: ParseNode, columns: Iterable[Column], table: str, column: Column, generated_names: set[str], forms: TextSettings
) -> str:
    """Return the text of GENERATED ALWAYS AS (…) STORED, coerced to the column's type."""
    bind = context(forms).within(
        refuse_subquery="cannot use subquery in column generation expression", construct="column generation expressions"
    )
    bound = binder.bind_raw(node, scope_of(columns, table), bind)
    result = coerce(bound, type_of(column), Reach.ASSIGNMENT, bind)
    if result is None:
        raise PostgresError(
            "42804",
            f'column "{column.name}" is of type {bind.show_type(column.type_oid)} but generation expression is of type '
            f"{bind.show_type(bound.type.oid)}",
            hint="You will need to rewrite or cast the expression.",
        )
    for part in walk(result):
        if isinstance(part, ColumnRef) and part.attnum == 0:
            raise PostgresError(
                "42P17",
                "cannot use whole-row variable in column generation expression",
                detail="This would cause the generated column to depend on its own value.",
                location=part.location,
            )
        if isinstance(part, ColumnRef) and part.attnum < 0 and part.name != "tableoid":
            message = f'cannot use system column "{part.name}" in column generation expression'
            raise PostgresError("42P10", message, location=part.location)
        if isinstance(part, ColumnRef) and part.name in generated_names:
            raise PostgresError(
                "42P17",
                f'cannot use generated column "{part.name}" in column generation expression',
                detail="A generated column cannot reference another generated column.",
                location=part.location,
            )
    if not immutable(result):
        raise PostgresError("42P17", "generation expression is not immutable")
    return deparse.stored(result)


def immutable(expression: Expression) -> bool:
    return all(volatility == "i" for volatility in _volatilities(expression))


def volatile(expression: Expression) -> bool:
    """Return whether an expression calls a volatile function, so that it may have another value for each row."""
    return any(volatility == "v" for volatility in _volatilities(expression))


def _volatilities(expression: Expression) -> Iterator[str]:
    """Yield provolatile of the functions of an expression, and that of session values."""
    builtins = builtin.builtins()
    for part in walk(expression):
        if isinstance(part, SqlValue):
            yield "s"
        elif isinstance(part, UserCall):
            yield part.volatility
        elif isinstance(part, FuncExpr) and (function := builtins.functions.get(part.function)) is not None:
            yield function.volatility


def stored(text: str, relation: Relation, column: Column | None = None) -> Expression:
    """Bind a stored text to the relation, with `column` coerced to its type (DEFAULT, GENERATED), otherwise as boolean (CHECK)."""
    scope = scope_of(relation.columns, relation.name) if relation.columns else EMPTY
    node = parse_expression(text)
    if column is None:
        bound = binder.bind_condition(node, scope, "CHECK", context=_stored_context())
    else:
        bound = binder.assign(binder.bind_raw(node, scope, _stored_context()), type_of(column), column.name, _stored_context())
    return rewriting.rewrite(bound, lambda part: _oid_of(part, relation))


def _oid_of(part: Expression, relation: Relation) -> Expression | None:
    """Return the relation's oid in place of tableoid, which new rows do not have yet."""
    if isinstance(part, Relabel) and part.type.oid == registry.REGCLASS and _oid_of(part.arg, relation) is not None:
        return Const(type=part.type, value=f"{quote_ident(relation.schema)}.{quote_ident(relation.name)}")
    is_oid = isinstance(part, ColumnRef) and part.attnum < 0 and part.name == "tableoid"
    return Const(type=part.type, value=str(relation.oid)) if is_oid else None


def indexed(text: str, relation: Relation) -> Expression:
    """Bind the stored expression or predicate of an index to the relation."""
    return binder.bind_raw(parse_expression(text), scope_of(relation.columns, relation.name), _stored_context())


def columns_of(text: str, relation: Relation) -> set[str]:
    """Return the names of the columns that a stored expression uses."""
    scope = scope_of(relation.columns, relation.name)
    return {part.name for part in walk(binder.bind_raw(parse_expression(text), scope, _stored_context())) if isinstance(part, ColumnRef)}


def rename_in_expressions(cursor: Cursor, oids: Callable[[], int], old: Relation, new: Relation) -> None:
    """Write the expressions of constraints, generated columns, indexes, policies and triggers again after a column is renamed."""
    names = {column.attnum: column.name for column in new.columns}
    scope = scope_of(old.columns, old.name)

    def renamed(text: str) -> str:
        return deparse.stored(_renamed(text, scope, names))

    for check_constraint in old.checks:
        text = renamed(check_constraint.expression)
        if text != check_constraint.expression:
            update(cursor, "pg_constraint", {"dbid": old.database, "oid": check_constraint.oid}, conbin=text, conbinpretty=pretty(text))
    for column in old.columns:
        if column.generated is not None and renamed(column.generated) != column.generated:
            attribute.set_default(cursor, oids, new, column.attnum, renamed(column.generated))
    for index in old.indexes:
        if not index.expressions and index.predicate is None:
            continue
        texts = [renamed(index_expression) for index_expression in index.expressions]
        stored = expression_texts(texts, None if index.predicate is None else renamed(index.predicate))
        update(cursor, "pg_index", {"dbid": old.database, "indexrelid": index.oid}, **stored)
    key_text.write(cursor, old.database, old.oid)
    policies = "SELECT oid, polqual, polwithcheck FROM hg.pg_policy WHERE dbid = ? AND polrelid = ?"
    for oid, using, check in rows(cursor, policies, [old.database, old.oid]):
        both = [None if text is None else renamed(text) for text in (using, check)]
        update(cursor, "pg_policy", {"dbid": old.database, "oid": oid}, polqual=both[0], polwithcheck=both[1])
    _rename_in_triggers(cursor, old, names)


def _renamed(text: str, scope: Scope, names: Mapping[int, str]) -> Expression:
    """Bind a stored expression, and give its columns these names, by number."""
    bound = binder.bind_raw(parse_expression(text), scope, _stored_context())
    return rewriting.rewrite(
        bound, lambda part: replace(part, name=names[part.attnum]) if isinstance(part, ColumnRef) and part.attnum > 0 else None
    )


def _rename_in_triggers(cursor: Cursor, old: Relation, names: Mapping[int, str]) -> None:
    sides = scope_of_sides(old)
    conditions = "SELECT oid, tgqual FROM hg.pg_trigger WHERE dbid = ? AND tgrelid = ? AND tgqual IS NOT NULL"
    for oid, text in rows(cursor, conditions, [old.database, old.oid]):
        condition = _renamed(text, sides, names)
        both = {"tgqual": deparse.stored(condition), "tgqualpretty": deparse.stored(condition, pretty=True)}
        update(cursor, "pg_trigger", {"dbid": old.database, "oid": oid}, **both)


def scope_of_sides(relation: Relation) -> Scope:
    """Return the scope of a trigger's WHEN: the old row and the new row of the relation."""
    tables = [scope_of(relation.columns, side, None, relation.oid) for side in ("old", "new")]
    return Scope(tuple(table for scope in tables for table in scope.tables), qualify=True)
