"""Seconds of one training step: products, kernels, links, bubbles."""
