"""Time to target: entries that race to a metric, the reader of that metric, and the command it is read from."""
