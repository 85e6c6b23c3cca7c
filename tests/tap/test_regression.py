"""PostgreSQL's regression files print on a node what they print on PostgreSQL.

pg_regress runs files of the source package against a node. For `publication.sql` and `subscription.sql` each difference from PostgreSQL's
expected output is listed here with its reason. For `plpgsql.sql` and `triggers.sql`, which have some thousand statements, the kinds of
differences are listed in `expected_statements`, with the least share of statements whose output is equal.
"""

from __future__ import annotations

import difflib
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import PG_BIN, Server
from tests.tap import source
from tests.tap.expected_statements import KINDS, LEAST_SHARE, SETUP
from tests.tap.statement_answers import answers as answers_by_statement

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


class Difference(NamedTuple):
    """A statement that has another result on a node."""

    statement: str
    """The last line of the statement."""
    answer: str
    """The lines that the node prints and PostgreSQL does not. It is empty if lines are only missing."""


OPERATOR = "user-defined operators are not supported"
COLLATION = "user-defined collations are not supported"
XML = "expressions over XML are not supported"
HINT = "\nHINT:  No {} matches the given name and argument types. You might need to add explicit type casts."

EXPECTED = {
    "publication": {
        Difference(
            "CREATE OPERATOR =#> (PROCEDURE = testpub_rf_func1, LEFTARG = integer, RIGHTARG = integer);",
            "ERROR:  CREATE OPERATOR is not supported",
        ): OPERATOR,
        Difference(
            "CREATE PUBLICATION testpub6 FOR TABLE testpub_rf_tbl3 WHERE (e =#> 27);",
            "ERROR:  operator does not exist: integer =#> integer" + HINT.format("operator"),
        ): OPERATOR,
        Difference('CREATE COLLATION user_collation FROM "C";', "ERROR:  CREATE COLLATION is not supported"): COLLATION,
        Difference(
            "ALTER PUBLICATION testpub5 ADD TABLE testpub_rf_tbl1 WHERE (b < '2' COLLATE user_collation);",
            'ERROR:  collation "user_collation" for encoding "UTF8" does not exist',
        ): COLLATION,
        Difference(
            "ALTER PUBLICATION testpub5 SET TABLE testpub_rf_tbl5 WHERE (a IS DOCUMENT);",
            "ERROR:  expressions of the form XmlExpr are not supported",
        ): XML,
        Difference(
            "ALTER PUBLICATION testpub5 SET TABLE testpub_rf_tbl5 WHERE (xmlexists('//foo[text() = ''bar'']' PASSING BY VALUE a));",
            "ERROR:  function xmlexists(text, xml) is not supported: it has no exact counterpart in Spark",
        ): XML,
        Difference("DROP OPERATOR =#>(integer, integer);", "ERROR:  DROP OPERATOR is not supported"): OPERATOR,
        Difference("DROP COLLATION user_collation;", "ERROR:  DROP COLLATION is not supported"): COLLATION,
    },
    "subscription": {
        Difference(
            "CREATE SUBSCRIPTION regress_testsub CONNECTION 'dbname=regress_doesnotexist' PUBLICATION testpub "
            "WITH (connect = false, streaming = foo);",
            'ERROR:  streaming requires a Boolean value or "parallel"',
        ): "a node also accepts `parallel`, and so has the message of PostgreSQL 16",
    },
}
"""The expected differences in the order of the file, with their reasons."""


def answers(expected: list[str], printed: list[str], script: set[str]) -> list[Difference]:
    """Return the statements whose results differ, in the order of the file.

    The lines of both texts are the statements, as psql -a repeats them, and the results between them. The excerpt of the statement that an
    error shows (`LINE 1: …` and the caret) is omitted, because it repeats PostgreSQL's text.
    """
    results: dict[int, list[str]] = {}
    for kind, _, _, start, end in difflib.SequenceMatcher(None, expected, printed, autojunk=False).get_opcodes():
        if kind != "equal":
            statement = max(number for number in range(start) if printed[number] in script and printed[number])
            lines = [line for line in printed[start:end] if line and not re.match(r"LINE \d+: | *\^$", line)]
            results.setdefault(statement, []).extend(lines)
    return [Difference(printed[statement], "\n".join(lines)) for statement, lines in results.items()]


def run_file(file: str, node: Server, tmp_path: Path) -> tuple[str, str, str]:
    """Run a regression file. Return the texts of the file, of PostgreSQL's output and of the node's."""
    folder = source.fetch_source() / "src/test/regress"
    node.psql("postgres", "CREATE DATABASE regression")
    node.psql("regression", "GRANT ALL ON SCHEMA public TO public")  # as the regression tests' own test_setup.sql does
    for statement in SETUP.get(file, ()):
        node.psql("regression", statement)
    place = ("--host=127.0.0.1", f"--port={node.port}", "--user=postgres", "--dbname=regression", "--use-existing")
    command = [source.PG_REGRESS, f"--bindir={PG_BIN}", *place, f"--inputdir={folder}", f"--outputdir={tmp_path}", file]
    completed = subprocess.run(command, capture_output=True, text=True)
    results = tmp_path / "results" / f"{file}.out"
    assert results.exists(), completed.stdout + completed.stderr
    script, expected = (folder / "sql" / f"{file}.sql").read_text(), (folder / "expected" / f"{file}.out").read_text()
    return script, expected, results.read_text()


@pytest.mark.parametrize("file", ["foreign_key", "plpgsql", "triggers"])
def test_most_statements_of_a_file_print_what_postgresql_prints(file: str, own_node: Callable[..., Server], tmp_path: Path) -> None:
    answers = answers_by_statement(*run_file(file, own_node(), tmp_path))
    different = [answer for answer in answers if not answer.is_equal]
    texts = ["\n".join([answer.statement, *answer.printed, *answer.expected]) for answer in different]
    kinds = [{pattern for pattern in KINDS[file] if re.search(pattern, text)} for text in texts]
    assert [answer for answer, patterns in zip(different, kinds, strict=True) if not patterns] == []
    assert set(KINDS[file]) - set().union(*kinds) == set(), "kinds of differences that no longer occur"
    share = 1 - len(different) / len(answers)
    assert share >= LEAST_SHARE[file]


@pytest.mark.parametrize("file", ["publication", "subscription"])
def test_file_prints_what_postgresql_prints(file: str, own_node: Callable[..., Server], tmp_path: Path) -> None:
    script, expected, printed = (text.splitlines() for text in run_file(file, own_node(), tmp_path))
    differences = answers(expected, printed, set(script))
    assert differences == list(EXPECTED[file]), (tmp_path / "regression.diffs").read_text()
