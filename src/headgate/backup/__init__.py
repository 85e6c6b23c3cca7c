"""A copy of a node's directory that starts as the node was at one LSN, as pg_basebackup makes it of a cluster.

    target     the folder that is made: marked as incomplete from the first moment to the last
    catalog    the catalog's file with its log, as of one moment: the LSN of the backup
    tables     of each table that this catalog knows, the newest version: its commit files, and the files that it names
    beside     where the tables stay in their place: copies of the rest beside them
    settings   headgate.conf and whatever else lies in the directory and is the user's

Called by ``headgate backup``. A running node copies its catalog itself (`walsender`, BACKUP_CATALOG) and keeps all that this names for as
long as the connection lasts; the rest is copied from outside.
"""
