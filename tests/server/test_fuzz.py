"""Damaged packets, messages, SQL, COPY data, literals, access rules and replication commands are read or rejected.

The packets and messages are those of psql and psycopg with a real PostgreSQL, recorded when the test begins, and of asyncpg and the JDBC
driver, recorded earlier (`conversations`).
"""

from __future__ import annotations

import random
import re
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from tests.conftest import PG_BIN, Server, until
from tests.fuzz import LEFT, left_behind, mutated, run
from tests.log import Log
from tests.session import Session
from tests.wire import HEAD, SYNC, Tap, frames

from headgate.errors import Notices
from headgate.expression.binding import literal
from headgate.expression.binding.context import BindContext
from headgate.server.authentication.hba import HbaFile, rules
from headgate.server.authentication.ident_map import mappings
from headgate.server.client import startup
from headgate.server.protocol import message
from headgate.server.protocol.connection import Connection, ConnectionBroken
from headgate.settings import file as conf
from headgate.sql import command_tag, secret
from headgate.sql.names import split_identifiers
from headgate.sql.parser import parse, parse_expression
from headgate.types import copy_text
from headgate.types import registry as r
from headgate.types.binary import binary
from headgate.types.binary.copy_binary import header_length, read_copy_binary
from headgate.types.text import array
from headgate.types.text import text as forms
from headgate.walreceiver.link import check_conninfo
from headgate.walsender import grammar, options

SCRIPTS = Path(__file__).parent.parent
CONVERSATIONS = Path(__file__).parent / "conversations"
ADDRESS = b"""# who
local all all trust
host "a b",@names all,+group 127.0.0.1/32 md5
hostssl replication x ::1/128 scram-sha-256 clientcert=verify-full
host all all 10.0.0.0 255.0.0.0 reject \\
  map=x
host all all .example.com samehost
hostnossl all all samenet cert map=m
"""
MAPS = b'# map\nm /^(.*)@example\\.com$ \\1\nm "a b" c\n'
CONF = b"# settings\nport = 5432\nlisten_addresses = 'a,''b'\nwork_mem=64MB # more\ninclude 'x'\nspark.sql.shuffle.partitions = 3\n"
CONNINFO = [
    b"host=a port=5432 dbname='x y' user=\\'u password=''", b"postgresql://u:p%20w@[::1]:5432,h2/db?sslmode=require&target_session_attrs=any",
    b"service=s passfile=/x options='-c a=b'",
]  # fmt: skip
REPLICATION = [
    b"IDENTIFY_SYSTEM", b"SHOW a.b", b"CREATE_REPLICATION_SLOT \"s\" TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export', TWO_PHASE)",
    b"START_REPLICATION SLOT \"s\" LOGICAL 16/B374D848 (proto_version '3', publication_names '\"a\",b', streaming 'on', binary 'true')",
    b"DROP_REPLICATION_SLOT s WAIT", b"TIMELINE_HISTORY 1", b"READ_REPLICATION_SLOT s", b"BASE_BACKUP", b"START_REPLICATION 0/0 TIMELINE 1",
    b"CHECK_NODE 'a'", b"BACKUP_CATALOG '/x'",
]  # fmt: skip
VALUES: dict[int, list[bytes]] = {
    r.BOOL: [b"t", b" yes "], r.BYTEA: [b"\\xdeadbeef", b"a\\000b\\\\"], r.INT2: [b"-32768"], r.INT4: [b"2147483647"], r.INT8: [b"-9223372036854775808"],
    r.OID: [b"4294967295"], r.FLOAT4: [b"1.5e-10", b"NaN"], r.FLOAT8: [b"-Infinity", b"1e308"], r.NUMERIC: [b"-123.4500", b"1e-20", b"NaN"],
    r.DATE: [b"2024-02-29", b"0044-03-15 BC", b"infinity", b"Feb 3, 2001"], r.TIME: [b"23:59:60", b"04:05 PM"], r.TIMETZ: [b"04:05:06.789-08", b"01:02 PST"],
    r.TIMESTAMP: [b"2024-02-29 12:34:56.789", b"epoch"], r.TIMESTAMPTZ: [b"2024-02-29 12:34:56+02:30", b"Thu Jan 8 04:05:06 1999 PST"],
    r.INTERVAL: [b"1 year 2 mons -3 days 04:05:06.7 ago", b"P1Y2M3DT4H5M6S", b"@ 1 hour"], r.UUID: [b"{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}"],
    r.JSON: [b'{"a": [1, 2.5e3, null, "\\u00e9\\ud83d\\ude00"]}'], r.JSONB: [b'{"a": [1, 2.5e3, {"b": {}}], "a": true}'], r.XML: [b"<a b='c'>d</a>"],
    r.INET: [b"192.168.0.1/24", b"::ffff:1.2.3.4/96"], r.CIDR: [b"10/8", b"2001:db8::/32"], r.MACADDR: [b"08:00:2b:01:02:03"], r.MACADDR8: [b"08002b:0102030405"],
    r.BIT: [b"B1010", b"xFF"], r.VARBIT: [b"101"], r.PG_LSN: [b"16/B374D848"], r.NAME: [b"n" * 70], r.CHAR: [b"\\203"], r.BPCHAR: [b"a  "], r.VARCHAR: [b"abc"],
    r.INT4_ARRAY: [b"{{1,2},{3,NULL}}", b"[0:1]={1,2}"], 1009: [b'{"a b",c\\"d,"NULL",NULL}'], 1185: [b'{"2024-02-29 00:00:00+00"}'],
}  # fmt: skip


def recorded_with(postgres: Server) -> list[bytes]:
    """Return the frames that psql and psycopg send for statements, parameters in both forms, cursors, COPY and pipelines."""
    database = postgres.new_database()
    with Tap(postgres.port, hostile="client") as tap:
        to = f"host=127.0.0.1 port={tap.port} dbname={database} user=postgres sslmode=disable gssencmode=disable"
        script = "CREATE TABLE t (a int, b text);\n\\d t\n\\dt\nINSERT INTO t VALUES (1, 'x');\nCOPY t FROM STDIN;\n2\ty\n\\.\nTABLE t \\gdesc\nSELECT 1 \\bind\n"
        subprocess.run([PG_BIN / "psql", "-X", "-q", "-d", to], input=script, capture_output=True, text=True, check=True)
        with psycopg.connect(to) as session:
            session.execute("SELECT %s::int, %s, %b::text", (1, "é", "x"), prepare=True)
            session.execute("SELECT a, b FROM t WHERE a = ANY (%s)", ([1, 2],), binary=True)
            with session.cursor("named") as cursor:
                cursor.execute("SELECT generate_series(1, 5)").fetchmany(2)
            with session.cursor().copy("COPY t FROM STDIN (FORMAT binary)") as into:
                into.set_types(["int4", "text"])
                into.write_row((3, "z"))
            with session.pipeline():
                session.execute("SELECT 1")
                session.execute("SELECT 2")
        return list(tap.client_frames) + [
            frame for path in sorted(CONVERSATIONS.glob("*.frames")) for frame in frames(bytearray(path.read_bytes()))
        ]


@pytest.fixture(scope="module")
def messages(postgres: Server) -> list[bytes]:
    return recorded_with(postgres)


def text_of(data: bytes) -> str:
    """Return the bytes as text that PostgreSQL would accept: valid UTF-8 without NUL."""
    return data.decode(errors="ignore").replace("\0", "")


def targets(messages: list[bytes], folder: Path) -> dict[str, tuple[Callable[[bytes], object], list[bytes]]]:
    """Return, by name, each reader of a client's or a file's bytes, and the valid inputs to damage for it."""
    scripts = [path.read_bytes() for path in sorted(SCRIPTS.rglob("*.sql"))]
    statements = [statement.strip() for script in scripts for statement in script.split(b";\n") if 10 < len(statement) < 1500]
    statements += [frame[HEAD:-1] for frame in messages if frame[:1] == b"Q"]
    file = folder / "file"

    def packet(data: bytes) -> None:
        server, client = socket.socketpair()
        connection = Connection(server)
        with server, client:
            parameters = startup._parameters(connection, struct.unpack("!i", data[:4].ljust(4, b"\0"))[0], data[4:])
            if parameters is not None:
                startup._startup_settings(parameters)
                startup._replication(parameters.get("replication", ""))
        connection.close()

    def stream(data: bytes) -> None:
        server, client = socket.socketpair()
        connection = Connection(server)
        connection.authenticated = True
        try:
            with server, client:
                client.sendall(data[:60_000])
                client.shutdown(socket.SHUT_WR)
                while connection.poll(0.1) is not None:
                    pass
        finally:
            connection.close()

    def sql(data: bytes) -> None:
        text = text_of(data)
        for statement in parse(text):
            command_tag.of(statement.node)
        secret.hidden(text)

    def written(reads: Callable[[Path], object]) -> Callable[[bytes], object]:
        def read(data: bytes) -> None:
            file.write_bytes(data)
            reads(file)

        return read

    def command(data: bytes) -> None:
        parsed = grammar.parse(text_of(data), Notices())
        if isinstance(parsed, grammar.StartReplication):
            options.read(parsed.options)
        split_identifiers(text_of(data))

    def typed(data: bytes) -> None:
        oid = list(VALUES)[data[0] % len(VALUES)] if data else r.TEXT
        text = text_of(data[1:])
        forms.write_scalar(forms.read_scalar(text, oid), oid)
        literal.read(text, oid, -1, BindContext())
        array.parse(text, ",")

    def typed_binary(data: bytes) -> None:
        oid = list(VALUES)[data[0] % len(VALUES)] if data else r.TEXT
        body = np.frombuffer(data[1:], np.uint8)
        forms.write_text(binary.read_binary(body, np.zeros(1, np.int64), np.array([len(body)], np.int32), oid), oid)

    def copied_binary(data: bytes) -> None:
        at = header_length(data)
        if at is not None:
            read_copy_binary(data, 2, at=at)

    texts = [bytes([place]) + value for place, values in enumerate(VALUES.values()) for value in values]
    binaries = [
        bytes([number]) + binary.write_binary(forms.read_text(pa.array([value.decode()]), oid), oid)[0].as_py()
        for number, (oid, values) in enumerate(VALUES.items()) for value in values if oid not in (r.CHAR, r.BIT, r.TIME, r.MACADDR8, r.UUID)
    ]  # fmt: skip
    start = (
        struct.pack("!i", 3 << 16)
        + b"user\0u\0database\0d\0options\0-c a=b --c-d=e\\ f\0replication\0database\0application_name\0x\0_pq_.x\0y\0\0"
    )
    copied = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0) + struct.pack("!hiii2s", 2, 4, 7, 2, b"ab") * 5 + b"\xff\xff"
    return {
        "start-up packets": (packet, [start]),
        "messages": (stream, [b"".join(messages[at : at + 6]) for at in range(0, len(messages), 4)]),
        "SQL": (sql, statements),
        "expressions": (
            lambda data: parse_expression(text_of(data)),
            [b"a + 1 > 2 AND b LIKE 'x%'", b"'{1}'::int[] @> ARRAY[1]", b"CASE WHEN a THEN b END"],
        ),
        "replication commands": (command, REPLICATION),
        "connection strings": (lambda data: check_conninfo(text_of(data)), CONNINFO),
        "access rules": (written(lambda path: (list(rules(path, tls=True)), HbaFile.read(path))), [ADDRESS]),
        "user maps": (written(lambda path: list(mappings(path))), [MAPS]),
        "settings": (lambda data: conf.read(text_of(data), "f"), [CONF]),
        "COPY": (lambda data: copy_text.read_copy_text(data, 3), [b"1\ta\\tb\t\\N\n2\t\\x41\\\\\tc\n", b"1\t2\t3\r\n"]),
        "COPY in CSV": (lambda data: copy_text.read_copy_csv(data, 3), [b'1,"a ""b"", c",\n2,,"x\ny"\n']),
        "COPY in binary": (copied_binary, [copied]),
        "values": (typed, texts),
        "values in binary": (typed_binary, binaries),
        "names": (message.startup_parameters, [start[4:]]),
    }


NAMES = [
    "start-up packets", "messages", "SQL", "expressions", "replication commands", "connection strings", "access rules", "user maps", "settings", "COPY",
    "COPY in CSV", "COPY in binary", "values", "values in binary", "names",
]  # fmt: skip
REFUSED = (ConnectionBroken, RecursionError)
"""The other allowed exceptions. A session reports RecursionError as 54001."""


@pytest.mark.parametrize("name", NAMES)
def test_damaged_input_is_read_or_rejected(messages: list[bytes], tmp_path: Path, name: str) -> None:
    read, seeds = targets(messages, tmp_path)[name]
    assert not run(read, seeds, 300, refused=REFUSED).wrong


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_damaged_input_is_read_or_rejected_in_many_examples(messages: list[bytes], tmp_path: Path, name: str) -> None:
    read, seeds = targets(messages, tmp_path)[name]
    result = run(read, seeds, 14_000, seed=7, refused=REFUSED)
    print(f"{name}: {result.inputs} inputs, {result.refused} refused, slowest {result.slowest:.3f} s")
    assert not result.wrong
    assert left_behind(read, seeds, 500, refused=REFUSED) < LEFT


class Live:
    """A session with damaged messages, of a role that may only read a table. Its node must continue after each of them."""

    def __init__(self, node: Server) -> None:
        self.node = node
        self.database = node.new_database()
        self.owner = Session(node.conninfo(self.database))
        self.role = f"fuzz_{self.database}"
        self.owner.sql(f"CREATE ROLE {self.role} LOGIN; REVOKE CREATE ON SCHEMA public FROM public")
        self.owner.sql(
            f"CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x'); GRANT SELECT ON t TO {self.role}; CREATE VIEW v AS TABLE t"
        )
        self.log = Log(node)
        self._socket: socket.socket | None = None

    def send(self, data: bytes) -> None:
        """Send data in a new session and wait until the node closes the connection."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.node.port), timeout=20)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            body = (
                struct.pack("!i", 3 << 16) + f"user\0{self.role}\0database\0{self.database}\0options\0-c statement_timeout=2s\0\0".encode()
            )
            self._socket.sendall(struct.pack("!i", len(body) + 4) + body)
            self._wait_until_ready(1)
        try:
            # a message may lack its end: Terminate is then read as the rest of it, and the end of the connection ends the session
            self._socket.sendall(data + SYNC + b"X\0\0\0\4")
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        finally:
            self.close_session()

    def _wait_until_ready(self, ready: int) -> None:
        pending = bytearray()
        assert self._socket is not None
        while ready and (data := self._socket.recv(1 << 16)):
            pending += data
            ready -= sum(frame[:1] in b"ZE" for frame in frames(pending))

    def close_session(self) -> None:
        """Close the connection of the client."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def assert_unharmed(self) -> None:
        """Assert that the log has no unexpected error, that the session has ended, and that the table is unchanged."""
        messages = [entry.message for entry in self.log.entries() if re.search(r"unforeseen|Traceback|ended with", entry.message)]
        assert not messages, messages[:5]
        until(lambda: self.owner.sql(f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{self.role}'") == "0")
        assert self.owner.sql("TABLE t") == "1|x"

    def close(self) -> None:
        """Drop the role and close the owner's session."""
        self.owner.sql(f"DROP OWNED BY {self.role}; DROP ROLE {self.role}")
        self.owner.close()


@pytest.fixture
def live(node: Server) -> Iterator[Live]:
    session = Live(node)
    yield session
    session.close()


def conversations(messages: list[bytes]) -> list[bytes]:
    """Return runs of messages, each of which is a conversation. Messages that create tables are left out."""
    frames = [frame for frame in messages if b"CREATE" not in frame and frame[:1] != b"X"]
    return [b"".join(frames[at : at + size]) for size in (1, 4, 9) for at in range(0, len(frames), size)]


def test_node_continues_after_damaged_messages_of_a_client(live: Live, messages: list[bytes]) -> None:
    chance, seeds = random.Random(3), conversations(messages)
    for _ in range(60):
        live.send(mutated(chance, seeds))
    live.assert_unharmed()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_node_continues_after_many_damaged_messages_of_clients(live: Live, messages: list[bytes]) -> None:
    chance, seeds = random.Random(7), conversations(messages)
    for _ in range(10_000):
        live.send(mutated(chance, seeds))
    live.assert_unharmed()
