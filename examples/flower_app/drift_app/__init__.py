"""Ten cameras that read digits; from round 3 on, two at a time learn another numbering."""
