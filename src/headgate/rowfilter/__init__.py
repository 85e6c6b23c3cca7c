"""Row filters of publications: the allowed expressions, and their compilation to a Spark Column."""
