"""If a session drops an object while another creates a dependent of it, the second session waits and gets PostgreSQL's error."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import psycopg
import pytest
from tests.conftest import Server
from tests.server.play import Play, Step


class Pair(NamedTuple):
    """Two concurrent statements about one object, the statements that prepare them, and the query that shows the outcome."""

    first: str
    second: str
    before: str
    after: tuple[str, ...] = ()


SCHEMA = "CREATE SCHEMA s; CREATE TABLE one (a int PRIMARY KEY, b int)"
TABLES = "CREATE TABLE one (a int PRIMARY KEY, b int); CREATE TABLE two (a int PRIMARY KEY, b int)"
VIEW = f"{TABLES}; CREATE VIEW v AS SELECT a FROM one"
PARTITIONED = "CREATE TABLE root (a int, b int) PARTITION BY LIST (a); CREATE TABLE part (a int, b int)"
SEQUENCE = f"{TABLES}; CREATE SEQUENCE q"
PUBLICATION = f"{TABLES}; CREATE SCHEMA s; CREATE PUBLICATION p"
ROLE = f"{TABLES}; CREATE ROLE dependents_one; CREATE ROLE dependents_two"
NO_ROLE = ("DROP OWNED BY dependents_one", "DROP OWNED BY dependents_two", "DROP ROLE dependents_one", "DROP ROLE dependents_two")
IN_S = ("SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 's'", "SELECT 1 FROM pg_class c WHERE"
        " NOT EXISTS (SELECT 1 FROM pg_namespace n WHERE n.oid = c.relnamespace)")  # fmt: skip
MEMBERS = (
    "SELECT tablename FROM pg_publication_tables ORDER BY 1",
    "SELECT count(*) FROM pg_publication_rel",
    "SELECT count(*) FROM pg_publication_namespace",
)
PARTS = ("SELECT inhrelid::regclass::text, inhparent::regclass::text FROM pg_inherits ORDER BY 1", "SELECT relname FROM pg_class WHERE relname IN"
         " ('root', 'part', 'n') ORDER BY 1")  # fmt: skip


def both(name: str, use: str, drop: str, before: str, *after: str) -> dict[str, Pair]:
    """Return pairs in both orders of a statement that uses an object and a statement that drops or changes it."""
    return {f"{name}, used first": Pair(use, drop, before, after), f"{name}, dropped first": Pair(drop, use, before, after)}


PAIRS: dict[str, Pair] = {
    **both("schema of a table", "CREATE TABLE s.t (a int)", "DROP SCHEMA s", SCHEMA, *IN_S),
    **both("schema of a table, cascading", "CREATE TABLE s.t (a int)", "DROP SCHEMA s CASCADE", SCHEMA, *IN_S),
    **both("schema of a query's table", "CREATE TABLE s.t AS SELECT 1 AS a", "DROP SCHEMA s", SCHEMA, *IN_S),
    **both("schema of a view", "CREATE VIEW s.v AS SELECT 1 AS a", "DROP SCHEMA s", SCHEMA, *IN_S),
    **both("schema of a sequence", "CREATE SEQUENCE s.q", "DROP SCHEMA s", SCHEMA, *IN_S),
    **both("schema of the search path", "CREATE TABLE t (a int)", "DROP SCHEMA public", "DROP TABLE IF EXISTS one", "SELECT count(*) FROM t"),
    **both("schema that a table moves to", "ALTER TABLE one SET SCHEMA s", "DROP SCHEMA s", SCHEMA, *IN_S),
    **both("table of a view", "CREATE VIEW w AS SELECT a FROM one", "DROP TABLE one", TABLES, "TABLE w"),
    **both("table of a view, cascading", "CREATE VIEW w AS SELECT a FROM one", "DROP TABLE one CASCADE", TABLES, "TABLE w"),
    **both("renamed table of a view", "CREATE VIEW w AS SELECT a FROM one", "ALTER TABLE one RENAME TO n", TABLES, "TABLE w"),
    **both("column of a view", "CREATE VIEW w AS SELECT b FROM one", "ALTER TABLE one DROP COLUMN b", TABLES, "TABLE w"),
    **both("view of a view", "CREATE VIEW w AS SELECT a FROM v", "DROP VIEW v", VIEW, "TABLE w"),
    **both("replaced view of a view", "CREATE VIEW w AS SELECT a FROM v", "CREATE OR REPLACE VIEW v AS SELECT a FROM two", VIEW, "TABLE w"),
    **both("table that another is like", "CREATE TABLE n (LIKE one)", "DROP TABLE one", TABLES, "TABLE n"),
    **both("table of a new publication", "CREATE PUBLICATION n FOR TABLE one", "DROP TABLE one", TABLES, *MEMBERS),
    **both("table of a publication", "ALTER PUBLICATION p ADD TABLE one", "DROP TABLE one", PUBLICATION, *MEMBERS),
    **both("table of a set publication", "ALTER PUBLICATION p SET TABLE one, two", "DROP TABLE one", PUBLICATION, *MEMBERS),
    **both("schema of a new publication", "CREATE PUBLICATION n FOR TABLES IN SCHEMA s", "DROP SCHEMA s", SCHEMA, *MEMBERS),
    **both("schema of a publication", "ALTER PUBLICATION p ADD TABLES IN SCHEMA s", "DROP SCHEMA s", PUBLICATION, *MEMBERS),
    **both("table above a partition", "CREATE TABLE n PARTITION OF root FOR VALUES IN (1)", "DROP TABLE root", PARTITIONED, *PARTS),
    **both("table above what is attached", "ALTER TABLE root ATTACH PARTITION part FOR VALUES IN (1)", "DROP TABLE root", PARTITIONED, *PARTS),
    **both("table that is attached", "ALTER TABLE root ATTACH PARTITION part FOR VALUES IN (1)", "DROP TABLE part", PARTITIONED, *PARTS),
    "two partitions of one bound": Pair("CREATE TABLE n PARTITION OF root FOR VALUES IN (1)", "CREATE TABLE m PARTITION OF root FOR VALUES IN (1)",
                                        PARTITIONED, PARTS),
    "two default partitions": Pair("CREATE TABLE n PARTITION OF root DEFAULT", "ALTER TABLE root ATTACH PARTITION part DEFAULT", PARTITIONED, PARTS),
    **both("table that a new one references", "CREATE TABLE n (a int REFERENCES one)", "DROP TABLE one", TABLES, "TABLE n"),
    **both("table that is referenced", "ALTER TABLE two ADD FOREIGN KEY (b) REFERENCES one", "DROP TABLE one", TABLES, "TABLE two"),
    **both("key that is referenced", "CREATE TABLE n (a int REFERENCES one)", "ALTER TABLE one DROP CONSTRAINT one_pkey", TABLES, "TABLE n"),
    **both("table of an index", "CREATE INDEX n ON one (b)", "DROP TABLE one", TABLES),
    **both("partitioned table of an index", "CREATE INDEX n ON root (b)", "DROP TABLE root", PARTITIONED),
    **both("sequence that gets an owner", "ALTER SEQUENCE q OWNED BY one.b", "DROP SEQUENCE q", SEQUENCE),
    **both("table that owns a sequence", "ALTER SEQUENCE q OWNED BY one.b", "DROP TABLE one", SEQUENCE, "SELECT relname FROM pg_class WHERE relname = 'q'"),
    **both("table of a comment", "COMMENT ON TABLE one IS 'c'", "DROP TABLE one", TABLES, "SELECT description FROM pg_description WHERE objoid > 16383"),
    **both("column of a comment", "COMMENT ON COLUMN one.b IS 'c'", "DROP TABLE one", TABLES,
           "SELECT description FROM pg_description WHERE objoid > 16383"),
    **both("schema of a comment", "COMMENT ON SCHEMA s IS 'c'", "DROP SCHEMA s", SCHEMA),
    **both("type of a comment", "COMMENT ON TYPE e IS 'c'", "DROP TYPE e", "CREATE TYPE e AS ENUM ('a')"),
    **both("table of a policy", "CREATE POLICY n ON one USING (b > 0)", "DROP TABLE one", TABLES, "SELECT polname FROM pg_policy"),
    **both("role of a right", "GRANT SELECT ON one TO dependents_one", "DROP ROLE dependents_one", ROLE, "SELECT relacl FROM pg_class WHERE relname = 'one'",
           *NO_ROLE),
    **both("owner of a table", "ALTER TABLE one OWNER TO dependents_one", "DROP ROLE dependents_one", ROLE, *NO_ROLE),
    **both("owner of a schema", "CREATE SCHEMA n AUTHORIZATION dependents_one", "DROP ROLE dependents_one", ROLE, *NO_ROLE),
    **both("role of a policy", "CREATE POLICY n ON one TO dependents_one USING (b > 0)", "DROP ROLE dependents_one", ROLE, *NO_ROLE),
    **both("role of default privileges", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO dependents_one", "DROP ROLE dependents_one", ROLE, *NO_ROLE),
    **both("role whose default privileges are altered", "ALTER DEFAULT PRIVILEGES FOR ROLE dependents_one GRANT SELECT ON TABLES TO public",
           "DROP ROLE dependents_one", ROLE, *NO_ROLE),
    **both("role that all is given to", "REASSIGN OWNED BY dependents_two TO dependents_one", "DROP ROLE dependents_one",
           f"{ROLE}; ALTER TABLE one OWNER TO dependents_two", *NO_ROLE),
}  # fmt: skip

TWICE: dict[str, tuple[str, str]] = {
    "TABLE one": (TABLES, ""),
    "VIEW v": (VIEW, ""),
    "SCHEMA s": (SCHEMA, ""),
    "SEQUENCE q": (SEQUENCE, ""),
    "INDEX n": (f"{TABLES}; CREATE INDEX n ON one (b)", ""),
    "TYPE e": ("CREATE TYPE e AS ENUM ('a')", ""),
    "DOMAIN d": ("CREATE DOMAIN d AS int", ""),
    "PUBLICATION p": (PUBLICATION, ""),
    "POLICY n ON one": (f"{TABLES}; CREATE POLICY n ON one USING (b > 0)", ""),
}
for _what, (_before, _after) in TWICE.items():
    _end = tuple(statement for statement in (f"DROP {_what.split(' ')[0]} IF EXISTS {_what.split(' ', 1)[1]}", _after) if statement)
    PAIRS[f"{_what}, dropped twice"] = Pair(f"DROP {_what}", f"DROP {_what}", _before, _end)
    PAIRS[f"{_what}, dropped twice with IF EXISTS"] = Pair(
        f"DROP {_what}", f"DROP {_what.split(' ')[0]} IF EXISTS {_what.split(' ', 1)[1]}", _before, _end
    )


def played(play: Play, pair: Pair, end: str) -> list[tuple[str, str, Any]]:
    steps: list[Step] = [("a", pair.before), ("a", "BEGIN"), ("a", pair.first), ("b+", pair.second), ("a", end), ("b", "")]
    return [(session, sql, _shown(answer)) for session, sql, answer in play.run([*steps, *(("a", statement) for statement in pair.after)])]


def _shown(answer: Any) -> Any:
    """Return the results without oids: PostgreSQL cannot name an object that was dropped while it waited."""
    if not isinstance(answer, tuple):
        return answer
    state, message, detail = answer
    for by_oid, by_name in ((r"schema with OID \d+ does not exist", 'schema "s" does not exist'),
                            (r"role \d+ was concurrently dropped", 'role "dependents_one" does not exist')):  # fmt: skip
        message = re.sub(by_oid, by_name, message)
    return state, message, re.sub(r"\d{5,}", "oid", detail or "")


@pytest.mark.parametrize("end", ["COMMIT", pytest.param("ROLLBACK", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if number % 8 else []) for number, name in enumerate(PAIRS)])
def test_second_session_waits_for_the_first_and_sees_its_change(plays: tuple[Play, Play], name: str, end: str) -> None:
    on_node, on_postgres = (played(play, PAIRS[name], end) for play in plays)
    assert on_node == on_postgres
    assert [play.waited for play in plays] == [[True], [True]]


STRONGER: dict[str, tuple[Pair, str]] = {
    "type of a column": (Pair("CREATE TABLE n (a e)", "DROP TYPE e", "CREATE TYPE e AS ENUM ('a')"), "2BP01"),
    "dropped type of a column": (Pair("DROP TYPE e", "CREATE TABLE n (a e)", "CREATE TYPE e AS ENUM ('a')"), "42704"),
    "type of an array": (Pair("CREATE TABLE n (a e[])", "DROP TYPE e", "CREATE TYPE e AS ENUM ('a')"), "2BP01"),
    "type of a domain": (Pair("CREATE DOMAIN d AS e", "DROP TYPE e", "CREATE TYPE e AS ENUM ('a')"), "2BP01"),
    "domain of an added column": (Pair("ALTER TABLE one ADD c d", "DROP DOMAIN d", f"{TABLES}; CREATE DOMAIN d AS int"), "2BP01"),
    "dropped domain of an added column": (Pair("DROP DOMAIN d", "ALTER TABLE one ADD c d", f"{TABLES}; CREATE DOMAIN d AS int"), "42704"),
    "schema of a type": (Pair("CREATE TYPE s.e AS ENUM ('a')", "DROP SCHEMA s", SCHEMA), "2BP01"),
    "schema that a type moves to": (Pair("ALTER TYPE e SET SCHEMA s", "DROP SCHEMA s", f"{SCHEMA}; CREATE TYPE e AS ENUM ('a')"), "2BP01"),
    "dropped schema of a domain": (Pair("DROP SCHEMA s", "CREATE DOMAIN s.d AS int", SCHEMA), "3F000"),
    "renamed schema of a table": (Pair("ALTER SCHEMA s RENAME TO n", "CREATE TABLE s.t (a int)", SCHEMA), "3F000"),
    "sequence of a default": (Pair("CREATE TABLE n (a int DEFAULT nextval('q'))", "DROP SEQUENCE q", SEQUENCE), "2BP01"),
    "sequence of an altered default": (Pair("ALTER TABLE one ALTER b SET DEFAULT nextval('q')", "DROP SEQUENCE q", SEQUENCE), "2BP01"),
    "dropped sequence of a default": (Pair("DROP SEQUENCE q", "CREATE TABLE n (a int DEFAULT nextval('q'))", SEQUENCE), "42P01"),
    "renamed sequence of a default": (Pair("ALTER SEQUENCE q RENAME TO r", "ALTER TABLE one ALTER b SET DEFAULT nextval('q')", SEQUENCE), "42P01"),
    "renamed role": (
        Pair("ALTER ROLE dependents_one RENAME TO dependents_new", "GRANT SELECT ON one TO dependents_one", ROLE,
             ("DROP ROLE IF EXISTS dependents_one, dependents_two, dependents_new",)),
        "42704",
    ),
    "role dropped twice": (
        Pair("DROP ROLE dependents_one", "DROP ROLE dependents_one", ROLE, ("DROP ROLE dependents_two",)), "42704"
    ),
    "dropped member": (
        Pair("DROP ROLE dependents_one", "GRANT dependents_two TO dependents_one", ROLE, ("DROP ROLE dependents_two",)), "42704"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if number % 4 else []) for number, name in enumerate(STRONGER)]
)
def test_second_session_waits_where_postgresql_leaves_a_dangling_reference(node: Server, name: str) -> None:
    pair, sqlstate = STRONGER[name]
    play = Play(node)
    results = played(play, pair, "COMMIT")
    play.close()
    assert play.waited == [True]
    assert results[4][2][0] == sqlstate


def test_membership_is_dropped_with_a_role_dropped_concurrently(node: Server) -> None:
    play = Play(node)
    pair = Pair(
        "GRANT dependents_two TO dependents_one", "DROP ROLE dependents_one", ROLE,
        ("SELECT count(*) FROM pg_auth_members m WHERE NOT EXISTS (SELECT 1 FROM pg_authid WHERE oid = m.member)", "DROP ROLE dependents_two"),
    )  # fmt: skip
    results = played(play, pair, "COMMIT")
    play.close()
    assert play.waited == [True]
    assert [answer for _, _, answer in results[4:]] == ["DROP ROLE", [(0,)], "DROP ROLE"]


BESIDE = {
    "tables of a schema": (SCHEMA, "CREATE TABLE s.t (a int)", "CREATE TABLE s.u (a int)"),
    "a view and a table of a schema": (SCHEMA, "CREATE VIEW s.t AS SELECT 1 AS a", "CREATE TABLE s.u (a int)"),
    "views of a table": (TABLES, "CREATE VIEW v AS SELECT a FROM one", "CREATE VIEW w AS SELECT b FROM one"),
    "publications of a schema": (SCHEMA, "CREATE PUBLICATION p FOR TABLES IN SCHEMA s", "CREATE PUBLICATION q FOR TABLES IN SCHEMA s"),
    "a comment and a new table": (SCHEMA, "COMMENT ON SCHEMA s IS 'c'", "CREATE TABLE s.u (a int)"),
    "a comment and a view": (TABLES, "COMMENT ON TABLE one IS 'c'", "CREATE VIEW w AS SELECT a FROM one"),
    "a row and a view": (TABLES, "UPDATE one SET b = 2", "CREATE VIEW w AS SELECT a FROM one"),
    "a view and a row": (TABLES, "CREATE VIEW w AS SELECT a FROM one", "INSERT INTO one VALUES (1, 1)"),
    "defaults of a sequence": (SEQUENCE, "CREATE TABLE n (a int DEFAULT nextval('q'))", "CREATE TABLE m (a int DEFAULT nextval('q'))"),
    "columns of a type": (f"{TABLES}; CREATE TYPE e AS ENUM ('a')", "CREATE TABLE n (a e)", "ALTER TABLE one ADD c e"),
}


@pytest.mark.parametrize("level", [pytest.param("READ COMMITTED", marks=pytest.mark.slow), "REPEATABLE READ"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if number % 3 else []) for number, name in enumerate(BESIDE)])
def test_concurrent_users_of_an_object_do_not_wait_for_each_other(plays: tuple[Play, Play], name: str, level: str) -> None:
    preparation, first, second = BESIDE[name]
    steps: list[Step] = [
        ("a", preparation), ("a", "SET lock_timeout = '5s'"), ("b", "SET lock_timeout = '5s'"),
        ("a", f"BEGIN ISOLATION LEVEL {level}"), ("b", f"BEGIN ISOLATION LEVEL {level}"), ("a", "SELECT 1"), ("b", "SELECT 1"),
        ("a", first), ("b", second), ("a", "COMMIT"), ("b", "COMMIT"),
    ]  # fmt: skip
    on_node, on_postgres = (play.run(steps) for play in plays)
    assert on_node == on_postgres
    assert not [answer for _, _, answer in on_node if isinstance(answer, tuple)]


PLAYS: dict[str, list[Step]] = {
    "a session that has used a table writes to it while another session waits to drop it": [
        ("a", TABLES),
        ("a", "BEGIN"),
        ("a", "CREATE VIEW w AS SELECT a FROM one"),
        ("b+", "DROP TABLE one"),
        ("a", "INSERT INTO one VALUES (1, 1)"),
        ("a", "UPDATE one SET b = 2"),
        ("a", "COMMIT"),
        ("b", ""),
        ("a", "TABLE one"),
    ],
    "a session that has written to a table uses it while another session waits to drop it": [
        ("a", TABLES),
        ("a", "BEGIN"),
        ("a", "INSERT INTO one VALUES (1, 1)"),
        ("a", "UPDATE one SET b = 2"),
        ("b+", "DROP TABLE one"),
        ("a", "CREATE VIEW w AS SELECT a FROM one"),
        ("a", "COMMIT"),
        ("b", ""),
        ("a", "TABLE w"),
    ],
    "two sessions that use a schema and drop it are a deadlock": [
        ("a", SCHEMA),
        ("a", "BEGIN"),
        ("a", "SET LOCAL deadlock_timeout = '10s'"),
        ("b", "BEGIN"),
        ("a", "CREATE TABLE s.t (a int)"),
        ("b", "CREATE TABLE s.u (a int)"),
        ("a+", "DROP SCHEMA s CASCADE"),
        ("b", "SET LOCAL deadlock_timeout = '10ms'"),
        ("b", "DROP SCHEMA s CASCADE"),
        ("b", "ROLLBACK"),
        ("a", ""),
        ("a", "COMMIT"),
    ],
    "the wait for a session that uses an object ends at lock_timeout": [
        ("a", SCHEMA),
        ("a", "BEGIN"),
        ("a", "CREATE TABLE s.t (a int)"),
        ("b", "SET lock_timeout = '100ms'"),
        ("b", "DROP SCHEMA s"),
        ("a", "ROLLBACK"),
        ("b", "DROP SCHEMA s"),
    ],
    "a prepared transaction uses its schema": [
        ("a", SCHEMA),
        ("a", "BEGIN"),
        ("a", "CREATE TABLE s.t (a int)"),
        ("a", "PREPARE TRANSACTION 'dependents'"),
        ("a", "CREATE TABLE s.u (a int)"),
        ("b+", "DROP SCHEMA s"),
        ("a", "COMMIT PREPARED 'dependents'"),
        ("b", ""),
    ],
    "a statement that waits sends the notice about a skipped object once": [
        ("a", SCHEMA),
        ("a", "BEGIN"),
        ("a", "DROP SCHEMA s"),
        ("b+", "DROP SCHEMA IF EXISTS n, s"),
        ("a", "COMMIT"),
        ("b", ""),
    ],
}


@pytest.mark.parametrize("name", PLAYS)
def test_concurrent_changes_of_objects_behave_as_in_postgresql(plays: tuple[Play, Play], name: str) -> None:
    on_node, on_postgres = (play.run(PLAYS[name]) for play in plays)
    assert on_node == on_postgres


def test_view_of_a_temporary_table_is_rejected(node: Server) -> None:
    """The table ends with its session. PostgreSQL creates a temporary view."""
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TEMP TABLE short (a int)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="temporary views are not supported"):
            session.execute("CREATE VIEW v AS SELECT 1 WHERE EXISTS (SELECT a FROM short)")


@pytest.mark.slow
def test_prepared_transaction_uses_its_objects_across_a_restart(spare_node: Callable[..., Server]) -> None:
    """If both DROP SCHEMA and COMMIT PREPARED succeeded, a table would be without a schema."""
    server = spare_node()
    play = Play(server)
    play.run([("a", SCHEMA), ("a", "BEGIN"), ("a", "CREATE TABLE s.t (a int)"), ("a", "PREPARE TRANSACTION 'dependents'")])
    server.kill()
    server.start()
    again = Play(server, play.database)
    results = again.run(
        [
            ("a", "CREATE TABLE s.u (a int)"),
            ("b+", "DROP SCHEMA s"),
            ("a", "COMMIT PREPARED 'dependents'"),
            ("b", ""),
            ("a", "SELECT * FROM s.t"),
        ]
    )
    assert again.waited == [True]
    assert results[0][2] == "CREATE TABLE"
    assert results[-2][2][0] == "2BP01"
    assert results[-1][2] == []
    again.close()
    play.close()


def test_default_privileges_of_two_sessions_have_different_oids(node: Server) -> None:
    """Both sessions insert into pg_default_acl before either commits."""
    play = Play(node)
    play.run(
        [
            ("a", "BEGIN"), ("b", "BEGIN"), ("a", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO public"),
            ("b", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON SEQUENCES TO public"), ("a", "COMMIT"), ("b", "COMMIT"),
            ("a", "SELECT count(*), count(DISTINCT oid) FROM pg_default_acl"),
        ]
    )  # fmt: skip
    assert play.results[-1][2] == [(2, 2)]
    play.close()


STATEMENTS = (
    "CREATE SCHEMA {}", "DROP SCHEMA {}", "DROP SCHEMA {} CASCADE", "ALTER SCHEMA {} RENAME TO {}", "CREATE TABLE {}.t (a int PRIMARY KEY)",
    "CREATE TABLE {}.t (a int PRIMARY KEY, b int DEFAULT nextval('{}.q'))", "CREATE TABLE {}.u (a int REFERENCES {}.t)", "DROP TABLE {}.t",
    "CREATE TABLE {}.t (a int) PARTITION BY LIST (a)", "CREATE TABLE {}.u PARTITION OF {}.t DEFAULT", "DROP TABLE {}.u", "DROP VIEW {}.v",
    "DROP TABLE {}.t CASCADE", "CREATE VIEW {}.v AS SELECT a FROM {}.t", "CREATE VIEW {}.w AS SELECT a FROM {}.v", "DROP VIEW {}.w",
    "CREATE TABLE {}.u (a {}.e)", "CREATE TYPE {}.e AS ENUM ('a')", "DROP TYPE {}.e", "DROP TYPE {}.e CASCADE", "CREATE SEQUENCE {}.q",
    "DROP SEQUENCE {}.q", "ALTER TABLE {}.t SET SCHEMA {}", "ALTER TABLE {}.t RENAME TO u", "ALTER SEQUENCE {}.q OWNED BY {}.t.a",
    "CREATE PUBLICATION {} FOR TABLE {}.t", "ALTER PUBLICATION {} ADD TABLE {}.u", "CREATE PUBLICATION {} FOR TABLES IN SCHEMA {}",
    "DROP PUBLICATION {}", "COMMENT ON TABLE {}.t IS 'c'", "CREATE INDEX ON {}.t (a)", "CREATE POLICY {} ON {}.t USING (a > 0)",
    "DROP POLICY {} ON {}.t", "CREATE ROLE dependents_{}", "DROP ROLE dependents_{}", "GRANT SELECT ON {}.t TO dependents_{}",
    "ALTER TABLE {}.t OWNER TO dependents_{}", "CREATE POLICY {} ON {}.t TO dependents_{} USING (a > 0)", "BEGIN", "BEGIN", "COMMIT", "COMMIT",
    "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "BEGIN ISOLATION LEVEL REPEATABLE READ",
)  # fmt: skip


@pytest.mark.slow
def test_concurrent_sessions_leave_no_dangling_references_in_the_catalogs(node: Server, postgres: Server) -> None:
    """The references between the catalogs are those of PostgreSQL's pg_get_catalog_foreign_keys."""
    database = node.new_database()
    with psycopg.connect(postgres.conninfo("postgres")) as session:
        sql = (
            "SELECT fktable::text, fkcols, pktable::text, pkcols, is_opt FROM pg_get_catalog_foreign_keys() WHERE NOT is_array"
            " AND pktable NOT IN ('pg_am'::regclass, 'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass)"
        )
        references = session.execute(sql).fetchall()

    def play(seed: int) -> set[tuple[str, str]]:
        chance, errors = random.Random(seed), set()
        with psycopg.connect(node.conninfo(database), autocommit=True) as session:
            session.execute("SET lock_timeout = '2s'")
            for _ in range(120):
                statement = chance.choice(STATEMENTS)
                try:
                    session.execute(statement.format(*chance.choices("xy", k=3)).encode())
                except psycopg.Error as error:
                    errors.add(
                        (error.sqlstate or str(error), "" if error.sqlstate and error.sqlstate[:2] not in ("XX", "58") else statement)
                    )
        return errors

    with ThreadPoolExecutor(4) as pool:
        all_errors = set().union(*pool.map(play, range(4)))
    assert not {error for error in all_errors if error[1]}
    with psycopg.connect(node.conninfo(database), autocommit=True) as session:
        for table, columns, target, keys, optional in references:
            meets = " AND ".join(f"p.{key} = f.{column}" for column, key in zip(columns, keys, strict=True))
            is_given = " AND ".join(f"f.{column} <> 0" for column in columns) if optional else "true"
            lost = session.execute(
                f"SELECT f.* FROM {table} f WHERE {is_given} AND NOT EXISTS (SELECT 1 FROM {target} p WHERE {meets})".encode()
            )
            assert lost.fetchall() == [], f"{table} {columns}"
        views = session.execute("SELECT c.oid::regclass::text FROM pg_class c WHERE relkind = 'v' AND oid > 16383").fetchall()
        for (view,) in views:
            session.execute(f"TABLE {view}".encode())
        session.execute("DROP SCHEMA IF EXISTS x, y CASCADE")
        for role in "xy":
            session.execute(f"DROP ROLE IF EXISTS dependents_{role}".encode())
