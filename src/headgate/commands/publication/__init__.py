"""CREATE, ALTER and DROP PUBLICATION, and what being published asks of tables and of their alterations (manual, 31.1).

Called by `execute`, and for the replica identity by UPDATE, DELETE and MERGE. Which changes a publication passes on is the publisher's.
"""
