"""Catalogs for tests, and a server that lets psql query one: it answers simple queries with `query.answer`."""

from __future__ import annotations

import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from headgate.analysis.query import Query
from headgate.catalog import database as databases
from headgate.catalog.catalog import Catalog
from headgate.catalog.session import SessionContext
from headgate.commands import lookup
from headgate.commands.query.catalog import from_item, query
from headgate.errors import PostgresError
from headgate.expression.binding.context import BindContext
from headgate.sql.parser import parse


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def analysed_query(node: Any, context: SessionContext, cursor: Any, **parameters: Any) -> Query:
    """The analysed query of a SELECT. `parameters`: those of the binder's context."""
    binding = BindContext(forms=context.forms).within(**parameters)
    return from_item.system_analyser(lambda named, _: lookup.queried(cursor, context, named), binding).select(node, None)


class CatalogServer:
    """A server on its own port. Each connection is a session of `database`."""

    def __init__(
        self, catalog: Catalog, database: int, dynamic: Mapping[str, Any] | None = None, functions: Mapping[str, Any] | None = None
    ) -> None:
        self.catalog, self.database = catalog, database
        self.dynamic, self.functions = dynamic or {}, functions or {}
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.socket.close()

    def psql(self, *commands: str, options: tuple[str, ...] = ()) -> str:
        return run_psql(["-h", "127.0.0.1", "-p", str(self.port)], self._name(), commands, options)

    def _name(self) -> str:
        row = self.catalog.cursor().execute("SELECT datname FROM hg.pg_database WHERE oid = ?", [self.database]).fetchone()
        assert row
        return str(row[0])

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        stream = peer.makefile("rwb")
        while True:
            length, code = struct.unpack("!ii", stream.read(8))
            stream.read(length - 8)
            if code == 196608:
                break
            stream.write(b"N")
            stream.flush()
        stream.write(message(b"R", struct.pack("!i", 0)))
        for name, value in (("server_version", "15.18"), ("client_encoding", "UTF8"), ("standard_conforming_strings", "on")):
            stream.write(message(b"S", f"{name}\0{value}\0".encode()))
        context = SessionContext(self.database, self._name(), "postgres", settings={"TimeZone": "UTC"}, pid=42)
        cursor = self.catalog.cursor()
        while True:
            stream.write(message(b"Z", b"I"))
            stream.flush()
            kind = stream.read(1)
            if kind != b"Q":
                return
            (length,) = struct.unpack("!i", stream.read(4))
            text = stream.read(length - 4)[:-1].decode()
            try:
                for statement in parse(text):
                    analysed = analysed_query(statement.node, context, cursor)
                    self._answer(stream.write, query.answer(analysed, context, cursor, self.dynamic, self.functions))
            except PostgresError as error:
                body = b"".join(key + str(value).encode() + b"\0" for key, value in self._fields(error) if value is not None)
                stream.write(message(b"E", body + b"\0"))

    @staticmethod
    def _fields(error: PostgresError) -> list[tuple[bytes, Any]]:
        return [
            (b"S", "ERROR"), (b"V", "ERROR"), (b"C", error.sqlstate), (b"M", error.message), (b"D", error.detail), (b"H", error.hint),
            (b"P", error.position),
        ]  # fmt: skip

    @staticmethod
    def _answer(write: Callable[[bytes], Any], result: Any) -> None:
        body = struct.pack("!h", len(result.columns))
        for column in result.columns:
            body += (
                column.name.encode()
                + b"\0"
                + struct.pack("!ihihih", column.relation, column.attnum, column.type_oid, column.type_length, column.typmod, 0)
            )
        write(message(b"T", body))
        for batch in result:
            for row in zip(*[column.to_pylist() for column in batch.columns], strict=True):
                data = struct.pack("!h", len(row))
                for value in row:
                    data += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value.encode())) + value.encode()
                write(message(b"D", data))
        write(message(b"C", result.command_tag.encode() + b"\0"))


def run_psql(where: list[str], database: str, commands: tuple[str, ...], options: tuple[str, ...] = ()) -> str:
    """Return what psql prints for each command, first the output and then the errors."""
    outputs = []
    for command in commands:
        completed = subprocess.run(
            ["psql", "-X", *where, "-U", "postgres", "-d", database, "-v", "HIDE_TABLEAM=on", *options, "-c", command],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        outputs.append(f"=== {command}\n{completed.stdout}{completed.stderr}")
    return "".join(outputs)


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A catalog in which tests create their own databases."""
    catalog = Catalog.create(tmp_path_factory.mktemp("catalog") / "catalog.duckdb")
    yield catalog
    catalog.close()


@pytest.fixture
def database(empty_catalog: Catalog) -> int:
    """A new database of `empty_catalog`."""
    oid = empty_catalog.next_oid()
    with empty_catalog.begin() as transaction:
        databases.create(transaction.cursor, oid, f"test_{oid}", 10)
    return oid


@pytest.fixture
def catalog_psql(empty_catalog: Catalog) -> Iterator[Callable[..., str]]:
    """Return a function that runs psql on a catalog: ``catalog_psql(database, *commands, dynamic=…)``."""
    servers = []

    def psql(database: int, *commands: str, **given: Any) -> str:
        servers.append(CatalogServer(empty_catalog, database, **given))
        return servers[-1].psql(*commands)

    yield psql
    for server in servers:
        server.close()


@pytest.fixture
def ask(empty_catalog: Catalog) -> Callable[..., list[tuple[str | None, ...]]]:
    """Return a function that returns the rows of a query: ``ask(database, sql, dynamic=…, functions=…)``."""

    def rows(database: int, sql: str, **given: Any) -> list[tuple[str | None, ...]]:
        context = SessionContext(database, "test", "postgres", settings={"TimeZone": "UTC"}, pid=42)
        cursor = empty_catalog.cursor()
        [statement] = parse(sql)
        result = query.answer(analysed_query(statement.node, context, cursor), context, cursor, **given)
        return [row for batch in result for row in zip(*[column.to_pylist() for column in batch.columns], strict=True)]

    return rows
