"""§4.4: narrow stripes at the edge of wide ones: the plan, how it is made, and what every receiver sends by it.

Everything here is pure. `plan` says which symbol belongs to which stripe, `making` finds one from a history of rates,
`edge` turns the released sequence into packets of every stripe, alike at every receiver; `cut` says what existed at an
instant, `choice` what a customer's line can take.
"""
