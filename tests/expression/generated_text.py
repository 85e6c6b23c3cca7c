"""The text family of generated expressions: patterns, regular expressions, and string functions."""

from __future__ import annotations

from tests.expression.grammar import Family, Kind

TEXT = Family(
    kinds=(
        Kind("pattern", (("q", "varchar(9)"),), "varchar(9)"),
        Kind("regex", (("r", "varchar(12)"),), "varchar(12)"),
        Kind("label", (("k", "name"),), "name"),
    ),
    values={
        "varchar(9)": ("%", "a%", "_", "%b", "a\\%b", "\\", "a\\", "%\\\\%", "", "é_", "%%a", "_%_", "A%", "😀", "a!%b"),
        "varchar(12)": (
            "a", "^a", "b$", ".", "a|ab", "(a)(b)?", "[^a-z]", "\\w+", "\\s", "(", "a{2", "(?i)A", "[[:alpha:]]", "^$", "x*", "\\mab", "(a|b)*",
            "(.)\\1", "***=a%b", "é", "a+?",
        ),
        "name": ("a", "", "Odd name", "select", "é", "abc"),
    },
    rules={
        "boolean": (
            "({string} LIKE {pattern})", "({string} NOT LIKE {pattern})", "({string} ILIKE {pattern})", "({string} NOT ILIKE 'a_%')",
            "({string} LIKE {pattern} ESCAPE '!')", "({string} LIKE {pattern} ESCAPE '')", "({string} ~ {regex})", "({string} !~ {regex})",
            "({string} ~* {regex})", "({string} !~* 'A')", "({string} ~ '^[a-c]+$')", "({string} ~ '(a|b)*c')", "({string} SIMILAR TO '(a|b)%')",
            "({string} SIMILAR TO {pattern})", "({string} NOT SIMILAR TO '%a#_b%' ESCAPE '#')", "({string} ^@ {string})", "({label} = {string})",
            "({label} < {label})", "({label} LIKE 'a%')", "({string} ~<~ {string}::text)", "({string} IN ({string}, {string}, 'a'))",
            "regexp_like({string}, {regex}, 'i')", "({string} COLLATE \"C\" < {string})", "({string} = ANY (ARRAY[{string}::text, 'a']))",
            "({string} BETWEEN {string} AND {string})", "(c = v)", "(c < {string})", "(c = 'ab')", "({string} IS NOT DISTINCT FROM {string})",
            "({string}::text IS NFC NORMALIZED)", "((c, v) < (v, c))", "({label} ~ {regex})", "(c::char(2) = 'ab')", "(c LIKE 'a%')",
        ),
        "string": (
            "initcap({string})", "translate({string}, {string}, {string})", "quote_literal({string})", "quote_ident({string})",
            "quote_nullable({string})", "regexp_replace({string}, {regex}, '<\\&\\1>')", "regexp_replace({string}, {regex}, {string}, 'g')",
            "regexp_replace({string}, 'a', 'b', 1, {small})", "substring({string} from {regex})", "regexp_substr({string}, {regex})",
            "substring({string} similar '%#\"a#\"%' escape '#')", "(regexp_match({string}, {regex}))[1]", "regexp_match({string}, {regex})::text",
            "regexp_split_to_array({string}, {regex})::text", "overlay({string} placing {string} from {small} for {small})", "chr({integer})",
            "to_hex({integer})", "ltrim({string}, {string})", "rtrim({string}, {string})", "rpad({string}, {small}, {string})",
            "split_part({string}, {string}, {small})", "concat_ws({string}, {string}, {integer}, {boolean})", "concat({boolean}, {float}, {day})",
            "string_to_array({string}, {string})::text", "array_to_string(string_to_array({string}, 'a'), {string})", "({string} || {integer})",
            "({boolean} || {string})", "format('%s|%L|%I', {string}, {string}, {string})", "format('%2$5s %1$-4s%%', {string}, {integer})",
            "normalize({string}, NFD)", "normalize({string})", "encode({string}::bytea, 'hex')", "({string}::name)::text", "({string})::char(6)",
            "({label})::text", "({label} || {string})", "least({string}::text, {string})", "CASE {string} WHEN 'a' THEN {string} ELSE {string} END",
            "CASE WHEN {string} ~ {regex} THEN {string} ELSE chr({integer}) END", "left({string}, {integer})", "right({string}, {integer})",
            "substr({string}, {integer})", "sha256({string}::bytea)::text", "repeat({string}, {small})", "unistr({string})",
            "encode(convert_to({string}, 'UTF8'), 'base64')", "regexp_replace({string}, '\\s*(.)', '\\1\\1', {small}, {small}, 'i')",
        ),
        "integer": (
            "strpos({string}, {string})", "bit_length({string})", "char_length({string})", "regexp_count({string}, {regex})",
            "regexp_instr({string}, {regex}, 1, {small}, 1)", "length({string}::text)", "octet_length(c)", "length(c)", "bit_length(c)",
            "array_length(string_to_array({string}, 'a'), 1)", "ascii({string})", "position('a' in {string})",
        ),
    },
)  # fmt: skip
