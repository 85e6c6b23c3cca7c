"""Roles, passwords, privileges and stored settings in the catalogs (manual, chapters 22 and 5.7).

Read by authentication and before every command. Written by CREATE ROLE, GRANT and similar commands.
"""
