/* The system call that qemu-user lacks, for a process that reads its own memory: what cannot be read is an error. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

ssize_t process_vm_readv(pid_t pid, const struct iovec *into, unsigned long intos, const struct iovec *from,
                         unsigned long froms, unsigned long flags)
{
    (void)flags;
    if (pid != getpid()) {
        errno = ESRCH;
        return -1;
    }
    int file = memfd_create("read", MFD_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t size = pwritev(file, from, (int)froms, 0);
    if (size > 0)
        size = preadv(file, into, (int)intos, 0);
    close(file);
    return size;
}
