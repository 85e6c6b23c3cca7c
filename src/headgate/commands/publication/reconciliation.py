"""ALTER PUBLICATION of a publication with ``reconcile = true``: what has to hold so that its streams can follow (`publisher.alteration`).

Called by `publication` when the catalog has been changed, in the same transaction. For each table whose rows cross the gate with the
alteration:

    its write lock      until the COMMIT: nobody has written to it between the two definitions of what is sent
    its identity        names the rows that go, and holds what filters and column lists ask of it, as for a DELETE
    its filters         can be computed for every row that is there; else the stream would stop at the alteration for ever

What a first copy would have decides, so a publication that does not publish all changes of rows cannot be followed.
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
    """22023 where a publication is to be followed and does not publish inserts, updates and deletes."""
    lacking = [word for word in ("insert", "update", "delete") if not getattr(publication, word)]
    if publication.reconcile and lacking:
        raise PostgresError(
            "22023",
            f'cannot set parameter "reconcile" for publication "{publication.name}"',
            detail=f"The publication does not publish {lacking[0]}s, so what its subscribers have does not follow from its filters.",
            hint='Set "publish" to at least insert, update and delete.',
        )


def follow(transaction: Transaction, before: Publication, now: Publication) -> None:
    """Locks and checks the tables that cross; the error of the first that cannot be followed."""
    transaction.unpreparable = "cannot PREPARE a transaction that has altered a publication with reconcile"
    state = history.current(transaction.cursor, transaction.database)
    crossed = sorted(crossings(state, [before], [now]), key=lambda each: each.relation.oid)
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
    """What the new filters raise for a row of the table, as the streams would; those that cannot raise are not asked."""
    now = crossing.now
    if now is None or not any(may_raise(row_filter.load(tree).expression) for tree in now.copied):
        return
    try:
        with transaction.seeing_newest():
            names = [column.name for column in gate.filter_columns(now)]
            check(transaction.engine, now, transaction.pieces(crossing.relation, names))
    except PostgresError:
        raise
    except Exception as error:
        raise from_spark(error) from error
