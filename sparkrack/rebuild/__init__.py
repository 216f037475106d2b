"""From bare metal to a proven rack: phases, what each calls, a journal that a killed drill is resumed from.

The work is done by the other verbs, as child processes; here is only the order, the refusals and the account.
"""
