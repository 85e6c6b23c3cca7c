"""Check that streams can follow ALTER PUBLICATION of a publication with ``reconcile = true`` (`publisher.alteration`).

Called by `publication` after the catalog has been changed, in the same transaction. For each table with rows that enter or leave the
publication:

    its write lock      is held until COMMIT, so that no transaction writes between the old and the new definition of what is sent
    its identity        must identify the rows that leave, and cover filters and column lists, as for a DELETE
    its filters         must be computable for every existing row, otherwise the stream would stop at the alteration forever

The result must be what a first copy would contain, so the streams cannot follow a publication that does not publish all changes of rows.
"""

from __future__ import annotations

from headgate.catalog import history
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.publication import Publication
from headgate.commands.publication import replica_identity
from headgate.errors import PostgresError
from headgate.expression.spark.call import may_raise
from headgate.publisher import gate
from headgate.publisher.alteration import Crossing, check, crossings
from headgate.rowfilter import filter as row_filter
from headgate.sql.names import quote_ident
from headgate.storage.spark.failure import from_spark
from headgate.storage.transaction.transaction import Transaction


def check_options(publication: Publication) -> None:
    """Raise 22023 if a publication with `reconcile` does not publish inserts, updates and deletes."""
    lacking = [word for word in ("insert", "update", "delete") if not getattr(publication, word)]
    if publication.reconcile and lacking:
        raise PostgresError(
            "22023",
            f'cannot set parameter "reconcile" for publication "{publication.name}"',
            detail=f"The publication does not publish {lacking[0]}s, so its filters do not determine the rows of its subscribers.",
            hint='Set "publish" to at least insert, update and delete.',
        )


def follow(transaction: Transaction, before: Publication, now: Publication) -> None:
    """Lock and check the tables with rows that enter or leave. Raise the error of the first that cannot be followed."""
    transaction.unpreparable = "cannot PREPARE a transaction that has altered a publication with reconcile"
    state = history.current(transaction.cursor, transaction.database)
    crossed = sorted(crossings(state, [before], [now]), key=lambda item: item.relation.oid)
    for crossing in crossed:
        _check_identity(transaction, now, crossing.relation)
    for crossing in crossed:
        transaction.lock(crossing.relation)
    for crossing in crossed:
        _check_filters(transaction, crossing)


def _check_identity(transaction: Transaction, publication: Publication, relation: Relation) -> None:
    try:
        replica_identity.check(transaction.cursor, relation, "delete")
    except PostgresError as error:
        raise PostgresError(
            error.sqlstate,
            f'cannot reconcile table "{relation.name}" of publication "{publication.name}"',
            detail=error.detail or "The table does not have a replica identity.",
            hint="Set REPLICA IDENTITY using ALTER TABLE, or let the streams not follow:"
            f" ALTER PUBLICATION {quote_ident(publication.name)} SET (reconcile = false).",
        ) from error


def _check_filters(transaction: Transaction, crossing: Crossing) -> None:
    """Raise the error of the new filters for a row of the table, as the streams would. Filters that cannot raise are not evaluated."""
    now = crossing.now
    if now is None or not any(may_raise(row_filter.load(tree).expression) for tree in now.copied):
        return
    try:
        with transaction.snapshot.seeing_newest():
            names = [column.name for column in gate.filter_columns(now)]
            check(transaction.engine, now, transaction.pieces(crossing.relation, names))
    except PostgresError:
        raise
    except Exception as error:
        raise from_spark(error) from error
