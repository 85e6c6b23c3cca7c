"""The base types: a module for each family, which has its functions on whole columns and describes its types; `base_types` has them all."""
