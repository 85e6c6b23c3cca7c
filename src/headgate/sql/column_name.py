"""The name that PostgreSQL gives to an output column without AS (FigureColname in parse_target.c)."""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.sql import names as sql_names
from headgate.sql.parser import ParseNode, unwrap


def title(node: ParseNode) -> str:
    """Return the column's name, or ``?column?`` if nothing suggests one."""
    return _figure(unwrap(node))[1] or "?column?"


def _figure(node: ParseNode) -> tuple[int, str]:
    """Return (strength, name): 2 for a name of its own, 1 for a weak name that a better one inside replaces, 0 for none."""
    kind = "" if node is None else node.DESCRIPTOR.name
    if kind == "ColumnRef":
        words = [unwrap(word) for word in node.fields]
        named = [word.sval for word in words if word.DESCRIPTOR.name == "String"]
        return (2, named[-1]) if named else (0, "")
    if kind == "A_Indirection":
        fields = [unwrap(field) for field in node.indirection]
        named = [field.sval for field in fields if field.DESCRIPTOR.name == "String"]
        return (2, named[-1]) if named else _figure(unwrap(node.arg))
    if kind == "FuncCall":
        return 2, sql_names.strings(node.funcname)[-1]
    if kind == "A_Expr" and node.kind == pb.AEXPR_NULLIF:
        return 2, "nullif"
    if kind == "TypeCast":
        strength, name = _figure(unwrap(node.arg))
        return (strength, name) if strength > 1 or not node.type_name.names else (1, sql_names.strings(node.type_name.names)[-1])
    if kind == "CollateClause":
        return _figure(unwrap(node.arg))
    if kind == "SubLink":
        return _sublink(node)
    if kind == "CaseExpr":
        strength, name = _figure(unwrap(node.defresult)) if node.HasField("defresult") else (0, "")
        return (strength, name) if strength > 1 else (1, "case")
    if kind == "MinMaxExpr":
        return 2, "greatest" if node.op == pb.IS_GREATEST else "least"
    if kind == "SQLValueFunction":
        return 2, pb.SQLValueFunctionOp.Name(node.op).removeprefix("SVFOP_").removesuffix("_N").lower()
    fixed = {"A_ArrayExpr": "array", "RowExpr": "row", "CoalesceExpr": "coalesce", "GroupingFunc": "grouping",
             "XmlExpr": "xmlserialize", "XmlSerialize": "xmlserialize"}.get(kind)  # fmt: skip
    return (2, fixed) if fixed else (0, "")


def _sublink(node: pb.SubLink) -> tuple[int, str]:
    if node.sub_link_type == pb.EXISTS_SUBLINK:
        return 2, "exists"
    if node.sub_link_type == pb.ARRAY_SUBLINK:
        return 2, "array"
    if node.sub_link_type == pb.EXPR_SUBLINK:
        select = unwrap(node.subselect)
        while select.op != pb.SETOP_NONE:
            select = select.larg
        if select.target_list:
            target = select.target_list[0].res_target
            return 2, target.name or title(target.val)
        return 2, "column1"
    return 0, ""
