"""The log, the list of backends, the counts of statements, and the problems of a node (manual, 20.8).

Sessions, workers and threads write them, and `server.report` reads them. They contain no row values or passwords.
"""
