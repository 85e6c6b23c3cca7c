"""A node converts text to and from client_encoding as PostgreSQL does, with the same bytes and the same errors."""

from __future__ import annotations

import random
import re
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.conftest import NodeServer, Server, until

from headgate.errors import PostgresError
from headgate.settings.encoding import CHARACTER, CODECS, Encoding
from headgate.types import encoded as columns

CONVERSIONS = """
CREATE FUNCTION encoded(codes int[], encoding name) RETURNS TABLE (code int, gives text) LANGUAGE plpgsql AS $$
BEGIN
  FOREACH code IN ARRAY codes LOOP
    BEGIN gives := encode(convert_to(chr(code), encoding), 'hex'); EXCEPTION WHEN OTHERS THEN gives := SQLERRM; END;
    RETURN NEXT;
  END LOOP;
END $$;
CREATE FUNCTION decoded(given bytea[], encoding name) RETURNS TABLE (raw bytea, gives text) LANGUAGE plpgsql AS $$
BEGIN
  FOREACH raw IN ARRAY given LOOP
    BEGIN gives := convert_from(raw, encoding); EXCEPTION WHEN OTHERS THEN gives := SQLERRM; END;
    RETURN NEXT;
  END LOOP;
END $$
"""
TABLE = """
CREATE TABLE t (a int PRIMARY KEY, "größe" text, l text[], j jsonb);
INSERT INTO t VALUES (1, 'grün', '{é,x,NULL}', '{"ä": "ß"}'), (2, '€', NULL, NULL), (3, '日', NULL, NULL), (4, NULL, NULL, NULL)
"""


def or_message(convert: Any, text: Any) -> Any:
    """Return the result, or the error's message."""
    try:
        return convert(text)
    except PostgresError as error:
        return error.message


def test_every_encoding_has_postgresqls_characters_and_errors(postgres: Server) -> None:
    generator = random.Random(23)
    with psycopg.connect(postgres.conninfo(postgres.new_database())) as session:
        session.execute(CONVERSIONS)  # type: ignore[arg-type]
        for name in CODECS:
            encoding = Encoding(name)
            codes = [*range(1, 0x180), *generator.sample([*range(0x180, 0xD800), *range(0xE000, 0x10000)], 250)]
            raws = [bytes([byte]) for byte in range(1, 256)]
            if name in CHARACTER:
                raws += [bytes(generator.choices(range(1, 256), k=generator.choice((2, 3, 4)))) for _ in range(400)]
                raws += [bytes([generator.randrange(0x81, 0xFF), generator.randrange(0x40, 0xFF)]) for _ in range(400)]
                raws = [raw for raw in raws if (expected := re.match(CHARACTER[name], raw, re.DOTALL)) is None or expected[0] == raw]
            if name not in ("UTF8", "SQL_ASCII"):
                for code, expected in session.execute("SELECT * FROM encoded(%s, %s)", [codes, name]):
                    encoded = or_message(encoding.encode, chr(code))
                    assert (encoded.hex() if isinstance(encoded, bytes) else encoded) == expected, (name, code)
                for raw, expected in session.execute("SELECT * FROM decoded(%s, %s)", [raws, name]):
                    assert or_message(encoding.decode, raw) == expected, (name, raw)


@pytest.mark.parametrize("name", ["LATIN1", "SJIS", "GB18030"])
def test_column_is_converted_as_its_values_are(name: str) -> None:
    encoding, values = Encoding(name), ["", "a", None, "é" if name == "LATIN1" else "日本語", "", "x"]
    raw = columns.encoded(pa.array(values), encoding)
    assert raw.to_pylist() == [None if value is None else encoding.encode(value) for value in values]
    assert columns.decoded(raw.cast(pa.binary()), encoding).to_pylist() == values
    with pytest.raises(PostgresError, match="0x00"):
        columns.decoded(pa.array([raw[3].as_py(), b"a\0"]), encoding)


def test_text_of_a_stream_is_text_after_conversion() -> None:
    strings = columns.as_strings(columns.encoded(pa.array(["é", None, "x"]), Encoding("LATIN1")))
    assert pa.types.is_large_string(strings.type)
    assert strings.cast(pa.large_binary()).to_pylist() == [b"\xe9", None, b"x"]


def result(link: psycopg.Connection, sql: bytes, *values: bytes, binary: bool = False) -> Any:
    """Return names and rows, or SQLSTATE and message, as bytes. Parameters and results are in text or binary format."""
    result_of_libpq = link.pgconn.exec_params(sql, list(values), param_formats=[int(binary)] * len(values), result_format=int(binary))
    if result_of_libpq.error_message:
        return tuple((result_of_libpq.error_field(field) or b"").decode("ascii") for field in (67, 77))
    return [result_of_libpq.fname(index) for index in range(result_of_libpq.nfields)], [
        tuple(result_of_libpq.get_value(row, index) for index in range(result_of_libpq.nfields)) for row in range(result_of_libpq.ntuples)
    ]


@pytest.mark.parametrize("binary", [False, True])
def test_statements_parameters_results_and_errors_are_in_the_clients_encoding(server: Server, binary: bool) -> None:
    database = server.new_database()
    server.psql(database, TABLE)
    with psycopg.connect(server.conninfo(database), autocommit=True, client_encoding="LATIN1") as link:
        assert link.pgconn.parameter_status(b"client_encoding") == b"LATIN1"
        names, [row] = result(link, 'SELECT "größe", l, j FROM t WHERE a = 1'.encode("latin-1"), binary=binary)
        assert names == [b"gr\xf6\xdfe", b"l", b"j"]
        stripped = [re.sub(rb"[\x00-\x1f ]", b"", column_value or b"") for column_value in row]
        assert [b"gr\xfcn" in stripped[0], b"\xe9" in stripped[1], b'{"\xe4":"\xdf"}' in stripped[2]] == [True, True, True]
        assert result(link, b"SELECT $1::text, octet_length($1::text)::text", b"\xe9", binary=binary)[1] == [(b"\xe9", b"2")]
        assert result(link, b"SELECT '\xe9' AS \xe8") == ([b"\xe8"], [(b"\xe9",)])
        assert result(link, 'SELECT "größe" FROM t WHERE a = 2'.encode("latin-1"), binary=binary) == (
            "22P05",
            'character with byte sequence 0xe2 0x82 0xac in encoding "UTF8" has no equivalent in encoding "LATIN1"',
        )
        assert result(link, b"SELECT U&'\\20ac'::text::int") == (
            "22P05",
            'character with byte sequence 0xe2 0x82 0xac in encoding "UTF8" has no equivalent in encoding "LATIN1"',
        )
        link.execute("SET client_encoding = 'Windows-1252'")
        assert link.pgconn.parameter_status(b"client_encoding") == b"WIN1252"
        assert result(link, 'SELECT "größe" FROM t WHERE a = 2'.encode("latin-1"), binary=binary)[1] == [(b"\x80",)]
        assert result(link, b"SELECT $1::text", b"\x81", binary=binary) == (
            "22P05",
            'character with byte sequence 0x81 in encoding "WIN1252" has no equivalent in encoding "UTF8"',
        )
        link.execute("SET client_encoding = 'euc_jp'")
        assert result(link, b"SELECT $1::text", b"\xc6\xfc", binary=binary)[1] == [(b"\xc6\xfc",)]
        assert result(link, b"SELECT '\xe9'") == ("22021", 'invalid byte sequence for encoding "EUC_JP": 0xe9 0x27')
        with pytest.raises(psycopg.errors.UndefinedTable):
            link.execute('TABLE "日本"')
        link.execute("BEGIN; SET LOCAL client_encoding = 'UTF8'; ROLLBACK")
        assert link.pgconn.parameter_status(b"client_encoding") == b"EUC_JP"
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="Conversion between MULE_INTERNAL and UTF8 is not supported"):
            link.execute("SET client_encoding = 'MULE_INTERNAL'")


def test_copy_is_in_the_clients_encoding_unless_it_has_an_encoding_option(server: Server) -> None:
    database = server.new_database()
    server.psql(database, TABLE)

    def out(link: psycopg.Connection, more: str) -> list[bytes]:
        with link.cursor().copy(f"COPY (SELECT * FROM t WHERE a IN (1, 4) ORDER BY a) TO STDOUT {more}") as copy:  # type: ignore[arg-type]
            return [bytes(chunk) for chunk in copy]

    with psycopg.connect(server.conninfo(database), autocommit=True, client_encoding="LATIN1") as link:
        assert out(link, "") == [b'1\tgr\xfcn\t{\xe9,x,NULL}\t{"\xe4": "\xdf"}\n', b"4\t\\N\t\\N\t\\N\n"]
        assert out(link, "CSV HEADER")[:2] == [b"a,gr\xf6\xdfe,l,j\n", b'1,gr\xfcn,"{\xe9,x,NULL}","{""\xe4"": ""\xdf""}"\n']
        assert b"gr\xfcn" in b"".join(out(link, "BINARY"))
        assert "grün".encode() in out(link, "(ENCODING 'utf8')")[0]
        with link.cursor().copy(b"COPY t (a, l) FROM STDIN") as copy:
            for byte in b"10\t{\xe9}\n":
                copy.write(bytes([byte]))
        with link.cursor().copy(b"COPY t (a, l) FROM STDIN CSV ENCODING 'utf8'") as copy:
            copy.write("11,{é}\n".encode())
        assert link.execute("SELECT l FROM t WHERE a > 9").fetchall() == [(["é"],), (["é"],)]
        link.execute("SET client_encoding = WIN1252")
        with pytest.raises(psycopg.errors.UntranslatableCharacter) as refused, link.cursor().copy(b"COPY t (a, l) FROM STDIN") as copy:
            copy.write(b"12\t{x}\n13\t\x81\n")
        assert refused.value.diag.context == "COPY t, line 2"
        link.execute("SET client_encoding = UTF8")
        for kind in ("", "CSV"):
            into = f"COPY t (a, l) FROM STDIN {kind}"
            with pytest.raises(psycopg.errors.CharacterNotInRepertoire) as wrong, link.cursor().copy(into) as copy:  # type: ignore[arg-type]
                copy.write(b"12,{x}\n13,\xe9\n" if kind == "CSV" else b"12\t{x}\n13\t\xe9\n")
            assert wrong.value.diag.context == "COPY t, line 2"


@pytest.mark.parametrize("binary", ["false", pytest.param("true", marks=pytest.mark.slow)])
def test_subscriber_with_a_latin1_database_gets_names_and_values_in_latin1(node: NodeServer, postgres: Server, binary: str) -> None:
    source, target = node.new_database(), f"latin1_{binary}"
    postgres.psql("postgres", f"CREATE DATABASE {target} ENCODING 'LATIN1' TEMPLATE template0")
    schema = 'CREATE TABLE "größe" (a int PRIMARY KEY, "näme" text, l text[], j jsonb)'
    node.psql(source, f"""{schema}; INSERT INTO "größe" VALUES (1, 'grün', '{{é}}', '"ä"'); CREATE PUBLICATION p FOR TABLE "größe" """)
    postgres.psql(
        target, f"{schema}; CREATE SUBSCRIPTION {target} CONNECTION '{node.conninfo(source)}' PUBLICATION p WITH (binary = {binary})"
    )
    query = """SELECT string_agg(a || "näme" || l::text || j::text, ' ' ORDER BY a) FROM "größe" """
    until(lambda: postgres.psql(target, query) == '1grün{é}"ä"', "the copy is not complete")
    node.psql(source, """INSERT INTO "größe" VALUES (2, 'süß', '{ö}', '"ü"'); UPDATE "größe" SET "näme" = 'weiß' WHERE a = 1""")
    until(lambda: postgres.psql(target, query) == '1weiß{é}"ä" 2süß{ö}"ü"', "the changes do not arrive")
    node.psql(source, """INSERT INTO "größe" VALUES (3, '€', '{}', '1')""")
    no_equivalent = 'character with byte sequence 0xe2 0x82 0xac in encoding "UTF8" has no equivalent in encoding "LATIN1"'
    until(lambda: no_equivalent in postgres.log(), "the error is not logged")
    postgres.psql(target, f"DROP SUBSCRIPTION {target}")
