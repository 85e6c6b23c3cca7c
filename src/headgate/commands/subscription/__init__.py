"""CREATE, ALTER and DROP SUBSCRIPTION, and the tables that replication creates and alters (manual, 31.2).

Called by `execute`. The server passes `create_tables`, `schema_evolution`, `target_privilege` and `row_completion` to the subscriber's
workers. The workers must have no more rights than the subscription's owner.
"""
