"""From the text of a function's body to its tree, with libpg_query's grammar of PL/pgSQL (`grammar.parse_plpgsql`).

libpg_query gives JSON that leaves out what its own tree has: which variable RETURN names, which variables a block declares, and the types
that it does not know, as it has no catalog. These come from the tokens (`postgast.scan`), which are PostgreSQL's too: the names behind
DECLARE, in their order, are the variables of the block whose BEGIN comes next. Called by `commands.function`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import postgast
from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.plpgsql import tree
from headgate.plpgsql.tree import Sql, Statement
from headgate.sql import grammar
from headgate.sql.names import quote_ident

Json = dict[str, Any]
"""A node of libpg_query's JSON: its name begins with ``PLpgSQL_``, what is 0, false or empty is left out."""

_SEMICOLON, _DOT, _OPEN, _CLOSE = pb.ASCII_59, pb.ASCII_46, pb.ASCII_40, pb.ASCII_41
_EQUALS = (pb.COLON_EQUALS, pb.ASCII_61)
_ENDS_TYPE = {*_EQUALS, pb.NOT, pb.COLLATE, pb.DEFAULT, _SEMICOLON}
_BEFORE_STATEMENT = {_SEMICOLON, pb.BEGIN_P, pb.THEN, pb.ELSE}
_PROMISES = re.compile(r"(?:\{\}\},)+")
_LEVELS = {14: "DEBUG", 15: "LOG", 17: "INFO", 18: "NOTICE", 19: "WARNING", 21: "ERROR"}
_OPTIONS = ("ERRCODE", "MESSAGE", "DETAIL", "HINT", "COLUMN", "CONSTRAINT", "DATATYPE", "TABLE", "SCHEMA")


@dataclass(frozen=True)
class Argument:
    """An argument of the function: ``IN``, ``OUT``, ``INOUT``, ``VARIADIC`` or ``TABLE``; its name, if it has one."""

    mode: str
    name: str
    is_row: bool = False


@dataclass(frozen=True)
class Token:
    """A token of the body: its kind, and its place in the body's bytes."""

    kind: int
    start: int
    end: int


def compiled(body: str, name: str, arguments: Sequence[Argument], result: str, is_row: Callable[[str], bool]) -> tree.Function:
    """The tree of a body.

    `result`: ``trigger``, ``void``, ``record`` for a row, ``text`` for any other value, SETOF before it for a set; empty for a procedure.
    `is_row`: whether the text of a type means a row type (not asked for RECORD). Raises 42601 and its like, with the line in the context.
    """
    encoded = body.encode()
    tokens = _tokens(body)
    reader = _Reader(encoded, tokens, is_row)
    text = _edited(encoded, [*reader.types, *_with_results(tokens)]).decode()
    listed = ", ".join(
        f"{each.mode} {quote_ident(each.name) if each.name else ''} {'record' if each.is_row else 'text'}" for each in arguments
    )
    kind = "FUNCTION" if result else "PROCEDURE"
    returns = f" RETURNS {result}" if result else ""
    mark = _mark(text)
    statement = f"CREATE {kind} {quote_ident(name)}({listed}){returns} LANGUAGE plpgsql AS {mark}{text}{mark}"
    try:
        answer = grammar.parse_plpgsql(statement)
    except postgast.PgQueryError as error:
        raise PostgresError("42601", error.message) from error
    found = json.loads(_PROMISES.sub(lambda match: "{}," * (len(match[0]) // 4), answer, count=1) if result == "trigger" else answer)
    return tree.Function(reader.function(found[0]["PLpgSQL_function"]))


def _edited(encoded: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """The text with some places replaced: start, end, what is put there; as many lines as before."""
    for start, end, inserted in sorted(edits, reverse=True):
        lines = encoded[start:end].count(b"\n")
        encoded = encoded[:start] + inserted + b"\n" * lines + encoded[end:]
    return encoded


def _mark(text: str) -> str:
    """A dollar quote that the text does not hold."""
    mark = "$body$"
    while mark in text:
        mark = f"$b{mark[1:]}"
    return mark


def _tokens(body: str) -> list[Token]:
    try:
        found = grammar.scan(body)
    except postgast.PgQueryError as error:
        raise PostgresError("42601", error.message) from error
    return [Token(each.token, each.start, each.end) for each in found.tokens if each.token not in (pb.SQL_COMMENT, pb.C_COMMENT)]


def _with_results(tokens: Sequence[Token]) -> Iterator[tuple[int, int, bytes]]:
    """Parentheses around the operand of RETURN and RETURN NEXT where it is a name: an expression then, which the JSON has."""
    for at, token in enumerate(tokens):
        if token.kind != pb.RETURN:
            continue
        first = at + 1 + (at + 1 < len(tokens) and tokens[at + 1].kind == pb.NEXT)
        end = next((place for place in range(first, len(tokens)) if tokens[place].kind == _SEMICOLON), first)
        if 0 < end - first <= 3 and all(tokens[place].kind == _DOT for place in range(first + 1, end, 2)):
            yield tokens[first].start, tokens[first].start, b"("
            yield tokens[end - 1].end, tokens[end - 1].end, b")"


@dataclass(frozen=True)
class _Section:
    """What the tokens say of a block: names and types of what it declares, and what names stand for others."""

    declared: tuple[tuple[str, str], ...]
    aliases: tuple[tuple[str, str], ...]


class _Reader:
    """Makes the tree of one function's JSON."""

    def __init__(self, encoded: bytes, tokens: Sequence[Token], is_row: Callable[[str], bool]) -> None:
        self._encoded, self._is_row = encoded, is_row
        self.types: list[tuple[int, int, bytes]] = []
        """What the types of declarations are replaced with for libpg_query, which has no catalog: ``text`` and ``record``."""
        self._sections = iter(list(self._read_sections(tokens)))
        self._datums: Sequence[Json] = ()
        self._next = 0
        """The first datum that no declaration has been matched with."""

    def function(self, found: Json) -> tree.Block:
        """The function's block."""
        self._datums = found["datums"]
        return self.block(found["action"]["PLpgSQL_stmt_block"])

    # ---- what the tokens say ------------------------------------------------------------------------------

    def _read_sections(self, tokens: Sequence[Token]) -> Iterator[_Section]:
        """A section for each block, in the order of their BEGINs."""
        at, open_section = 0, _Section((), ())
        while at < len(tokens):
            token = tokens[at]
            if token.kind == pb.DECLARE:
                at, open_section = self._read_section(tokens, at + 1)
                continue
            before = tokens[at - 1].kind if at else _SEMICOLON
            label = at > 0 and self._text(tokens[at - 1]) == ">>"
            if token.kind == pb.BEGIN_P and (
                before in _BEFORE_STATEMENT or label or self._text(tokens[at - 1]).upper() in ("LOOP", "DECLARE")
            ):
                yield open_section
                open_section = _Section((), ())
            at += 1

    def _read_section(self, tokens: Sequence[Token], at: int) -> tuple[int, _Section]:
        """The declarations from `at` up to BEGIN, and the place of that."""
        declared: list[tuple[str, str]] = []
        aliases: list[tuple[str, str]] = []
        while at < len(tokens) and tokens[at].kind != pb.BEGIN_P:
            end = next((place for place in range(at, len(tokens)) if tokens[place].kind == _SEMICOLON), len(tokens))
            if tokens[at].kind == pb.DECLARE or end == at:
                at += 1
                continue
            words = tokens[at:end]
            name = self._name(words[0])
            second = self._text(words[1]).upper() if len(words) > 1 else ""
            if second == "ALIAS" and len(words) > 3:
                aliases.append((name, self._name(words[3])))
            elif second in ("CURSOR", "SCROLL") or (second == "NO" and self._text(words[2]).upper() == "SCROLL"):
                declared.append((name, "refcursor"))
            else:
                declared.append((name, self._type(words[2 if second == "CONSTANT" else 1 :])))
            at = end + 1
        return at, _Section(tuple(declared), tuple(aliases))

    def _type(self, words: Sequence[Token]) -> str:
        depth, end = 0, len(words)
        for place, word in enumerate(words):
            depth += (word.kind == _OPEN) - (word.kind == _CLOSE)
            if not depth and word.kind in _ENDS_TYPE:
                end = place
                break
        if not end:
            return ""
        start, stop = words[0].start, words[end - 1].end
        text = self._encoded[start:stop].decode()
        self.types.append((start, stop, b"record" if text.lower() == "record" or self._is_row(text) else b"text"))
        return text

    def _text(self, token: Token) -> str:
        return self._encoded[token.start : token.end].decode()

    def _name(self, token: Token) -> str:
        text = self._text(token)
        return text[1:-1].replace('""', '"') if text.startswith('"') else text.lower()

    # ---- blocks and declarations --------------------------------------------------------------------------

    def block(self, node: Json) -> tree.Block:
        """A block, in the order of the text."""
        section = next(self._sections, _Section((), ()))
        declarations = [self._declared(name, kind) for name, kind in section.declared]
        declarations += [tree.Declaration(name, "", 0, alias=target) for name, target in section.aliases]
        body = self.body(node.get("body"))
        handlers = [
            tree.Handler(
                tuple(each["PLpgSQL_condition"]["condname"] for each in handler["PLpgSQL_exception"]["conditions"]),
                self.body(handler["PLpgSQL_exception"].get("action")),
            )
            for handler in node.get("exceptions", {}).get("PLpgSQL_exception_block", {}).get("exc_list", ())
        ]
        return tree.Block(node.get("lineno", 0), node.get("label"), tuple(declarations), body, tuple(handlers))

    def _declared(self, name: str, kind: str) -> tree.Declaration:
        place = next(at for at in range(self._next, len(self._datums)) if self._content(at).get("refname") == name)
        self._next, content = place + 1, self._content(place)
        default = content.get("default_val")
        made = tree.Declaration(
            name, "" if kind.lower() == "record" else kind, content.get("lineno", 0), _sql(default) if default else None,
            constant=content.get("isconst", False), not_null=content.get("notnull", False),
        )  # fmt: skip
        if "cursor_explicit_expr" not in content:
            return made
        arguments: list[tuple[str, str]] = []
        if "cursor_explicit_argrow" in content:
            for item in self._content(content["cursor_explicit_argrow"])["fields"]:
                argument = self._content(item.get("varno", 0))
                arguments.append((item["name"], argument["datatype"]["PLpgSQL_type"]["typname"]))
        return replace(made, cursor=tree.Cursor(_sql(content["cursor_explicit_expr"], statement=True), tuple(arguments)))

    def _content(self, place: int) -> Json:
        """What the JSON says of a datum, whatever it is."""
        return next(iter(self._datums[place].values()), {})

    def _names(self, place: int) -> tree.Names:
        """A datum as a target."""
        content = self._content(place)
        if "fieldname" in content:
            return (*self._names(content.get("recparentno", 0)), content["fieldname"])
        return (content["refname"],)

    def _targets(self, node: Json | None) -> tuple[tree.Names, ...]:
        """The targets of INTO, FOR and FETCH."""
        if not node:
            return ()
        [(kind, content)] = node.items()
        if kind == "PLpgSQL_row":
            return tuple(self._names(each.get("varno", 0)) for each in content.get("fields", ()))
        return ((content["refname"],),)

    # ---- statements ---------------------------------------------------------------------------------------

    def body(self, nodes: Sequence[Json] | None) -> tuple[Statement, ...]:
        """A list of statements."""
        return tuple(found for each in nodes or () if (found := self._statement(each)) is not None)

    def _statement(self, node: Json) -> Statement | None:
        [(kind, content)] = node.items()
        kind = kind.removeprefix("PLpgSQL_stmt_")
        return self.block(content) if kind == "block" else getattr(self, f"_{kind}")(content, content.get("lineno", 0))

    def _assign(self, node: Json, line: int) -> Statement:
        text = node["expr"]["PLpgSQL_expr"]["query"]
        left, right = _sides(text)
        return tree.Assign(line, self._names(node.get("varno", 0)), left if "[" in left else None, Sql(right, assignment=text), text)

    def _if(self, node: Json, line: int) -> Statement:
        branches = [(_sql(node["cond"]), self.body(node.get("then_body")))]
        for each in node.get("elsif_list", ()):
            content = each["PLpgSQL_if_elsif"]
            branches.append((_sql(content["cond"]), self.body(content.get("stmts"))))
        return tree.If(line, tuple(branches), self.body(node.get("else_body")))

    def _case(self, node: Json, line: int) -> Statement:
        branches = []
        for each in node["case_when_list"]:
            content = each["PLpgSQL_case_when"]
            branches.append((_sql(content["expr"]), self.body(content.get("stmts"))))
        operand = _sql(node["t_expr"]) if "t_expr" in node else None
        name = self._names(node["t_varno"])[0] if operand else ""
        return tree.Case(line, operand, name, tuple(branches), self.body(node.get("else_stmts")) if node.get("have_else") else None)

    def _loop(self, node: Json, line: int) -> Statement:
        return tree.Loop(line, node.get("label"), None, self.body(node.get("body")))

    def _while(self, node: Json, line: int) -> Statement:
        return tree.Loop(line, node.get("label"), _sql(node["cond"]), self.body(node.get("body")))

    def _fori(self, node: Json, line: int) -> Statement:
        variable = node["var"]["PLpgSQL_var"]["refname"]
        step = _sql(node["step"]) if "step" in node else None
        body = self.body(node.get("body"))
        return tree.ForInteger(
            line, node.get("label"), variable, _sql(node["lower"]), _sql(node["upper"]), step, node.get("reverse", False), body
        )

    def _fors(self, node: Json, line: int) -> Statement:
        query, body = _sql(node["query"], statement=True), self.body(node.get("body"))
        return tree.ForQuery(line, node.get("label"), self._targets(node["var"]), query, False, (), None, body)

    def _dynfors(self, node: Json, line: int) -> Statement:
        body = self.body(node.get("body"))
        parameters = _sqls(node.get("params"))
        return tree.ForQuery(line, node.get("label"), self._targets(node["var"]), _sql(node["query"]), True, parameters, None, body)

    def _forc(self, node: Json, line: int) -> Statement:
        arguments = _sql(node["argquery"]) if "argquery" in node else None
        cursor = self._names(node.get("curvar", 0))[0]
        return tree.ForQuery(line, node.get("label"), self._targets(node["var"]), arguments, False, (), cursor, self.body(node.get("body")))

    def _foreach_a(self, node: Json, line: int) -> Statement:
        target = node.get("varno", 0)
        content = self._datums[target]
        targets = self._targets(content) if "PLpgSQL_row" in content else (self._names(target),)
        return tree.ForEach(line, node.get("label"), targets, node.get("slice", 0), _sql(node["expr"]), self.body(node.get("body")))

    def _exit(self, node: Json, line: int) -> Statement:
        return tree.Exit(line, node.get("is_exit", False), node.get("label"), _sql(node["cond"]) if "cond" in node else None)

    def _return(self, node: Json, line: int) -> Statement | None:
        return tree.Return(line, _sql(node["expr"]) if "expr" in node else None)

    def _return_next(self, node: Json, line: int) -> Statement:
        return tree.ReturnNext(line, _sql(node["expr"]) if "expr" in node else None)

    def _return_query(self, node: Json, line: int) -> Statement:
        dynamic = "dynquery" in node
        query = _sql(node["dynquery"]) if dynamic else _sql(node["query"], statement=True)
        return tree.ReturnQuery(line, query, dynamic, _sqls(node.get("params")))

    def _raise(self, node: Json, line: int) -> Statement:
        options = []
        for each in node.get("options", ()):
            content = each["PLpgSQL_raise_option"]
            options.append((_OPTIONS[content.get("opt_type", 0)], _sql(content["expr"])))
        level = _LEVELS[node["elog_level"]]
        return tree.Raise(line, level, node.get("condname"), node.get("message"), _sqls(node.get("params")), tuple(options))

    def _assert(self, node: Json, line: int) -> Statement:
        return tree.Assert(line, _sql(node["cond"]), _sql(node["message"]) if "message" in node else None)

    def _perform(self, node: Json, line: int) -> Statement:
        return tree.Perform(line, _sql(node["expr"], statement=True))

    def _execsql(self, node: Json, line: int) -> Statement:
        into = self._targets(node.get("target")) if node.get("into") else None
        return tree.Execute(line, _sql(node["sqlstmt"], statement=True), False, (), into, node.get("strict", False))

    def _dynexecute(self, node: Json, line: int) -> Statement:
        into = self._targets(node.get("target")) if node.get("into") else None
        return tree.Execute(line, _sql(node["query"]), True, _sqls(node.get("params")), into, node.get("strict", False))

    def _call(self, node: Json, line: int) -> Statement:
        return tree.Call(line, _sql(node["expr"], statement=True))

    def _getdiag(self, node: Json, line: int) -> Statement:
        items = [each["PLpgSQL_diag_item"] for each in node["diag_items"]]
        named = tuple((tree.Diagnostic(each["kind"]), self._names(each.get("target", 0))) for each in items)
        return tree.GetDiagnostics(line, node.get("is_stacked", False), named)

    def _open(self, node: Json, line: int) -> Statement:
        dynamic = "dynquery" in node
        query = _sql(node["dynquery"]) if dynamic else _sql(node["query"], statement=True) if "query" in node else None
        arguments = _sql(node["argquery"]) if "argquery" in node else None
        return tree.Open(line, self._names(node.get("curvar", 0))[0], query, dynamic, _sqls(node.get("params")), arguments)

    def _fetch(self, node: Json, line: int) -> Statement:
        count_of = _sql(node["expr"]) if "expr" in node else None
        return tree.Fetch(
            line, self._names(node.get("curvar", 0))[0], self._targets(node.get("target")), node.get("direction", 0),
            node.get("how_many", 0), count_of, node.get("is_move", False),
        )  # fmt: skip

    def _close(self, node: Json, line: int) -> Statement:
        return tree.Close(line, self._names(node.get("curvar", 0))[0])

    def _commit(self, node: Json, line: int) -> Statement:
        return tree.EndTransaction(line, commits=True, chain=node.get("chain", False))

    def _rollback(self, node: Json, line: int) -> Statement:
        return tree.EndTransaction(line, commits=False, chain=node.get("chain", False))


def _sql(node: Json, *, statement: bool = False) -> Sql:
    return Sql(node["PLpgSQL_expr"]["query"], statement)


def _sqls(nodes: Sequence[Json] | None) -> tuple[Sql, ...]:
    return tuple(_sql(each) for each in nodes or ())


def _sides(text: str) -> tuple[str, str]:
    """Target and value of an assignment."""
    encoded, depth = text.encode(), 0
    for token in _tokens(text):
        depth += (token.kind == pb.ASCII_91) - (token.kind == pb.ASCII_93)
        if not depth and token.kind in _EQUALS:
            return encoded[: token.start].decode().strip(), encoded[token.end :].decode().strip()
    raise PostgresError("42601", "syntax error in an assignment")
