"""Files for a node's first boot, so that no password is typed: for cloud-init, or for Ubuntu's installer."""
