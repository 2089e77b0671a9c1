"""What `python -m plait WORD` runs."""
