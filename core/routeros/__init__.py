"""A RouterOS device: its API, menus, changes and rollback. It knows no rack."""
