"""The kinds of relations, pg_class.relkind.

The letters are PostgreSQL's (manual, 53.11 pg_class). The catalog and clients see them unchanged.
"""

from __future__ import annotations

import enum


class RelationKind(enum.StrEnum):
    """pg_class.relkind. A node creates tables, partitioned tables, views, indexes of both, and sequences."""

    TABLE = "r"
    PARTITIONED_TABLE = "p"
    VIEW = "v"
    INDEX = "i"
    PARTITIONED_INDEX = "I"
    SEQUENCE = "S"
    TOAST_TABLE = "t"
    COMPOSITE_TYPE = "c"
    MATERIALIZED_VIEW = "m"
    FOREIGN_TABLE = "f"


TABLE_KINDS = frozenset({RelationKind.TABLE, RelationKind.PARTITIONED_TABLE})
"""Relations that hold rows, themselves or in partitions. They can be published, subscribed to and altered as tables."""
NAMED_KINDS = TABLE_KINDS | {RelationKind.VIEW, RelationKind.SEQUENCE}
"""Relations that have a CREATE statement of their own and a schema."""
INDEX_KINDS = frozenset({RelationKind.INDEX, RelationKind.PARTITIONED_INDEX})
