"""First contact with a switch as it comes from its box: from the password on its sticker to what a run needs.

`run.Bootstrap` goes the way, step by step; each step looks first, writes what is missing and proves it, and
nothing is remembered but in rack.yaml and on the switch. So a run that was cut off anywhere is run again.
"""
