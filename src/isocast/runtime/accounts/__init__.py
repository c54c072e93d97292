"""A gateway's books: accounts, balances and every entry that ever changed them, in SQLite or PostgreSQL.

The rules are those of `isocast.orders`; here is what keeps them: tables, transactions, migrations and an audit. `fix`
is a way in for traders.
"""
