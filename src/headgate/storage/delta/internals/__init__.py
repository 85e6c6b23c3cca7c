"""The private classes of Delta Lake that a node uses, all of them of Delta's own jar (`io.delta:delta-spark`).

Delta's public interface writes and commits in one step, at the newest version, and reads a table by its newest log. A node needs the steps
apart: files that are written before the commit, deletion vectors for given rows, the rows of given files, a checkpoint that is announced
later. Used by `delta_table` only. `tests/storage/test_delta_internals.py` calls each function on a real table; the list, with the reasons,
is in docs/architecture.md. A new version of Delta is tried by running these tests first.
"""
