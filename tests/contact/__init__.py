"""The first contact with nodes, against real sshds with sudo and PAM, each in namespaces of its own."""
