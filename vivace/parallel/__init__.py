"""Training that is split over processes: on torch's own engines, and from scratch to be read (``underhood``)."""
