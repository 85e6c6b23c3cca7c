"""A copy of a node's directory that starts as the node was at one LSN, like PostgreSQL's pg_basebackup.

    target     the folder of the backup, marked as incomplete from its creation to the end
    catalog    the catalog's file with its log, as of one moment: the LSN of the backup
    tables     for each table in this catalog, the newest version: its commit files, and the files that it names
    beside     if the tables are not copied: copies of the rest next to them
    settings   headgate.conf and all other files of the user in the directory

Called by ``headgate backup``. A running node copies its catalog itself (`walsender`, BACKUP_CATALOG) and keeps all files that the copy
names as long as the connection lasts. The rest is copied from outside.
"""
