"""CREATE, ALTER and DROP SUBSCRIPTION, and the tables that replication makes and alters by itself (manual, 31.2).

Called by `execute`; `create_tables`, `schema_evolution`, `target_privilege` and `row_completion` are handed to the subscriber's workers by
the server. What must hold: the workers do what the subscription's owner may do, and no more.
"""
