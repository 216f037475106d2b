"""Drift, what is compared and kept of it, and its texts: for the screen, Markdown, Prometheus, and systemd units.

Texts come from machines and may hold anything: each format quotes them its own way.
"""
