"""From machines to a rack file: what they are asked, what follows from their answers, and how it is written down."""
