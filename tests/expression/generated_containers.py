"""Generated expressions over constants of arrays, json, addresses, bits and bytes. They are computed during planning."""

from __future__ import annotations

import re
from random import Random

ARRAYS = (
    "{}", "{1}", "{1,2,3}", "{NULL}", "{1,NULL,3}", "{3,2,1}", "{1,1,2}", "{{1,2},{3,4}}", "{{1,2}}", "[0:1]={1,2}", "[2:3][1:1]={{5},{6}}",
    "{{NULL,1},{2,2}}", "{{{1}}}", "{2147483647,-2147483648}",
)  # fmt: skip
TEXTS = (
    "{}",
    "{a}",
    '{"a b",c}',
    '{"",NULL}',
    '{"NULL",x}',
    '{"q\\"q","b\\\\s"}',
    "{a,b,NULL}",
    "{{a,b},{c,d}}",
    '{"é","😀"}',
    '{"a,b","{}"}',
)
NUMERICS = ("{1.0,2}", "{1,2.00}", "{NaN}", "{Infinity,-1.50}", "{0.00,NULL}", "{12345678901234567890.123}")
DOCUMENTS = (
    "{}", "[]", "null", "1", "1.0", "1.50", '"a"', '""', "true", "false", '{"a": 1}', '{"a": 1.0, "b": null}', '{"b": {"a": [1, {"c": 2}]}}',
    "[1, 2, 3]", '[1, "a", null, {"a": 1}]', '["a", "b", "a"]', "[[1], [2, [3]]]", '{"a": [1, 2], "a b": "x", "é": "\\"q\\""}', "[{}]", "[[]]",
    '{"aa": 1, "b": 2}', "-0.10", "1e5", '{"a": {"a": {"a": 1}}}', "123456789012345678901234567890.5",
)  # fmt: skip
PATHS = (
    "{}",
    "{a}",
    "{a,0}",
    "{b,a,1,c}",
    "{0}",
    "{-1}",
    "{1,a}",
    "{NULL}",
    "{x}",
    "{a,a,a}",
    "{ 1 }",
    "{99999999999}",
    '{"a b"}',
    "{a,x}",
)
KEYS = ("a", "b", "", "0", "a b", "é", "aa", "1")
ADDRESSES = (
    "10.0.0.1", "10.0.0.10", "10.0.0.0/8", "10.1.2.3/16", "0.0.0.0/0", "255.255.255.255", "192.168.1.255/24", "::1", "2001:db8::/32",
    "2001:db8::1/64", "::ffff:1.2.3.4", "fe80::1/10", "::/0", "10.0.0.0/31",
)  # fmt: skip
BITS = ("", "0", "1", "01", "10", "1010", "0110", "11111111", "000000001", "10101010101010101010101010101010", "1" * 33)
BYTES = ("\\x", "\\x00", "\\x00ff", "\\xdeadbeef", "\\x6162", "\\x5c00", "\\xffffff", "\\x0a0d09")
MACS = ("08:00:2b:01:02:03", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "08:00:2b:01:02:04")
AMOUNTS = ("0", "$1.00", "-1", "$1,234.56", "0.07", "-0.01", "92233720368547758.07", "-92233720368547758.08", "19.99")
POOLS = {
    "ints": (ARRAYS, "int[]"), "texts": (TEXTS, "text[]"), "nums": (NUMERICS, "numeric[]"), "doc": (DOCUMENTS, "jsonb"), "json": (DOCUMENTS, "json"),
    "path": (PATHS, "text[]"), "inet": (ADDRESSES, "inet"), "bits": (BITS, "varbit"), "bytes": (BYTES, "bytea"), "mac": (MACS, "macaddr"),
    "cash": (AMOUNTS, "money"),
    "key": (KEYS, "text"),
}  # fmt: skip
SMALL = ("0", "1", "2", "3", "-1", "-2", "5", "NULL::int", "33")
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")

RULES = (
    "{ints} {op} {ints}", "{nums} {op} {nums}", "{texts} {op} {texts}", "{ints} && {ints}", "{ints} @> {ints}", "{ints} <@ {ints}",
    "{texts} @> {texts}", "{ints} || {ints}", "{ints} || {small}", "{small} || {ints}", "{texts} || {texts}", "array_length({ints}, {small})",
    "array_lower({ints}, {small})", "array_upper({ints}, {small})", "array_dims({ints})", "array_ndims({ints})", "cardinality({texts})",
    "array_append({ints}, {small})", "array_prepend({small}, {ints})", "array_remove({ints}, {small})", "array_replace({ints}, {small}, {small})",
    "array_position({ints}, {small})", "array_position({ints}, {small}, {small})", "array_positions({ints}, {small})",
    "array_to_string({texts}, {key})", "array_to_string({texts}, {key}, {key})", "string_to_array({key}, {key})", "string_to_array({key}, {key}, {key})",
    "({ints})[{small}]", "({ints})[{small}][{small}]", "({ints})[{small}:{small}]", "({ints})[:{small}]", "({ints})[{small}:][{small}:{small}]",
    "({texts})[{small}]", "trim_array({ints}, {small})", "{ints}::text[]", "{ints}::bigint[]", "{ints}::numeric(6,1)[]", "{ints}::smallint[]",
    "array_to_json({texts})", "to_jsonb({nums})", "ARRAY[{ints}, {ints}]", "ARRAY[{small}, {small}]", "array_fill({small}, ARRAY[{small}])",
    "{doc} {op} {doc}", "{doc} -> {key}", "{doc} ->> {key}", "{doc} -> {small}", "{doc} ->> {small}", "{doc} #> {path}", "{doc} #>> {path}",
    "{doc} @> {doc}", "{doc} <@ {doc}", "{doc} ? {key}", "{doc} ?| {path}", "{doc} ?& {path}", "{doc} || {doc}", "{doc} - {key}", "{doc} - {small}",
    "{doc} - {path}", "{doc} #- {path}", "jsonb_set({doc}, {path}, {doc})", "jsonb_set({doc}, {path}, {doc}, false)", "jsonb_insert({doc}, {path}, {doc})",
    "jsonb_insert({doc}, {path}, {doc}, true)", "jsonb_strip_nulls({doc})", "jsonb_pretty({doc})", "jsonb_typeof({doc})", "jsonb_array_length({doc})",
    "({doc})::int", "({doc})::numeric", "({doc})::bool", "jsonb_build_array({doc}, {ints}, {key})", "json_build_object({key}, {json}, 'k', {texts})",
    "({doc} -> {key}) -> {small}", "{json} -> {key}", "{json} ->> {key}", "{json} -> {small}", "{json} ->> {small}", "{json} #> {path}", "{json} #>> {path}",
    "json_typeof({json})", "json_array_length({json})", "({doc})[{key}]", "({doc})[{small}]", "jsonb_object({texts})", "jsonb_object({texts}, {texts})",
    "{inet} {op} {inet}", "{inet} << {inet}", "{inet} <<= {inet}", "{inet} >> {inet}", "{inet} >>= {inet}", "{inet} && {inet}", "network({inet})",
    "broadcast({inet})", "netmask({inet})", "hostmask({inet})", "host({inet})", "masklen({inet})", "family({inet})", "set_masklen({inet}, {small})",
    "abbrev(network({inet}))", "{inet} - {inet}", "{inet} & {inet}", "{inet} | {inet}", "~ {inet}", "inet_merge({inet}, {inet})", "{inet}::cidr",
    "inet_same_family({inet}, {inet})", "set_masklen(network({inet}), {small})", "text({inet})", "{mac} & {mac}", "{mac} | {mac}", "~ {mac}", "trunc({mac})",
    "{mac}::macaddr8", "{bits} || {bits}", "({bits})::bit(8) & ({bits})::bit(8)", "({bits})::bit(8) # ({bits})::bit(9)", "({bits})::bit(4) << {small}",
    "({bits})::bit(4) >> {small}", "~ ({bits})::bit(3)", "length({bits})", "substring({bits} from {small} for {small})", "substring({bits} from {small})",
    "position({bits} in {bits})", "overlay({bits} placing {bits} from {small})", "get_bit({bits}, {small})", "set_bit({bits}, {small}, {small})",
    "({bits})::bit(40)::bigint", "({small})::bit(6)", "({bits})::varbit(3)", "bit_count({bits})", "get_byte({bytes}, {small})", "set_byte({bytes}, {small}, {small})",
    "get_bit({bytes}, {small}::bigint)", "position({bytes} in {bytes})", "overlay({bytes} placing {bytes} from {small})", "btrim({bytes}, {bytes})",
    "encode({bytes}, 'hex')", "encode({bytes}, 'base64')", "encode({bytes}, 'escape')", "decode(encode({bytes}, 'escape'), 'escape')", "sha256({bytes})",
    "{cash} {op} {cash}", "{cash} + {cash}", "{cash} - {cash}", "{cash} * {small}", "{small} * {cash}", "{cash} / {small}", "{cash} / {cash}",
    "{cash} * {small}::float8 / 7", "{cash} / ({small} / 3.0)::float8", "{cash}::numeric", "{small}::money", "cash_words({cash})", "{cash}::text",
    "hashtext({key})",
)  # fmt: skip


def make(random: Random) -> str:
    """Return a random expression."""
    return re.sub(r"\{(\w+)\}", lambda match: _part(random, match[1]), random.choice(RULES))


def _part(random: Random, name: str) -> str:
    if name == "op":
        return random.choice(OPERATORS)
    if name == "small":
        return f"({random.choice(SMALL)})"
    values, kind = POOLS[name]
    if random.random() < 0.04:
        return f"NULL::{kind}"
    return "'" + random.choice(values).replace("'", "''") + f"'::{kind}"
