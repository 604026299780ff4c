"""Practices switched on and off inside one training process, between windows of a few steps."""
