"""From factory state to a verified rack: phases, their commands, and a journal from which a killed rebuild is resumed.

The other commands do the work, as child processes; this package has only the order, the refusals and the records.
"""
