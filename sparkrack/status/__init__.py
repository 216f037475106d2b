"""How a rack does right now, on one screen: what is asked, what the answers mean, and how it is shown."""
