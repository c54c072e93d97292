"""The ordering protocol of §2.1 and §5: source, receiver, token, recovery, stability and release, as pure machines.

A machine takes one input and an instant, and returns effects. It does not know who acts on them: a failure is the
effect `RingSuspected`, and forming the next ring is the business of `reformation`. It never looks inside a payload.
"""
