"""User-defined functions and procedures: CREATE FUNCTION, CALL, DO, and the session in which a PL/pgSQL function runs (`host`)."""
