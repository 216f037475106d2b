"""Root shells on nodes before a rack runs: by the operator's key, or by the password of the first-boot account."""
