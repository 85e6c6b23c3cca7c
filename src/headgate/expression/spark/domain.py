"""Check values against the constraints of a domain, in casts and in the columns of a table.

A value of a domain is stored as one of its base type. The constraints are those of the active type registry.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression import rewriting
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import ScopeColumn, relation_scope
from headgate.expression.node import ColumnRef, DomainValue, Expression, TypeRef
from headgate.expression.spark.cast import stored
from headgate.expression.spark.value import Env, Make, Plan, Value, rep_of, settle, spark_type
from headgate.sql.parser import parse_expression
from headgate.storage.spark.failure import marked, raised, with_fields
from headgate.types import registry

_VALUE = "value of a domain"


def bind_check(node: object, base: TypeRef, context: BindContext) -> Expression:
    """Bind a domain's CHECK, in which VALUE is a value of the base type. Raise 42804 if it is not boolean."""
    scope = relation_scope("", None, [ScopeColumn("value", 1, base, _VALUE)])
    bound = binder.bind_condition(node, scope, "CHECK", context=context)
    return rewriting.rewrite(
        bound, lambda node: DomainValue(type=node.type) if isinstance(node, ColumnRef) and node.key == _VALUE else None
    )


def value(node: DomainValue) -> Value:
    return Value(rep_of(node.type.oid, node.type.typmod), lambda env: env.columns[_VALUE])


def constrained(oid: int) -> bool:
    domain = registry.known().find(oid)
    return domain is not None and (domain.not_null or bool(domain.checks))


def violations(domain: int, plan: Plan, name: str | None = None) -> Callable[[Column], list[tuple[Column, Column]]]:
    """Return, per constraint, (whether a value of the base type violates it, the error that is then raised).

    `name`: only for the CHECK with this name.
    """
    kind = registry.known().by_oid(domain)
    context = BindContext(types=registry.known().anywhere(), stored=True)
    base = TypeRef(*registry.known().base(domain), kind.collation)
    checks: list[tuple[str, Make]] = []
    for check, text in kind.checks if name is None else [(check, text) for check, text in kind.checks if check == name]:
        message = f'value for domain {kind.plain} violates check constraint "{check}"'
        message = with_fields(message, schema=kind.schema, datatype=kind.name, constraint=check)
        checks.append((message, settle(plan(bind_check(parse_expression(text), base, context)))))

    not_null = with_fields(f"domain {kind.plain} does not allow null values", schema=kind.schema, datatype=kind.name)

    def of(column: Column) -> list[tuple[Column, Column]]:
        nothing = F.lit(marked("23502", not_null))
        conditions = [(F.isnull(column), nothing)] if kind.not_null and name is None else []
        for message, condition in checks:
            conditions.append((~F.coalesce(condition(Env({_VALUE: column})), F.lit(True)), F.lit(marked("23514", message))))
        return conditions

    return of


def checked(arg: Value, domain: int, plan: Plan) -> Value:
    """Return the value, which raises an error if the domain does not accept it."""
    base_value = stored(arg, TypeRef(*registry.known().base(domain)))
    if not constrained(domain):
        return base_value
    test, settled = violations(domain, plan), settle(base_value)

    def make(env: Env) -> Column:
        column = settled(env)
        checked: Column = F.when(F.lit(False), column)
        for failed, message in test(column):
            checked = checked.when(env.needed(failed), raised(message).cast(spark_type(base_value.rep)))
        return checked.otherwise(column)

    return Value(base_value.rep, make)
