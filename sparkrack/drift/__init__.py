"""Drift as text for other programs: Markdown, Prometheus, and the systemd units that look regularly. Pure.

Texts come from machines and may hold anything: each format quotes them its own way.
"""
