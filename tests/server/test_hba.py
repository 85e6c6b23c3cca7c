"""pg_hba.conf and pg_ident.conf are read as PostgreSQL reads them, with the same errors and the same matching connections."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.conftest import Server, until
from tests.log import Log

from headgate.server.authentication.client_host import ClientHost
from headgate.server.authentication.hba import ConnectionRequest, HbaFile, interfaces
from headgate.server.authentication.ident_map import IdentMap

FILE = r"""
# a comment
local all all trust   # another
host all,sales  "all" , bob  127.0.0.1/32  md5
host a, b ,c d 10.1 255.0.255.0 password
host "a ""quoted"" name",x"y z" +staff,"+quoted" 10.1.2.3/8 scram-sha-256
host all all ::1/64 reject
host all all ::ffff:10.1.2.3/+120 reject
host all all fe80::1 ffff:ffff:: reject
host all all samehost trust
host all all samenet trust
host all all all trust
host all all "all" trust
host all all .example.com trust
host all all localhost trust
hostnossl replication,sameuser,samerole,samegroup all 0.0.0.0/0 trust
hostssl all all 0.0.0.0/0 cert
hostssl all all 0.0.0.0/0 cert clientcert=verify-full clientname=DN
hostssl all all 0.0.0.0/0 trust clientcert=verify-ca
hostnogssenc all all 0.0.0.0/0 trust
host all \
  all \
  127.0.0.1/32 trust
host all @users,eve 127.0.0.1/32 trust
host @nosuch all 127.0.0.1/32 trust
host @nested all 127.0.0.1/32 trust
local,host all all trust
hosts all all all trust
local
local all
local all all
local all all trust,md5
local all all nosuch
local all all cert
host
host all
host all all
host all all 127.0.0.1
host all all 127.0.0.1/33 trust
host all all 127.0.0.1/ trust
host all all localhost/8 trust
host all all 127.0.0.1 trust
host all all 127.0.0.1 ::1 trust
host all all 127.0.0.1 255.0.0.0,255.255.0.0 trust
host all all 127.0.0.1,::1 trust
host all all 127.0.0.1/32
host all all 127.0.0.1/32 cert
host all all 127.0.0.1/32 trust option
host all all 127.0.0.1/32 trust nosuch=1
host all all 127.0.0.1/32 trust clientcert=verify-full
host all all 127.0.0.1/32 trust clientname=CN
host all all 127.0.0.1/32 trust map=m
host all all 127.0.0.1/32 trust ldapserver=x
hostssl all all 127.0.0.1/32 cert map=m clientname=CN
host all all 127.0.0.1/32 md5 pamservice=x
host all all 127.0.0.1/32 md5 radiusservers=x
host all all 127.0.0.1/32 md5 krb_realm=x
"no quote at the end all all all trust
host all all 127.0.0.1/32 trust \
"""
INCLUDED = {"users": 'ann, "bob"\n# nobody\ncarol @more', "more": "dora", "nested": "@nosuch"}


@contextlib.contextmanager
def access(server: Server, text: str, **included: str) -> Iterator[Path]:
    """Replace the server's access rules and the files next to them, without a reload."""
    path = server.data / "pg_hba.conf"
    rules_before = path.read_text()
    for name, words in included.items():
        (server.data / name).write_text(words)
        (server.data / name).chmod(0o644)
    path.write_text(text)
    try:
        yield path
    finally:
        path.write_text(rules_before)
        for name in included:
            (server.data / name).unlink()


def shown(server: Server) -> list[tuple[object, ...]]:
    with psycopg.connect(server.conninfo()) as session:
        return session.execute("SELECT * FROM pg_hba_file_rules").fetchall()


def test_each_line_is_read_as_postgresql_reads_it(node: Server, postgres: Server) -> None:
    with access(node, FILE, **INCLUDED) as node_rules, access(postgres, FILE, **INCLUDED) as postgres_rules:
        actual, expected = shown(node), shown(postgres)
    path = [(str(node_rules.parent), "DIR"), (str(postgres_rules.parent), "DIR")]
    for node_value, native in zip(actual, expected, strict=True):
        assert [comparable(value, path) for value in node_value] == [comparable(value, path) for value in native]


def comparable(value: object, paths: list[tuple[str, str]]) -> object:
    """Return the message without the name of the data directory."""
    for path, name in paths:
        value = value.replace(path, name) if isinstance(value, str) else value
    return value


MAPS = r"""
# a comment
m ann ann
m /^(.*)@example\.com$ \1
"m x" "a b" "c"
m "/x" y
m /( ann
m /a{2,1} ann
m ann
m a,b ann
m @users ann
m @nosuch ann
"""


def test_each_map_is_read_as_postgresql_reads_it(node: Server, postgres: Server) -> None:
    mappings, names = [], []
    for server in (node, postgres):
        path = server.data / "pg_ident.conf"
        maps_before = path.read_text()
        (server.data / "users").write_text("ann")
        path.write_text(MAPS)
        with psycopg.connect(server.conninfo()) as session:
            mappings.append(session.execute("SELECT * FROM pg_ident_file_mappings").fetchall())
        names.append((str(server.data), "DIR"))
        path.write_text(maps_before)
        (server.data / "users").unlink()
    for node_value, native in zip(*mappings, strict=True):
        assert [comparable(value, names) for value in node_value] == [comparable(value, names) for value in native]


def test_invalid_maps_are_logged_and_the_old_ones_stay_in_force(server: Server) -> None:
    log = Log(server)
    path = server.data / "pg_ident.conf"
    maps_before = path.read_text()
    path.write_text("m ann\n")
    server.psql("postgres", "SELECT pg_reload_conf()")
    until(lambda: log.matching("pg_ident.conf was not reloaded"), "the invalid file is not reported")
    assert log.matching(f'missing entry in file "{path}" at end of line 1')
    path.write_text(maps_before)


@pytest.mark.parametrize(
    ("name", "user", "system", "right"),
    [
        ("m", "ann", "ann", True),
        ("m", "ann", "bob", False),
        ("other", "ann", "ann", False),
        ("m", "bob", "bob@example.com", True),
        ("m", "bob", "ann@example.com", False),
        ("m", "bob", "bob@example.org", False),
        ("m", "guest", "anybody else", True),
        ("m", "\\1", "no group", False),
    ],
)
def test_user_name_map_decides_which_role_a_system_user_may_be(tmp_path: Path, name: str, user: str, system: str, right: bool) -> None:
    path = tmp_path / "pg_ident.conf"
    path.write_text('m ann ann\nm /^(.*)@example\\.com$ \\1\nm "/ else$" guest\nm "/^no group" \\1\n')
    ident_map = IdentMap.read(path)
    assert not ident_map.complaints
    assert ident_map.allows(name, user, system) == right


def test_only_superusers_can_read_the_rules(server: Server) -> None:
    server.psql("postgres", "CREATE ROLE hba_reader LOGIN")
    try:
        with psycopg.connect(server.conninfo(user="hba_reader")) as session, pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
            session.execute("SELECT * FROM pg_hba_file_rules")
        assert str(refused.value) == "permission denied for view pg_hba_file_rules"
    finally:
        server.psql("postgres", "DROP ROLE hba_reader")


@pytest.mark.parametrize("line", ["host @nosuch all 127.0.0.1/32 trust", "host all all all nosuch", "hostssl all all all"])
def test_invalid_file_leaves_the_rules_in_force(server: Server, line: str) -> None:
    log = Log(server)
    with access(server, f"{line}\nhost all all all reject\n") as path:
        server.psql("postgres", "SELECT pg_reload_conf()")
        until(lambda: log.matching("pg_hba.conf was not reloaded"), f"the invalid file is not reported: {log.entries()}")
        assert server.psql("postgres", "SELECT 1") == "1"
    [complaint] = [entry for entry in log.entries() if "nosuch" in entry.message or "end-of-line" in entry.message]
    name = str(path.parent)
    expected = {
        "host @nosuch all 127.0.0.1/32 trust": (
            f'could not open secondary authentication file "@nosuch" as "{name}/nosuch": No such file or directory',
            "",
        ),
        "host all all all nosuch": ('invalid authentication method "nosuch"', f'line 1 of configuration file "{path}"'),
        "hostssl all all all": ("end-of-line before authentication method", f'line 1 of configuration file "{path}"'),
    }
    assert (complaint.message, complaint.context) == expected[line]


def test_empty_file_is_not_used(server: Server) -> None:
    log = Log(server)
    with access(server, "# nothing\n") as path:
        server.psql("postgres", "SELECT pg_reload_conf()")
        until(lambda: log.matching("pg_hba.conf was not reloaded"), "the invalid file is not reported")
        assert log.matching(f'configuration file "{path}" contains no entries')


# ---- which line fits ------------------------------------------------------------------------------------
def fits(tmp_path: Path, line: str, connection_request: ConnectionRequest) -> bool:
    path = tmp_path / "pg_hba.conf"
    path.write_text(line)
    return HbaFile.read(path).match(connection_request) is not None


def from_address(address: str, *, tls: bool = False) -> ConnectionRequest:
    return ConnectionRequest(address, "ann", "sales", False, frozenset({"ann", "staff"}), tls, ClientHost(address))


@pytest.mark.parametrize(
    ("line", "plain", "encrypted"),
    [
        ("host all all all trust", True, True),
        ("hostssl all all all trust", False, True),
        ("hostnossl all all all trust", True, False),
        ("hostgssenc all all all trust", False, False),
        ("hostnogssenc all all all trust", True, True),
        ("local all all trust", False, False),
        ("host samerole all all trust", False, False),
        ("host all +staff all trust", True, True),
        ('host all "+staff" all trust', False, False),
        ("host all +ann all trust", True, True),
        ("host replication all all trust", False, False),
        ("host all all 10.0.2.0 255.0.255.0 trust", True, True),
        ("host all all 10.0.3.0 255.0.255.0 trust", False, False),
        ("host all all ::ffff:10.1.2.3/128 trust", False, False),
    ],
)
def test_line_matches_its_kind_of_connection(tmp_path: Path, line: str, plain: bool, encrypted: bool) -> None:
    assert fits(tmp_path, line, from_address("10.1.2.3")) == plain
    assert fits(tmp_path, line, from_address("10.1.2.3", tls=True)) == encrypted


def test_samehost_and_samenet_match_the_machines_own_addresses_and_networks(tmp_path: Path) -> None:
    own_interfaces = [interface for interface in interfaces() if interface.version == 4]
    assert "127.0.0.1" in [str(interface.ip) for interface in own_interfaces]
    for own_interface in own_interfaces:
        assert fits(tmp_path, "host all all samehost trust", from_address(str(own_interface.ip)))
        neighbour = str(own_interface.ip + 1 if own_interface.ip + 1 in own_interface.network else own_interface.ip)
        assert fits(tmp_path, "host all all samenet trust", from_address(neighbour))
        assert neighbour in [str(interface.ip) for interface in own_interfaces] or not fits(
            tmp_path, "host all all samehost trust", from_address(neighbour)
        )
    assert not fits(tmp_path, "host all all samenet trust", from_address("198.51.100.1"))


def test_host_name_must_resolve_back_to_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"10.1.2.3": "db.example.com", "10.6.6.6": "db.example.com"}
    places = {"db.example.com": "10.1.2.3"}

    def getnameinfo(address: tuple[str, int], flags: int) -> tuple[str, str]:
        if address[0] not in names:
            raise OSError(-2, "Name or service not known")
        return names[address[0]], "0"

    monkeypatch.setattr(socket, "getnameinfo", getnameinfo)
    lookup = socket.getaddrinfo

    def getaddrinfo(name: str, port: None, **more: int) -> list[tuple[object, ...]]:
        return [(2, 1, 6, "", (places[name], 0))] if not more else list(lookup(name, port, **more))

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    for pattern, right in (("DB.example.com", True), (".EXAMPLE.com", True), ("example.com", False), (".db.example.com", False)):
        assert fits(tmp_path, f"host all all {pattern} trust", from_address("10.1.2.3")) == right, pattern
        assert not fits(tmp_path, f"host all all {pattern} trust", from_address("10.6.6.6"))
        assert not fits(tmp_path, f"host all all {pattern} trust", from_address("10.9.9.9"))
    liar = from_address("10.6.6.6")
    fits(tmp_path, "host all all .example.com trust", liar)
    assert liar.host is not None
    assert liar.host.detail == 'Client IP address resolved to "db.example.com", forward lookup does not match.'
