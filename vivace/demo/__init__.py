"""The example that ships with vivace, for ``vivace measure`` without a command."""
