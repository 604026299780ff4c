"""Predictions against published tables: reading rows, scoring them, and the spread of the errors."""
