"""The terminal of a command: progress, questions, and the screen of a run."""
