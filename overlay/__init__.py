"""The protocol core: deterministic, without I/O, clock or randomness of its own.

`node.Node` is its only door; `transport/` holds the shells that run it.
"""
