"""The original protocol of §2.1, event-driven: the baseline that the paper compares with (protocol §9).

It runs under the simulator only. Three things that §2.1 leaves open are settled here:

- An answer to an implicit request (a source or a previous token site repeats itself) goes to that node
  alone, and to a token site as a repair. Were it multicast, every later token site would take it for a
  repeated pass and answer in its turn.
- A receiver whose own acknowledgement is the highest that it has seen asks its successor: it is the only
  site that can have acknowledged more.
- After a suspicion a machine goes on as before, until a reformation ends the ring. Without one, a false
  suspicion costs nothing but its count.
"""
