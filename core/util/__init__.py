"""Small tools of the operator's machine: files, records, processes, signals."""
