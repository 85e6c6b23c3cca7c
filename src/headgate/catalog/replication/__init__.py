"""Publications, subscriptions, slots and origins in the catalogs (manual, chapter 53).

Read by publisher and subscriber. Written by the commands, by walsenders and with each commit of an apply worker.
"""
