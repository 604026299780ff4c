"""The question: one model on one machine in one layout with one batch."""
