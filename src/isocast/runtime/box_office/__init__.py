"""The box office (§6): plans, subscribers, orders and invoices in a database, and packages for whoever has paid.

It sells keys of services and periods. It decides nothing about what is sealed with them: receivers and customers do,
by the token's instant.
"""
