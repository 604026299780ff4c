"""Bytes of the most loaded GPU at its worst moment."""
