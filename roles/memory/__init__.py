"""Memory: the node never swaps, now and after a reboot, and the kernel keeps room to save itself.

A GB10 node shares one pool of memory between CPU and GPU. When it runs out while swap is on, the node freezes
beyond ssh instead of killing what asked for too much. So swap is off in every way it could come back (live, fstab,
units, zram), `vm.min_free_kbytes` is kept free for the kernel, and `vm.overcommit_memory` is what rack.yaml says
even where another program (kubelet sets 1) has changed it. What this role cannot do: memory of CUDA is outside
every limit here.
"""
