"""The compiled tree of a function body includes what libpg_query's JSON omits."""

from __future__ import annotations

import pytest

from headgate.errors import PostgresError
from headgate.plpgsql import tree
from headgate.plpgsql.compiler import Argument, compiled
from headgate.plpgsql.tree import Block


def body(text: str, result: str = "text", *arguments: Argument) -> Block:
    return compiled(text, "f", arguments, result, lambda kind: kind == "pair").block


def test_return_of_a_variable_keeps_its_name() -> None:
    block = body("DECLARE x int; BEGIN RETURN x; END")
    assert block.body == (tree.Return(1, tree.Sql("(x)")),)


def test_trigger_function_knows_new_old_and_their_fields() -> None:
    block = body("BEGIN NEW.a := OLD.b; RETURN NEW; END", "trigger")
    assert block.body[0] == tree.Assign(1, ("new", "a"), (), tree.Sql("OLD.b", assignment="NEW.a := OLD.b"), "NEW.a := OLD.b")
    assert block.body[1] == tree.Return(1, tree.Sql("(NEW)"))


def test_each_block_declares_its_own_variables() -> None:
    block = body("DECLARE x int := 1; BEGIN DECLARE x text; y numeric(10, 2) NOT NULL = 3; BEGIN x := 'a'; END; END")
    [inner] = block.body
    assert [(declaration.name, declaration.type) for declaration in block.declarations] == [("x", "int")]
    assert isinstance(inner, Block)
    assert [(declaration.name, declaration.type, declaration.not_null) for declaration in inner.declarations] == [
        ("x", "text", False),
        ("y", "numeric(10, 2)", True),
    ]


def test_types_that_only_the_catalog_knows_are_kept() -> None:
    block = body("DECLARE e mood; p pair; r record; t things%ROWTYPE; BEGIN p.a := 1; r.b := 2; END")
    assert [declaration.type for declaration in block.declarations] == ["mood", "pair", "", "things%ROWTYPE"]


def test_alias_names_a_parameter() -> None:
    block = body("DECLARE x ALIAS FOR $1; BEGIN RETURN x; END", "text", Argument("IN", ""))
    assert [(declaration.name, declaration.alias) for declaration in block.declarations] == [("x", "$1")]


def test_assignment_to_an_element_has_its_subscripts() -> None:
    block = body("DECLARE a int[]; BEGIN a[1 + 1][b[2]] := 2; END")
    text = "a[1 + 1][b[2]] := 2"
    subscripts = (tree.Subscript(None, tree.Sql("1 + 1"), is_slice=False), tree.Subscript(None, tree.Sql("b[2]"), is_slice=False))
    assert block.body == (tree.Assign(1, ("a",), subscripts, tree.Sql("2", assignment=text), text),)


@pytest.mark.parametrize(
    ("target", "lower", "upper"), [("a[f(1, 2):(SELECT 3)]", "f(1, 2)", "(SELECT 3)"), ("a[:x::int]", None, "x::int"), ("a[:]", None, None)]
)
def test_assignment_to_a_slice_has_its_bounds(target: str, lower: str | None, upper: str | None) -> None:
    [assignment] = body(f"DECLARE a int[]; BEGIN {target} := b; END").body
    assert isinstance(assignment, tree.Assign)
    bounds = [None if text is None else tree.Sql(text) for text in (lower, upper)]
    assert assignment.subscripts == (tree.Subscript(*bounds, is_slice=True),)


def test_lines_are_numbered_within_the_body() -> None:
    block = body("\nDECLARE\n  x int;\nBEGIN\n  x := 1;\n  RETURN x;\nEND")
    assert [statement.line for statement in block.body] == [5, 6]


def test_syntax_error_has_its_sqlstate() -> None:
    with pytest.raises(PostgresError) as raised:
        body("BEGIN x := 1; END")
    assert (raised.value.sqlstate, raised.value.message) == ("42601", '"x" is not a known variable')
