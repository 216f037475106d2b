"""Images: every node has the images of rack.yaml, each the same bytes everywhere, judged by its image ID.

What a tag means is asked of its registry once, and kept in `rack.lock.json` beside rack.yaml. Each image is pulled from
outside by one node; the others take it from a node that has it, over the fabric where they share one, and each that is
done gives to others. What is on its way goes on without the operator's machine, and the next run waits for it. What
this role does not do: remove an image, log in to a registry, or look at what a container was started from.
"""
