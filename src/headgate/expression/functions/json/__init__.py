"""Functions of json and jsonb on single values (manual, 9.16; json.c, jsonfuncs.c).

Called by `expression.implementation.json` inside Arrow functions, and by `expression.functions.set_returning`.
"""
