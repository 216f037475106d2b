"""Take sparkrack off the nodes: what is ours goes, what was there before comes back. The order of deploy.py, reversed.

The switch is not in it: `sparkrack remove` puts the backup back that the first apply has kept.
"""

from core.ops.apply_role import remove_role

# One literal call a line, as in deploy.py. First what serves, last the names and keys by which the node is reached.
remove_role("serving")
remove_role("watch")
remove_role("models")
remove_role("images")
remove_role("rdma")
remove_role("fabric")
remove_role("lossless")
remove_role("docker")
remove_role("blackbox")
remove_role("memory")
remove_role("driver")
remove_role("time")
remove_role("access")
