"""Write src/headgate/settings/postgresql.csv: the settings of PostgreSQL 15 that a node has, with the values of pg_settings.

Run it against a PostgreSQL 15: ``python tools/dump_settings.py "host=… user=postgres"``. A node has these settings: all that a session may
set, because clients set them without a check, all that are read-only, and the server-wide ones that have a meaning in a node (SERVER_WIDE).
"""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg

TARGET = Path(__file__).parent.parent / "src" / "headgate" / "settings" / "postgresql.csv"
SERVER_WIDE = """
listen_addresses max_connections port superuser_reserved_connections unix_socket_directories unix_socket_group
unix_socket_permissions config_file data_directory external_pid_file hba_file ident_file max_locks_per_transaction max_replication_slots
max_wal_senders track_commit_timestamp max_logical_replication_workers cluster_name max_worker_processes max_prepared_transactions
shared_preload_libraries track_activity_query_size wal_level archive_mode hot_standby authentication_timeout ssl ssl_ca_file ssl_cert_file
ssl_crl_file ssl_crl_dir ssl_key_file ssl_min_protocol_version ssl_max_protocol_version ssl_ciphers ssl_prefer_server_ciphers
ssl_passphrase_command synchronous_standby_names max_slot_wal_keep_size wal_keep_size wal_receiver_status_interval wal_receiver_timeout
wal_retrieve_retry_interval max_sync_workers_per_subscription log_line_prefix log_timezone log_hostname log_destination autovacuum
fsync full_page_writes checkpoint_timeout max_wal_size min_wal_size
""".split()
UNFIT = "Developer Options"  # settings for PostgreSQL's own developers
QUERY = """
SELECT name, vartype, coalesce(boot_val, '') AS boot_val, coalesce(unit, '') AS unit, coalesce(min_val, '') AS min_val,
       coalesce(max_val, '') AS max_val, coalesce(array_to_string(enumvals, '|'), '') AS enumvals, context, category, short_desc,
       coalesce(extra_desc, '') AS extra_desc,
       array_to_string(pg_settings_get_flags(name), ' ') AS flags
FROM pg_settings
WHERE (context IN ('internal', 'backend', 'superuser-backend', 'superuser', 'user') OR name = ANY (%s)) AND category <> %s
  AND name NOT IN ('extension_destdir')
ORDER BY name COLLATE "C"
"""


def main() -> None:
    """Write the rows with COPY, so that PostgreSQL quotes them."""
    with psycopg.connect(sys.argv[1]) as session, TARGET.open("wb") as out:
        shown = psycopg.ClientCursor(session).mogrify(QUERY, (SERVER_WIDE, UNFIT))
        with session.cursor().copy(f"COPY ({shown}) TO STDOUT (FORMAT csv, HEADER)") as rows:  # type: ignore[arg-type]
            for block in rows:
                out.write(block)


if __name__ == "__main__":
    main()
