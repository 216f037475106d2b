/*
 * Lets user-mode Linux 6.1 run on hosts whose floating point state is larger than it knows (AMX, from Sapphire
 * Rapids on): PTRACE_SETREGSET(NT_X86_XSTATE) fails there with EFAULT unless the buffer has exactly the host's
 * size, and init dies with "ptrace set fp regs failed, errno = 14". Loaded with LD_PRELOAD into linux.uml only.
 *
 * The buffer of this kernel ends after PKRU (offset 2696), so everything but the AMX tiles is kept; a guest
 * process cannot own tiles, since it never asked for the permission to use them. Where the host's state is not
 * larger than the buffer, calls pass through unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define HEADER 512                /* XSTATE_BV: which components the buffer holds, one bit each */
#define COMPONENTS_UP_TO_PKRU 0x3ffULL

typedef long (*ptrace_fn)(int, pid_t, void *, void *);

static _Thread_local unsigned char state[65536] __attribute__((aligned(64)));
static size_t host_size;

long ptrace(enum __ptrace_request request, ...)
{
    static ptrace_fn real;
    if (!real)
        real = (ptrace_fn)dlsym(RTLD_NEXT, "ptrace");

    va_list list;
    va_start(list, request);
    pid_t pid = va_arg(list, pid_t);
    void *addr = va_arg(list, void *);
    void *data = va_arg(list, void *);
    va_end(list);

    if ((uintptr_t)addr != NT_X86_XSTATE || (request != PTRACE_SETREGSET && request != PTRACE_GETREGSET))
        return real(request, pid, addr, data);

    struct iovec *theirs = data;
    struct iovec ours = {state, sizeof state};
    if (request == PTRACE_GETREGSET) {
        long result = real(request, pid, addr, &ours);
        if (result < 0)
            return result;
        host_size = ours.iov_len;
        if (theirs->iov_len > ours.iov_len)
            theirs->iov_len = ours.iov_len;
        memcpy(theirs->iov_base, state, theirs->iov_len);
        return result;
    }
    if (host_size <= theirs->iov_len)
        return real(request, pid, addr, data);
    memcpy(state, theirs->iov_base, theirs->iov_len);
    memset(state + theirs->iov_len, 0, host_size - theirs->iov_len);
    uint64_t components;
    memcpy(&components, state + HEADER, sizeof components);
    components &= COMPONENTS_UP_TO_PKRU;
    memcpy(state + HEADER, &components, sizeof components);
    ours.iov_len = host_size;
    return real(request, pid, addr, &ours);
}
