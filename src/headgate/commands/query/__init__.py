"""SELECT on user tables: from the parse tree to a Spark DataFrame, and from its rows to PostgreSQL's text forms."""
