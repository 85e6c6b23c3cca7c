"""CREATE, ALTER and DROP PUBLICATION, and the requirements for published tables and their alterations (manual, 31.1).

Called by `execute`, and for the replica identity by UPDATE, DELETE and MERGE. The publisher decides which changes a publication sends.
"""
