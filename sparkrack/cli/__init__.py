"""The `sparkrack` command: a verb is its options, one call of what lies below, and one rendering."""
