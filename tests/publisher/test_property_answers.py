"""A node answers statements about publications, partitions and owners as PostgreSQL does, and its catalogs have the same rows.

Statements are drawn from a grammar, and most of them raise an error. Both servers run each statement. The test compares the results (tag,
rows, notices, or SQLSTATE, message, DETAIL, HINT and position) and the catalogs after it. A few scripts run with the suite, fifty with
`make test-all`. A difference is printed with the statements before it.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.conftest import Server

AMOUNTS = [(1, 0), pytest.param(50, 5, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])]
"""The numbers of scripts, and the seeds that draw them."""
LENGTH = 40
FEW = 5
"""With more scripts, it does not count which of several errors of a statement is reported."""

TABLES = {
    "publications": """
        CREATE SCHEMA a; CREATE SCHEMA b; CREATE SCHEMA c;
        CREATE TABLE a.t1 (x int PRIMARY KEY, y text NOT NULL, z int, "Q q" int);
        CREATE UNIQUE INDEX t1_y ON a.t1 (y); CREATE UNIQUE INDEX t1_part ON a.t1 (y) WHERE x > 3;
        CREATE TABLE a.t2 (x int NOT NULL, z int NOT NULL, y text, g int GENERATED ALWAYS AS (x * 2) STORED);
        CREATE UNIQUE INDEX t2_xz ON a.t2 (x, z);
        CREATE TABLE b.t1 (x int, y text, z int, "Q q" int); ALTER TABLE b.t1 REPLICA IDENTITY FULL;
        CREATE TABLE b.p (x int, y text, z int, PRIMARY KEY (x, z)) PARTITION BY LIST (z); CREATE TABLE b.p1 PARTITION OF b.p FOR VALUES IN (1);
        CREATE TABLE b.p2 (y text, z int NOT NULL, x int NOT NULL, PRIMARY KEY (x, z)); ALTER TABLE b.p ATTACH PARTITION b.p2 DEFAULT;
        CREATE VIEW a.v AS SELECT 1 AS x; CREATE SEQUENCE a.sq; CREATE UNLOGGED TABLE a.u (x int, y text, z int);
        GRANT ALL ON SCHEMA a, b, c TO answers; GRANT SELECT, INSERT, UPDATE ON a.t1, b.t1 TO answers""",
    "partitions": """
        CREATE TABLE l (a int, b text, c int) PARTITION BY LIST (a); CREATE TABLE g (a int, b text, c int) PARTITION BY RANGE (a);
        CREATE TABLE h (a int, b text, c int) PARTITION BY HASH (a); CREATE TABLE o (a int, b text, c int)""",
}
CATALOGS = {
    "publications": (
        """SELECT pubname, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, pg_get_userbyid(pubowner)
             FROM pg_publication ORDER BY 1""",
        """SELECT pubname, prrelid::regclass::text, prattrs::text, pg_get_expr(prqual, prrelid)
             FROM pg_publication_rel r JOIN pg_publication p ON p.oid = prpubid ORDER BY 1, 2""",
        """SELECT pubname, nspname FROM pg_publication_namespace JOIN pg_publication p ON p.oid = pnpubid
             JOIN pg_namespace n ON n.oid = pnnspid ORDER BY 1, 2""",
        "SELECT * FROM pg_publication_tables WHERE schemaname ~ '^[abc]$' ORDER BY 1, 2, 3",
        """SELECT relname, pg_get_userbyid(relowner), relacl::text, relreplident, relpersistence FROM pg_class c
             JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname ~ '^[abc]$' ORDER BY nspname, 1""",
    ),
    "partitions": (
        """SELECT relname, relkind, relispartition, pg_get_expr(relpartbound, oid), pg_get_partition_constraintdef(oid)
             FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') ORDER BY 1""",
        """SELECT indexrelid::regclass::text, indisunique, indisprimary, indisvalid, pg_get_indexdef(indexrelid) FROM pg_index
             WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace) ORDER BY 1""",
    ),
}

GRAMMAR: dict[str, list[str]] = {
    "publications": [
        "CREATE PUBLICATION {pub}{for}{with}", "CREATE PUBLICATION {pub}{for}{with}", "ALTER PUBLICATION {pub} {verb} {objects}",
        "ALTER PUBLICATION {pub} {verb} {objects}", "ALTER PUBLICATION {pub} SET ({option})", "ALTER PUBLICATION {pub} RENAME TO {pub}",
        "ALTER PUBLICATION {pub} OWNER TO {role}", "DROP PUBLICATION {if}{pub}{cascade}", "ALTER TABLE {table} {alter}",
        "DROP {kind} {if}{table}{cascade}", "ALTER SCHEMA {schema} RENAME TO {schema}", "ALTER SCHEMA {schema} OWNER TO {role}",
        "SET ROLE answers", "RESET ROLE", "RESET ROLE", "INSERT INTO {stored} (x, y) VALUES ({number}, 'a')", "UPDATE {stored} SET z = 1",
        "DELETE FROM {stored} WHERE x = {number}", "TRUNCATE {stored}",
    ],
    "for": ["", " FOR ALL TABLES", " FOR {objects}", " FOR {objects}", " FOR {objects}"],
    "with": ["", "", " WITH ({option})", " WITH ({option}, {option})"],
    "verb": ["ADD", "SET", "SET", "DROP"],
    "objects": ["TABLE {item}", "TABLE {item}", "TABLE {item}, {item}", "TABLES IN SCHEMA {schema}", "TABLES IN SCHEMA {schema}, TABLE {item}",
                "TABLE {item}, TABLES IN SCHEMA {schema}, {schema}"],
    "item": ["{table}", "{table}", "ONLY {table}", "{table} ({columns})", "{table} WHERE ({filter})", "{table} ({columns}) WHERE ({filter})"],
    "columns": ["x", "x, z", "z, x", "x, y, z", "y", "g", "nosuch", "x, x", "ctid", 'x, "Q q"'],
    "filter": ["x > 5", "y = 'a'", "x > 5 AND y <> 'b'", "z IS NULL", "x", "y > 3", "nosuch = 1", '"Q q" = 2', "now() > '2020-01-01'", "random() > 0.5",
               "x = (SELECT 1)", "ctid = '(0,1)'", "count(x) > 1", "g > 3", "NULL", "x BETWEEN 1 AND 5", "x = ANY ('{{1,2}}')", "t1.x > 3",
               "coalesce(z, 0) > 1", "CASE WHEN x > 1 THEN true ELSE false END", "row_number() OVER () = 1", "NOT (x > 1)", "'t'"],
    "option": ["publish = 'insert'", "publish = 'insert, update'", "publish = ''", "publish = 'insert, foo'", "publish", "nope = 3",
               "publish_via_partition_root", "publish_via_partition_root = off", "publish_via_partition_root = 'maybe'"],
    "alter": ["DROP COLUMN {column}{cascade}", "RENAME COLUMN {column} TO y", "ADD COLUMN w int", "REPLICA IDENTITY {identity}", "SET SCHEMA {schema}",
              "ALTER COLUMN {column} SET NOT NULL", "ALTER COLUMN {column} TYPE bigint", "RENAME TO t9", "DETACH PARTITION b.p1",
              "ATTACH PARTITION b.p1 FOR VALUES IN (1)", "OWNER TO {role}", "SET UNLOGGED", "SET LOGGED", "DROP CONSTRAINT t1_pkey"],
    "identity": ["FULL", "DEFAULT", "NOTHING", "USING INDEX t1_y", "USING INDEX t1_pkey", "USING INDEX t2_xz", "USING INDEX t1_part", "USING INDEX no"],
    "pub": ["p1", "p1", "p2", '"P 3"'],
    "stored": ["a.t1", "a.t2", "b.t1", "b.p", "b.p1"],
    "table": ["a.t1", "a.t1", "a.t2", "b.t1", "b.p", "b.p1", "b.p2", "a.v", "a.sq", "a.u", "nosuch", "t1"],
    "schema": ["a", "b", "c", "public", "pg_catalog", "nosuch", "CURRENT_SCHEMA"],
    "column": ["x", "y", "z", '"Q q"', "g", "nosuch", "ctid"],
    "role": ["answers", "postgres", "nosuch"],
    "kind": ["TABLE", "INDEX", "SCHEMA", "VIEW", "SEQUENCE"],
    "if": ["", "IF EXISTS "],
    "cascade": ["", " CASCADE", " RESTRICT"],
    "number": [str(number) for number in range(9)],
    "partitions": [
        *["CREATE TABLE {if_not}{leaf} PARTITION OF {root} {bound}{below}"] * 4, "ALTER TABLE {root} DETACH PARTITION {leaf}",
        "ALTER TABLE {root} ATTACH PARTITION {leaf} {bound}", "ALTER TABLE {root} ATTACH PARTITION o {bound}", "DROP TABLE {if}{leaf}{cascade}",
        "CREATE TABLE {leaf} {definition}", "ALTER TABLE {any} {change}", "CREATE {unique}INDEX {index}ON {only}{any} ({key})", "DROP INDEX ix",
        *["INSERT INTO {any} (a, b) VALUES ({value}, 'a'), ({value}, NULL){returning}"] * 3, "UPDATE {any} SET {set} WHERE a = {value}",
        "DELETE FROM {any} WHERE a > {value}", "SELECT * FROM {root} ORDER BY a, b, c", "TRUNCATE {only}{any}",
    ],
    "if_not": ["", "", "IF NOT EXISTS "],
    "root": ["l", "l", "g", "g", "h", "h", "o", "nosuch"],
    "leaf": ["l1", "l2", "g1", "g2", "h0", "h1", "p1"],
    "any": ["{root}", "{leaf}"],
    "bound": ["FOR VALUES IN ({number})", "FOR VALUES IN ({number}, {number})", "FOR VALUES FROM ({number}) TO ({number})",
              "FOR VALUES FROM (MINVALUE) TO ({number})", "FOR VALUES FROM ({number}) TO (MAXVALUE)", "DEFAULT",
              "FOR VALUES WITH (MODULUS 3, REMAINDER 0)", "FOR VALUES WITH (MODULUS 3, REMAINDER 1)", "FOR VALUES WITH (MODULUS 6, REMAINDER 4)",
              "FOR VALUES WITH (MODULUS 4, REMAINDER 2)", "FOR VALUES IN (NULL)", "FOR VALUES IN ('x')", "FOR VALUES FROM (1, 'a') TO (3, 'b')"],
    "below": ["", "", "", " PARTITION BY LIST (b)", " PARTITION BY RANGE (a)"],
    "definition": ["(a int, b text, c int)", "(c int, b text, a int)", "(a int, b text)", "(a bigint, b text, c int)", "(a int, b text, c int, d int)"],
    "change": ["ADD COLUMN d int", "DROP COLUMN c", "DROP COLUMN a", "ADD PRIMARY KEY (a)", "ADD PRIMARY KEY (c)", "ADD UNIQUE (a, c)",
               "ALTER COLUMN c SET NOT NULL", "ALTER COLUMN a TYPE bigint", "RENAME COLUMN b TO bb", "ADD CONSTRAINT ck CHECK (a < 100)",
               "DROP CONSTRAINT ck", "ALTER COLUMN c SET DEFAULT 7", "SET UNLOGGED"],
    "unique": ["", "UNIQUE "],
    "index": ["", "ix "],
    "only": ["", "ONLY "],
    "key": ["a", "a, b", "b", "nosuch"],
    "value": ["{number}", "{number}", "NULL"],
    "returning": ["", "", " RETURNING a, b, tableoid::regclass"],
    "set": ["a = a + 1", "a = 3", "b = 'z'", "a = NULL"],
}  # fmt: skip


@st.composite
def drawn_text(draw: st.DrawFn, symbol: str) -> str:
    """Draw a text from the grammar."""
    text = draw(st.sampled_from(GRAMMAR[symbol]))
    return re.sub(r"(?<!\{)\{(\w+)\}", lambda match: draw(drawn_text(match[1])), text).replace("{{", "{").replace("}}", "}")


class Speaker:
    """A session of one of the servers."""

    def __init__(self, server: Server, subject: str) -> None:
        self._database = server.new_database()
        self.session = psycopg.connect(server.conninfo(self._database), autocommit=True)
        self._notices: list[tuple[str | None, ...]] = []
        self.session.add_notice_handler(
            lambda notice: self._notices.append((notice.severity, notice.message_primary, notice.message_detail))
        )
        self.session.execute(TABLES[subject].encode())

    def ask(self, sql: str) -> tuple[Any, ...]:
        """Return the server's results."""
        self._notices.clear()
        try:
            cursor = self.session.execute(sql.encode())
            rows = (
                [tuple(re.sub("'[0-9]+'::oid", "OID", str(value)) for value in row) for row in cursor.fetchall()]
                if cursor.description
                else None
            )
        except psycopg.Error as error:
            diag = error.diag
            message = str(diag.message_primary).replace(self._database, "DATABASE")
            return (diag.sqlstate, message, diag.message_detail, diag.message_hint, diag.statement_position, *self._notices)
        return (cursor.statusmessage, rows, *self._notices)


@pytest.fixture(scope="module")
def both(postgres: Server, node: Server) -> Any:
    servers = (postgres, node)
    for server in servers:
        server.psql("postgres", "CREATE ROLE answers")
    yield servers
    for server in servers:
        server.psql("postgres", "ALTER ROLE answers RENAME TO answers_before")  # it owns the objects that scripts have left


@pytest.mark.parametrize(("scripts", "number"), AMOUNTS)
@pytest.mark.parametrize("subject", TABLES)
def test_node_answers_as_postgresql(both: tuple[Server, Server], subject: str, scripts: int, number: int) -> None:
    @seed(number)
    @settings(max_examples=scripts, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.lists(drawn_text(subject), min_size=LENGTH, max_size=LENGTH))
    def agree(script: list[str]) -> None:
        native, node = (Speaker(server, subject) for server in both)
        with contextlib.closing(native.session), contextlib.closing(node.session):
            for index, statement in enumerate(script):
                for sql in (statement, *CATALOGS[subject]):
                    earlier = ";\n".join(script[:index])
                    node_answer, native_answer = node.ask(sql), native.ask(sql)
                    if scripts <= FEW or not (
                        _is_error(node_answer) and _is_error(native_answer)
                    ):  # which of several errors is found first
                        assert node_answer == native_answer, f"{sql}\nafter {statement}\nwhich followed\n{earlier}"

    agree()


def _is_error(answer: tuple[object, ...]) -> bool:
    return re.fullmatch(r"(?=.*\d)[0-9A-Z]{5}", str(answer[0])) is not None
