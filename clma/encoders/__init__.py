"""Frozen encoders: from a sample to a few numbers, the same for every client, never fitted.

Each kind has its own file; those that need a runtime import it there and stand behind an extra.
"""
