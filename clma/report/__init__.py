"""What people look at: figures from the records that a round decided."""
