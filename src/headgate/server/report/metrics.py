"""The metrics of a node (OpenMetrics, with the package prometheus_client); docs/monitoring.md lists them.

`metrics_port` calls `gather` in its thread. Invariants: metrics contain numbers and names, never row values or settings. Gathering acquires
no lock for which a commit waits: the catalog is read in separate snapshots, the rest are counters. At most `metrics_tables` tables are
named.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client import exposition as text
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics

import headgate
from headgate.catalog.replication import publication as publications
from headgate.server.monitoring.problem import KINDS
from headgate.server.report import status_report
from headgate.server.report.metrics_port import Render
from headgate.storage.spark.internals import gateway, java_memory
from headgate.subscriber.report import TABLE_STATES, State, table_report
from headgate.subscriber.snapshot import SubscriptionReport

if TYPE_CHECKING:
    from headgate.server.node_state import NodeState
    from headgate.storage.statistics import Shares

Values = Iterable[tuple[tuple[str, ...], float]]
_Field = tuple[Callable[[str, str, tuple[str, ...], Values], Metric], str, str, str]
_SUBSCRIPTION = ("database", "subscription")
_TABLE = (*_SUBSCRIPTION, "table")
_SLOT = ("database", "slot")
SLOT_STATES = ("inactive", "reserved", "startup", "catchup", "streaming", "stopping")
WAL_STATES = ("reserved", "extended", "unreserved", "lost")


def gather(node: NodeState) -> Render:
    """Read all values once and return the function that renders them."""
    read = _Reading(node)
    families = [*read.of_problems(), *read.of_node(), *read.of_pools(), *read.of_storage()]
    families += [*read.of_subscriptions(), *read.of_tables(), *read.of_slots(), *read.of_publications()]
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    families += registry.collect()
    families.append(_gauge("scrape_seconds", "What gathering these metrics took.", (), [((), time.monotonic() - read.began)]))
    rendered: dict[bool, tuple[str, bytes]] = {}

    def render(open_metrics: bool) -> tuple[str, bytes]:
        if open_metrics not in rendered:
            collector: Any = _Gathered(families)
            rendered[open_metrics] = (
                (openmetrics.CONTENT_TYPE_LATEST, openmetrics.generate_latest(collector))  # type: ignore[no-untyped-call]
                if open_metrics
                else (text.CONTENT_TYPE_PLAIN_0_0_4, text.generate_latest(collector))
            )
        return rendered[open_metrics]

    return render


class _Gathered:
    """A collector with the interface that prometheus_client expects."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


class _Reading:
    """The values of a node at one time."""

    def __init__(self, node: NodeState) -> None:
        self.node = node
        self.began = time.monotonic()
        self.databases = status_report.database_names(node)
        with contextlib.closing(node.catalog.cursor()) as cursor:
            self.publications = {
                oid: [publication.name for publication in publications.all_publications(cursor, oid)] for oid in self.databases
            }
        self.report = status_report.report(node)

    def of_node(self) -> Iterator[Metric]:
        """Yield the metrics of sessions, transactions and threads."""
        node = self.node
        info = InfoMetricFamily("headgate_build", "The version.", value={"version": headgate.__version__})
        yield info
        backends = Counter((backend.kind, backend.state or "") for backend in node.activity.all())
        yield _gauge("backends", "Sessions and workers.", ("type", "state"), backends.items())
        counts = {name: node.engine.statistics.of(oid) for oid, name in self.databases.items()}
        ends = [((name, end), getattr(counters, f"{end}s")) for name, counters in counts.items() for end in ("commit", "rollback")]
        yield _counter("transactions", "Transactions by their end.", ("database", "end"), ends)
        yield _counter(
            "deadlocks",
            "Waits that would not have ended.",
            ("database",),
            (((database,), counters.deadlocks) for database, counters in counts.items()),
        )
        yield _counter("log_bytes", "The end of the transaction log: an LSN as a number.", (), [((), int(node.engine.log.end))])
        threads = [((thread.name,), thread) for thread in self.report.threads]
        yield _gauge(
            "thread_running", "Whether a background thread works.", ("thread",), ((key, thread.running) for key, thread in threads)
        )
        yield _counter("thread_failures", "Errors of background threads.", ("thread",), ((key, thread.failures) for key, thread in threads))
        prepared = len(node.engine.prepared.all())
        yield _gauge("prepared_transactions", "Transactions that wait for COMMIT PREPARED.", (), [((), prepared)])

    def of_problems(self) -> Iterator[Metric]:
        yield _gauge("healthy", "1 if there is no problem.", (), [((), bool(self.report.healthy))])
        counts = Counter(problem.kind for problem in self.report.problems)
        yield _gauge("problems", "What headgate status shows as problems.", ("kind",), [((kind,), counts[kind]) for kind in KINDS])
        yield _gauge("unreadable_tables", "Tables whose files cannot be read.", (), [((), len(self.report.unreadable))])

    def of_pools(self) -> Iterator[Metric]:
        """Yield the metrics of bounded pools."""
        pools = [((pool.name,), pool) for pool in self.report.pools]
        yield _gauge("pool_used", "Places of a pool that are in use.", ("pool",), [(key, pool.used) for key, pool in pools])
        yield _gauge("pool_limit", "Places that a pool has.", ("pool",), [(key, pool.limit) for key, pool in pools])
        yield _gauge("pool_starved", "1 if a request found no place in the pool.", ("pool",), [(key, pool.starved) for key, pool in pools])

    def of_storage(self) -> Iterator[Metric]:
        """Yield the metrics of memory, tables, files and disks."""
        engine = self.node.engine
        heap = java_memory.heap(engine.spark.sparkContext)
        yield _gauge("heap_used_bytes", "Java's heap.", (), [((), heap.used)])
        yield _gauge("heap_max_bytes", "How large Java's heap may become.", (), [((), heap.most)])
        java = gateway.process(engine.spark.sparkContext)
        if java is not None:
            yield _gauge("java_resident_bytes", "Memory of the Java process.", (), [((), _resident_bytes(java.pid))])
        if self.node.cluster is not None:
            executors = self.node.cluster.application.executors
            yield _gauge("spark_executors", "Executors that the node has on the cluster.", (), [((), executors)])
        visible = list(engine.tables.visible.values())
        loaded = [state for table in visible if (state := table.loaded) is not None]
        yield _gauge("tables", "Delta tables, and those of them that have been used.", ("kind",),
                     [(("all",), len(visible)), (("used",), len(loaded))])  # fmt: skip
        yield _gauge(
            "data_files", "Data files of the newest versions of used tables.", (), [((), sum(len(state.files) for state in loaded))]
        )
        size = sum(add["size"] for state in loaded for add in list(state.files.values()))
        yield _gauge("data_bytes", "Size of these files.", (), [((), size)])
        statistics = engine.statistics
        yield _shares("merged_batches", "Batches of changes that were merged into a table, by who did it.", statistics.batches)
        yield _shares("decoded_segments", "Segments of streams that were decoded, by who did it.", statistics.segments)
        yield _shares("decoded_changes", "Changes in these segments, by who decoded and applied them.", statistics.changes)
        yield _counter("compactions", "How often a table's small files have been put together.", (), [((), statistics.compactions)])
        yield _counter("compacted_files", "Files that have been put together.", (), [((), statistics.compacted_files)])
        free = [((disk.name,), disk.free_bytes) for disk in self.report.disks]
        yield _gauge("disk_free_bytes", "Free space of the file systems.", ("folder",), free)

    def of_subscriptions(self) -> Iterator[Metric]:
        subscriptions = [((subscription.database, subscription.name), subscription) for subscription in self.report.subscriptions]

        def inner(of: Callable[[SubscriptionReport], Mapping[str, float]]) -> Values:
            return [((*key, label), value) for key, subscription in subscriptions for label, value in of(subscription).items()]

        yield _gauge("subscription_state", "1 for the state that it is in.", (*_SUBSCRIPTION, "state"),
                     [((*key, state), float(subscription.state == state))
                      for key, subscription in subscriptions for state in State])  # fmt: skip
        yield from _of_fields(_OF_A_SUBSCRIPTION, _SUBSCRIPTION, subscriptions)
        yield _counter(
            "subscription_stage_seconds", "Time by stage.", (*_SUBSCRIPTION, "stage"), inner(lambda subscription: subscription.seconds)
        )
        left_out = [(key, sum(table.changes for table in subscription.left_out)) for key, subscription in subscriptions]
        yield _gauge("subscription_left_out_changes", "Changes of published tables that are not in it.", _SUBSCRIPTION, left_out)
        conflicts = inner(lambda subscription: subscription.conflicts)
        yield _counter("subscription_conflicts", "Errors that a row here was the cause of.", (*_SUBSCRIPTION, "sqlstate"), conflicts)
        errors = inner(lambda subscription: {"apply": subscription.apply_errors, "sync": subscription.sync_errors})
        yield _counter("subscription_errors", "Errors of its workers, as pg_stat_subscription_stats.", (*_SUBSCRIPTION, "worker"), errors)
        copies = [((*key, copy.table), copy) for key, subscription in subscriptions for copy in subscription.copies]
        yield _gauge("copy_rows", "Rows that have come of a copy in progress.", _TABLE, [(key, copy.rows) for key, copy in copies])
        estimates = [(key, copy.estimated_rows) for key, copy in copies if copy.estimated_rows is not None]
        yield _gauge("copy_estimated_rows", "The publisher's estimate of the rows of the table.", _TABLE, estimates)
        states = inner(lambda subscription: {state: subscription.table_states.get(state, 0) for state in TABLE_STATES.values()})
        yield _gauge("subscription_tables", "Tables by synchronization state.", (*_SUBSCRIPTION, "state"), states)

    def of_tables(self) -> Iterator[Metric]:
        """Yield the metrics of the changes applied to each table."""
        most = self.node.settings.integer("metrics_tables")
        tables = []
        for table in table_report(self.node.workers, most):
            database = self.databases.get(table.subscription.database, str(table.subscription.database))
            tables.append(((database, table.subscription.name, f"{table.schema}.{table.name}"), table))
        yield _counter("table_applied_rows", "Row changes applied to a table.", _TABLE, ((key, table.applied) for key, table in tables))
        yield _counter("table_copied_rows", "Rows of a table's first copy.", _TABLE, ((key, table.copied) for key, table in tables))
        yield _counter("table_skipped_rows", "Rows to change that were not there.", _TABLE, ((key, table.missing) for key, table in tables))
        yield _gauge("table_left_out_changes", "Changes that are not applied, as the table is not in the subscription.", _TABLE,
                     ((key, table.left_out) for key, table in tables))  # fmt: skip
        yield _gauge("table_state", "1 with the synchronization state as a label.", (*_TABLE, "state"),
                     (((*key, TABLE_STATES[table.state]), 1.0) for key, table in tables if table.state))  # fmt: skip
        total = sum(subscription.tables + len(subscription.left_out) for subscription in self.report.subscriptions)
        yield _gauge("tables_without_metrics", "Tables beyond metrics_tables.", (), [((), max(0, total - most))])

    def of_slots(self) -> Iterator[Metric]:
        slots = [((slot.database or "", slot.name), slot) for slot in self.report.slots]
        yield from _of_fields(_OF_A_SLOT, _SLOT, slots)
        states = [((*label, state), float(slot.state == state)) for label, slot in slots for state in SLOT_STATES]
        yield _gauge("slot_state", "1 for the state that its walsender is in.", (*_SLOT, "state"), states)
        wal_states = [((*label, state), float(slot.wal_status == state)) for label, slot in slots for state in WAL_STATES]
        yield _gauge("slot_wal_status", "1 for its wal_status.", (*_SLOT, "status"), wal_states)

    def of_publications(self) -> Iterator[Metric]:
        tally = self.node.changes.tally
        publications = [((self.databases[oid], name), tally.of(oid, name)) for oid, names in self.publications.items() for name in names]
        label = ("database", "publication")
        yield _counter(
            "publication_judged_rows", "Changes that were judged, by each stream.", label, ((key, tally[0]) for key, tally in publications)
        )
        yield _counter("publication_kept_rows", "Changes of these that were sent.", label, ((key, tally[1]) for key, tally in publications))
        yield _counter(
            "publication_dropped_rows",
            "Changes of these that were not.",
            label,
            ((key, tally[0] - tally[1]) for key, tally in publications),
        )


def _gauge(name: str, help_text: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _fill(GaugeMetricFamily(f"headgate_{name}", help_text, labels=labels), values)


def _counter(name: str, help_text: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _fill(CounterMetricFamily(f"headgate_{name}", help_text, labels=labels), values)


def _shares(name: str, help_text: str, shares: Shares) -> Metric:
    return _counter(name, help_text, ("by",), [(("driver",), shares.driver), (("spark",), shares.spark)])


def _fill(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for labels, value in values:
        family.add_metric(labels, float(value))
    return family


def _of_fields(metrics: Iterable[_Field], labels: tuple[str, ...], reports: Iterable[tuple[tuple[str, ...], object]]) -> Iterator[Metric]:
    """Yield metrics for fields of reports. A field that is None is omitted. `reports`: the label values and the report."""
    for make, name, help_text, field in metrics:
        yield make(name, help_text, labels, [(key, value) for key, report in reports if (value := getattr(report, field)) is not None])


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes, or 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


_OF_A_SUBSCRIPTION = (
    (_gauge, "subscription_connected", "Whether it receives from its publisher.", "connected"),
    (_gauge, "subscription_failing", "Whether its last error is not got over.", "failing"),
    (_gauge, "subscription_lag_bytes", "Publisher's log that was heard of and is not applied.", "lag_bytes"),
    (_gauge, "subscription_lag_seconds", "Since when it is behind; without a connection, since the last word.", "lag_seconds"),
    (_gauge, "subscription_last_applied_timestamp_seconds", "When the last change was applied.", "applied_at"),
    (_counter, "subscription_applied_rows", "Row changes applied.", "applied_rows"),
    (_counter, "subscription_applied_bytes", "Bytes of the messages applied.", "applied_bytes"),
    (_counter, "subscription_applied_transactions", "Transactions applied.", "applied_transactions"),
    (_counter, "subscription_batches", "Commits that applied them.", "batches"),
    (_counter, "subscription_copied_rows", "Rows of first copies.", "copied_rows"),
    (_counter, "subscription_copied_bytes", "Bytes of first copies.", "copied_bytes"),
    (_counter, "subscription_skipped_rows", "Rows to update or delete that were not here.", "skipped_rows"),
)
"""The constructor, name and description of a metric, and the field of `SubscriptionReport` that it shows."""
_OF_A_SLOT = (
    (_gauge, "slot_pinned_bytes", "Log that is kept for the slot.", "pinned_bytes"),
    (_gauge, "slot_lag_bytes", "Log that its client has not confirmed.", "lag_bytes"),
    (_gauge, "slot_lag_seconds", "Time until the client confirmed.", "lag_seconds"),
    (_counter, "slot_sent_transactions", "Transactions decoded.", "transactions"),
    (_counter, "slot_sent_bytes", "Bytes decoded.", "bytes"),
)
"""The same for fields of `SlotReport`."""
