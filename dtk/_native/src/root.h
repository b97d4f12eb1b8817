/* The only door to the file system: a root directory, and reads that cannot leave it. */
#ifndef DTK_ROOT_H
#define DTK_ROOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

enum { ROOT_PATH_MAX = 512, ROOT_LINKS_MAX = 16 };

struct root {
    int fd;    /* the root directory */
    bool walk; /* do without openat2 */
    bool live; /* this machine's own: nobody puts traps in the place of files between a look and the opening */
    bool debug;
};

/* Print where a swallowed error happened, when the system was opened with DTK_OPEN_DEBUG. */
#define ROOT_DEBUG(root, error, what) root_debug((root), __FILE__, __LINE__, (error), (what))
void root_debug(const struct root *root, const char *file, int line, int error, const char *what);

/* All of these take a path of the form "a/b/c" relative to `directory` (root->fd or a descriptor below it) and return a
 * negative errno on failure. Links are followed by root_resolve() alone. */

/* Open a directory as an O_PATH descriptor. */
int root_open_directory(const struct root *root, int directory, const char *path);

/* Open a regular file for reading. It is looked at before it is opened, since to open a device node can do harm by
 * itself. -EISDIR, -ELOOP (a link) or -ENXIO (a FIFO, a device) when it is none. */
int root_open_file(const struct root *root, int directory, const char *path);

/* Read a regular file, up to `size` bytes; returns how many. -EFBIG when it fills the buffer. sysfs gives text in one
 * read; a binary file comes in pages. */
ssize_t root_read(const struct root *root, int directory, const char *path, char *ret, size_t size);

/* The same for a file that was there and regular the last time: opened without a look. */
ssize_t root_read_again(const struct root *root, int directory, const char *path, char *ret, size_t size);

/* Is there a regular file? 0, or -ENOENT, -EISDIR, -ELOOP, -ENXIO. Opens nothing. */
int root_has_file(int directory, const char *path);

/* Path below the root that a path with links leads to, without links. -EXDEV when it leaves the root or is absolute. */
int root_resolve(const struct root *root, const char *path, char *ret, size_t size);

/* The entries of a directory, without . and .., while it stays open as `fd`. Allocates nothing. */
struct root_entries {
    int fd;
    long got, at;
    _Alignas(uint64_t) char buffer[4096];
};
int root_entries_open(const struct root *root, int directory, const char *path, struct root_entries *ret);
/* 1 and an entry, its inode when that is asked for; 0 at the end, or a negative errno. */
int root_entries_next(struct root_entries *entries, const char **name, uint64_t *inode);

/* Call `visit` with the name of each entry; a nonzero return ends the walk. Returns what the last visit returned. */
typedef int root_visit(void *context, const char *name);
int root_list(const struct root *root, int directory, const char *path, root_visit *visit, void *context);

#endif
