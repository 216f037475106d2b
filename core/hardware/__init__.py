"""Facts of devices, a file each."""
