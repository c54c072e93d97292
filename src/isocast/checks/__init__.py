"""The judge: the properties S, F and L of the protocol, over a simulator's trace and over journals alike.

It states what must hold and finds where it does not. It never imports the protocol: a checker that called the
protocol's own functions would share its mistakes. It repairs nothing and drives nothing.
"""
