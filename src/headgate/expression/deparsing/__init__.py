"""Print typed expressions as pg_get_expr does (ruleutils.c), for catalogs and publishers."""
