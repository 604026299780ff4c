"""Finders: they run a command at several settings and return one of those that they ran, never another."""
