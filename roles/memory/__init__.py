"""Memory: the node never swaps, the kernel keeps room to save itself, containers have a ceiling, and a guard a floor.

A GB10 node shares one pool of memory between CPU and GPU. When it runs out while swap is on, the node freezes
beyond ssh instead of killing what asked for too much. So swap is off in every way it could come back (live, fstab,
units, zram), `vm.min_free_kbytes` is kept free for the kernel, and `vm.overcommit_memory` is what rack.yaml says
even where another program (kubelet sets 1) has changed it. All containers are in one slice with a limit; sshd, the
network and logins keep some memory and are spared by the kernel's killer. What no limit can do: count the memory of
CUDA. So a guard looks at what is available, and ends all containers below a floor; what is faster than its 250 ms
outruns it. This role starts no workload and drops no cache: it installs the step that does so at a launch.
"""
