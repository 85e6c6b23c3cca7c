"""User-defined types: enums, composite types and domains (manual, CREATE TYPE and CREATE DOMAIN). Called by `execute`."""
