"""A session's connection to the publisher of a subscription. Used by statements and functions that query the publisher."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from headgate.catalog.replication.subscription import Subscription
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.waker import Waker


@contextlib.contextmanager
def connected(
    session: Session, subscription: Subscription, name: str | None = None, *, replication: bool = True
) -> Iterator[PublisherConnection]:
    """Connect to the publisher. All waits for it end when the statement is cancelled or times out.

    `name`: the application name, by default that of the subscription. `replication` as for `Link.open`.
    """
    waker = Waker()
    application_name = subscription.name if name is None else name
    try:
        with (
            session.cancelling(waker.stop),
            PublisherConnection.open(subscription.conninfo, application_name, waker=waker, replication=replication) as connection,
        ):
            yield connection
    except PostgresError:
        session.check_cancel()  # raises the error of the cancel, which ended the wait with an error of its own
        raise
    finally:
        waker.close()
