"""The stages of a measurement, one module each. ``course.py`` says in which order they come."""
