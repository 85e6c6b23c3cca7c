"""Functions and procedures that users make: CREATE FUNCTION, CALL, DO, and the session as a PL/pgSQL function sees it (`host`)."""
