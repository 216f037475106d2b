"""What `sparkrack watch` shows: the rack as the Prometheus of its server has it."""
