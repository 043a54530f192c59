"""Learn thresholds from what a federation recorded; nothing is written to the federation."""
