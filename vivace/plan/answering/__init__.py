"""From what a person asked to the records that answer it."""
