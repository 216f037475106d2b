"""Inference engines: what their command lines take, and how much memory a model needs on each node."""
