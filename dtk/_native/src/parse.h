/* Parsers of the kernel's small text files: bytes in, value out.
 *
 * Pure functions: no allocation, no locale, no global state, nothing is read past `len`. The text ends at `len` or at
 * its first NUL, whichever comes first, because some files are padded with NULs. Blanks are space, tab, carriage return
 * and newline. Each function returns 0, or -DTK_FAILED when the text is not of its form or empty, and writes its results
 * only when it returns 0. */
#ifndef DTK_PARSE_H
#define DTK_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole number, decimal or hexadecimal after 0x, blanks around it and nothing else. */
int parse_u64(const char *text, size_t len, uint64_t *ret);

/* The same, decimal only, with or without a minus in front. */
int parse_i64(const char *text, size_t len, int64_t *ret);

/* 1 to 16 hexadecimal digits, 0x in front or not: unique_id. */
int parse_hex64(const char *text, size_t len, uint64_t *ret);

/* The number that a text like "16.0 GT/s PCIe" starts with: at most 15 digits that count, no sign, no exponent. */
int parse_leading_f64(const char *text, size_t len, double *ret);

/* The levels of a clock, lines like "1: 500Mhz *" with a star at the level in force. A line "S: 19Mhz *" is a sleep
 * state, in which the clock may be but which nobody can set: it has a part in `stars` and `current` alone. */
struct levels {
    uint32_t count; /* levels */
    uint32_t stars; /* starred lines: 0, 1, or more when the driver does not know */
    double current; /* MHz, of the starred line; only when stars == 1 */
    double highest; /* MHz; only when count > 0 */
};

/* pp_dpm_sclk and its like; pp_dpm_pcie has another form and is refused. */
int parse_levels(const char *text, size_t len, struct levels *ret);

/* The number of the first line "key number", as in KFD's properties. -DTK_NOT_FOUND: no line has that key. */
int parse_property(const char *text, size_t len, const char *key, uint64_t *ret);

/* The next line "name number" or "name: number" from `*at` on, which moves behind it; the name is made fit to print as
 * parse_text() does. Other lines are left out. 1, or 0 at the end of the text. */
int parse_next_count(const char *text, size_t len, size_t *at, char *name, size_t size, uint64_t *ret);

/* The value of the first line "key=value", as in uevent, made fit to print as parse_text() does.
 * -DTK_NOT_FOUND: no line has that key; -DTK_FAILED: its value is empty. */
int parse_variable(const char *text, size_t len, const char *key, char *ret, size_t size);

struct error_counts {
    uint64_t correctable, uncorrectable, deferred;
    bool has_deferred;
};

/* ras/<block>_err_count: lines "ue: 0" and "ce: 0", on newer kernels also "de: 0", in any order. A line of another name
 * is left out, since kernels add some. */
int parse_error_counts(const char *text, size_t len, struct error_counts *ret);

/* ras/gpu_vram_bad_pages: a line "0xPAGE : 0xSIZE : R" for each bad page. No lines are no bad pages: 0 and success.
 * R is a page taken out of use, P one that will be. F is one the driver could not take out of use and will not try
 * again: it is neither, so it counts as neither. */
int parse_bad_pages(const char *text, size_t len, uint64_t *retired, uint64_t *pending);

struct pci_address {
    uint32_t domain;
    uint8_t bus, device, function;
};

/* "0000:43:00.0" or "43:00.0", the whole text. The domain has 1 to 8 hexadecimal digits. */
int parse_pci_address(const char *text, size_t len, struct pci_address *ret);

/* The first line without the blanks around it, fit to print: each control character, and each byte that is not UTF-8,
 * becomes "?". What does not fit `size` is cut, between characters. Always terminated, never empty. */
int parse_text(const char *text, size_t len, char *ret, size_t size);

/* The number after a prefix, decimal, to the end: ("card12", "card") is 12. `name` ends at its NUL. */
int parse_number_after(const char *name, const char *prefix, uint32_t *ret);

/* ---- Processes: parse_process.c ---- */

struct process_stat {
    uint64_t start_ticks; /* since boot */
    int32_t parent;
    char state;
    bool kernel;   /* a kernel thread */
    char name[64]; /* empty when it has none */
};

/* proc/<pid>/stat. The name may hold blanks and parentheses. */
int parse_process_stat(const char *text, size_t len, struct process_stat *ret);

struct process_status {
    int64_t uid;    /* effective */
    int32_t ns_pid; /* in the innermost PID namespace; -1 when that is the one of this proc, or on kernels before 4.1 */
};

/* proc/<pid>/status. -DTK_NOT_FOUND: it has no line with the user. */
int parse_process_status(const char *text, size_t len, struct process_status *ret);

/* proc/<pid>/cmdline: arguments, each ended by a NUL. Here they get a blank between, and are made fit to print as
 * parse_text() does. `cut` tells whether something did not fit. */
int parse_command(const char *text, size_t len, char *ret, size_t size, bool *cut);

/* Who runs a process, as far as its control groups tell; the innermost where they are nested. Empty where they do not. */
struct process_group {
    char container[72], runtime[16], pod[40], slurm_job[16], slurm_step[16], unit[64];
};

/* proc/<pid>/cgroup, of version 1, 2 or both. */
int parse_cgroup(const char *text, size_t len, struct process_group *ret);

enum { ENGINES = 7 }; /* of enum dtk_engine */

/* What a driver tells of an open file. A bit of `engines` is an engine that has a time. */
struct fdinfo {
    bool has_client, has_address, has_pasid, has_vram, has_gtt;
    uint32_t engines;
    uint64_t client, pasid;
    uint64_t vram, gtt;       /* bytes */
    uint64_t engine[ENGINES]; /* ns */
    struct pci_address address;
};

/* proc/<pid>/fdinfo/<n>. drm-resident-* goes before its older alias drm-memory-*. A line that is not of its form is left
 * out. */
int parse_fdinfo(const char *text, size_t len, struct fdinfo *ret);

/* The name of a user in etc/passwd. -DTK_NOT_FOUND: nobody has that number. */
int parse_user(const char *text, size_t len, int64_t uid, char *ret, size_t size);

/* ---- Virtual devices: parse_vdev.c ---- */

/* A number that may be missing. `status` is OK, UNSUPPORTED without such a line, FAILED when it is not of its form. */
struct vdev_number {
    uint8_t status;
    uint64_t value; /* 0 unless OK */
};

struct vdev {
    struct vdev_number id, card, compute_units, pipe, enabled;
    struct vdev_number memory; /* bytes */
    bool has_address;
    struct pci_address address; /* of its card */
};

/* etc/vdev/vdev<n>.conf: lines "PciBusId: 0000:07:00.0", "cu_count: 30", "mem: 16384 MiB", in any order. Lines of other
 * names are left out; a file without any of the known ones is refused. */
int parse_vdev(const char *text, size_t len, struct vdev *ret);

#endif
