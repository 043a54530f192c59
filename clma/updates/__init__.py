"""What a client sends: the update's message and tensors, and why one is not used."""

from __future__ import annotations
