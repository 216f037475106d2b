"""Why a node's boot ended: evidence from the node, the node that receives its records, and the switch; a verdict."""
