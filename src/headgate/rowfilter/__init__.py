"""Row filters of publications: what may stand in one, and the Spark Column that decides on a row."""
