"""What a node records about itself: the log, the backends, counts of statements, problems (manual, 20.8).

Sessions, workers and threads record; `server.report` reads. It contains no row values or passwords.
"""
