"""A session on a bare engine, without a server: what the command tests type statements into.

`LocalSession` does what the server's session does for commands: one transaction per statement or block, notices, settings. Its
`type` gives what psql would show: rows joined by ``|``, or the tag, or the error with its notices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from headgate.catalog.catalog import Catalog
from headgate.catalog.session import SessionContext
from headgate.catalog.usertype import KnownTypes
from headgate.commands.execute import execute
from headgate.commands.result import CopyIn, CopyOut
from headgate.errors import Notices, PostgresError
from headgate.sql.parser import parse
from headgate.storage.engine import Engine
from headgate.types.resultset import ResultSet


class LocalSettings:
    """The settings that commands ask for."""

    values: ClassVar = {
        "wal_level": "logical",
        "extra_float_digits": 1,
        "bytea_output": "hex",
        "session_replication_role": "origin",
        "row_security": "on",
    }

    def value(self, name: str) -> Any:
        return self.values[name]

    def text(self, name: str) -> str:
        return str(self.values[name])


class LocalLauncher:
    """Takes note of what the subscription commands ask of the launcher."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def wake(self) -> None:
        self.calls.append("wake")

    def hold(self, subscription: int) -> None:
        self.calls.append("hold")

    def release(self, subscription: int) -> None:
        self.calls.append("release")

    def stop_table(self, subscription: int, relation: int) -> None:
        self.calls.append("stop_table")


class LocalSlots:
    """No slots."""

    def drop(self, name: str) -> None:
        raise AssertionError(name)


class LocalNode:
    """The parts of a node that commands use."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.catalog = engine.catalog
        self.launcher = LocalLauncher()
        self.slots = LocalSlots()
        self.system_identifier = 7000000000000000001

    def sessions_of(self, database: int) -> int:
        return 0

    def terminate_database(self, database: int) -> None:
        pass


class LocalSession:
    """See the module."""

    def __init__(self, engine: Engine, database: int = 5, database_name: str = "postgres", user: str = "postgres") -> None:
        self.engine = engine
        self.node = LocalNode(engine)
        self.context = SessionContext(database, database_name, user, pid=1)
        self.notices = Notices()
        self.settings = LocalSettings()
        self.parameters: tuple[Any, ...] = ()
        self.dynamic: dict[str, Any] = {"relation_sizes": engine.sizes}
        self.functions: dict[str, Any] = {}
        self.job_group = "test"
        self.snapshot = None
        self.in_block = False
        self.transaction: Any = None
        self._types = KnownTypes(self.node.catalog, database)
        self._after_commit: list[Callable[[], None]] = []
        self._after_rollback: list[Callable[[], None]] = []

    def begin_statement(self) -> Any:
        if self.transaction is None:
            self.transaction = self.engine.begin(self.context.database)
            self.context.transaction_start = self.context.statement_start
        return self.transaction

    def use_types(self) -> None:
        """Puts the database's types in force, as the server does before each statement."""
        self._types.use(self.context.user, self.context.search_path, None if self.transaction is None else self.transaction.cursor)

    def prevent_in_block(self, command: str) -> None:
        if self.in_block:
            raise PostgresError("25001", f"{command} cannot run inside a transaction block")

    def check_cancel(self) -> None:
        pass

    def cancelling(self, stop: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def after_commit(self, action: Callable[[], None]) -> None:
        self._after_commit.append(action)

    def after_rollback(self, action: Callable[[], None]) -> None:
        self._after_rollback.append(action)

    def _end(self, *, commit: bool) -> None:
        transaction, self.transaction, self.in_block = self.transaction, None, False
        if transaction is not None:
            transaction.commit() if commit else transaction.rollback()
        for action in self._after_commit if commit else self._after_rollback:
            action()
        self._after_commit, self._after_rollback = [], []

    def type(self, text: str, copy: str = "") -> str:
        """Runs statements; gives what psql -At prints, errors and notices as the acceptance's `answers` shows them."""
        shown: list[str] = []
        for statement in parse(text):
            try:
                shown += self._one(statement, copy)
            except PostgresError as error:
                shown += self._said()
                shown.append(describe_error("ERROR", error))
                self._end(commit=False)
                break
        return "\n".join(shown)

    def copied(self, text: str, data: bytes) -> bytes | str:
        """A COPY: what it sends, or its tag, or its error: SQLSTATE, message, DETAIL, CONTEXT."""
        [statement] = parse(text)
        try:
            result = execute(statement.node, text, self)
            if isinstance(result, CopyOut):
                sent = b"".join(each if isinstance(each, bytes) else each.encode() for lines in result.lines for each in lines.to_pylist())
            else:
                assert isinstance(result, CopyIn)
                result.consume(iter([data]))
                sent = f"COPY {result.progress.rows}"
        except PostgresError as error:
            self._end(commit=False)
            return f"{error.sqlstate} {error.message} {error.detail} {error.context}"
        self._end(commit=True)
        return sent

    def _one(self, statement: Any, copy: str) -> list[str]:
        self.context.statement_start = datetime.now(UTC)
        if statement.kind == "TransactionStmt":
            word = statement.source.split()[0].upper()
            if word in ("BEGIN", "START"):
                self.in_block = True
                self.begin_statement()
            else:
                self._end(commit=word in ("COMMIT", "END"))
            return []
        if statement.kind == "VariableSetStmt" and statement.node.name == "search_path":
            self.context.search_path = [each.a_const.sval.sval for each in statement.node.args] or ["$user", "public"]
            return []
        if self.transaction is not None and self.in_block:
            self.transaction.statement()
        self.use_types()
        result = execute(statement.node, statement.text, self)
        lines = list(_rows(result)) if isinstance(result, ResultSet) else _copied(result, copy)
        if not self.in_block:
            self._end(commit=True)
        return self._said() + lines

    def _said(self) -> list[str]:
        said, self.notices.said = self.notices.said, []
        return [describe_error(str(each.severity), each) for each in said]

    def tag(self, text: str) -> str:
        """The tag of one statement."""
        [statement] = parse(text)
        result = execute(statement.node, text, self)
        if isinstance(result, ResultSet):
            list(result)
            tag = result.command_tag
        else:
            tag = result.tag  # type: ignore[union-attr]
        self._end(commit=True)
        return tag


def describe_error(word: str, error: Any) -> str:
    """'ERROR 42601: text' with its DETAIL and HINT lines."""
    lines = [f"{word} {error.sqlstate}: {error.message}"]
    if error.detail:
        lines.append(f"DETAIL: {error.detail}")
    if error.hint:
        lines.append(f"HINT: {error.hint}")
    return "\n".join(lines)


def _rows(result: ResultSet) -> Iterator[str]:
    for batch in result:
        columns = [column.to_pylist() for column in batch.columns]
        for place in range(batch.num_rows):
            yield "|".join("" if column[place] is None else column[place] for column in columns)


def _copied(result: Any, copy: str) -> list[str]:
    if isinstance(result, CopyOut):
        data = b"".join(
            bytes(each.as_py() if isinstance(each.as_py(), bytes) else each.as_py().encode()) for lines in result.lines for each in lines
        )
        return [data.decode(errors="replace").rstrip("\n")]
    if isinstance(result, CopyIn):
        result.consume(iter([copy.encode()]))
        return [f"COPY {result.progress.rows}"]
    return []


@contextlib.contextmanager
def local_engine(spark: Any, folder: Path) -> Iterator[Engine]:
    """An engine on an empty directory, on a Spark session that exists."""
    catalog = Catalog.create(folder / "catalog.duckdb")
    engine = Engine({}, catalog, folder, session=spark)
    engine.recover()
    try:
        yield engine
    finally:
        engine.stop()
        catalog.close()
