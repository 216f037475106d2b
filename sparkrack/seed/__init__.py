"""What a node reads at its first boot, so that nobody types a password: for cloud-init, or for Ubuntu's installer."""
