"""Parses text into statements with PostgreSQL's own grammar.

The server calls `parse` with each query string. All higher layers use the protobuf messages of postgast (libpg_query). Invariants: the
grammar is that of PostgreSQL 18, but a node behaves like 15. So syntax that 15 rejects is rejected here if its meaning would differ. Each
`location` in the trees that leave this module counts *characters* of the whole query string from 0. (libpg_query counts bytes; the trees
are corrected if the text is not ASCII.) So the position of an error is `location + 1`, and -1 means "nowhere".
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import postgast
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from postgast import pg_query_pb2

from headgate import interruption
from headgate.errors import PostgresError
from headgate.sql import grammar
from headgate.sql.parser_process import parse_apart

ParseNode = Any
"""A node of a parse tree of any kind: protobuf's messages have no common base class that knows their fields.
If only one statement or clause is possible, its own message type is used (`pg_query_pb2.CreateStmt`)."""

_OFFSETS = {"location", "stmt_location", "name_location", "list_start", "list_end", "rexpr_list_start", "rexpr_list_end"}

SMALL = 4096
"""The size in bytes up to which a text is parsed in the calling thread. Each byte nests at most 200 bytes of stack, of a possible 2 MB."""

_CHECK_EVERY = 2048
"""The number of messages of a tree between two checks for a cancel."""

_ENCODED = 1 << 20
"""The number of characters that are encoded at once, because the interpreter's lock is held for that time."""
_BLOCK = 1024
"""The number of bytes of a text whose characters are counted at once."""
_CONTINUATION = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 that do not begin a character."""

_PUBLICATION_OBJECTS = "One of TABLE or TABLES IN SCHEMA must be specified before a standalone table or schema name."


@dataclass(frozen=True)
class Statement:
    """One statement of a query string.

    `node` is the message inside RawStmt (SelectStmt, CreateStmt, …), `text` the whole query string, `start` and `length` the
    statement's location in it, in characters.
    """

    node: ParseNode
    text: str
    start: int
    length: int
    weight: int = 0
    """The estimated memory in bytes of the text and tree of the whole query string."""

    @property
    def kind(self) -> str:
        """The name of the node's message type, such as "SelectStmt"."""
        return str(self.node.DESCRIPTOR.name)

    @property
    def source(self) -> str:
        """The statement's own text, without the semicolon after it."""
        return self.text[self.start : self.start + self.length].strip()


def parse(text: str) -> list[Statement]:
    """Return the statements of a query string, none for an empty one. Raise 42601 and other errors with their position."""
    if "\0" in text:
        raise PostgresError("22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    try:
        encoded = b"".join(text[start : start + _ENCODED].encode() for start in range(0, len(text), _ENCODED))
    except UnicodeEncodeError as error:
        raise PostgresError("22021", 'invalid byte sequence for encoding "UTF8"') from error
    try:
        tree, weight = _tree(text, encoded)
    except postgast.PgQueryError as error:
        raise _syntax_error(error, text) from error
    may_merge = [_has_merge(encoded, raw) for raw in tree.stmts]
    if len(encoded) != len(text):
        _count_characters(tree, encoded)
    _refuse_later_numbers(text)
    statements = []
    for raw, has_merge in zip(tree.stmts, may_merge, strict=True):
        start = max(raw.stmt_location, 0)
        length = raw.stmt_len or len(text) - start
        node = unwrap(raw.stmt)
        _refuse_later_grammar(node, text, start, start + length, has_merge=has_merge)
        statements.append(Statement(node, text, start, length, weight))
    return statements


def _has_merge(encoded: bytes, raw: pg_query_pb2.RawStmt) -> bool:
    """Return whether a statement's own text contains "merge". Its location counts bytes. `lower` would be slow on non-ASCII text."""
    start = max(raw.stmt_location, 0)
    end = start + raw.stmt_len if raw.stmt_len else len(encoded)
    return any(b"merge" in encoded[position : min(position + _ENCODED + 5, end)].lower() for position in range(start, end, _ENCODED))


def _tree(text: str, encoded: bytes) -> tuple[pg_query_pb2.ParseResult, int]:
    """Return the text's tree, parsed where that is safe, and the memory that both take.

    Measured on lists of constants, a tree takes about 16 times the bytes of its encoded form, not counting the texts in it.
    """
    if len(encoded) <= SMALL:
        with contextlib.suppress(DecodeError):  # more levels than protobuf reads by default
            return grammar.parse(text), 24 * len(encoded)
    tree, size = parse_apart(encoded)
    return tree, 2 * len(encoded) + 16 * max(0, size - len(encoded))


_TWO_WORDS = re.compile(r"\w+(?:\s|--[^\n]*\n|/\*.*?\*/)+(\w+)", re.DOTALL)
"""A word and the next one, with white space and comments between them."""
_LATER_NUMBER = re.compile(r"(?<![\w$])(?:0[xXoObB]\w|\d+_\d)")
_MOST_SEARCHED = 1 << 20
_OF_DATABASES = (pg_query_pb2.REINDEX_OBJECT_DATABASE, pg_query_pb2.REINDEX_OBJECT_SYSTEM)
_ENFORCEMENT = (pg_query_pb2.CONSTR_ATTR_ENFORCED, pg_query_pb2.CONSTR_ATTR_NOT_ENFORCED)
_ENFORCED = (pg_query_pb2.CONSTR_CHECK, pg_query_pb2.CONSTR_FOREIGN)
_OF_EVERY_SELECT = frozenset({"limit_option", "op"})


def parse_expression(text: str) -> ParseNode:
    """Parse an expression that the catalog stores as text (a default, a check) into an unwrapped node. Raise 42601 for anything else."""
    statements = parse(f"SELECT {text}")
    alone = statements[0].node if len(statements) == 1 and statements[0].kind == "SelectStmt" else None
    if alone is None or [field.name for field, _ in alone.ListFields() if field.name not in _OF_EVERY_SELECT] != ["target_list"]:
        raise PostgresError("42601", "syntax error")
    if len(alone.target_list) != 1 or alone.target_list[0].res_target.name:
        raise PostgresError("42601", "syntax error")
    return unwrap(alone.target_list[0].res_target.val)


def columns_read(*texts: str) -> frozenset[str]:
    """Return the names in the column references of stored expressions."""
    references = (part for text in texts for part in walk(parse_expression(text)) if part.DESCRIPTOR.name == "ColumnRef")
    return frozenset(name.sval for part in references for name in map(unwrap, part.fields) if name.DESCRIPTOR.name == "String")


def unwrap(node: ParseNode) -> ParseNode:
    """Return the message inside a `Node`. Other messages and None are returned unchanged; an empty `Node` is None."""
    if node is not None and node.DESCRIPTOR.name == "Node":
        field = node.WhichOneof("node")
        return None if field is None else getattr(node, field)
    return node


def anded(condition: ParseNode) -> Iterator[ParseNode]:
    """Yield the (unwrapped) conditions that AND connects in a condition; nothing for an empty one."""
    node = unwrap(condition)
    if node is not None and node.DESCRIPTOR.name == "BoolExpr" and node.boolop == pg_query_pb2.AND_EXPR:
        for argument in node.args:
            yield from anded(argument)
    elif node is not None:
        yield node


def has_condition(node: ParseNode) -> bool:
    """Return whether a statement has a WHERE condition other than WHERE CURRENT OF."""
    return bool(node.HasField("where_clause")) and kind(node.where_clause) != "CurrentOfExpr"


def kind(node: ParseNode) -> str:
    """Return the type name of the (unwrapped) node: "ColumnRef", "A_Const", …; "" for None."""
    inner = unwrap(node)
    return "" if inner is None else str(inner.DESCRIPTOR.name)


def children(node: ParseNode) -> Iterator[tuple[str, Message]]:
    """Yield the (unwrapped) messages directly below an (unwrapped) node, each with the name of its field.

    A `Node` shell without a message, which stands for DISTINCT without ON, has none to yield.
    """
    for field, value in node.ListFields():
        if field.message_type is not None:
            for child in value if field.is_repeated else [value]:
                message = unwrap(child)
                if message is not None:
                    yield field.name, message


def walk(node: ParseNode) -> Iterator[Message]:
    """Yield all messages in a tree, parents first, without the `Node` shells.

    A large tree takes seconds, so the walk calls `interruption.check` once for each `_CHECK_EVERY` messages.
    """
    stack, seen = [node], 0
    while stack:
        message = stack.pop()
        seen += 1
        if seen % _CHECK_EVERY == 0:
            interruption.check()
        choice, fields = _inner(message.DESCRIPTOR)
        if choice is not None:
            name = message.WhichOneof(choice)
            if name is not None:
                stack.append(getattr(message, name))
            if choice == "node":
                continue
        yield message
        for name, is_repeated in fields:
            if is_repeated:
                stack.extend(reversed(getattr(message, name)))
            elif message.HasField(name):
                stack.append(getattr(message, name))


@functools.cache
def _inner(kind: Descriptor) -> tuple[str | None, tuple[tuple[str, bool], ...]]:
    """Return where a message type contains messages: its oneof, or its fields, the last one first, with whether they are repeated."""
    fields = [field for field in kind.fields if field.message_type is not None]
    if kind.oneofs and all(field.containing_oneof is not None for field in fields):
        return str(kind.oneofs[0].name), ()
    return None, tuple((field.name, field.is_repeated) for field in sorted(fields, key=lambda field: -field.number))


def written(node: ParseNode) -> bytes:
    """Serialize a tree without its locations. Trees that are written alike serialize to the same bytes."""
    copy = type(node)()
    copy.CopyFrom(node)
    for message in walk(copy):
        for field, _ in message.ListFields():
            if field.name in _OFFSETS:
                message.ClearField(field.name)
    return bytes(copy.SerializeToString(deterministic=True))


def beginning(node: ParseNode) -> int:
    """Return the location at which an expression begins (exprLocation), or -1 if it has none."""
    locations = [int(part.location) for part in walk(node) if "location" in part.DESCRIPTOR.fields_by_name and part.location >= 0]
    return min(locations, default=-1)


def position(location: int) -> int | None:
    """Convert a node's location to PostgresError.position."""
    return location + 1 if location >= 0 else None


def _count_characters(tree: pg_query_pb2.ParseResult, encoded: bytes) -> None:
    """Convert byte offsets to character offsets, in place."""
    before = [0]
    """The number of characters before each block of the text."""
    for start in range(0, len(encoded), _BLOCK):
        before.append(before[-1] + len(encoded[start : start + _BLOCK].translate(None, _CONTINUATION)))

    def character(offset: int) -> int:
        block = min(offset, len(encoded)) // _BLOCK
        return before[block] + len(encoded[block * _BLOCK : offset].translate(None, _CONTINUATION))

    for raw in tree.stmts:
        if raw.stmt_len:
            start = max(raw.stmt_location, 0)
            raw.stmt_len = character(start + raw.stmt_len) - character(start)
    for message in walk(tree):
        for field, value in message.ListFields():
            if field.name in _OFFSETS and value > 0:
                setattr(message, field.name, character(value))


def _syntax_error(error: postgast.PgQueryError, text: str) -> PostgresError:
    message = error.message
    location = error.cursorpos if error.cursorpos > 0 else None
    if message == "invalid publication object list":
        return PostgresError("42601", message, detail=_PUBLICATION_OBJECTS, position=location)
    if message.startswith("unrecognized partitioning strategy"):
        return PostgresError("22023", message, position=None)
    if message.endswith("for hash partition must be specified"):
        return PostgresError("42601", message, position=None)
    if message.endswith("for hash partition provided more than once"):
        return PostgresError("42710", message, position=location)
    if message == "constraints cannot be altered to be NOT VALID":  # of PostgreSQL 18
        return PostgresError("0A000", "FOREIGN KEY constraints cannot be marked NOT VALID")
    if message.startswith("column number must be in range"):
        return PostgresError("22023", message, position=location)
    if (
        "only supported for ON DELETE actions" in message
        or "not supported" in message
        or "not implemented" in message
        or "not yet implemented" in message
    ):
        return PostgresError("0A000", message, position=location)
    if message == "invalid Unicode escape" and location is not None:
        in_string = text[location : location + 1] in ("u", "U")  # E'…', not U&'…'
        forms = "\\uXXXX or \\UXXXXXXXX" if in_string else "\\XXXX or \\+XXXXXX"
        return PostgresError("22025" if in_string else "42601", message, hint=f"Unicode escapes must be {forms}.", position=location)
    if message.startswith("unsafe use of"):
        return PostgresError(
            "22P06", message, hint="Use '' to write quotes in strings. \\' is insecure in client-only encodings.", position=location
        )
    if message.endswith("cannot be used as a role name here"):
        return PostgresError("42939", message, position=location)
    if message.startswith("invalid byte sequence"):
        return PostgresError("22021", message)
    return PostgresError("42601", message, position=location)


def _refuse_later_grammar(node: ParseNode, text: str, start: int, end: int, *, has_merge: bool) -> None:
    """Raise 15's syntax error for grammar of PostgreSQL 16 to 18 that a node would otherwise ignore or misinterpret.

    Grammar that commands reject with 0A000 themselves (JSON constructors, JSON_TABLE, CREATE STATISTICS without a name) is not listed.
    """
    name = node.DESCRIPTOR.name
    if name in ("CreateStmt", "AlterTableStmt", "CreateSchemaStmt"):
        _refuse_later_definition(node, text)
    elif name in ("InsertStmt", "UpdateStmt", "DeleteStmt") and node.returning_clause.options:
        raise _error_at_word(text, node.relation.location, "WITH")
    elif name == "GrantRoleStmt":
        _refuse_later_grant(node, text)
    elif name in ("VacuumStmt", "ReindexStmt"):
        _refuse_later_maintenance(node, text, start, end)
    if has_merge:
        for message in walk(node):
            if message.DESCRIPTOR.name == "MergeStmt":
                _refuse_later_merge(message, text)


def _refuse_later_definition(node: ParseNode, text: str) -> None:
    """Reject additions to 15's CREATE TABLE and ALTER TABLE: storage of columns, kinds of constraints, SET … DEFAULT."""
    for message in walk(node):
        match message.DESCRIPTOR.name:
            case "Constraint":
                _refuse_later_constraint(message, text)
            case "ColumnDef" if message.storage_name:
                raise _error_at_word(text, message.location, "STORAGE")
            case "ATAlterConstraint" if message.alter_enforceability:
                raise _error_at_word(text, node.relation.location, "ENFORCED")
            case "ATAlterConstraint" if message.alter_inheritability and not message.noinherit:
                raise _error_at_word(text, node.relation.location, "INHERIT")
            case "AlterTableCmd" if _sets_default(message):
                raise _error_at_word(text, node.relation.location, "DEFAULT")


def _sets_default(command: pg_query_pb2.AlterTableCmd) -> bool:
    """Return whether it is SET STATISTICS, SET STORAGE or SET ACCESS METHOD DEFAULT."""
    definition = unwrap(getattr(command, "def"))
    match command.subtype:
        case pg_query_pb2.AT_SetStatistics:
            return definition is None
        case pg_query_pb2.AT_SetStorage:
            return bool(definition.sval == "default")
        case pg_query_pb2.AT_SetAccessMethod:
            return not command.name
        case _:
            return False


def _refuse_later_maintenance(node: ParseNode, text: str, start: int, end: int) -> None:
    """Reject VACUUM and ANALYZE ONLY, and REINDEX of a database without its name."""
    if node.DESCRIPTOR.name == "ReindexStmt":
        if node.kind in _OF_DATABASES and not node.name:
            raise _error_at(text, end)
        return
    for target in node.rels:
        relation = unwrap(target).relation
        if relation.relname and not relation.inh:
            raise _error_at_word(text, start, "ONLY")


def _refuse_later_merge(statement: pg_query_pb2.MergeStmt, text: str) -> None:
    """Reject MERGE … RETURNING and WHEN NOT MATCHED BY SOURCE or TARGET."""
    by = re.compile(r"\bMATCHED\s+(BY)\s+(?:SOURCE|TARGET)\b", re.IGNORECASE).search(text, statement.relation.location)
    if by is not None:
        raise _error_at(text, by.start(1))
    if statement.HasField("returning_clause"):
        raise _error_at_word(text, statement.relation.location, "RETURNING")


def _refuse_later_grant(statement: pg_query_pb2.GrantRoleStmt, text: str) -> None:
    """Raise 42601 unless the only option of a membership is WITH ADMIN OPTION, or ADMIN OPTION FOR of a REVOKE."""
    options = [unwrap(option) for option in statement.opt]
    for option in options[:1]:
        words = _TWO_WORDS.match(text, option.location)
        second = len(text) if words is None else words.start(1)
        if option.defname != "admin":
            raise _error_at(text, option.location if statement.is_grant else second)
        if words is None or words[1].lower() != "option":
            raise _error_at(text, second)
    if len(options) > 1:
        raise _error_at(text, text.rfind(",", 0, options[1].location))


def _refuse_later_constraint(constraint: pg_query_pb2.Constraint, text: str) -> None:
    if constraint.contype == pg_query_pb2.CONSTR_GENERATED and constraint.generated_kind == "v":
        opening = text.find("(", constraint.location)
        raise _error_at(text, _after_parenthesis(text, opening))
    if constraint.without_overlaps or constraint.fk_with_period:
        word = "WITHOUT" if constraint.without_overlaps else "PERIOD"
        raise _error_at_word(text, constraint.location, word)
    if constraint.contype in _ENFORCEMENT or (constraint.contype in _ENFORCED and not constraint.is_enforced):
        raise _error_at_word(text, max(constraint.location, 0), "ENFORCED")
    if constraint.contype == pg_query_pb2.CONSTR_NOTNULL and constraint.keys:
        raise _error_at_word(text, max(constraint.location, 0), "NOT")
    if constraint.contype == pg_query_pb2.CONSTR_NOTNULL and constraint.is_no_inherit:
        raise _error_at_word(text, _find_word(text, "NULL", constraint.location), "NO")


def _refuse_later_numbers(text: str) -> None:
    """Raise 42601 for 1_000, 0x1F, 0o17 and 0b1, which are numbers from 16 on. Texts above 1 MB are not searched."""
    if len(text) > _MOST_SEARCHED or _LATER_NUMBER.search(text) is None:
        return
    encoded = text.encode()
    for token in grammar.scan(text).tokens:
        if token.token in (pg_query_pb2.ICONST, pg_query_pb2.FCONST):
            number = encoded[token.start : token.end].decode()
            if _LATER_NUMBER.match(number):
                position = len(encoded[: token.start].decode()) + 1
                junk = number.partition(".")[0]
                raise PostgresError("42601", f'trailing junk after numeric literal at or near "{junk}"', position=position)


def _error_at_word(text: str, start: int, word: str) -> PostgresError:
    """Return the syntax error at the next occurrence of a keyword after a position."""
    location = _find_word(text, word, start)
    return _error_at(text, len(text) if location < 0 else location)


def _find_word(text: str, word: str, start: int) -> int:
    """Return the next position of a keyword, in any case, or -1."""
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    for window in range(max(start, 0), len(text), _ENCODED // 16):
        interruption.check()
        match = pattern.search(text, window, window + _ENCODED // 16 + len(word))
        if match:
            return match.start()
    return -1


def _after_parenthesis(text: str, opening: int) -> int:
    depth = 0
    for token in re.finditer(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[()]", text[opening:]):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth == 0:
            rest = text[opening + token.end() :]
            return opening + token.end() + len(rest) - len(rest.lstrip())
    return len(text)


def _error_at(text: str, offset: int) -> PostgresError:
    word = re.match(r"\w+|\S", text[offset:]) if 0 <= offset < len(text) else None
    if word is None:
        return PostgresError("42601", "syntax error at end of input", position=len(text) + 1)
    return PostgresError("42601", f'syntax error at or near "{word[0]}"', position=offset + 1)
