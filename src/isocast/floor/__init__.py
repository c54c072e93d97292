"""§7.3: a trading floor without an exchange in the middle.

The floor is a function: the same tokens give the same trades, at every receiver and for everybody who has the
sequence. It reads no clock but the tokens' own instants, draws no lots, and knows no floats.

    events      what enters (orders, cancels, lots, bids …) and what comes out (trades and reports)
    book        the orders of one symbol, in the order in which they fill
    rules/      one module each: the price of a trade, continuous trading, the uniform price of an auction, its sharing,
                sealed second price, the Dutch clock
    machine     puts them together: checks, phases, stops, offers, lots, one token after the other
    fast        the same floor for speed: common events take a short way, over `fast_book`
    arrays      events and reports as numpy arrays: what needs no book is checked for all of them at once
    state       the canonical bytes of all that a floor is, and their hash
    following   one step for every token of the sequence that has messages of the floor
    snapshot    all that a floor goes on from, as bytes: a restart is a snapshot and the tokens after it
    arbiter     at every receiver: reports, takes over, confirms, notices differences
    confirming  what somebody who has only the sequence takes for confirmed
    reporting   what the arbiter of a token says of it, as bytes
    codec       events as bytes
    printing    confirmed trades as market events, for the tape
    market_data books and indicative prices as market events
    rights      through which source which message of a floor may come
    lines       the floor as a filter over JSON lines
"""
