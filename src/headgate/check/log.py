"""Check of the transaction log against the versions of the tables: a version that an entry names must exist, and vice versa.

`judged` checks one table, given the content of its folder and of the log; `findings` reads these. The states of a version:

    named       a row of hg.table_version, which its entry wrote, names it; its mark is that entry's transaction
    undone      own mark, no entry, and a later version undoes it
    adopted     another writer's, named by the entry of its adoption or by that of a later one
    above       not yet in the log: left by a crash, or just committed by another writer
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headgate.catalog.physical import rows
from headgate.check.finding import Finding, error, notice, warning
from headgate.check.subject import Subject
from headgate.errors import PostgresError
from headgate.storage import lost_commits
from headgate.storage.delta import delta_log, file_action
from headgate.storage.delta.commit_mark import marked_with, transaction_mark, undone_to
from headgate.storage.location import data_location
from headgate.storage.location.table_folders import Key
from headgate.storage.transaction import intent as intents
from headgate.storage.transaction import prepared

LOG = "transaction log"
OLDER = "restore the catalog with its log, or all from one backup"
_NO_ENTRY = "has no entry in the transaction log"


@dataclass(frozen=True)
class Logged:
    """The log entries of a table. `version`: the newest; `named`: all versions; `written`: transactions by the versions that they wrote.

    `intended`: transactions that were committing, or were being undone, when the node ended.
    """

    version: int
    named: frozenset[int]
    written: Mapping[int, int] = field(default_factory=dict)
    intended: frozenset[int] = frozenset()

    @property
    def oldest(self) -> int:
        """Return the oldest version in the log. Older ones were trimmed."""
        return min(self.named)


@dataclass(frozen=True)
class Folder:
    """The content of a table's folder: the mark of each version (None: another writer's), unreadable versions, checkpoints."""

    marks: Mapping[int, str | None]
    damaged: frozenset[int]
    checkpoints: frozenset[int]


def findings(subject: Subject) -> Iterator[Finding]:
    yield from _entries(subject)
    logged = _logged_versions(subject)
    for key in sorted(subject.tables):
        subject.progress(f"versions of {subject.title(key)}")
        lost = False
        for problem in judged(subject.title(key), logged[key], _folder(subject, key), running=subject.running):
            lost = lost or problem.severity == "error"
            yield problem
        if lost:
            subject.damaged.add(key)
    yield from _intents(subject)
    yield from _check_prepared(subject)


def judged(place: str, logged: Logged, folder: Folder, *, running: bool) -> Iterator[Finding]:
    """Yield the problems of the versions of one table. In a running node, versions above the log's are in use and not reported."""
    existing = sorted({*folder.marks, *folder.damaged})
    if not existing:
        yield error(place, "its folder has no versions")
        return
    if existing[0] and not any(existing[0] <= checkpoint for checkpoint in folder.checkpoints):
        yield error(place, f"version {existing[0] - 1} and what is before are missing, and no checkpoint has them")
    for version in range(existing[0], logged.version + 1):
        if version in folder.damaged:
            yield error(place, f"the commit file of version {version} is damaged")
        elif version not in folder.marks:
            yield error(place, f"version {version} is missing")
        elif version in logged.written:
            yield from _check_mark(place, version, folder.marks[version], logged.written[version])
    if not running:
        yield from _above(place, logged, folder)
    yield from _find_unnamed(place, logged, folder)


def _check_mark(place: str, version: int, mark: str | None, xid: int) -> Iterator[Finding]:
    if mark is None:
        yield error(place, f"version {version} does not bear the node's mark")
    elif mark != transaction_mark(xid):
        yield error(place, f"version {version} bears another mark than that of transaction {xid}, which wrote it")


def _find_unnamed(place: str, logged: Logged, folder: Folder) -> Iterator[Finding]:
    """Yield findings for versions that no entry names, among those that the log should have."""
    for version, mark in sorted(folder.marks.items()):
        if not logged.oldest < version <= logged.version or version in logged.named:
            continue
        following = next((named for named in sorted(logged.named) if named > version), None)
        if mark is None:
            adopted = following is not None and folder.marks.get(following) is None
        else:
            adopted = _is_undone(version, mark, folder.marks)
        if not adopted:
            yield error(place, f"version {version} {_NO_ENTRY}")


def _is_undone(version: int, mark: str, marks: Mapping[int, str | None]) -> bool:
    """Return whether a later version undoes an own version, or it is itself one that undoes others."""
    if undone_to(mark) is not None:
        return True
    targets = {later: undone_to(later_mark) for later, later_mark in marks.items() if later > version and later_mark is not None}
    return any(target is not None and target < version for target in targets.values())


def _above(place: str, logged: Logged, folder: Folder) -> Iterator[Finding]:
    """Yield findings for versions after the log's newest, in the folder of a stopped node."""
    above = [(version, mark) for version, mark in sorted(folder.marks.items()) if version > logged.version]
    lost = dict(lost_commits.of_versions(above, logged.intended))
    for version in sorted({*folder.marks, *folder.damaged}):
        if version <= logged.version:
            continue
        mark = folder.marks.get(version)
        if version in folder.damaged:
            yield warning(
                place, f"the commit file of version {version}, behind the last that is in the log, is torn", "a start sets it aside"
            )
        elif version in lost:
            yield error(place, f"the catalog is older than version {version}: it does not know transaction {lost[version]}", OLDER)
        elif mark is None:
            yield notice(place, f"version {version} is another writer's and not yet in the log", "the node adopts it when it runs")
        elif not _is_undone(version, mark, folder.marks):
            yield notice(place, f"version {version} is not yet in the log", "the next start completes its transaction or takes it back")


# ---- what is read ----------------------------------------------------------------------------------------------------


def _logged_versions(subject: Subject) -> dict[Key, Logged]:
    named: dict[Key, set[int]] = {}
    for database, relation, version in rows(subject.cursor, "SELECT dbid, relid, version FROM hg.table_version WHERE NOT dropped"):
        named.setdefault((database, relation), set()).add(version)
    xids: dict[Key, dict[int, int]] = {}
    # a write of another writer has no files in the log; those of a prepared transaction get their version at its end
    for database, relation, version, xid in rows(
        subject.cursor,
        "SELECT e.dbid, w.relid, w.version, e.xid FROM hg.log_write w JOIN hg.log_entry e USING (commit_lsn)"
        " WHERE e.kind = 'commit' AND w.kind IN ('write', 'truncate') AND w.files IS NOT NULL UNION ALL"
        " SELECT e.dbid, v.relid, v.version, e.xid FROM hg.log_entry e JOIN hg.table_version v ON v.dbid = e.dbid AND v.lsn = e.end_lsn"
        " JOIN hg.log_write w ON w.commit_lsn = e.prepared AND w.relid = v.relid AND w.files IS NOT NULL"
        " WHERE e.kind = 'commit prepared' AND NOT v.dropped",
    ):
        xids.setdefault((database, relation), {})[version] = xid
    intended = frozenset(xid for (xid,) in rows(subject.cursor, "SELECT xid FROM hg.intent"))
    return {key: Logged(table.version, frozenset(named[key]), xids.get(key, {}), intended) for key, table in subject.tables.items()}


def _folder(subject: Subject, key: Key) -> Folder:
    path = subject.path(key)
    marks: dict[int, str | None] = {}
    damaged = set()
    for version in sorted(delta_log.versions(path), reverse=True):
        if subject.running and version > subject.tables[key].version:
            continue
        try:
            marks[version] = marked_with(delta_log.read_version(path, version))
        except FileNotFoundError:
            break  # cleaning trims meanwhile, the oldest first
        except (PostgresError, OSError):
            damaged.add(version)
    return Folder(marks, frozenset(damaged), frozenset(delta_log.checkpoints(path)))


def _entries(subject: Subject) -> Iterator[Finding]:
    """Check the entries themselves: they must not overlap, and the entries of writes and versions must exist."""
    twice = (
        "SELECT count(*) FROM (SELECT commit_lsn, end_lsn, lag(end_lsn) OVER (ORDER BY end_lsn, commit_lsn) AS before FROM hg.log_entry)"
        " WHERE commit_lsn >= end_lsn OR commit_lsn < before"
    )
    orphans = "SELECT count(*) FROM hg.{0} WHERE commit_lsn NOT IN (SELECT commit_lsn FROM hg.log_entry)"
    ahead = f"SELECT count(*) FROM hg.table_version WHERE lsn > {int(subject.end)}"
    for sql, what in (
        (twice, "entries overlap"),
        (orphans.format("log_write"), "writes belong to no entry"),
        (orphans.format("log_message"), "messages belong to no entry"),
        (ahead, "versions of tables are of a later position than the end of the log"),
    ):
        count = rows(subject.cursor, sql)[0][0]
        if count:
            yield error(LOG, f"{count} {what}")


def _intents(subject: Subject) -> Iterator[Finding]:
    """Check that the files of interrupted COMMITs are complete. In a running node they are in progress and not checked."""
    done = set(rows(subject.cursor, "SELECT xid, kind FROM hg.log_entry WHERE xid IN (SELECT xid FROM hg.intent)"))
    for xid, body in rows(subject.cursor, "SELECT xid, body FROM hg.intent ORDER BY xid"):
        if intents.is_undone(body):
            continue
        try:
            intent = intents.read_body(body)
            if intent.xid != xid:
                raise ValueError(xid)
        except Exception:  # noqa: BLE001 (pickle may raise any exception)
            yield error(LOG, f"what transaction {xid} was committing cannot be read")
            continue
        if (xid, str(intent.kind)) in done or subject.running:
            continue
        missing = [
            (relation, path)
            for relation, (_, actions) in intent.tables.items()
            for path in file_action.files_of(subject.path((intent.database, relation)), actions)
            if not data_location.has_file(path)
        ]
        for relation, path in missing:
            yield error(
                subject.title((intent.database, relation)), f'file "{path.name}" of transaction {xid}, which was committing, is missing'
            )
        if not missing:
            yield notice(LOG, f"transaction {xid} was committing", "the next start completes it")


def _check_prepared(subject: Subject) -> Iterator[Finding]:
    """Check that the entry, the body and the files of prepared transactions exist."""
    entries = dict(rows(subject.cursor, "SELECT commit_lsn, xid FROM hg.log_entry WHERE kind = 'prepare'"))
    for xid, gid, database, position, body in rows(subject.cursor, "SELECT xid, gid, dbid, commit_lsn, body FROM hg.prepared_xact"):
        place = f'prepared transaction "{gid}" of {subject.database(database)}'
        try:
            tables = prepared.read_body(body)[0]
        except Exception:  # noqa: BLE001 (pickle may raise any exception)
            yield error(place, "what it has written cannot be read")
            continue
        if entries.get(position) != xid:
            yield error(place, _NO_ENTRY)
        for relation, (_, actions) in tables.items():
            for path in file_action.files_of(subject.path((database, relation)), actions):
                if not data_location.has_file(path):
                    yield error(place, f'file "{path.name}" of {subject.title((database, relation))} is missing')
