"""Triggers: CREATE, ALTER and DROP TRIGGER (`definition`), and their firing (`firing`)."""
