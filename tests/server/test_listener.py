"""A node listens on the configured addresses and directories, and does not replace the socket of a running server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import Server

from headgate.errors import PostgresError
from headgate.server.listener import Listener
from headgate.server.protocol.connection import Connection
from headgate.settings import check

PORT = 5432
"""A part of the socket's name. No test listens on this TCP port."""


def unserved(connection: Connection) -> None:
    raise AssertionError("a client connected")


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[Callable[[Path], Listener]]:
    """Return a function that creates listeners on a Unix socket in a directory. They are closed at the end."""
    opened: list[Listener] = []

    def make(directory: Path) -> Listener:
        opened.append(Listener([], PORT, [str(directory)], tmp_path, unserved))
        return opened[-1]

    yield make
    for listener in opened:
        listener.close()


PLACES = [
    ("", []),
    ("localhost", ["localhost"]),
    ("127.0.0.1, ::1", ["127.0.0.1", "::1"]),
    ("/tmp/hG1xY", ["/tmp/hG1xY"]),
    (' /var/My Sockets , "/var/a,b" ', ["/var/My Sockets", "/var/a,b"]),
    ('"/a""b"', ['/a"b']),
]


@pytest.mark.parametrize(("text", "places"), PLACES)
def test_places_are_parsed_as_written(text: str, places: list[str]) -> None:
    assert check.split_places("unix_socket_directories", text) == places


@pytest.mark.parametrize("text", [",", "/a,", ",/a", '"/a', '"/a"b', "/a,,/b"])
def test_list_of_places_with_a_missing_part_is_rejected(text: str) -> None:
    with pytest.raises(PostgresError, match='invalid list syntax in parameter "unix_socket_directories"') as refused:
        check.split_places("unix_socket_directories", text)
    assert refused.value.sqlstate == "22023"


def test_case_of_a_socket_directory_is_kept(tmp_path: Path, listeners: Callable[[Path], Listener]) -> None:
    directory = tmp_path / "Capital Letters"
    directory.mkdir()
    settings_text = str(directory)
    listener = listeners(Path(check.split_places("unix_socket_directories", settings_text)[0]))
    listener.open()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(directory / ".s.PGSQL.5432"))
    assert (directory / ".s.PGSQL.5432.lock").read_text().split("\n")[3:5] == ["5432", str(directory)]
    listener.close()
    assert list(directory.iterdir()) == []


def test_socket_of_a_running_server_is_not_taken(tmp_path: Path, listeners: Callable[[Path], Listener]) -> None:
    listeners(tmp_path).open()
    second = listeners(tmp_path)
    with pytest.raises(PostgresError, match=r'lock file ".*/.s.PGSQL.5432.lock" already exists') as refused:
        second.open()
    assert refused.value.sqlstate == "F0001"
    second.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(tmp_path / ".s.PGSQL.5432"))


def test_socket_of_a_dead_server_is_replaced(tmp_path: Path, listeners: Callable[[Path], Listener]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / ".s.PGSQL.5432"))
    (tmp_path / ".s.PGSQL.5432.lock").write_text("1\n")
    listeners(tmp_path).open()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(tmp_path / ".s.PGSQL.5432"))


def test_missing_directory_is_named_with_the_cause(tmp_path: Path, listeners: Callable[[Path], Listener]) -> None:
    with pytest.raises(PostgresError) as refused:
        listeners(tmp_path / "gone").open()
    assert (refused.value.sqlstate, refused.value.message) == (
        "58030",
        f'could not create lock file "{tmp_path}/gone/.s.PGSQL.5432.lock": No such file or directory',
    )
    assert refused.value.hint == "Create the directory, or change unix_socket_directories."


def test_node_and_postgresql_do_not_take_each_others_sockets(cluster: Callable[..., Server], listeners: Callable[[Path], Listener]) -> None:
    server = cluster(listen_addresses="''")
    second = Listener([], server.port, [str(server.folder)], server.folder, unserved)
    with pytest.raises(PostgresError, match="already exists") as refused:
        second.open()
    assert refused.value.hint is not None
    assert f"PID {server.pid}" in refused.value.hint
