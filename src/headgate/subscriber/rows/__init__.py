"""Changes as rows of local tables: mapped, converted, completed, checked, and written inside one transaction.

`apply` and `synchronization` call it. It knows neither the worker nor the stream. `conflict` keeps the place
of an error and has PostgreSQL's messages.
"""
