/* Put in front of the C library (LD_PRELOAD), for tests of what a process leaves behind that is ended, or whose disk fails, at the worst
 * moment. Calls that change something below a folder are counted, and from a number on, or once at it, they end the process or fail.
 *
 *   FAILING_DISK_FOLDER  the folder; what is elsewhere is left alone
 *   FAILING_DISK_CALL    the number of the call, from 1
 *   FAILING_DISK_ERRNO   what it fails with; 0: the process is killed. A write has written half of its bytes by then.
 *   FAILING_DISK_COUNT   a file to which a byte is added for each call that was counted
 *
 * A call that fails is followed by others that do, too: a disk that is full stays so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static atomic_int counted;

static int below(const char *path) {
    const char *folder = getenv("FAILING_DISK_FOLDER");
    size_t length = folder ? strlen(folder) : 0;
    return length && path && strncmp(path, folder, length) == 0;
}

static int below_fd(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

/* Whether this call fails; does not return where the process is to end. `halfway` is what the call has done by then. */
static int fails(void (*halfway)(void *), void *of) {
    const char *nth = getenv("FAILING_DISK_CALL"), *code = getenv("FAILING_DISK_ERRNO"), *count = getenv("FAILING_DISK_COUNT");
    int number = atomic_fetch_add(&counted, 1) + 1;
    if (count) {
        int fd = REAL(open)(count, O_WRONLY | O_APPEND | O_CREAT, 0600);
        if (fd >= 0) {
            if (REAL(write)(fd, "x", 1) != 1) abort();
            close(fd);
        }
    }
    if (!nth || !code || number < atoi(nth)) return 0;
    if (number == atoi(nth) && halfway) halfway(of);
    if (atoi(code) == 0) kill(getpid(), SIGKILL);
    errno = atoi(code);
    return 1;
}

struct bytes {
    int fd;
    const void *bytes;
    size_t size;
};

static void half(void *of) {
    struct bytes *bytes = of;
    if (REAL(write)(bytes->fd, bytes->bytes, bytes->size / 2) < 0) abort();
}

ssize_t write(int fd, const void *bytes, size_t size) {
    struct bytes of = {fd, bytes, size};
    if (below_fd(fd) && fails(half, &of)) return -1;
    return REAL(write)(fd, bytes, size);
}

int open64(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if ((flags & O_CREAT) && below(path) && fails(NULL, NULL)) return -1;
    return REAL(open64)(path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
    if (below(path) && fails(NULL, NULL)) return -1;
    return REAL(mkdir)(path, mode);
}

int fsync(int fd) {
    if (below_fd(fd) && fails(NULL, NULL)) return -1;
    return REAL(fsync)(fd);
}
