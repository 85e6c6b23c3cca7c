"""Random PL/pgSQL and SQL functions, row triggers, and statements that fire and call them.

`test_generated` runs them as a client, `tests.subscriber.test_row_triggers` as applied changes. Everything that they name has its
schema, because a worker's search path is empty. The values of expressions stay small, so that only the errors that `raises` allows occur.
The statements change single rows, because the order of the rows of a statement is not defined. For the same reason no WHERE calls a
function that writes: how often it is called depends on the order of the rows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, v text, n int);
    CREATE TABLE ref (k int PRIMARY KEY, w int);
    INSERT INTO ref SELECT g, g * 7 % 5 FROM generate_series(0, 4) g;
    CREATE TABLE log (what text, n int, v text)"""
ROWS = "INSERT INTO t SELECT g, chr(96 + g), g FROM generate_series(1, 4) g"
STATE = ("SELECT id, v, n FROM t ORDER BY id", "SELECT k, w FROM ref ORDER BY k", "SELECT what, n, v FROM log ORDER BY what, n, v")
"""The queries whose results must be equal on both servers."""


@dataclass(frozen=True)
class Function:
    """A function that expressions may call. `result`: int, text or boolean. `writes`: it changes tables or sends messages."""

    name: str
    arguments: tuple[str, ...]
    result: str
    writes: bool


class Generator:
    """Texts from a seed. With `raises`, functions may raise errors, and send messages. `depth`: how deep the statements of functions nest."""

    def __init__(self, seed: int, *, raises: bool, depth: int = 2) -> None:
        self._random, self._raises, self._depth = random.Random(seed), raises, depth
        self._functions: list[Function] = []

    # ---- expressions --------------------------------------------------------------------------------------

    def _of(self, kind: str, names: dict[str, str], depth: int, *, writes: bool = True) -> str:
        make = {"int": self._int, "text": self._text, "boolean": self._boolean}[kind]
        return make(names, depth, writes)

    def _call(self, kind: str, names: dict[str, str], depth: int, writes: bool) -> str | None:
        callable_functions = [function for function in self._functions if function.result == kind and (writes or not function.writes)]
        if not callable_functions:
            return None
        function = self._random.choice(callable_functions)
        arguments = [self._of(argument, names, depth - 1, writes=writes) for argument in function.arguments]
        return f"public.{function.name}({', '.join(arguments)})"

    def _leaf(self, kind: str, names: dict[str, str], literals: list[str]) -> str:
        variables = [name for name, variable_kind in names.items() if variable_kind == kind]
        return self._random.choice([*variables, *variables, *literals])

    def _int(self, names: dict[str, str], depth: int, writes: bool) -> str:
        if depth <= 0:
            return self._leaf("int", names, ["0", "1", "2", "5", "-3", "NULL::int"])
        a, b = (self._of("int", names, depth - 1, writes=writes) for _ in range(2))
        text, test = self._of("text", names, depth - 1, writes=writes), self._of("boolean", names, depth - 1, writes=writes)
        forms = [
            f"(({a} + {b}) % 997)", f"({a} - {b}) % 997", f"({a} % 97 * ({b} % 97)) % 997", f"length({text})", f"abs({a})",
            f"CASE WHEN {test} THEN {a} ELSE {b} END", f"coalesce({a}, {b})", f"greatest({a}, {b})",
            f"(SELECT r.w FROM public.ref r WHERE r.k = abs({self._leaf('int', names, ['3'])}) % 6)",
            f"(SELECT count(*)::int FROM public.ref r WHERE r.w > {self._leaf('int', names, ['2'])})",
        ]  # fmt: skip
        if self._raises:
            forms += [f"{a} / {b}", f"({text})::int"]
        return self._random.choice([*forms, self._call("int", names, depth, writes) or a])

    def _text(self, names: dict[str, str], depth: int, writes: bool) -> str:
        if depth <= 0:
            return self._leaf("text", names, ["'a'", "'Bc'", "''", "NULL::text", "'12'"])
        a, b = (self._of("text", names, depth - 1, writes=writes) for _ in range(2))
        number, test = self._of("int", names, depth - 1, writes=writes), self._of("boolean", names, depth - 1, writes=writes)
        forms = [
            f"left({a} || {b}, 9)", f"upper({a})", f"({number})::text", f"CASE WHEN {test} THEN {a} ELSE {b} END", f"coalesce({a}, {b})",
            f"replace({a}, 'a', 'xy')", f"left({a}, abs({number}) % 4)",
        ]  # fmt: skip
        return self._random.choice([*forms, self._call("text", names, depth, writes) or a])

    def _boolean(self, names: dict[str, str], depth: int, writes: bool) -> str:
        if depth <= 0:
            return self._leaf("boolean", names, ["true", "false"])
        a, b = (self._of("int", names, depth - 1, writes=writes) for _ in range(2))
        text, test = self._of("text", names, depth - 1, writes=writes), self._of("boolean", names, depth - 1, writes=writes)
        forms = [
            f"{a} < {b}", f"{a} = {b}", f"{text} LIKE '%a%'", f"{a} IS NULL", f"({test} OR {a} > 2)", f"({test} AND {b} <> 1)",
            f"NOT ({test})", f"EXISTS (SELECT FROM public.ref r WHERE r.w = {self._leaf('int', names, ['3'])})", f"{text} IN ('a', '12')",
        ]  # fmt: skip
        return self._random.choice([*forms, self._call("boolean", names, depth, writes) or test])

    # ---- statements ---------------------------------------------------------------------------------------

    def _block(self, names: dict[str, str], targets: dict[str, str], depth: int, *, writes: bool) -> str:
        return " ".join(self._statement(names, targets, depth, writes=writes) for _ in range(self._random.randint(1, 3)))

    def _assignment(self, names: dict[str, str], targets: dict[str, str], *, writes: bool) -> str:
        name, kind = self._random.choice(list(targets.items()))
        return f"{name} := {self._of(kind, names, 2, writes=writes)};"

    def _statement(self, names: dict[str, str], targets: dict[str, str], depth: int, *, writes: bool) -> str:
        def inner(*more: tuple[str, str]) -> str:
            return self._block({**names, **dict(more)}, targets, depth - 1, writes=writes)

        def of(kind: str, size: int = 1) -> str:
            return self._of(kind, names, size, writes=writes)

        integer = self._random.choice([name for name, kind in targets.items() if kind == "int"])
        forms = [
            lambda: self._assignment(names, targets, writes=writes),
            lambda: f"SELECT r.w INTO {integer} FROM public.ref r WHERE r.k = abs({self._of('int', names, 1, writes=False)}) % 6;",
            lambda: f"EXECUTE 'SELECT $1 + 1' INTO {integer} USING ({of('int')}) % 997;",
        ]
        if writes:
            forms += [
                lambda: f"INSERT INTO public.log VALUES ('{self._random.choice('pqr')}', {of('int')}, {of('text')});",
                lambda: f"UPDATE public.ref SET w = (w + {of('int')}) % 97 WHERE k = abs({self._leaf('int', names, ['3'])}) % 5;",
            ]
            if self._raises:
                forms.append(lambda: f"RAISE NOTICE '% %', {of('int')}, {of('text')};")
        if self._raises and not self._random.randrange(3):
            forms.append(lambda: f"IF {of('boolean', 2)} THEN RAISE EXCEPTION 'raised %', {of('int')} USING ERRCODE = '22012'; END IF;")
        if depth > 0:
            forms += [
                lambda: f"IF {of('boolean', 2)} THEN {inner()} ELSIF {of('boolean')} THEN {inner()} ELSE {inner()} END IF;",
                lambda: f"FOR i IN 1..coalesce(abs({of('int')}) % 4, 1) LOOP {inner(('i', 'int'))} EXIT WHEN {of('boolean')}; END LOOP;",
                lambda: f"FOR q IN SELECT k, w FROM public.ref ORDER BY k LOOP {inner(('q.k', 'int'), ('q.w', 'int'))} END LOOP;",
                lambda: f"CASE WHEN {of('boolean')} THEN {inner()} ELSE {inner()} END CASE;",
                lambda: f"BEGIN {inner()} EXCEPTION WHEN division_by_zero OR invalid_text_representation THEN {inner()} END;",
                lambda: f"FOREACH e IN ARRAY ARRAY[{of('int')}, 4] LOOP CONTINUE WHEN {of('boolean')}; {inner(('e', 'int'))} END LOOP;",
            ]
        return self._random.choice(forms)()

    # ---- functions and triggers ---------------------------------------------------------------------------

    def function(self) -> str:
        """Return the CREATE FUNCTION of a function that later expressions may call."""
        kinds = ("int", "text", "boolean")
        arguments = tuple(self._random.choice(kinds) for _ in range(self._random.randint(1, 2)))
        result, writes = self._random.choice(kinds), not self._random.randrange(3)
        names = {f"a{place}": kind for place, kind in enumerate(arguments)}
        heading = f"CREATE FUNCTION f{len(self._functions)}({', '.join(f'{name} {kind}' for name, kind in names.items())}) RETURNS {result}"
        heading += " STRICT" * (not self._random.randrange(4)) + ("" if writes else " STABLE" * self._random.randrange(2))
        if not self._random.randrange(4) and not writes and not self._raises:  # PostgreSQL folds constants when it creates an SQL function
            text = f"{heading} LANGUAGE sql AS $$ SELECT {self._of(result, names, 2, writes=False)} $$"
        else:
            variables = {"x": "int", "s": "text"}
            body = self._block({**names, **variables}, variables, self._depth, writes=writes)
            value = self._of(result, {**names, **variables}, 1, writes=writes)
            declared = "e int; q record; x int := 1; s text := 'a';"
            text = f"{heading} LANGUAGE plpgsql AS $$ DECLARE {declared} BEGIN {body} RETURN {value}; END $$"
        self._functions.append(Function(f"f{len(self._functions)}", arguments, result, writes))
        return text

    def trigger(self, number: int) -> list[str]:
        """Return the statements that create a row trigger of t and its function."""
        event, is_before = self._random.choice(("INSERT", "UPDATE", "DELETE")), bool(self._random.randrange(2))
        rows = {"INSERT": ("new",), "DELETE": ("old",), "UPDATE": ("old", "new")}[event]
        fields = {f"{row}.{name}": kind for row in rows for name, kind in (("id", "int"), ("v", "text"), ("n", "int"))}
        variables = {"x": "int", "s": "text"}
        is_changed = is_before and "new" in rows
        targets = {**variables, **({"new.v": "text", "new.n": "int"} if is_changed else {})}
        body = self._block({**fields, **variables}, targets, self._depth - 1, writes=True)
        # a row that a subscriber keeps would stop the worker at the next INSERT of its key
        if is_before and event != "DELETE" and not self._random.randrange(3):
            body += f" IF {self._of('boolean', {**fields, **variables}, 1)} THEN RETURN NULL; END IF;"
        condition = f" WHEN ({self._of('boolean', fields, 2, writes=False)})" if self._is_condition() else ""
        declared = "e int; q record; x int := 1; s text := 'a';"
        timing = "BEFORE" if is_before else "AFTER"
        while "SELECT" in condition:  # a WHEN has no subqueries
            condition = f" WHEN ({self._of('boolean', fields, 1, writes=False)})"
        return [
            f"CREATE FUNCTION g{number}() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE {declared} BEGIN {body} RETURN {rows[-1]}; END $$",
            f"CREATE TRIGGER g{number} {timing} {event} ON t FOR EACH ROW{condition} EXECUTE FUNCTION g{number}()",
            f"ALTER TABLE t ENABLE ALWAYS TRIGGER g{number}",
        ]

    def _is_condition(self) -> bool:
        return bool(self._random.randrange(2))

    # ---- statements that fire and call them ---------------------------------------------------------------

    def change(self) -> str:
        """Return a statement that changes rows of t."""
        place = self._random.randrange(1, 7)
        value, number = self._random.choice(("'a'", "'Bc'", "''", "NULL", "'12'")), self._random.choice(("0", "1", "-3", "7", "NULL"))
        return self._random.choice((
            f"INSERT INTO t VALUES ({place}, {value}, {number})",
            f"INSERT INTO t VALUES ({place + 10}, {value}, {number}), ({place + 20}, 'a', {place})",
            f"UPDATE t SET n = {number}, v = {value} WHERE id = {place}",
            f"UPDATE t SET n = n + 1 WHERE id = {place}",
            f"DELETE FROM t WHERE id = {place}",
        ))  # fmt: skip

    def query(self) -> str:
        """Return a query that calls functions, for each row of t or without rows."""
        columns = {"id": "int", "v": "text", "n": "int"}
        kind = self._random.choice(("int", "text", "boolean"))
        return self._random.choice((
            f"SELECT id, {self._call(kind, columns, 2, writes=True) or 'n'} FROM t ORDER BY id",
            f"SELECT id FROM t WHERE {self._call('boolean', columns, 2, writes=False) or 'n > 1'} ORDER BY id",
            f"SELECT {self._call(kind, {}, 2, writes=True) or 1}",
            f"UPDATE t SET n = {self._call('int', columns, 1, writes=False) or 'n'} WHERE id = {self._random.randrange(1, 7)}",
        ))  # fmt: skip
