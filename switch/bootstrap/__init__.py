"""First contact with a switch in factory state: from the password on its sticker to the prerequisites of a run.

`runner` runs the steps in order; each step checks first, writes what is missing and verifies it, and all state is in
rack.yaml and on the switch. So an interrupted run is simply run again.
"""
