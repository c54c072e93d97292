"""The one judge: the properties S, F and L of the protocol, watched from outside, over traces and journals alike.

`properties` says what each of them is; `suite` judges a run as it happens, `journals` and `skew` what was written down.
Nothing here reads a file or a clock, and nothing is borrowed from the machines that are judged.
"""
