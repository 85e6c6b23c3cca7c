"""A replication connection to the node of a data directory, for the commands that a running node executes.

Called by `check`, `backup`, `tables` and `verify`. The node's pid file has its address. The role is the one in the option -U, otherwise
that of PGUSER or PGSERVICE, otherwise the one that initdb created. The password comes from PGPASSWORD or .pgpass.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from headgate.cli import control, pidfile
from headgate.cli.message import fail, show_progress
from headgate.errors import PostgresError


@contextmanager
def opened(data_dir: Path, username: str | None, database: str = "postgres") -> Iterator[psycopg.Connection[TupleRow]]:
    """Open the connection. Errors of the node become PostgresError."""
    control.check_directory(data_dir)
    running = pidfile.read(data_dir)
    if running is None or not pidfile.alive(data_dir):
        fail(f'no node is running in directory "{data_dir}"')
    if username is None and not {"PGUSER", "PGSERVICE"} & os.environ.keys():
        username = running.superuser
    host = running.directory or running.host
    try:
        conninfo = make_conninfo(host=host, port=running.port, user=username, dbname=database, replication="database")
        # psycopg prepares statements that it executes often, and a replication connection does not support that
        with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as connection:
            yield connection
    except psycopg.Error as error:
        show_progress("")
        diagnostic = error.diag
        message = diagnostic.message_primary or str(error).strip()
        raise PostgresError(diagnostic.sqlstate or "08006", message, diagnostic.message_detail, diagnostic.message_hint) from error


def show_progress_of(connection: psycopg.Connection[TupleRow], beginning: str) -> None:
    """On a terminal, show the progress of long commands, which the node sends in DEBUG messages with this beginning."""
    if not sys.stderr.isatty():
        return

    def show(notice: psycopg.errors.Diagnostic) -> None:
        if (text := notice.message_primary or "").startswith(beginning):
            show_progress(text)

    connection.add_notice_handler(show)
    connection.execute("SET client_min_messages = debug5")
