"""§7.2: orders of many traders, whom nobody has to trust, in one fair sequence.

Nothing here knows a clock, a database or a socket: what an order may spend is a function of the books, and the books
are a function of what was posted.

    accounts    numbers of accounts, assets and sums of money
    ledger      entries that sum to zero, balances, limits; what may be posted and what may not
    netting     what gateways owe each other, net
    needs       what an order binds before it may leave: money or shares, and fees
    desk        what traders say and hear, and the one interface behind every way in
    json_forms  the same as JSON has it
    life        an order's life: legal steps, and what is bound at each of them
    controls    what is refused before it can do harm: size, value, collar, rate, kill switches
    delivery    whether an exchange took the orders directed to it in the order of the sequence
"""
