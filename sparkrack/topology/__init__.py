"""The rack as a picture: what is cabled to what, declared and seen, in text, Mermaid and SVG. Pure, but for svg."""
