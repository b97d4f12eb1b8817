#include "root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* openat2 is newer than the glibc this must build on. The numbers are the kernel's ABI. */
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
struct open_how_v0 {
    uint64_t flags, mode, resolve;
};
enum { RESOLVE_SAFELY = 0x02 /* NO_MAGICLINKS */ | 0x04 /* NO_SYMLINKS */ | 0x08 /* BENEATH */ };

void root_debug(const struct root *root, const char *file, int line, int error, const char *what)
{
    if (!root->debug)
        return;
    fprintf(stderr, "dtk-debug [%s:%d] ", file, line);
    for (; *what; what++) /* names come from the tree: nothing of them may reach a terminal's controls */
        fputc(*what < ' ' || *what > '~' ? '?' : *what, stderr);
    fprintf(stderr, ": %s (ignored)\n", strerror(error < 0 ? -error : error));
}

/* Open component by component, refusing links: what openat2 does in one call on kernels since 5.6. */
static int open_walk(int directory, const char *path, int flags)
{
    char name[256];
    int at = directory;

    for (;;) {
        const char *end = strchr(path, '/');
        size_t len = end ? (size_t)(end - path) : strlen(path);

        if (len == 0 || len >= sizeof name || (len == 2 && memcmp(path, "..", 2) == 0)) {
            if (at != directory)
                close(at);
            return -EXDEV;
        }
        memcpy(name, path, len);
        name[len] = '\0';

        int fd = openat(at, name, end ? O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC : flags | O_NOFOLLOW);
        int error = errno;

        if (at != directory)
            close(at);
        if (fd < 0)
            return -error;
        if (!end)
            return fd;
        at = fd;
        path = end + 1;
    }
}

static int open_below(const struct root *root, int directory, const char *path, int flags)
{
    if (!root->walk && strchr(path, '/')) {
        struct open_how_v0 how = {.flags = (uint64_t)flags, .resolve = RESOLVE_SAFELY};
        long fd = syscall(SYS_openat2, directory, path, &how, sizeof how);

        if (fd >= 0)
            return (int)fd;
        /* Old kernels do not know the call, and old container runtimes forbid it. */
        if (errno != ENOSYS && errno != EPERM)
            return -errno;
    }
    return open_walk(directory, path, flags);
}

int root_open_directory(const struct root *root, int directory, const char *path)
{
    return open_below(root, directory, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int kind_error(mode_t mode)
{
    if (S_ISREG(mode))
        return 0;
    return S_ISDIR(mode) ? -EISDIR : S_ISLNK(mode) ? -ELOOP : -ENXIO;
}

int root_has_file(int directory, const char *path)
{
    struct stat st;

    if (fstatat(directory, path, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    return kind_error(st.st_mode);
}

/* O_NONBLOCK: a FIFO that came into the place of a file must not block the open. */
static int open_regular(const struct root *root, int directory, const char *path)
{
    int fd = open_below(root, directory, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY), error;
    struct stat st;

    if (fd < 0 || root->live)
        return fd;
    error = fstat(fd, &st) != 0 ? -errno : kind_error(st.st_mode);
    if (error) {
        close(fd);
        return error;
    }
    return fd;
}

int root_open_file(const struct root *root, int directory, const char *path)
{
    int error = root_has_file(directory, path);

    return error ? error : open_regular(root, directory, path);
}

static ssize_t read_and_close(int fd, char *ret, size_t size)
{
    const size_t page = 4096;
    size_t total = 0;
    ssize_t got;

    if (fd < 0)
        return fd;
    do {
        got = read(fd, ret + total, size - total);
        total += got > 0 ? (size_t)got : 0;
    } while (got > 0 && total < size && total % page == 0);
    if (got < 0)
        got = -errno;
    close(fd);
    return got < 0 ? got : total == size ? -EFBIG : (ssize_t)total;
}

ssize_t root_read(const struct root *root, int directory, const char *path, char *ret, size_t size)
{
    return read_and_close(root_open_file(root, directory, path), ret, size);
}

ssize_t root_read_again(const struct root *root, int directory, const char *path, char *ret, size_t size)
{
    return read_and_close(open_regular(root, directory, path), ret, size);
}

/* Put the target of a link in front of what is left of the path. */
static int join(char *rest, size_t size, const char *target, const char *tail)
{
    char joined[ROOT_PATH_MAX];
    int len = snprintf(joined, sizeof joined, "%s%s%s", target, *tail ? "/" : "", tail);

    if (len < 0 || (size_t)len >= sizeof joined || (size_t)len >= size)
        return -ENAMETOOLONG;
    memcpy(rest, joined, (size_t)len + 1);
    return 0;
}

int root_resolve(const struct root *root, const char *path, char *ret, size_t size)
{
    char rest[ROOT_PATH_MAX], name[256], target[ROOT_PATH_MAX];
    size_t done = 0; /* length of the part of ret that is known to be free of links */
    int links = 0;

    if (join(rest, sizeof rest, path, "") != 0 || size == 0)
        return -ENAMETOOLONG;
    ret[0] = '\0';
    for (char *at = rest; *at;) {
        size_t len = strcspn(at, "/");

        if (len >= sizeof name)
            return -ENAMETOOLONG;
        memcpy(name, at, len);
        name[len] = '\0';
        at += len + (at[len] == '/');
        if (len == 0 || strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            char *parent = strrchr(ret, '/');

            if (done == 0)
                return -EXDEV;
            done = parent ? (size_t)(parent - ret) : 0;
            ret[done] = '\0';
            continue;
        }
        if (done + len + 2 > size)
            return -ENAMETOOLONG;

        size_t before = done;

        if (done)
            ret[done++] = '/';
        memcpy(ret + done, name, len + 1);
        done += len;

        ssize_t got = readlinkat(root->fd, ret, target, sizeof target - 1);

        if (got < 0) {
            if (errno != EINVAL) /* EINVAL: no link */
                return -errno;
            continue;
        }
        target[got] = '\0';
        if (target[0] == '/')
            return -EXDEV;
        if (++links > ROOT_LINKS_MAX)
            return -ELOOP;
        done = before;
        ret[done] = '\0';

        int error = join(rest, sizeof rest, target, at);

        if (error)
            return error;
        at = rest;
    }
    return 0;
}

struct dirent64_v0 {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

int root_entries_open(const struct root *root, int directory, const char *path, struct root_entries *ret)
{
    ret->fd = open_below(root, directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ret->got = ret->at = 0;
    return ret->fd < 0 ? ret->fd : 0;
}

int root_entries_next(struct root_entries *entries, const char **name, uint64_t *inode)
{
    for (;;) {
        if (entries->at >= entries->got) {
            /* getdents64 itself, since opendir() allocates. */
            entries->got = syscall(SYS_getdents64, entries->fd, entries->buffer, sizeof entries->buffer);
            entries->at = 0;
            if (entries->got <= 0)
                return entries->got < 0 ? -errno : 0;
        }
        const struct dirent64_v0 *entry = (const struct dirent64_v0 *)(entries->buffer + entries->at);

        entries->at += entry->length;
        if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
            continue;
        *name = entry->name;
        if (inode)
            *inode = entry->inode;
        return 1;
    }
}

int root_list(const struct root *root, int directory, const char *path, root_visit *visit, void *context)
{
    struct root_entries entries;
    const char *name;
    int result = root_entries_open(root, directory, path, &entries);

    if (result < 0)
        return result;
    while ((result = root_entries_next(&entries, &name, NULL)) == 1)
        if ((result = visit(context, name)) != 0)
            break;
    close(entries.fd);
    return result;
}
