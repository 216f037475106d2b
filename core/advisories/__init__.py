"""What is publicly known against releases of software that a rack runs: one row for each advisory."""
