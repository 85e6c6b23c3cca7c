"""Typed expression to text, as pg_get_expr prints it (ruleutils.c). Called for what catalogs and publishers show of expressions."""
