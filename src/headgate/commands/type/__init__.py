"""Types that users make: enums and domains (manual, CREATE TYPE and CREATE DOMAIN). Called by `execute`."""
