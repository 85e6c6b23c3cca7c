"""psql prints the same for a node as for PostgreSQL, errors included, for scripts about privileges and visibility."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Server
from tests.publisher.test_statements import printed

SCRIPTS = sorted((Path(__file__).parent / "statements").glob("*.sql"))
LONG = {
    "actions_of_foreign_keys", "aggregates_of_catalogs", "alter_table_of_parents", "analysis_before_triggers", "arguments_of_sql_functions", "arithmetic_of_constants", "arithmetic_of_numerics",
    "by_key", "by_key_of_each_type", "catalog_browsers", "catalogs_beyond_the_catalog", "changes_in_with", "changes_of_children",
    "checks_without_inheritance", "column_definitions", "columns_of_function_results", "columns_of_groups", "composite_types", "conditions_of_rows",
    "conflicts_of_partial_indexes", "copy_into_views", "cursors_in_functions", "defaults_of_records", "deferred_triggers",
    "definitions_of_views", "dependencies_on_keys", "dependents_of_functions", "details_of_functions", "domains_of_columns",
    "errors_of_rows", "escapes_of_json", "foreign_keys_of_partitions", "frames_of_windows",
    "functions_for_each_row", "functions_in_joins", "functions_in_subqueries", "functions_of_row_types", "functions_of_rows",
    "functions_of_stored_conditions", "functions_of_stored_texts", "functions_of_tables", "functions_of_the_session",
    "inherited_columns", "instead_of_triggers", "invoker_views", "joins_in_a_loop", "keys_of_expressions", "keys_of_floating_point", "lateral_items_of_joins",
    "lateral_joins", "lengths_of_variables", "literals_of_set_operations", "membership_of_nulls", "merge_into_partitions",
    "names_by_search_path", "names_of_builtin_functions", "names_of_merged_columns", "names_of_relations_in_views", "numbers_of_updates", "objects_named_by_constants", "oids_as_names",
    "order_of_conditions", "order_of_dropped_objects", "order_of_errors", "partition_triggers", "parts_of_columns", "polymorphic_functions", "publications_of_parents",
    "references_to_partitioned_tables", "renames_of_used_objects", "reports", "rows_changed_by_triggers", "rows_of_children", "rows_of_every_catalog", "rows_of_variables", "sequences_of_rows",
    "statement_triggers_of_actions", "subqueries_of_groups", "subqueries_without_from", "terms_of_joins", "transition_tables", "triggers_of_foreign_keys", "triggers_of_many_rows",
    "triggers_that_read_their_table", "types_of_expressions", "types_of_foreign_keys", "values_beyond_the_catalog", "views_after_renames",
    "volatile_functions",
}  # fmt: skip


@pytest.mark.parametrize(
    "script", [pytest.param(script, id=script.stem, marks=[pytest.mark.slow] if script.stem in LONG else []) for script in SCRIPTS]
)
def test_psql_prints_the_same_for_a_node_and_postgresql(postgres: Server, node: Server, script: Path) -> None:
    assert printed(node, script) == printed(postgres, script)
