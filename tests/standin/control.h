/* What a test wants of the stand-in: the lines of the file that DTK_STANDIN names, see tests/standin.py. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_SIZE 512
#define NO_DEVICE UINT32_MAX

enum reading {
#define READING(name, unit, base, step) R_##name,
#include "readings.def"
#undef READING
};

enum { SUCCESS, INVALID_ARGS, NOT_SUPPORTED, INIT_ERROR = 8, NOT_FOUND = 10, INSUFFICIENT_SIZE = 11 };

/* How a function begins that asks a device for `ret`; the argument is for the log. */
#define ENTER(device, argument, ret)                                                                                   \
    do {                                                                                                               \
        int status_ = control_enter_device(__func__, device, argument, ret);                                           \
        if (status_) {                                                                                                 \
            return status_;                                                                                            \
        }                                                                                                              \
    } while (0)
#define VALUE(name) control_value(R_##name, device)
#define POISON(ret) memset(ret, 0xA5, sizeof *(ret))

extern atomic_int control_users; /* rsmi_init counts them */

/* Logs a call, does what the test asked of it, which may never come back, and returns the status that it asked for. */
int control_enter(const char *call, uint32_t device, uint64_t argument);
/* The same, and refuses what the vendors' library refuses. */
int control_enter_device(const char *call, uint32_t device, uint64_t argument, const void *ret);
int64_t control_value(enum reading reading, uint32_t device);
uint32_t control_devices(void);
/* Its id, as rsmi_dev_pci_id_get gives it. */
bool control_bdf(uint32_t device, uint64_t *ret);
/* The rest of the index-th line that begins with the key. */
bool control_line(const char *key, unsigned index, char ret[LINE_SIZE]);
void wait_milliseconds(int64_t duration);

/* Throws a C++ exception out of the library. */
void throw_exception(void);
