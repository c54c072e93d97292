"""Delivery of orders to an exchange (§7.2): the sequence in its order out by FIX, and the exchange's reports back in.

    directing   which messages of the sequence are an exchange's, and the audit of what it made of them
    spool       what was heard and is not answered, and up to where: a file that survives both sides
    fix_orders  requests and reports as FIX 4.4
    delivery    hears, delivers, publishes; comes back after either side has died
    serving     the same between a market and an exchange that are there

An exchange is a complete customer with a durable position. It refuses: matching of its own, and to know accounts.
"""
