"""The base types: each type family has a module with its functions on whole columns and its descriptions. `base_types` registers all."""
