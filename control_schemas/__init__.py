"""The wire contract of the control topic: events, codec, limits.

Imports nothing but fastavro and the standard library, so that any tool
can read a control topic with it.
"""
