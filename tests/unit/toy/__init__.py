"""A role that is added to a copy of the project, and what that takes."""
