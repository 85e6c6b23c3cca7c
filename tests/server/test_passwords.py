"""Passwords: what is kept of them beside PostgreSQL, and who gets in with what."""

from __future__ import annotations

import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Server, until

from headgate.catalog.catalog import Catalog
from headgate.catalog.security import password
from headgate.catalog.security.password import PasswordKind, Verifier
from headgate.server.authentication import scram

PASSWORDS = [
    "geheim", "with space", "sécret", "\u00aaordinal", "\u2168", "a\u00adb", "a\u00a0b", "a\u200bb", "\u3000", "\u00ad", "ﬀ", "x\u0301", "\u0007bell", "é\u0007",
    "\u0627\u0031", "\u0627\u0031\u0628", "a\u0627", "\U0001f600", "\ufffd", "\ue000", "İ", "ǅ", "ſ", "²", "Å", "한글", "\u0340", "a\u202eb", "\u06dd", "\u17d2",
]  # fmt: skip


@pytest.fixture
def kept(server: Server) -> Iterator[Callable[[str], str]]:
    """What a server keeps of the password in `CREATE ROLE … PASSWORD`."""
    with psycopg.connect(server.conninfo(), autocommit=True) as session, psycopg.ClientCursor(session) as cursor:
        cursor.execute("CREATE ROLE kept")

        def keep(text: str) -> str:
            cursor.execute("ALTER ROLE kept PASSWORD %s", [text])
            row = cursor.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'kept'").fetchone()
            assert row is not None
            return str(row[0])

        yield keep
        cursor.execute("DROP ROLE kept")


def test_a_password_is_prepared_as_postgresql_does_it(kept: Callable[[str], str]) -> None:
    wrong = []
    for text in PASSWORDS:
        found = Verifier.parse(kept(text))
        assert found is not None
        if Verifier.of_password(text, found.salt) != found:
            wrong.append(text)
    assert not wrong


HASHES = [
    "md5" + "0123456789abcdef" * 2,
    "md5" + "0123456789ABCDEF" * 2,
    "md5" + "0" * 31,
    "md5" + "0" * 33,
    "SCRAM-SHA-256$4096:c2FsdA==$" + "A" * 43 + "=:" + "A" * 43 + "=",
    "SCRAM-SHA-256$4096:c2FsdA==$" + "A" * 4 + ":" + "A" * 43 + "=",
    "SCRAM-SHA-256$0:c2FsdA==$" + "A" * 43 + "=:" + "A" * 43 + "=",
]


@pytest.mark.parametrize("text", HASHES)
def test_what_is_no_password_is_kept_as_it_is(kept: Callable[[str], str], text: str) -> None:
    found = kept(text)
    assert (found == text) == (password.kind(text) is not PasswordKind.PLAIN)
    assert found == text or found.startswith("SCRAM-SHA-256$4096:")


def test_md5_is_kept_where_it_is_asked_for_and_lost_with_the_name(server: Server) -> None:
    with psycopg.connect(server.conninfo(), autocommit=True) as session:
        said: list[str | None] = []
        session.add_notice_handler(lambda notice: said.append(notice.message_primary))
        session.execute("SET password_encryption = 'md5'")
        session.execute("CREATE ROLE old PASSWORD 'geheim'")
        query = "SELECT rolpassword FROM pg_authid WHERE rolname IN ('old', 'new')"
        assert session.execute(query).fetchone() == (password.md5("geheim", "old"),)
        session.execute("ALTER ROLE old RENAME TO new")
        assert session.execute(query).fetchone() == (None,)
        session.execute(f"ALTER ROLE new PASSWORD '{password.md5('', 'new')}'")
        assert session.execute(query).fetchone() == (None,)
        session.execute("DROP ROLE new")
    assert said == ["MD5 password cleared because of role rename", "empty string is not a valid password, clearing password"]


@pytest.fixture
def asking(server: Server) -> Iterator[Server]:
    """The server with a role whose password is kept as md5, one with SCRAM, one without, and a database for each method."""
    server.psql(
        "postgres",
        f"CREATE ROLE md LOGIN PASSWORD '{password.md5('geheim', 'md')}'; CREATE ROLE sc LOGIN PASSWORD 'g\u2168'; CREATE ROLE no LOGIN",
    )
    for name in ("m_md5", "m_scram", "m_password"):
        server.psql("postgres", f"CREATE DATABASE {name}")
    rules = server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("host m_md5 all all md5\nhost m_scram all all scram-sha-256\nhost m_password all all password\n" + before)
    server.psql("postgres", "SELECT pg_reload_conf()")
    until(lambda: int(server.psql("postgres", "SELECT count(*) FROM pg_hba_file_rules WHERE database[1] LIKE 'm_%'")) == 3, "not read")
    yield server
    rules.write_text(before)
    for name in ("m_md5", "m_scram", "m_password"):
        server.psql("postgres", f"DROP DATABASE {name}")
    server.psql("postgres", "DROP ROLE md, sc, no; SELECT pg_reload_conf()")


def test_who_gets_in_by_which_method(asking: Server) -> None:
    def let_in(user: str, database: str, text: str) -> bool:
        try:
            psycopg.connect(asking.conninfo(database, user, password=text)).close()
        except psycopg.OperationalError as error:
            return f'password authentication failed for user "{user}"' not in str(error)
        return True

    found = {
        (user, method): let_in(user, f"m_{method}", text)
        for user, text in (("md", "geheim"), ("sc", "gIX"))
        for method in ("md5", "scram", "password")
    }
    assert found == {
        ("md", "md5"): True, ("md", "scram"): False, ("md", "password"): True, ("sc", "md5"): True, ("sc", "scram"): True, ("sc", "password"): True,
    }  # fmt: skip
    for method in ("md5", "scram", "password"):
        assert not let_in("md", f"m_{method}", password.md5("geheim", "md"))  # the hash was taken for the password
        assert not let_in("no", f"m_{method}", "x")


def asked_salt(server: Server, user: str) -> bytes:
    """The salt that a stranger is told."""
    body = struct.pack("!i", 3 << 16) + f"user\0{user}\0database\0m_scram\0\0".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
        plain.sendall(struct.pack("!i", len(body) + 4) + body)
        assert b"SCRAM-SHA-256" in plain.recv(1000)
        first = b"n,,n=,r=abc"
        said = b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first
        plain.sendall(b"p" + struct.pack("!i", len(said) + 4) + said)
        return plain.recv(1000).split(b",s=")[1].split(b",")[0]


@pytest.mark.slow  # a restart; what it needs is in the catalog
def test_the_salt_of_a_role_that_is_not_there_was_another_after_a_restart(spare_node: Callable[..., Server]) -> None:
    node = spare_node()
    (node.data / "pg_hba.conf").write_text("host m_scram all all scram-sha-256\nhost all all all trust\n")
    node.psql("postgres", "SELECT pg_reload_conf()")
    until(lambda: node.psql("postgres", "SELECT count(*) FROM pg_hba_file_rules") == "2", "not read")
    before = [asked_salt(node, user) for user in ("nobody", "noone")]
    assert before[0] != before[1]
    node.restart()
    assert [asked_salt(node, user) for user in ("nobody", "noone")] == before


def test_what_salts_are_made_of_is_kept(catalog_file: Path, tmp_path: Path) -> None:
    shutil.copy(catalog_file, tmp_path / "catalog.duckdb")
    found = []
    for _ in range(2):
        catalog = Catalog.open(tmp_path / "catalog.duckdb")
        found.append(catalog.mock_authentication_nonce())
        catalog.close()
    assert found[0] == found[1]
    assert len(found[0]) == 32


# ---- without a server -----------------------------------------------------------------------------------
@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_a_password_is_its_own(text: str) -> None:
    kept = str(Verifier.of_password(text, b"salt", 1))
    assert password.matches(text, kept, "x")
    assert not password.matches(text + "x", kept, "x")
    assert password.matches(text, password.md5(text, "x"), "x")


def test_bytes_that_are_no_text_are_taken_as_they_are() -> None:
    raw = b"geheim\xff\xe9".decode("utf-8", "surrogateescape")
    assert password.prepared(raw) == b"geheim\xff\xe9"
    assert not scram.md5_answer_matches(raw, password.md5("x", "y"), b"salt")
