"""The first contact with nodes: from the account of the first-boot wizard to a login by key that a run can use."""
