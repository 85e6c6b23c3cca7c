"""Functions of the session and of the catalogs in a query on tables: the catalogs answer each once, and its value is a constant there.

Called by `evaluation` for calls of constants that the compiler to Spark has not: current_setting, current_schema, txid_current,
has_table_privilege, pg_relation_size, … What must hold: no function that acts (nextval, pg_sleep, set_config) is called from here; a
query calls those as columns of their own, and refuses them elsewhere.
"""

from __future__ import annotations

from headgate.catalog.physical import Cursor
from headgate.commands.query.catalog import query
from headgate.commands.query.catalog.session_call import STABLE
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression.binding import operators
from headgate.expression.binding.context import BindContext
from headgate.expression.deparsing.deparse import deparse
from headgate.expression.node import BOOLEAN, INTEGER, Case, Const, FuncExpr, NullTest, TypeRef
from headgate.sql.parser import parse


def call(node: FuncExpr, session: Session) -> Const | None:
    """The value of a call whose arguments are constants; None for what the catalogs do not know."""
    try:
        return value(deparse(node), node.type, session)
    except PostgresError as error:
        if error.sqlstate in ("0A000", "42883"):
            return None
        raise


def blocking_pids(node: FuncExpr, session: Session, context: BindContext) -> Case:
    """pg_blocking_pids of a row's process: who waits for whom is known before the rows are."""
    [pid] = node.args
    waiting = list(session.dynamic["blockers"]())
    same = [operators.make(["="], pid, Const(type=INTEGER, value=str(each)), context, -1) for each, _ in waiting]
    found = [Const(type=node.type, value="{" + ",".join(map(str, pids)) + "}") for _, pids in waiting]  # type: ignore[call-overload]
    unknown, nothing = NullTest(type=BOOLEAN, arg=pid, is_null=True), Const(type=node.type, value=None)
    nobody = Const(type=node.type, value="{}")
    return Case(type=node.type, arg=None, conditions=(unknown, *same), results=(nothing, *found), default=nobody)


def value(text: str, kind: TypeRef, session: Session, cursor: Cursor | None = None) -> Const:
    """The value of an expression of the session's functions; 0A000 for one that acts. `cursor`: another than the transaction's."""
    [statement] = parse(f"SELECT {text}")
    known = {name: each for name, each in session.functions.items() if name in STABLE}
    result = query.answer(statement.node, session.context, cursor or session.begin_statement().cursor, session.dynamic, known)
    [batch] = result.batches
    return Const(type=kind, value=batch.column(0)[0].as_py())
