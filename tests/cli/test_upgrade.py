"""`headgate upgrade` converts a directory of an earlier version to the format of this version, and can be run again after a kill."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from tests.conftest import HEADGATE, NodeServer, Server, check

from headgate.catalog import history
from headgate.catalog.catalog import Catalog
from headgate.catalog.layout.format import FORMAT
from headgate.catalog.unwritten import PROVISIONAL
from headgate.catalog.upgrade import OLDEST, STEPS

FORMATS = Path(__file__).parents[1] / "catalog" / "formats"
EARLIER = [int(path.name.removesuffix(".tar.xz")) for path in sorted(FORMATS.glob("*.tar.xz"))]


def unpacked(number: int, folder: Path) -> Path:
    """Unpack a directory of that format, which that version created. It was stopped and packed without its empty reserve file."""
    with tarfile.open(FORMATS / f"{number}.tar.xz") as packed:
        packed.extractall(folder / "data", filter="data")
    return folder / "data"


def headgate(command: str, data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HEADGATE, command, "-D", str(data), *arguments], capture_output=True, text=True, timeout=120)


def started(own_node, number: int) -> NodeServer:
    """Start a node in an upgraded directory of that format."""
    node: Server = own_node(start=False)
    assert isinstance(node, NodeServer)
    conf = (node.data / "headgate.conf").read_text()
    for path in sorted(node.data.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    node.data.rmdir()
    unpacked(number, node.folder)
    (node.data / "headgate.conf").write_text(conf)
    node.headgate("upgrade")
    node.start()
    return node


def layout(catalog: Path) -> list[tuple[object, ...]]:
    """Return the columns of the tables that initdb creates.

    The tables of the log are omitted, because the first start creates them. Views are omitted, because they are created when a catalog is
    opened.
    """
    with duckdb.connect(str(catalog), read_only=True) as connection:
        listed = (
            "SELECT table_name, column_name, data_type, column_index FROM duckdb_columns() WHERE schema_name = 'hg'"
            " AND table_name IN (SELECT table_name FROM duckdb_tables() WHERE schema_name = 'hg')"
            " AND table_name NOT IN ('intent', 'log_entry', 'log_message', 'log_write', 'prepared_xact', 'recorded_batch', 'table_version') ORDER BY ALL"
        )
        return connection.execute(listed).fetchall()


def test_each_earlier_format_has_a_step_and_a_sample_directory() -> None:
    assert list(range(OLDEST, FORMAT)) == sorted(STEPS) == EARLIER


@pytest.mark.parametrize("number", [pytest.param(number, marks=[] if number == OLDEST else pytest.mark.slow) for number in EARLIER])
def test_upgraded_catalog_has_the_layout_of_a_new_one(number: int, tmp_path: Path, catalog_file: Path) -> None:
    data = unpacked(number, tmp_path)
    with duckdb.connect(str(data / "catalog.duckdb")) as connection:
        foreign_key = "(oid, dbid, contype, conparentid, confupdtype, confdeltype) VALUES (16000, 5, 'f', 0, 'a', 'c')"
        connection.execute(f"INSERT INTO hg.pg_constraint {foreign_key}")
    refused = headgate("run", data)
    assert refused.returncode == 1
    assert f'HINT:  Run "headgate upgrade -D {data}".' in refused.stderr
    completed = headgate("upgrade", data)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.splitlines()[-1] == f"data directory has format {FORMAT}"
    assert layout(data / "catalog.duckdb") == layout(catalog_file)
    assert headgate("upgrade", data).stdout == f"data directory has format {FORMAT} already\n"
    catalog = Catalog.open(data / "catalog.duckdb")
    with closing(catalog), closing(catalog.cursor()) as cursor:
        databases = [database for (database,) in cursor.execute("SELECT DISTINCT dbid FROM hg.history").fetchall()]
        states = [history.at(cursor, database, PROVISIONAL - 1, 2**31 - 1) for database in databases]
        triggers = cursor.execute("SELECT tgfoid FROM hg.pg_trigger WHERE tgconstraint = 16000 ORDER BY tgfoid").fetchall()
    assert any(state.relations and state.publications for state in states), "the definitions that slots need cannot be read"
    assert triggers == [(1644,), (1645,), (1646,), (1655,)]


@pytest.mark.slow
@pytest.mark.parametrize("failpoint_place", ["definition before", "definition behind"])
def test_interrupted_upgrade_can_be_run_again(failpoint_place: str, tmp_path: Path, catalog_file: Path) -> None:
    data = unpacked(EARLIER[-1], tmp_path)
    version_before = (data / "HG_VERSION").read_text()
    killed = f"from pathlib import Path; from headgate import failpoint; from headgate.cli.upgrade import upgrade; failpoint.arm({failpoint_place + '=kill'!r}); "
    completed = subprocess.run([sys.executable, "-c", f"{killed}upgrade(Path({str(data)!r}))"], capture_output=True, timeout=120)
    assert completed.returncode == -9
    assert (data / "HG_VERSION").read_text() == version_before
    assert headgate("upgrade", data).returncode == 0
    assert layout(data / "catalog.duckdb") == layout(catalog_file)


def test_directory_of_a_newer_version_is_rejected(tmp_path: Path) -> None:
    data = unpacked(EARLIER[-1], tmp_path)
    (data / "HG_VERSION").write_text(f"{FORMAT + 1}\n")
    refused = headgate("upgrade", data)
    assert (refused.returncode, "Use a newer version" in refused.stderr) == (1, True)
    assert "or a newer one" in headgate("run", data).stderr


@pytest.mark.slow
def test_upgraded_texts_name_the_objects_of_the_earlier_version(own_node) -> None:
    node = started(own_node, 4)
    text = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'c1' AND conrelid = 'app.t'::regclass"
    check_text = "CHECK (((app.twice((d)::integer) > 1) AND (m = ANY (ARRAY['sad'::app.mood, 'ok'::app.mood]))))"
    assert node.psql("postgres", text) == check_text
    query = "SELECT pg_get_function_arguments('app.label'::regproc); SELECT pg_get_functiondef('app.setof_mood'::regproc)"
    assert node.psql("postgres", query).startswith(
        "m app.mood\nCREATE OR REPLACE FUNCTION app.setof_mood(m app.mood[])\n RETURNS SETOF app.mood\n"
    )
    node.psql("postgres", "ALTER FUNCTION app.twice RENAME TO double; ALTER SCHEMA app RENAME TO apps")
    node.psql("postgres", "INSERT INTO apps.t (id, m, d) VALUES (8, 'sad', 3)")
    assert node.psql("postgres", "SELECT g, h, f FROM apps.t WHERE id = 8; SELECT a, l FROM other.v WHERE a = 16") == "16|sad|5\n16|sad"
    assert node.psql("postgres", "SELECT pg_get_viewdef('other.v')").split() == (
        "SELECT apps.double(t.id) AS a, t.m, apps.label(t.m) AS l FROM apps.t WHERE (t.m = 'sad'::apps.mood);".split()
    )
    node.psql("postgres", "ALTER SEQUENCE apps.sers_id_seq RENAME TO numbers; INSERT INTO apps.sers DEFAULT VALUES")
    check(node)


@pytest.mark.slow
@pytest.mark.parametrize("number", EARLIER)
def test_node_continues_where_the_earlier_version_stopped(number: int, own_node) -> None:
    node = started(own_node, number)
    assert node.psql("postgres", "SELECT * FROM t ORDER BY id") == "1|one\n2|zwei\n3|three"
    assert node.psql("postgres", "SELECT slot_name FROM pg_replication_slots; SELECT subname FROM pg_subscription") == "s\noff"
    options = "'proto_version', '1', 'publication_names', 'p'"
    query = (
        f"SELECT string_agg(chr(get_byte(data, 0)), '' ORDER BY lsn) FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, {options})"
    )
    assert node.psql("postgres", query).count("I") == 1
    node.psql("postgres", "INSERT INTO t VALUES (4, 'four')")
    check(node)
