"""Damages to a copy of a node's directory, and the lines that the check must report for each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.check.scene import Copy

from headgate.lsn import Lsn
from headgate.storage.delta import deletion_vector

Damage = Callable[[Copy], list[str]]
RESTORE = "(restore it from a backup)"
MEND = "(change or delete these rows)"
REMAKE = "(restore the catalog from a backup, or drop and make the object again)"
COPY = "(drop the slot, and copy its subscriber's tables anew)"


def of(table: str, what: str) -> str:
    """Return an error about a table that a backup can repair."""
    return f'error: table "public"."{table}": {what} {RESTORE}'


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


# ---- the log and the versions ------------------------------------------------------------------------------------------


def marked(copy: Copy, table: str, mark: str | None) -> int:
    """Replace the transaction mark of the newest version of a table. Return its version number."""
    version = copy.versions(table)[-1]
    actions = [json.loads(line) for line in version.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"].pop("userMetadata")
            action["commitInfo"] |= {} if mark is None else {"userMetadata": mark}
    version.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return int(version.stem)


def lost_version(copy: Copy) -> list[str]:
    version = copy.versions("parent")[-1]
    version.unlink()
    return [of("parent", f"version {int(version.stem)} is missing")]


def gap(copy: Copy) -> list[str]:
    copy.versions("plain")[1].unlink()
    return [of("plain", "version 1 is missing")]


def torn_version(copy: Copy) -> list[str]:
    version = copy.versions("divided_eu")[1]
    version.write_text(version.read_text()[:-20])
    return [of("divided_eu", "the commit file of version 1 is damaged")]


def other_mark(copy: Copy) -> list[str]:
    version = marked(copy, "child", "headgate 9")
    xid = copy.catalog(
        f"SELECT e.xid FROM hg.log_entry e JOIN hg.log_write w USING (commit_lsn) WHERE relid = {copy.oid('child')} AND version = {version}"
    )
    return [of("child", f"version {version} bears another mark than that of transaction {xid[0][0]}, which wrote it")]


def no_mark(copy: Copy) -> list[str]:
    return [of("divided_us", f"version {marked(copy, 'divided_us', None)} does not bear the node's mark")]


def unlogged_version(copy: Copy) -> list[str]:
    copy.catalog(f"DELETE FROM hg.table_version WHERE relid = {copy.oid('divided_us')} AND version = 1")
    copy.catalog(f"DELETE FROM hg.log_write WHERE relid = {copy.oid('divided_us')} AND version = 1")
    return [of("divided_us", "version 1 has no entry in the transaction log")]


def other_writers_version(copy: Copy) -> list[str]:
    newest = copy.versions("copied")[-1]
    newest.with_name(f"{int(newest.stem) + 1:020d}.json").write_text('{"commitInfo":{"operation":"OPTIMIZE"}}\n')
    return [
        f'notice: table "public"."copied": version {int(newest.stem) + 1} is another writer\'s and not yet in the log (the node adopts it when it runs)'
    ]


def older_catalog(copy: Copy) -> list[str]:
    newest = copy.versions("copied")[-1]
    action = {"commitInfo": {"operation": "WRITE", "userMetadata": "headgate 999999"}}
    newest.with_name(f"{int(newest.stem) + 1:020d}.json").write_text(json.dumps(action) + "\n")
    return [
        f'error: table "public"."copied": the catalog is older than version {int(newest.stem) + 1}: it does not know transaction 999999'
        " (restore the catalog with its log, or all from one backup)"
    ]


def broken_intent(copy: Copy) -> list[str]:
    copy.catalog("INSERT INTO hg.intent VALUES (5000, 'nothing'::BLOB)")
    return [f"error: transaction log: what transaction 5000 was committing cannot be read {RESTORE}"]


def orphaned_write(copy: Copy) -> list[str]:
    copy.catalog("INSERT INTO hg.log_write BY NAME SELECT 1 AS commit_lsn, 0 AS seq, 'message' AS kind")
    return [f"error: transaction log: 1 writes belong to no entry {RESTORE}"]


# ---- files ---------------------------------------------------------------------------------------------------------------


def vector_of(copy: Copy, table: str) -> Path:
    [found] = [
        vector_path for add in copy.adds(table) if (vector_path := deletion_vector.file_of(copy.folder(table), add.get("deletionVector")))
    ]
    return found


def lost_data_file(copy: Copy) -> list[str]:
    file = copy.files("plain")[0]
    file.unlink()
    return [of("plain", f'data file "{file.name}" is missing')]


def cut_data_file(copy: Copy) -> list[str]:
    file = copy.files("divided_us")[0]
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-10])
    return [of("divided_us", f'data file "{file.name}" has {size - 10} bytes, not {size}')]


def flipped_bit(copy: Copy) -> list[str]:
    file = copy.files("child")[0]
    flip(file, 60)
    return [of("child", f'data file "{file.name}" is damaged')]


def other_number_of_rows(copy: Copy) -> list[str]:
    version = copy.versions("copied")[-1]
    version.write_text(version.read_text().replace('\\"numRecords\\":2', '\\"numRecords\\":3'))
    return [of("copied", f'data file "{copy.files("copied")[0].name}" has 2 rows, not 3')]


def damaged_vector(copy: Copy) -> list[str]:
    file = vector_of(copy, "parent")
    flip(file, file.stat().st_size - 8)
    return [of("parent", f'deletion vector in file "{file.name}" is damaged')]


def lost_vector(copy: Copy) -> list[str]:
    file = vector_of(copy, "child")
    file.unlink()
    return [of("child", f'deletion vector in file "{file.name}" is missing')]


def lost_changes(copy: Copy) -> list[str]:
    [file] = copy.folder("divided_eu").glob("_change_data/*.parquet")
    file.unlink()
    return [of("divided_eu", f'file of changes that a slot needs, "_change_data/{file.name}" is missing')]


def lost_prepared_file(copy: Copy) -> list[str]:
    [file] = copy.folder("empty").glob("*.parquet")
    file.unlink()
    return [f'error: prepared transaction "kept": file "{file.name}" of table "public"."empty" is missing {RESTORE}']


# ---- rows ----------------------------------------------------------------------------------------------------------------


def repeated_key(copy: Copy) -> list[str]:
    copy.add_rows("parent", id=[1, 1, 2], v=["x", "x", "x"])
    return [f'error: table "public"."parent": 2 keys of unique index "parent_pkey" are there more than once {MEND}']


def missing_value(copy: Copy) -> list[str]:
    copy.add_rows("parent", id=[2001, 2002])
    return [f'error: table "public"."parent": 2 rows have NULL in column "v", which is NOT NULL {MEND}']


def failed_check(copy: Copy) -> list[str]:
    copy.add_rows("parent", id=[2_000_000], v=["x"])
    return [f'error: table "public"."parent": 1 rows violate check constraint "small" {MEND}']


def outside_of_its_domain(copy: Copy) -> list[str]:
    copy.add_rows("child", id=[-1], word=["u"], n=[1007])
    return [f'error: table "public"."child": 1 rows are outside of the domain of column "id" {MEND}']


def repeated_null(copy: Copy) -> list[str]:
    copy.add_rows("child", id=[1001, 1002], word=["p", "q"])
    return [f'error: table "public"."child": 1 keys of unique index "one_null" are there more than once {MEND}']


def repeated_expression(copy: Copy) -> list[str]:
    copy.add_rows("child", id=[1003], word=["WORD 7"], n=[1003])
    return [f'error: table "public"."child": 1 keys of unique index "by_word" are there more than once {MEND}']


def repeated_in_part(copy: Copy) -> list[str]:
    copy.add_rows("child", id=[1004, 1005], parent_id=[50, 50], word=["r", "s"], n=[1004, 1005])
    return [f'error: table "public"."child": 1 keys of unique index "in_part" are there more than once {MEND}']


def orphan(copy: Copy) -> list[str]:
    copy.add_rows("child", id=[1006], parent_id=[999_999], word=["t"], n=[1006])
    return [f'error: table "public"."child": 1 rows name no row of table "public"."parent" by foreign key "of_parent" {MEND}']


def wrong_partition(copy: Copy) -> list[str]:
    copy.add_rows("divided_eu", id=[5000], region=["us"])
    return [f'error: table "public"."divided": 1 rows of partition "public"."divided_eu" do not belong there {MEND}']


def wrong_generated_value(copy: Copy) -> list[str]:
    copy.add_rows("divided_eu", id=[5001, 5002], region=["eu", "eu"], amount=["1.5", "0.5"], twice=[3.0, 3.0])
    return [f'error: table "public"."divided_eu": 1 rows do not have the value of generated column "twice" {MEND}']


# ---- catalogs --------------------------------------------------------------------------------------------------------------


def repeated_name(copy: Copy) -> list[str]:
    copy.catalog("INSERT INTO hg.pg_class SELECT * REPLACE (4000000 AS oid) FROM hg.pg_class WHERE relname = 'counted'")
    return [f'error: catalog "pg_class": 1 keys of index "pg_class_relname_nsp_index" are there more than once {REMAKE}']


def column_of_nothing(copy: Copy) -> list[str]:
    [(count,)] = copy.catalog(f"SELECT count(*) FROM hg.pg_attribute WHERE attrelid = {copy.oid('shown')}")
    copy.catalog(f"UPDATE hg.pg_attribute SET attrelid = 4000001 WHERE attrelid = {copy.oid('shown')}")
    return [f'error: catalog "pg_attribute": {count} rows name by "attrelid" no row of "pg_class" {REMAKE}']


def published_nothing(copy: Copy) -> list[str]:
    copy.catalog(f"UPDATE hg.pg_publication_rel SET prrelid = 4000002 WHERE prrelid = {copy.oid('parent')}")
    return [f'error: catalog "pg_publication_rel": 1 rows name by "prrelid" no row of "pg_class" {REMAKE}']


def unlogged_table(copy: Copy) -> list[str]:
    copy.catalog(f"DELETE FROM hg.table_version WHERE relid = {copy.oid('copied')}")
    return [f'error: table "public"."copied": the transaction log does not have it {REMAKE}']


def lost_folder(copy: Copy) -> list[str]:
    folder = copy.folder("plain")
    folder.rename(copy.data.parent / "away")
    return [of("plain", "its folder has no versions")]


# ---- slots and subscriptions ---------------------------------------------------------------------------------------------


def slot_behind_the_end(copy: Copy) -> list[str]:
    [(end,)] = copy.catalog("SELECT max(end_lsn) FROM hg.log_entry")
    copy.catalog(f"UPDATE hg.replication_slot SET restart_lsn = {1 << 40}, confirmed_flush_lsn = {1 << 39}")
    subject, great, less = 'error: replication slot "behind"', Lsn(1 << 40), Lsn(1 << 39)
    return [
        f"{subject}: restart_lsn {great} is behind confirmed_flush_lsn {less} {COPY}",
        f"{subject}: confirmed_flush_lsn {less} is behind the end of the log, {Lsn(end)} {COPY}",
        f"{subject}: the transaction log behind {great}, which it needs, is missing {COPY}",
    ][:2]


def lost_entry(copy: Copy) -> list[str]:
    [(restart,)] = copy.catalog("SELECT restart_lsn FROM hg.replication_slot")
    [(commit, previous)] = copy.catalog(
        f"SELECT commit_lsn, lag FROM (SELECT commit_lsn, end_lsn, lag(end_lsn) OVER (ORDER BY end_lsn) AS lag FROM hg.log_entry)"
        f" WHERE lag > {restart} ORDER BY commit_lsn LIMIT 1"
    )
    copy.catalog(f"DELETE FROM hg.log_entry WHERE commit_lsn = {commit}")
    copy.catalog(f"DELETE FROM hg.log_write WHERE commit_lsn = {commit}")
    return [f'error: replication slot "behind": the transaction log behind {Lsn(previous)}, which it needs, is missing {COPY}']


def unknown_state(copy: Copy) -> list[str]:
    copy.catalog("UPDATE hg.pg_subscription_rel SET srsubstate = 'q'")
    return ['error: subscription "s": a table has the unknown state "q" (refresh the subscription without it, then with it)']


def origin_behind_the_end(copy: Copy) -> list[str]:
    [(name, end)] = copy.catalog("SELECT roname, (SELECT max(end_lsn) FROM hg.log_entry) FROM hg.pg_replication_origin")
    copy.catalog(f"UPDATE hg.origin_progress SET local_lsn = {1 << 40}")
    problem = f"its position in the log, {Lsn(1 << 40)}, is behind the log's end, {Lsn(end)}"
    return [f'error: replication origin "{name}": {problem} (copy the subscription\'s tables anew)']


def lost_prepared_frames(copy: Copy) -> list[str]:
    [file] = (copy.data / "pg_twophase").glob("*.segment")
    file.unlink()
    advice = "(roll it back, and copy the subscription's tables anew)"
    return [f'error: prepared transaction "{file.stem}": its files in "pg_twophase" are missing {advice}',
            f'notice: file "pg_twophase/{file.stem}.index": it belongs to no prepared transaction (it may be removed)'][:1]  # fmt: skip


# ---- owners ----------------------------------------------------------------------------------------------------------------


def strange_file(copy: Copy) -> list[str]:
    (copy.folder("copied") / "notes.txt").write_text("mine")
    newest = int(copy.versions("copied")[-1].stem)
    searched = f"versions 0 to {newest} of its log, a prepared transaction, an unfinished commit or a note of removal"
    advice = "(make a backup, then move it to a place outside of the folder)"
    return [f'warning: table "public"."copied": "notes.txt" in its folder is not named by {searched} {advice}']


def left_file(copy: Copy) -> list[str]:
    (copy.folder("copied") / "part-00000-left.snappy.parquet").write_text("half")
    return ['notice: table "public"."copied": 1 files that nothing names are in its folder (cleaning removes them)']


def folder_of_no_table(copy: Copy) -> list[str]:
    (copy.data / "base" / str(copy.database) / "4000003").mkdir()
    return [f'warning: "base/{copy.database}/4000003": it is of a table that does not exist (the next start moves it to "unknown")']


def folder_of_a_later_table(copy: Copy) -> list[str]:
    log = copy.data / "base" / str(copy.database) / "4000005" / "_delta_log"
    log.mkdir(parents=True)
    for version, mark in ((0, {}), (1, {"userMetadata": "headgate 999998"})):
        (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": {"operation": "WRITE", **mark}}) + "\n")
    return [
        f'error: "base/{copy.database}/4000005": the catalog is older than it: it does not know transaction 999998'
        " (restore the catalog with its log, or all from one backup)"
    ]


def folder_of_no_database(copy: Copy) -> list[str]:
    (copy.data / "base" / "4000004" / "1").mkdir(parents=True)
    return ['warning: "base/4000004": it is of a database that does not exist (make a backup, then move it to another place)']


def another_nodes_mark(copy: Copy) -> list[str]:
    (copy.data / "base" / "headgate.owner").write_text("1\n")
    return [
        f'error: "{copy.data}/base": it belongs to another node (let data_location name this node\'s folder)'.replace(f"{copy.data}/", "")
    ]


def frames_of_no_subscription(copy: Copy) -> list[str]:
    (copy.data / "pg_replication" / "4000005").mkdir(parents=True)
    return ['notice: "pg_replication/4000005": it belongs to no subscription (it may be removed)']


APART: dict[str, tuple[Damage, ...]] = {
    "versions": (lost_version, gap, torn_version, other_mark, no_mark, other_writers_version, older_catalog, broken_intent, orphaned_write),
    "files": (lost_data_file, cut_data_file, flipped_bit, other_number_of_rows, damaged_vector, lost_changes, lost_prepared_file),
    "rows": (
        repeated_key, missing_value, failed_check, outside_of_its_domain, repeated_null, repeated_expression, repeated_in_part, orphan, wrong_partition,
        wrong_generated_value,
    ),
    "catalogs": (
        repeated_name, column_of_nothing, published_nothing, unlogged_table, lost_folder, unlogged_version, slot_behind_the_end,
        unknown_state, origin_behind_the_end, lost_prepared_frames, folder_of_no_table, folder_of_no_database, folder_of_a_later_table,
        another_nodes_mark,
        frames_of_no_subscription,
    ),
    "owners": (lost_vector, lost_entry, strange_file, left_file),
}  # fmt: skip
"""Damages that do not affect each other."""
