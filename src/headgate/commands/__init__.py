"""commands: what each SQL command does. The server hands over one parsed statement at a time (`execute.execute`).

One module per command family. A command reads and writes the catalog and the tables through the session's open transaction,
and never commits or rolls back.
"""
