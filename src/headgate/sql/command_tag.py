"""The command tag of a statement: "CREATE TABLE", "ALTER INDEX", "SELECT FOR UPDATE" (CreateCommandTag of utility.c).

Called for messages about statements that are rejected before they run, because they are not supported or their transaction is read-only.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.sql.parser import ParseNode, unwrap

_VERBS = {
    "DefineStmt": ("CREATE", "kind"),
    "DropStmt": ("DROP", "remove_type"),
    "RenameStmt": ("ALTER", "rename_type"),
    "AlterOwnerStmt": ("ALTER", "object_type"),
    "AlterObjectSchemaStmt": ("ALTER", "object_type"),
    "AlterTableStmt": ("ALTER", "objtype"),
}
_WORDS = {
    pb.OBJECT_ATTRIBUTE: "TYPE",
    pb.OBJECT_DOMCONSTRAINT: "DOMAIN",
    pb.OBJECT_EVENT_TRIGGER: "EVENT TRIGGER",
    pb.OBJECT_FDW: "FOREIGN DATA WRAPPER",
    pb.OBJECT_FOREIGN_SERVER: "SERVER",
    pb.OBJECT_FOREIGN_TABLE: "FOREIGN TABLE",
    pb.OBJECT_MATVIEW: "MATERIALIZED VIEW",
    pb.OBJECT_TABCONSTRAINT: "TABLE",
    pb.OBJECT_TSCONFIGURATION: "TEXT SEARCH CONFIGURATION",
    pb.OBJECT_TSDICTIONARY: "TEXT SEARCH DICTIONARY",
    pb.OBJECT_TSPARSER: "TEXT SEARCH PARSER",
    pb.OBJECT_TSTEMPLATE: "TEXT SEARCH TEMPLATE",
}
_NAMES = {
    "AlterDatabaseRefreshCollStmt": "ALTER DATABASE",
    "AlterDatabaseSetStmt": "ALTER DATABASE",
    "AlterEnumStmt": "ALTER TYPE",
    "AlterEventTrigStmt": "ALTER EVENT TRIGGER",
    "AlterExtensionContentsStmt": "ALTER EXTENSION",
    "AlterFdwStmt": "ALTER FOREIGN DATA WRAPPER",
    "AlterForeignServerStmt": "ALTER SERVER",
    "AlterOpFamilyStmt": "ALTER OPERATOR FAMILY",
    "AlterRoleSetStmt": "ALTER ROLE",
    "AlterSeqStmt": "ALTER SEQUENCE",
    "AlterStatsStmt": "ALTER STATISTICS",
    "AlterTSConfigurationStmt": "ALTER TEXT SEARCH CONFIGURATION",
    "AlterTSDictionaryStmt": "ALTER TEXT SEARCH DICTIONARY",
    "AlterTableMoveAllStmt": "ALTER TABLE",
    "AlterTableSpaceOptionsStmt": "ALTER TABLESPACE",
    "CheckPointStmt": "CHECKPOINT",
    "CompositeTypeStmt": "CREATE TYPE",
    "ConstraintsSetStmt": "SET CONSTRAINTS",
    "CreateAmStmt": "CREATE ACCESS METHOD",
    "CreateEnumStmt": "CREATE TYPE",
    "CreateEventTrigStmt": "CREATE EVENT TRIGGER",
    "CreateFdwStmt": "CREATE FOREIGN DATA WRAPPER",
    "CreateForeignServerStmt": "CREATE SERVER",
    "CreateOpClassStmt": "CREATE OPERATOR CLASS",
    "CreateOpFamilyStmt": "CREATE OPERATOR FAMILY",
    "CreatePLangStmt": "CREATE LANGUAGE",
    "CreateRangeStmt": "CREATE TYPE",
    "CreateSeqStmt": "CREATE SEQUENCE",
    "CreateStatsStmt": "CREATE STATISTICS",
    "CreateStmt": "CREATE TABLE",
    "CreateTableSpaceStmt": "CREATE TABLESPACE",
    "CreateTrigStmt": "CREATE TRIGGER",
    "CreatedbStmt": "CREATE DATABASE",
    "DropTableSpaceStmt": "DROP TABLESPACE",
    "DropdbStmt": "DROP DATABASE",
    "IndexStmt": "CREATE INDEX",
    "LockStmt": "LOCK TABLE",
    "RefreshMatViewStmt": "REFRESH MATERIALIZED VIEW",
    "RuleStmt": "CREATE RULE",
    "SecLabelStmt": "SECURITY LABEL",
    "TruncateStmt": "TRUNCATE TABLE",
    "ViewStmt": "CREATE VIEW",
    "VariableSetStmt": "SET",
}
STRENGTHS = {
    pb.LCS_FORKEYSHARE: "FOR KEY SHARE",
    pb.LCS_FORSHARE: "FOR SHARE",
    pb.LCS_FORNOKEYUPDATE: "FOR NO KEY UPDATE",
    pb.LCS_FORUPDATE: "FOR UPDATE",
}
"""The names of locking clauses."""


_TRANSACTION = {
    pb.TRANS_STMT_BEGIN: "BEGIN",
    pb.TRANS_STMT_START: "START TRANSACTION",
    pb.TRANS_STMT_COMMIT: "COMMIT",
    pb.TRANS_STMT_SAVEPOINT: "SAVEPOINT",
    pb.TRANS_STMT_RELEASE: "RELEASE",
    pb.TRANS_STMT_PREPARE: "PREPARE TRANSACTION",
    pb.TRANS_STMT_COMMIT_PREPARED: "COMMIT PREPARED",
    pb.TRANS_STMT_ROLLBACK_PREPARED: "ROLLBACK PREPARED",
}


def of(node: ParseNode) -> str:
    """Return the command tag of a statement (the message inside RawStmt)."""
    kind = str(node.DESCRIPTOR.name)
    if kind in _VERBS:
        verb, field = _VERBS[kind]
        object_type = getattr(node, field)
        return f"{verb} {_word(node.relation_type if kind == 'RenameStmt' and object_type == pb.OBJECT_COLUMN else object_type)}"
    match kind:
        case "SelectStmt":
            return _select(node)
        case "TransactionStmt":
            return _TRANSACTION.get(node.kind, "ROLLBACK")
        case "CreateTableAsStmt":
            word = "CREATE MATERIALIZED VIEW" if node.objtype == pb.OBJECT_MATVIEW else "CREATE TABLE AS"
            return "SELECT INTO" if node.is_select_into else word
        case "GrantStmt":
            return "GRANT" if node.is_grant else "REVOKE"
        case "GrantRoleStmt":
            return "GRANT ROLE" if node.is_grant else "REVOKE ROLE"
        case "CreateFunctionStmt":
            return "CREATE PROCEDURE" if node.is_procedure else "CREATE FUNCTION"
        case "VacuumStmt":
            return "VACUUM" if node.is_vacuumcmd else "ANALYZE"
        case _:
            return _NAMES.get(kind) or _spell(kind)


def _select(node: pb.SelectStmt) -> str:
    if node.into_clause.ByteSize():
        return "SELECT INTO"
    strength = max((unwrap(clause).strength for clause in node.locking_clause), default=pb.LCS_NONE)
    return f"SELECT {STRENGTHS[strength]}" if strength in STRENGTHS else "SELECT"


def _word(kind: int) -> str:
    return _WORDS.get(kind) or pb.ObjectType.Name(kind).removeprefix("OBJECT_").replace("_", " ")


def _spell(kind: str) -> str:
    words = kind.removesuffix("Stmt")
    return "".join(f" {letter}" if letter.isupper() and index else letter for index, letter in enumerate(words)).upper()
