"""A declared unit of serving as the files of another system. Pure: from rack.yaml and its lock file to texts."""
