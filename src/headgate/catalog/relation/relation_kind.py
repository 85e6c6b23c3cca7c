"""What a relation is: pg_class.relkind, for `relation` and for everybody above who asks.

The letters are PostgreSQL's (manual, 53.11 pg_class) and go to the catalog and to clients as they are.
"""

from __future__ import annotations

import enum


class RelationKind(enum.StrEnum):
    """pg_class.relkind. A node makes tables, partitioned tables, views, indexes of both, and sequences."""

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
"""What holds rows, by itself or by its partitions: what can be published, subscribed to, altered as a table."""
NAMED_KINDS = TABLE_KINDS | {RelationKind.VIEW, RelationKind.SEQUENCE}
"""What a node makes by a statement of its own and keeps in a schema."""
INDEX_KINDS = frozenset({RelationKind.INDEX, RelationKind.PARTITIONED_INDEX})
