"""Random workloads for a publisher: publications, a subscription's options, and SQL in two phases. Used by the property tests.

The tables are in two schemas. `w` has `k` with a primary key, `f` with REPLICA IDENTITY FULL, `i` with an index as replica identity,
and `r`, which is partitioned by list over two levels (one leaf is in `s`). `s` has `t`, with more types and two key columns. The repr of
a workload is the Python expression that creates it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hypothesis import strategies as st

TABLES = """
CREATE SCHEMA w; CREATE SCHEMA s;
CREATE TABLE w.k (a int PRIMARY KEY, b int, c text);
CREATE TABLE w.f (a int, b int, c text); ALTER TABLE w.f REPLICA IDENTITY FULL;
CREATE TABLE w.i (a int PRIMARY KEY, b int NOT NULL, c text); CREATE UNIQUE INDEX i_b ON w.i (b); ALTER TABLE w.i REPLICA IDENTITY USING INDEX i_b;
CREATE TABLE w.r (a int, b int, c text, PRIMARY KEY (a, b)) PARTITION BY LIST (b);
CREATE TABLE w.r1 PARTITION OF w.r FOR VALUES IN (0, 1, 2);
CREATE TABLE w.r2 PARTITION OF w.r FOR VALUES IN (3, 4) PARTITION BY RANGE (a);
CREATE TABLE s.r2_low PARTITION OF w.r2 FOR VALUES FROM (MINVALUE) TO (3);
CREATE TABLE w.r2_high PARTITION OF w.r2 FOR VALUES FROM (3) TO (MAXVALUE);
CREATE TABLE w.r3 PARTITION OF w.r DEFAULT;
CREATE TABLE s.t (a int, b smallint, c varchar(5), d numeric(6,2), e timestamp, g bool, PRIMARY KEY (a, b));
"""
"""The tables with which every workload starts, on publishers and subscribers."""

CONTENTS = {
    name: f"SELECT * FROM {name} x ORDER BY x::text"
    for name in ("w.k", "w.f", "w.i", "w.r1", "s.r2_low", "w.r2_high", "w.r3", "s.t")
}  # fmt: skip
ACTIONS = ["insert", "update", "delete", "truncate"]

KEYS = {"w.k": "a", "w.f": "abc", "w.i": "b", "w.r": "ab", "w.r1": "ab", "w.r2": "ab", "s.r2_low": "ab", "w.r3": "ab", "s.t": "ab"}
"""The columns of the replica identity of each table that can be published."""
FILTERS = {
    "a": ["a > 3", "a IN (1, 2, 5, 103)", "a % 2 = 0", "NOT a BETWEEN 2 AND 4"],
    "b": ["b > 1", "b <> ALL (ARRAY[2, 103])", "b % 2 = 1", "b = 2 OR b IS NULL"],
    "ab": ["a > 3", "b > 1", "a = b", "a > 2 AND b < 4", "a + b > 5", "(a, b) > (2, 1)", "b % 2 = 0 OR a = 3"],
    "abc": ["c = 'x' OR b IS NULL", "c IS NOT NULL", "c LIKE 'x%'", "lower(c) <> 'z'", "b > a", "coalesce(b, 9) > 3", "10 / b > 2"],
}
FREE = {
    "s.t": ["d > 2", "e >= '2020-01-02'", "g", "g IS NOT TRUE", "c = 'x'", "d IS NULL OR d < 3"],
    "": ["c IS NOT NULL", "c > 'x'", "c LIKE 'x%'", "b IS NULL"],
}
"""Filters on columns outside the replica identity. The server rejects UPDATE and DELETE."""
PARTS = [
    "ALTER TABLE w.r DETACH PARTITION w.r1",
    "ALTER TABLE w.r ATTACH PARTITION w.r1 FOR VALUES IN (0, 1, 2)",
    "ALTER TABLE w.r DETACH PARTITION w.r3",
    "ALTER TABLE w.r ATTACH PARTITION w.r3 DEFAULT",
]
LISTS = ["", "", "", " (a, b)", " (b, a)", " (a, b, c)", " (b, c)", " (a)"]

number = st.integers(0, 6)
text = st.sampled_from(["'x'", "'xy'", "'z'", "NULL", "''"])
actions = st.one_of(
    st.just(ACTIONS), st.just(ACTIONS), st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=4, unique=True)
)  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """The SQL of one run.

    `rows` and `publications` run before the subscription is created with `options`. Then `first` runs, then ALTER SUBSCRIPTION … REFRESH
    with `refresh`, then `second`.
    """

    rows: tuple[str, ...]
    publications: tuple[str, ...]
    options: str
    first: tuple[str, ...]
    refresh: str
    second: tuple[str, ...]

    def undo(self) -> list[str]:
        """Return the commands that empty the tables and undo the ALTER commands. Some fail if there is nothing to undo."""
        done = " ".join([*self.rows, *self.first, *self.second])
        named = [
            name
            for name in ("w.k", "w.f", "w.i", "w.r", "w.r1", "w.r3", "s.t")
            if re.search(rf"{name}\b", done) or (name == "w.r" and "r2" in done)
        ]
        commands = [f"TRUNCATE {', '.join(named)}"]
        for table, _identity in re.findall(r"ALTER TABLE (\S+) REPLICA IDENTITY (\w+)", done):
            commands.append(f"ALTER TABLE {table} REPLICA IDENTITY {'FULL' if table == 'w.f' else 'DEFAULT'}")
        return commands + [sql for sql in PARTS if "ATTACH" in sql and f"PARTITION {sql.split()[5]}" in done]

    def __repr__(self) -> str:
        parts = (f"    {name}={value!r}," for name, value in vars(self).items() if isinstance(value, str))
        lists = (
            f"    {name}=(\n" + "".join(f"        {sql!r},\n" for sql in value) + "    ),"
            for name, value in vars(self).items()
            if isinstance(value, tuple)
        )
        return "Workload(\n" + "\n".join([*parts, *lists]) + "\n)"


@st.composite
def member(draw: st.DrawFn) -> str:
    """Draw a table of a publication, with its column list and filter."""
    name = draw(st.sampled_from([*KEYS, "w.k", "w.f", "w.r", "w.r"]))
    where = ""
    if draw(st.booleans()):
        pool = FREE.get(name, FREE[""]) if draw(st.integers(0, 5)) == 0 else FILTERS[KEYS[name]]
        where = f" WHERE ({draw(st.sampled_from(pool))})"
    return f"{name}{draw(st.sampled_from(LISTS))}{where}"


@st.composite
def members(draw: st.DrawFn) -> str:
    """Draw the objects after FOR or SET of a publication command."""
    parts = []
    tables = draw(st.lists(member(), max_size=4, unique_by=lambda member_text: member_text.split(" ")[0]))
    if tables:
        parts.append("TABLE " + ", ".join(tables))
    if not tables or draw(st.integers(0, 4)) == 0:
        parts.append("TABLES IN SCHEMA " + draw(st.sampled_from(["w", "s", "s", "w, s"])))
    return ", ".join(parts)


@st.composite
def parameters(draw: st.DrawFn) -> str:
    """Draw the parameters publish and publish_via_partition_root."""
    return f"publish = '{', '.join(draw(actions))}', publish_via_partition_root = {draw(st.sampled_from(['true', 'true', 'false']))}"


@st.composite
def publications(draw: st.DrawFn) -> tuple[str, ...]:
    """Draw the publications p, q and u. Each stays empty if the server rejects its tables."""
    statements: list[str] = []
    for name in "pqu":
        if name == "u" and draw(st.integers(0, 3)) == 0:
            statements.append(f"CREATE PUBLICATION u FOR ALL TABLES WITH ({draw(parameters())})")
            continue
        statements.append(f"CREATE PUBLICATION {name} WITH ({draw(parameters())})")
        if name == "p" or draw(st.booleans()):
            statements.append(f"ALTER PUBLICATION {name} SET {draw(members())}")
    return tuple(statements)


@st.composite
def alteration(draw: st.DrawFn) -> str:
    """Draw a command that alters a publication, a replica identity or a partition between two changes."""
    kind = draw(st.integers(0, 5))
    name = draw(st.sampled_from("pqu"))
    if kind == 0:
        return f"ALTER PUBLICATION {name} SET ({draw(parameters())})"
    if kind == 1:
        return f"ALTER PUBLICATION {name} SET {draw(members())}"
    if kind == 2:
        return f"ALTER PUBLICATION {name} ADD TABLE {draw(member())}"
    if kind == 3:
        return f"ALTER PUBLICATION {name} DROP TABLE {draw(st.sampled_from(list(KEYS)))}"
    if kind == 4:
        return f"ALTER TABLE {draw(st.sampled_from(['w.k', 'w.f', 's.t', 'w.r1']))} REPLICA IDENTITY {draw(st.sampled_from(['FULL', 'DEFAULT', 'NOTHING', 'FULL']))}"
    return draw(st.sampled_from(PARTS))


TARGETS = ["w.k", "w.k", "w.f", "w.f", "w.i", "w.r", "w.r", "w.r", "s.t", "s.t", "w.r1", "s.r2_low"]


@st.composite
def insert(draw: st.DrawFn, name: str) -> str:
    """Draw an INSERT of one to four rows. For s.t, the rows have values of its types."""
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        values = [str(draw(number)), str(draw(number)), draw(text)]
        if name == "s.t":
            values += [draw(st.sampled_from(["1.5", "2.25", "NULL"])), draw(st.sampled_from(["'2020-01-01'", "'2020-01-02 03:04:05.6'", "NULL"])),
                       draw(st.sampled_from(["true", "false", "NULL"]))]  # fmt: skip
        rows.append(f"({', '.join(values)})")
    conflict = draw(
        st.sampled_from([" ON CONFLICT DO NOTHING", " ON CONFLICT DO NOTHING", "", " ON CONFLICT (a, b) DO UPDATE SET c = 'n'"])
    )
    if "UPDATE" in conflict and KEYS[name] != "ab":
        conflict = " ON CONFLICT (a) DO UPDATE SET c = 'n'" if name == "w.k" else ""
    return f"INSERT INTO {name} VALUES {', '.join(rows)}{'' if name == 'w.f' else conflict}"


@st.composite
def change(draw: st.DrawFn) -> str:
    """Draw an INSERT, UPDATE, DELETE or TRUNCATE."""
    name = draw(st.sampled_from(TARGETS))
    kind = draw(st.sampled_from(["insert"] * 5 + ["update"] * 3 + ["key"] * 2 + ["delete"] * 2 + ["truncate"]))
    where = f"{draw(st.sampled_from('ab'))} {draw(st.sampled_from(['=', '<', '>']))} {draw(number)}"
    if kind == "insert":
        return draw(insert(name))
    if kind == "update":
        value = ["c = 'xx'", "c = NULL", "c = c || 'y'", "c = 'x'"]
        if name in ("w.k", "w.f"):
            value += ["b = b + 1", "b = NULL", "b = a"]
        if name == "s.t":
            value += ["d = d * 2", "e = e + interval '1 day'", "g = NOT g"]
        return f"UPDATE {name} SET {draw(st.sampled_from(value))} WHERE {where}"
    if kind == "key":
        column = draw(st.sampled_from("ab"))
        # no row may get the old key of another updated row: PostgreSQL checks the key after each row, a node after the statement
        condition = f" AND b = {draw(number)}" if column == "b" else ""
        return f"UPDATE {name} SET {column} = {column} + {draw(st.sampled_from([1, 3, 100]))} WHERE a = {draw(number)}{condition}"
    if kind == "delete":
        return f"DELETE FROM {name} WHERE {where}"
    return f"TRUNCATE {draw(st.sampled_from([name, name, 'w.k, s.t', 'w.r, w.f', 'ONLY w.k', 'w.r2', 'w.r1', 's.r2_low, w.r3']))}"


@st.composite
def transaction(draw: st.DrawFn) -> list[str]:
    """Draw the statements between BEGIN and COMMIT or ROLLBACK, some of them after a savepoint."""
    inner = draw(st.lists(change(), min_size=1, max_size=4))
    if draw(st.booleans()):
        end = draw(st.sampled_from(["ROLLBACK TO x", "RELEASE x"]))
        inner = [*inner, "SAVEPOINT x", *draw(st.lists(change(), min_size=1, max_size=2)), end, *draw(st.lists(change(), max_size=1))]
    if draw(st.integers(0, 4)) == 0:
        inner.insert(draw(st.integers(0, len(inner))), draw(alteration()))
    return ["BEGIN", *inner, draw(st.sampled_from(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))]


@st.composite
def work(draw: st.DrawFn, smallest: int, largest: int) -> tuple[str, ...]:
    """Draw changes and transactions, and occasionally an ALTER command."""
    steps: list[str] = []
    for _ in range(draw(st.integers(smallest, largest))):
        kind = draw(st.integers(0, 6))
        steps += draw(transaction()) if kind < 2 else [draw(alteration())] if kind == 2 else [draw(change())]
    return tuple(steps)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Draw a workload."""
    copy = draw(st.sampled_from(["true", "true", "false"]))
    options = [f"copy_data = {copy}", f"binary = {draw(st.sampled_from(['false', 'false', 'true']))}"]
    options.append(f"streaming = {draw(st.sampled_from(['off', 'on']))}")
    rows = tuple(draw(insert(name)) for name in draw(st.lists(st.sampled_from(TARGETS[:10]), min_size=1, max_size=3)))
    return Workload(
        rows, draw(publications()), ", ".join(options), draw(work(2, 4)), draw(st.sampled_from(["true", "false"])), draw(work(1, 2))
    )
