"""How older tables of accounts become those of today.

Alembic runs `env`, on the connection that it is given; `isocast accounts` starts it, nobody else.
"""
