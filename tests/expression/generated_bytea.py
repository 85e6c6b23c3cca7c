"""The family of addresses, bits, bytes, uuid, oid and pg_lsn of generated expressions."""

from __future__ import annotations

from tests.expression.generated_containers import ADDRESSES, BITS, BYTES, MACS
from tests.expression.grammar import Family, Kind

OCTETS = Family(
    kinds=(
        Kind("inet", (("ip", "inet"), ("iq", "inet")), "inet"),
        Kind("cidr", (("ci", "cidr"),), "cidr"),
        Kind("mac", (("mc", "macaddr"),), "macaddr"),
        Kind("bits", (("vb", "varbit"),), "varbit"),
        Kind("four", (("fb", "bit(4)"),), "bit(4)"),
        Kind("bytes", (("by", "bytea"), ("bz", "bytea")), "bytea"),
        Kind("uuid", (("uu", "uuid"),), "uuid"),
        Kind("oid", (("oi", "oid"),), "oid"),
        Kind("lsn", (("pl", "pg_lsn"),), "pg_lsn"),
    ),
    values={
        "inet": ADDRESSES,
        "cidr": ("10.0.0.0/8", "0.0.0.0/0", "192.168.1.0/24", "10.0.0.1/32", "::/0", "2001:db8::/32", "::1/128"),
        "macaddr": MACS,
        "varbit": BITS,
        "bit(4)": ("0000", "1010", "1111", "0001"),
        "bytea": BYTES,
        "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        "oid": ("0", "1", "2147483648", "4294967295"),
        "pg_lsn": ("0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"),
    },
    rules={
        "inet": (
            "(~ {inet})", "({inet} & {inet})", "({inet} | {inet})", "({inet} + {integer})", "({inet} - {integer})", "set_masklen({inet}, {small}::int4)",
            "broadcast({inet})", "netmask({inet})", "hostmask({inet})", "({cidr})::inet", "coalesce({inet}, {inet})", "greatest({inet}, {inet})",
            "({string})::inet",
        ),
        "cidr": (
            "network({inet})", "({inet})::cidr", "set_masklen({cidr}, {small}::int4)", "inet_merge({inet}, {inet})", "coalesce({cidr}, {cidr})",
        ),
        "mac": ("(~ {mac})", "({mac} & {mac})", "({mac} | {mac})", "trunc({mac})", "coalesce({mac}, {mac})"),
        "bits": (
            "({bits} || {bits})", "(~ {bits})", "substring({bits} from {small} for {small})", "substring({bits} from {small})", "({bits} << {small}::int4)",
            "({bits} >> {small}::int4)", "overlay({bits} placing {bits} from {small}::int4)", "({four})::varbit", "({bits})::varbit(3)", "({bits} & {bits})",
            "({bits} # {bits})", "set_bit({bits}, {small}::int4, 1)", "({four} || {bits})",
        ),
        "four": ("({four} & {four})", "({four} | {four})", "({four} # {four})", "(~ {four})", "({bits})::bit(4)", "({integer}::int4)::bit(4)",
                 "({four} << {small}::int4)"),
        "bytes": (
            "({bytes} || {bytes})", "substring({bytes} from {small} for {small})", "overlay({bytes} placing {bytes} from {small}::int4)",
            "btrim({bytes}, {bytes})", "ltrim({bytes}, {bytes})", "set_byte({bytes}, {small}::int4, {small}::int4)", "set_bit({bytes}, {small}::int8, 1)",
            "decode(encode({bytes}, 'hex'), 'hex')", "sha256({bytes})", "convert_to({string}::text, 'UTF8')", "decode({string}::text, 'hex')",
            "decode({string}::text, 'base64')", "decode({string}::text, 'escape')", "({string}::text)::bytea", "coalesce({bytes}, {bytes})",
            "rtrim({bytes}, {bytes})", "int8send({integer})", "uuid_send({uuid})", "inet_send({inet})", "numeric_send({numeric})", "varbit_send({bits})",
            "textsend({string}::text)", "reverse(encode({bytes}, 'hex'))::bytea", "sha512({bytes})",
        ),
        "uuid": ("coalesce({uuid}, {uuid})", "greatest({uuid}, {uuid})", "({string})::uuid", "nullif({uuid}, {uuid})"),
        "oid": ("({integer})::oid", "({string})::oid", "coalesce({oid}, {oid})"),
        "lsn": ("({lsn} + {numeric})", "({lsn} - {numeric})", "({string})::pg_lsn"),
        "integer": (
            "masklen({inet})", "family({inet})", "length({bits})", "position({bits} in {bits})", "get_bit({bits}, {small}::int4)", "({bits})::int4",
            "bit_count({bits})", "get_byte({bytes}, {small}::int4)", "get_bit({bytes}, {small}::int8)", "position({bytes} in {bytes})", "length({bytes})",
            "octet_length({bytes})", "({inet} - {inet})", "bit_length({bytes})", "({four})::int8", "({oid})::int8", "octet_length({bits})", "bit_count({bytes})",
        ),
        "numeric": ("({lsn} - {lsn})",),
        "string": (
            "host({inet})", "text({inet})", "abbrev({inet})", "abbrev({cidr})", "({inet})::text", "({cidr})::text", "({mac})::text", "encode({bytes}, 'hex')",
            "encode({bytes}, 'base64')", "encode({bytes}, 'escape')", "md5({bytes})", "({bytes})::text", "({bits})::text", "({uuid})::text", "({oid})::text",
            "convert_from({bytes}, 'UTF8')", "replace({uuid}::text, '-', '')",
        ),
        "boolean": (
            "({inet} {op} {inet})", "({inet} << {inet})", "({inet} <<= {inet})", "({inet} >> {inet})", "({inet} >>= {cidr})", "({inet} && {inet})",
            "inet_same_family({inet}, {inet})", "({cidr} {op} {cidr})", "({mac} {op} {mac})", "({bits} {op} {bits})", "({four} {op} {four})",
            "({bytes} {op} {bytes})", "({uuid} {op} {uuid})", "({oid} {op} {oid})", "({lsn} {op} {lsn})", "({inet} IN ('10.0.0.1', '::1'))",
            "({bytes} LIKE {bytes})", "({uuid} = ANY (ARRAY[{uuid}, {uuid}]))", "({inet} BETWEEN {inet} AND {inet})", "({oid} {op} {integer})",
            "({bytes} IS DISTINCT FROM {bytes})", "({cidr} << '10.0.0.0/7')", "({inet} <<= '10.0.0.0/8'::inet)",
        ),
    },
)  # fmt: skip
