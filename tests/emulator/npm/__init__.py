"""RouterOS API clients from npm, which nobody here wrote, and what it takes to ask them something."""
