"""Frameworks at the border: each adapter stands behind its own extra and imports only its own."""
