"""Compiles the body of a PL/pgSQL function into a tree, with libpg_query's grammar of PL/pgSQL (`grammar.parse_plpgsql`).

libpg_query returns JSON that lacks parts of its own tree: the variable that RETURN names, the variables that a block declares, and, as it
has no catalog, the types that it does not know. This module gets them from the tokens (`postgast.scan`), which are PostgreSQL's too. The
names after DECLARE, in their order, are the variables of the block whose BEGIN comes next. Called by `commands.function`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import postgast
from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError, not_supported
from headgate.plpgsql import tree
from headgate.plpgsql.tree import Sql, Statement
from headgate.sql import grammar
from headgate.sql.names import quote_ident, quote_literal

Json = dict[str, Any]
"""A node of libpg_query's JSON. Its name begins with ``PLpgSQL_``. Values that are 0, false or empty are left out."""

_SEMICOLON, _DOT, _OPEN, _CLOSE = pb.ASCII_59, pb.ASCII_46, pb.ASCII_40, pb.ASCII_41
_EQUALS = (pb.COLON_EQUALS, pb.ASCII_61)
_ENDS_TYPE = {*_EQUALS, pb.NOT, pb.COLLATE, pb.DEFAULT, _SEMICOLON}
_OPENING, _CLOSING, _COLON = {_OPEN, pb.ASCII_91}, {_CLOSE, pb.ASCII_93}, pb.ASCII_58
_BEFORE_STATEMENT = {_SEMICOLON, pb.BEGIN_P, pb.THEN, pb.ELSE}
_CURSOR_TYPES = ("refcursor", "pg_catalog.refcursor")
_SCROLL, _NO_SCROLL = 0x0002, 0x0004
_PROMISES = re.compile(r"(?:\{\}\},)+")
_LEVELS = {14: "DEBUG", 15: "LOG", 17: "INFO", 18: "NOTICE", 19: "WARNING", 21: "ERROR"}
_OPTION = re.compile(r"^\s*#\s*(\w+)\s+(\w+)", re.MULTILINE)
"""An option of the compiler at the start of a body, such as ``#variable_conflict use_column``."""
_NOT_SYNTAX = {
    "42804": re.compile(
        r"cannot have a parameter in function|^cannot use RETURN (NEXT|QUERY) in a non-SETOF function|must be of type cursor or refcursor$"
        r"|^cursor variable must be a simple variable$"
    ),
    "22005": re.compile(r"^variable \".*\" is declared CONSTANT$"),
    "22004": re.compile(r"must have a default value, since it's declared NOT NULL$"),
    "42704": re.compile(r"^unrecognized exception condition"),
}
"""The errors of the grammar (pl_gram.y) with another SQLSTATE than 42601."""
_WITHOUT_POSITION = ("check_raise_parameters", "plpgsql_parse_err_condition", "plpgsql_recognize_err_condition")
_OPTIONS = ("ERRCODE", "MESSAGE", "DETAIL", "HINT", "COLUMN", "CONSTRAINT", "DATATYPE", "TABLE", "SCHEMA")


@dataclass(frozen=True)
class Argument:
    """An argument of the function: its mode (``IN``, ``OUT``, ``INOUT``, ``VARIADIC`` or ``TABLE``) and its name, which may be empty."""

    mode: str
    name: str
    is_row: bool = False
    is_cursor: bool = False

    @property
    def stand_in(self) -> str:
        """The type that stands for the argument's: libpg_query only distinguishes rows, cursors and other values."""
        return "record" if self.is_row else "refcursor" if self.is_cursor else "text"


@dataclass(frozen=True)
class Token:
    """A token of the body: its kind, and its byte offsets in the body."""

    kind: int
    start: int
    end: int


def compiled(body: str, name: str, arguments: Sequence[Argument], result: str, is_row: Callable[[str], bool]) -> tree.Function:
    """Return the tree of a function body.

    `result`: ``trigger``, ``void``, ``record`` for a row, ``text`` for any other value, with SETOF before it for a set; empty for a
    procedure.
    `is_row`: returns whether the text of a type names a row type (not called for RECORD). Raises syntax errors such as 42601, with the line
    in the context.
    """
    encoded = body.encode()
    tokens = _tokens(body)
    start = next((token.start for token in tokens if token.kind in (pb.DECLARE, pb.BEGIN_P)), 0)
    tokens = [token for token in tokens if token.start >= start]  # options and a label come before
    reader = _Reader(encoded, tokens, is_row)
    text = _edited(encoded, [*reader.types, *_with_results(tokens)]).decode()
    listed = ", ".join(
        f"{argument.mode} {quote_ident(argument.name) if argument.name else ''} {argument.stand_in}" for argument in arguments
    )
    kind = "FUNCTION" if result else "PROCEDURE"
    returns = f" RETURNS {result}" if result else ""
    mark = _mark(text)
    statement = f"CREATE {kind} {quote_ident(name)}({listed}){returns} LANGUAGE plpgsql AS {mark}{text}{mark}"
    try:
        parsed_json = grammar.parse_plpgsql(statement)
    except postgast.PgQueryError as error:
        # PostgreSQL adds this line to errors without a position: the checks of RAISE's parameters and of the names of conditions
        context = error.context if error.funcname in _WITHOUT_POSITION else None
        hint = "Use RETURN NEXT or RETURN QUERY." if error.message.endswith("parameter in function returning set") else None
        raise PostgresError(_sqlstate(error.message), error.message, hint=hint, context=context) from error
    functions = json.loads(
        _PROMISES.sub(lambda match: "{}," * (len(match[0]) // 4), parsed_json, count=1) if result == "trigger" else parsed_json
    )
    options = {name.lower(): value.lower() for name, value in _OPTION.findall(encoded[:start].decode())}
    block = reader.function(functions[0]["PLpgSQL_function"])
    return tree.Function(block, options.get("variable_conflict"), options.get("print_strict_params"))


def _sqlstate(message: str) -> str:
    """Return the SQLSTATE of an error of the grammar, which passes only the message."""
    return next((sqlstate for sqlstate, pattern in _NOT_SYNTAX.items() if pattern.search(message)), "42601")


def _edited(encoded: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """Return the text with byte ranges replaced. Each edit is start, end and replacement. The number of lines stays the same."""
    for start, end, inserted in sorted(edits, reverse=True):
        lines = encoded[start:end].count(b"\n")
        encoded = encoded[:start] + inserted + b"\n" * lines + encoded[end:]
    return encoded


def _mark(text: str) -> str:
    """Return a dollar quote that the text does not contain."""
    mark = "$body$"
    while mark in text:
        mark = f"$b{mark[1:]}"
    return mark


def _tokens(body: str) -> list[Token]:
    try:
        scanned = grammar.scan(body)
    except postgast.PgQueryError as error:
        raise PostgresError("42601", error.message) from error
    return [Token(token.token, token.start, token.end) for token in scanned.tokens if token.token not in (pb.SQL_COMMENT, pb.C_COMMENT)]


def _end_of_type(words: Sequence[Token]) -> int:
    """Return the number of tokens that the type at the beginning of `words` has."""
    depth = 0
    for position, word in enumerate(words):
        depth += (word.kind == _OPEN) - (word.kind == _CLOSE)
        if not depth and word.kind in _ENDS_TYPE:
            return position
    return len(words)


def _with_results(tokens: Sequence[Token]) -> Iterator[tuple[int, int, bytes]]:
    """Yield edits that put parentheses around a name after RETURN or RETURN NEXT. This makes it an expression, which the JSON includes."""
    for index, token in enumerate(tokens):
        if token.kind != pb.RETURN:
            continue
        first = index + 1 + (index + 1 < len(tokens) and tokens[index + 1].kind == pb.NEXT)
        end = next((position for position in range(first, len(tokens)) if tokens[position].kind == _SEMICOLON), first)
        if 0 < end - first <= 3 and all(tokens[position].kind == _DOT for position in range(first + 1, end, 2)):
            yield tokens[first].start, tokens[first].start, b"("
            yield tokens[end - 1].end, tokens[end - 1].end, b")"


@dataclass(frozen=True)
class _Rest:
    """The text after the type in a declaration, such as a default. The JSON does not have it for records."""

    not_null: bool = False
    default: str | None = None


@dataclass(frozen=True)
class _Section:
    """The declarations of a block as read from the tokens: variables with types and the rest of the declaration, aliases with targets."""

    declared: tuple[tuple[str, str, _Rest], ...]
    aliases: tuple[tuple[str, str], ...]


class _Reader:
    """Builds the tree from the JSON of one function."""

    def __init__(self, encoded: bytes, tokens: Sequence[Token], is_row: Callable[[str], bool]) -> None:
        self._encoded, self._is_row = encoded, is_row
        self.types: list[tuple[int, int, bytes]] = []
        """The edits that replace the types of declarations with ``text`` and ``record`` for libpg_query, which has no catalog."""
        self._sections = iter(list(self._read_sections(tokens)))
        self._datums: Sequence[Json] = ()
        self._next = 0
        """The index of the first datum that no declaration has been matched with."""

    def function(self, document: Json) -> tree.Block:
        self._datums = document["datums"]
        return self.block(document["action"]["PLpgSQL_stmt_block"])

    # ---- declarations in the tokens -----------------------------------------------------------------------------

    def _read_sections(self, tokens: Sequence[Token]) -> Iterator[_Section]:
        """Yield a section for each block, in the order of their BEGINs."""
        index, open_section = 0, _Section((), ())
        while index < len(tokens):
            token = tokens[index]
            if token.kind == pb.DECLARE:
                index, open_section = self._read_section(tokens, index + 1)
                continue
            before = tokens[index - 1].kind if index else _SEMICOLON
            label = index > 0 and self._text(tokens[index - 1]) == ">>"
            if token.kind == pb.BEGIN_P and (
                before in _BEFORE_STATEMENT or label or self._text(tokens[index - 1]).upper() in ("LOOP", "DECLARE")
            ):
                yield open_section
                open_section = _Section((), ())
            index += 1

    def _read_section(self, tokens: Sequence[Token], at: int) -> tuple[int, _Section]:
        """Read the declarations from token `at` up to BEGIN. Return the index of BEGIN and the section."""
        declared: list[tuple[str, str, _Rest]] = []
        aliases: list[tuple[str, str]] = []
        while at < len(tokens) and tokens[at].kind != pb.BEGIN_P:
            end = next((position for position in range(at, len(tokens)) if tokens[position].kind == _SEMICOLON), len(tokens))
            if tokens[at].kind == pb.DECLARE or end == at:
                at += 1
                continue
            words = tokens[at:end]
            name = self._name(words[0])
            second = self._text(words[1]).upper() if len(words) > 1 else ""
            if second == "ALIAS" and len(words) > 3:
                aliases.append((name, self._name(words[3])))
            elif second in ("CURSOR", "SCROLL") or (second == "NO" and self._text(words[2]).upper() == "SCROLL"):
                declared.append((name, "refcursor", _Rest()))
            else:
                words = words[2 if second == "CONSTANT" else 1 :]
                declared.append((name, self._type(words), self._rest(words)))
            at = end + 1
        return at, _Section(tuple(declared), tuple(aliases))

    def _rest(self, words: Sequence[Token]) -> _Rest:
        after = words[_end_of_type(words) :]
        place = next((place for place, word in enumerate(after) if word.kind in (*_EQUALS, pb.DEFAULT)), None)
        default = None if place is None else self._encoded[after[place].end : after[-1].end].decode().strip()
        return _Rest(any(word.kind == pb.NOT for word in after[:place]), default)

    def _type(self, words: Sequence[Token]) -> str:
        end = _end_of_type(words)
        if not end:
            return ""
        start, stop = words[0].start, words[end - 1].end
        text = self._encoded[start:stop].decode()
        if text.lower() not in _CURSOR_TYPES:  # libpg_query checks that OPEN and FETCH name a cursor
            self.types.append((start, stop, b"record" if text.lower() == "record" or self._is_row(text) else b"text"))
        return text

    def _text(self, token: Token) -> str:
        return self._encoded[token.start : token.end].decode()

    def _name(self, token: Token) -> str:
        text = self._text(token)
        return text[1:-1].replace('""', '"') if text.startswith('"') else text.lower()

    # ---- blocks and declarations --------------------------------------------------------------------------

    def block(self, node: Json) -> tree.Block:
        """Return the tree of a block. Must be called in the order of the text.

        If the block of a function that returns nothing has a label or an EXCEPTION clause, the parser puts it into another block, which has
        no line (add_dummy_return).
        """
        section = next(self._sections, _Section((), ())) if "lineno" in node else _Section((), ())
        declarations = [self._declared(name, kind, rest) for name, kind, rest in section.declared]
        declarations += [tree.Declaration(name, "", 0, alias=target) for name, target in section.aliases]
        body = self.body(node.get("body"))
        handlers = [
            tree.Handler(
                tuple(condition["PLpgSQL_condition"]["condname"] for condition in handler["PLpgSQL_exception"]["conditions"]),
                self.body(handler["PLpgSQL_exception"].get("action")),
            )
            for handler in node.get("exceptions", {}).get("PLpgSQL_exception_block", {}).get("exc_list", ())
        ]
        return tree.Block(node.get("lineno", 0), node.get("label"), tuple(declarations), body, tuple(handlers))

    def _declared(self, name: str, kind: str, rest: _Rest) -> tree.Declaration:
        index = next(datum for datum in range(self._next, len(self._datums)) if self._is_declaration(datum, name))
        self._next, content = index + 1, self._content(index)
        declaration = tree.Declaration(
            name, "" if kind.lower() == "record" else kind, content.get("lineno", 0), None if rest.default is None else Sql(rest.default),
            constant=content.get("isconst", False), not_null=rest.not_null,
        )  # fmt: skip
        if "cursor_explicit_expr" not in content:
            return declaration
        arguments: list[tuple[str, str]] = []
        if content.get("cursor_explicit_argrow", -1) >= 0:
            for item in self._content(content["cursor_explicit_argrow"])["fields"]:
                argument = self._content(item.get("varno", 0))
                arguments.append((item["name"], argument["datatype"]["PLpgSQL_type"]["typname"]))
        query = _sql(content["cursor_explicit_expr"], statement=True)
        cursor = tree.Cursor(query, tuple(arguments), _scroll(content))
        return replace(declaration, default=declaration.default or Sql(quote_literal(name)), cursor=cursor)

    def _is_declaration(self, place: int, name: str) -> bool:
        """Return whether a datum is a declared variable of this name. An argument of the same name has no line."""
        content = self._content(place)
        return content.get("refname") == name and "lineno" in content

    def _content(self, place: int) -> Json:
        """Return the fields of a datum, of any kind."""
        return next(iter(self._datums[place].values()), {})

    def _names(self, place: int) -> tree.Names:
        """Return a datum as the target of an assignment."""
        content = self._content(place)
        if "fieldname" in content:
            return (*self._names(content.get("recparentno", 0)), content["fieldname"])
        return (content["refname"],)

    def _targets(self, node: Json | None) -> tuple[tree.Names, ...]:
        """Return the targets of INTO, FOR or FETCH."""
        if not node:
            return ()
        [(kind, content)] = node.items()
        if kind == "PLpgSQL_row":
            return tuple(self._names(field.get("varno", 0)) for field in content.get("fields", ()))
        return ((content["refname"],),)

    # ---- statements ---------------------------------------------------------------------------------------

    def body(self, nodes: Sequence[Json] | None) -> tuple[Statement, ...]:
        return tuple(statement for statement_node in nodes or () if (statement := self._statement(statement_node)) is not None)

    def _statement(self, node: Json) -> Statement | None:
        [(kind, content)] = node.items()
        kind = kind.removeprefix("PLpgSQL_stmt_")
        return self.block(content) if kind == "block" else getattr(self, f"_{kind}")(content, content.get("lineno", 0))

    def _assign(self, node: Json, line: int) -> Statement:
        text = node["expr"]["PLpgSQL_expr"]["query"]
        left, right = _sides(text)
        return tree.Assign(line, self._names(node.get("varno", 0)), _subscripts(left), Sql(right, assignment=text), text)

    def _if(self, node: Json, line: int) -> Statement:
        branches = [(_sql(node["cond"]), self.body(node.get("then_body")))]
        for elsif in node.get("elsif_list", ()):
            content = elsif["PLpgSQL_if_elsif"]
            branches.append((_sql(content["cond"]), self.body(content.get("stmts"))))
        return tree.If(line, tuple(branches), self.body(node.get("else_body")))

    def _case(self, node: Json, line: int) -> Statement:
        branches = []
        for when in node["case_when_list"]:
            content = when["PLpgSQL_case_when"]
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
        for option in node.get("options", ()):
            content = option["PLpgSQL_raise_option"]
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
        items = [item["PLpgSQL_diag_item"] for item in node["diag_items"]]
        named = tuple((tree.Diagnostic(item["kind"]), self._names(item.get("target", 0))) for item in items)
        return tree.GetDiagnostics(line, node.get("is_stacked", False), named)

    def _open(self, node: Json, line: int) -> Statement:
        dynamic = "dynquery" in node
        query = _sql(node["dynquery"]) if dynamic else _sql(node["query"], statement=True) if "query" in node else None
        arguments = _sql(node["argquery"]) if "argquery" in node else None
        cursor = self._names(node.get("curvar", 0))[0]
        return tree.Open(line, cursor, query, dynamic, _sqls(node.get("params")), arguments, _scroll(node))

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


def _scroll(node: Json) -> bool | None:
    """Return whether a cursor is declared or opened with SCROLL (True) or NO SCROLL (False)."""
    options = node.get("cursor_options", 0)
    return True if options & _SCROLL else False if options & _NO_SCROLL else None


def _sql(node: Json, *, statement: bool = False) -> Sql:
    return Sql(node["PLpgSQL_expr"]["query"], statement)


def _sqls(nodes: Sequence[Json] | None) -> tuple[Sql, ...]:
    return tuple(_sql(node) for node in nodes or ())


def _subscripts(target: str) -> tuple[tree.Subscript, ...]:
    """Return the subscripts of an assignment's target. Raise 0A000 for a field of an element."""
    encoded, tokens, subscripts = target.encode(), _tokens(target), list[tree.Subscript]()
    depth, begin, colon = 0, 0, -1

    def text(start: int, end: int) -> Sql | None:
        inside = encoded[start:end].decode().strip()
        return Sql(inside) if inside else None

    for token in tokens:
        if token.kind in _OPENING:
            depth += 1
            if depth == 1:
                begin, colon = token.end, -1
        elif token.kind in _CLOSING:
            depth -= 1
            if not depth:
                lower = None if colon < 0 else text(begin, colon)
                subscripts.append(tree.Subscript(lower, text(begin if colon < 0 else colon + 1, token.start), colon >= 0))
        elif token.kind == _COLON and depth == 1:
            colon = token.start
        elif subscripts and not depth:
            raise not_supported(f'assignment to a field of an element is not supported: "{target}"')
    return tuple(subscripts)


def _sides(text: str) -> tuple[str, str]:
    encoded, depth = text.encode(), 0
    for token in _tokens(text):
        depth += (token.kind == pb.ASCII_91) - (token.kind == pb.ASCII_93)
        if not depth and token.kind in _EQUALS:
            return encoded[: token.start].decode().strip(), encoded[token.end :].decode().strip()
    raise PostgresError("42601", "syntax error in an assignment")
