"""Passwords are stored as in PostgreSQL, and each authentication method accepts the right ones."""

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
def stored_hash(server: Server) -> Iterator[Callable[[str], str]]:
    """Return the hash that a server stores for the password of `CREATE ROLE … PASSWORD`."""
    with psycopg.connect(server.conninfo(), autocommit=True) as session, psycopg.ClientCursor(session) as cursor:
        cursor.execute("CREATE ROLE kept")

        def keep(text: str) -> str:
            cursor.execute("ALTER ROLE kept PASSWORD %s", [text])
            row = cursor.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'kept'").fetchone()
            assert row is not None
            return str(row[0])

        yield keep
        cursor.execute("DROP ROLE kept")


def test_password_is_prepared_as_in_postgresql(stored_hash: Callable[[str], str]) -> None:
    wrong = []
    for text in PASSWORDS:
        verifier = Verifier.parse(stored_hash(text))
        assert verifier is not None
        if Verifier.of_password(text, verifier.salt) != verifier:
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
def test_stored_hash_is_kept_and_anything_else_is_hashed(stored_hash: Callable[[str], str], text: str) -> None:
    stored = stored_hash(text)
    assert (stored == text) == (password.kind(text) is not PasswordKind.PLAIN)
    assert stored == text or stored.startswith("SCRAM-SHA-256$4096:")


def test_md5_is_stored_with_password_encryption_md5_and_lost_at_a_rename(server: Server) -> None:
    with psycopg.connect(server.conninfo(), autocommit=True) as session:
        notices: list[str | None] = []
        session.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        session.execute("SET password_encryption = 'md5'")
        session.execute("CREATE ROLE old PASSWORD 'geheim'")
        query = "SELECT rolpassword FROM pg_authid WHERE rolname IN ('old', 'new')"
        assert session.execute(query).fetchone() == (password.md5("geheim", "old"),)
        session.execute("ALTER ROLE old RENAME TO new")
        assert session.execute(query).fetchone() == (None,)
        session.execute(f"ALTER ROLE new PASSWORD '{password.md5('', 'new')}'")
        assert session.execute(query).fetchone() == (None,)
        session.execute("DROP ROLE new")
    assert notices == ["MD5 password cleared because of role rename", "empty string is not a valid password, clearing password"]


@pytest.fixture
def asking(server: Server) -> Iterator[Server]:
    """A server with a role with an md5 password, one with a SCRAM password and one without, and a database for each authentication method."""
    server.psql(
        "postgres",
        f"CREATE ROLE md LOGIN PASSWORD '{password.md5('geheim', 'md')}'; CREATE ROLE sc LOGIN PASSWORD 'g\u2168'; CREATE ROLE no LOGIN",
    )
    for name in ("m_md5", "m_scram", "m_password"):
        server.psql("postgres", f"CREATE DATABASE {name}")
    rules = server.data / "pg_hba.conf"
    rules_before = rules.read_text()
    rules.write_text("host m_md5 all all md5\nhost m_scram all all scram-sha-256\nhost m_password all all password\n" + rules_before)
    server.psql("postgres", "SELECT pg_reload_conf()")
    until(lambda: int(server.psql("postgres", "SELECT count(*) FROM pg_hba_file_rules WHERE database[1] LIKE 'm_%'")) == 3, "not read")
    yield server
    rules.write_text(rules_before)
    for name in ("m_md5", "m_scram", "m_password"):
        server.psql("postgres", f"DROP DATABASE {name}")
    server.psql("postgres", "DROP ROLE md, sc, no; SELECT pg_reload_conf()")


def test_authentication_method_accepts_the_passwords_that_it_can_check(asking: Server) -> None:
    def let_in(user: str, database: str, text: str) -> bool:
        try:
            psycopg.connect(asking.conninfo(database, user, password=text)).close()
        except psycopg.OperationalError as error:
            return f'password authentication failed for user "{user}"' not in str(error)
        return True

    admitted = {
        (user, method): let_in(user, f"m_{method}", text)
        for user, text in (("md", "geheim"), ("sc", "gIX"))
        for method in ("md5", "scram", "password")
    }
    assert admitted == {
        ("md", "md5"): True, ("md", "scram"): False, ("md", "password"): True, ("sc", "md5"): True, ("sc", "scram"): True, ("sc", "password"): True,
    }  # fmt: skip
    for method in ("md5", "scram", "password"):
        assert not let_in("md", f"m_{method}", password.md5("geheim", "md"))  # the hash is not accepted as a password
        assert not let_in("no", f"m_{method}", "x")


def salt_of(server: Server, user: str) -> bytes:
    """Return the salt that the server sends for an unknown role."""
    body = struct.pack("!i", 3 << 16) + f"user\0{user}\0database\0m_scram\0\0".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
        plain.sendall(struct.pack("!i", len(body) + 4) + body)
        assert b"SCRAM-SHA-256" in plain.recv(1000)
        first = b"n,,n=,r=abc"
        request = b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first
        plain.sendall(b"p" + struct.pack("!i", len(request) + 4) + request)
        return plain.recv(1000).split(b",s=")[1].split(b",")[0]


@pytest.mark.slow  # restarts a node; the next test checks the catalog without a restart
def test_salt_of_an_unknown_role_is_the_same_after_a_restart(spare_node: Callable[..., Server]) -> None:
    node = spare_node()
    (node.data / "pg_hba.conf").write_text("host m_scram all all scram-sha-256\nhost all all all trust\n")
    node.psql("postgres", "SELECT pg_reload_conf()")
    until(lambda: node.psql("postgres", "SELECT count(*) FROM pg_hba_file_rules") == "2", "not read")
    salts_before = [salt_of(node, user) for user in ("nobody", "noone")]
    assert salts_before[0] != salts_before[1]
    node.restart()
    assert [salt_of(node, user) for user in ("nobody", "noone")] == salts_before


def test_secret_for_the_salts_of_unknown_roles_is_persisted(catalog_file: Path, tmp_path: Path) -> None:
    shutil.copy(catalog_file, tmp_path / "catalog.duckdb")
    nonces = []
    for _ in range(2):
        catalog = Catalog.open(tmp_path / "catalog.duckdb")
        nonces.append(catalog.mock_authentication_nonce())
        catalog.close()
    assert nonces[0] == nonces[1]
    assert len(nonces[0]) == 32


# ---- without a server -----------------------------------------------------------------------------------
@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_password_matches_its_own_verifier(text: str) -> None:
    verifier = str(Verifier.of_password(text, b"salt", 1))
    assert password.matches(text, verifier, "x")
    assert not password.matches(text + "x", verifier, "x")
    assert password.matches(text, password.md5(text, "x"), "x")


def test_bytes_that_are_not_valid_text_are_used_unchanged() -> None:
    raw = b"geheim\xff\xe9".decode("utf-8", "surrogateescape")
    assert password.prepared(raw) == b"geheim\xff\xe9"
    assert not scram.md5_answer_matches(raw, password.md5("x", "y"), b"salt")
