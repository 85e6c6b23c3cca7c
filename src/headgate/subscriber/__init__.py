"""The subscribing side: launcher, apply workers, table synchronization, conflicts, progress.

`launcher.Launcher` is the entry; the node has one. Commands and views use the `worker_registry.WorkerRegistry`.
Publisher and subscriber know each other only through the wire.
"""
