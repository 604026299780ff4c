"""What makes two runs of one script comparable: seeds, first steps, sketches of gradients, compile caches."""
