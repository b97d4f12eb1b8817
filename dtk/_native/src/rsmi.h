/* The vendor's librocm_smi64 once it is loaded; see backend_rsmi.c. */
#ifndef DTK_RSMI_H
#define DTK_RSMI_H

#include "backend.h"

/* Of rsmi_status_t, what is told apart. */
enum rsmi_status {
    RSMI_SUCCESS = 0,
    RSMI_INVALID_ARGS = 1,
    RSMI_NOT_SUPPORTED = 2,
    RSMI_PERMISSION = 4,
    RSMI_INIT_ERROR = 8,
    RSMI_NOT_YET_IMPLEMENTED = 9,
    RSMI_NOT_FOUND = 10,
    RSMI_INSUFFICIENT_SIZE = 11,
    RSMI_NO_DATA = 14
};

struct rsmi {
    void *handle;
    dtk_rsmi about;
    void *symbol[SOURCE_COUNT]; /* the function that gives a source; NULL the library has none */
    void *fan_speed_max, *ecc_enabled, *process_usage;

    /* One call at a time: see rsmi_begin(). */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    uint64_t holder; /* the number of the call that is under way, 0 none */
    uint64_t calls;  /* how many there were */
    bool hung;       /* one was passed over: the next ones are given less time */
};

/* A function of the library under its own type: ISO C has no cast from void *. */
#define RSMI_CALL(pointer, function) memcpy(&(function), &(pointer), sizeof(function))

/* Every call of the library goes in between, but those that wait for a window of time. AMD's crashes when two threads
 * are in it, whatever its locks promise (6.3: in what it keeps of gpu_metrics). A call that hangs, in the kernel mostly,
 * is passed over after a while, so that it does not cost the other cards. Returns the number for rsmi_end(). */
uint64_t rsmi_begin(struct rsmi *rsmi);
void rsmi_end(struct rsmi *rsmi, uint64_t number);

/* What a struct of any generation fits in with room to spare: the largest that is asked for has 416 bytes, in some
 * later library it may have more. The library writes as much as it thinks right. */
enum { ROOM = 16384 };
typedef union {
    uint64_t u64[ROOM / 8];
    uint32_t u32[ROOM / 4];
    double f64[ROOM / 8];
} room;

/* All ones, which is no number of any of them: what a call that succeeds leaves so, it did not write. */
#define RSMI_UNWRITTEN {-1, -1, -1, -1}
room rsmi_room(void);

enum { WINDOW_MS = 100, LINK_WINDOW_MS = 50 };

/* What a failed call means, and readings of what one gave. */
struct reading rsmi_no_reading(uint8_t status, int32_t detail);
struct reading rsmi_of_status(int status);
struct reading rsmi_of_double(double value);
struct reading rsmi_of_unsigned(uint64_t value, double divisor);
struct reading rsmi_of_float(float value);

/* rsmi_struct.c: calls that fill structs, or give several readings. `card` is the library's number. */
void rsmi_read_clock(struct sample *sample, const struct rsmi *rsmi, enum source current, enum source top);
void rsmi_read_link(struct sample *sample, const struct rsmi *rsmi, void *symbol);
void rsmi_read_power_range(struct sample *sample, void *symbol);
void rsmi_read_ecc(struct sample *sample, const struct rsmi *rsmi, void *symbol);
void rsmi_read_pages(struct sample *sample, void *symbol);
void rsmi_read_memory_bandwidth(struct sample *sample, void *symbol);
struct reading rsmi_read_power(void *symbol, uint32_t card);
struct reading rsmi_read_energy(void *symbol, uint32_t card);
struct reading rsmi_read_activity(void *symbol, uint32_t card);
struct reading rsmi_read_decoder(struct rsmi *rsmi, void *symbol, uint32_t card);
struct reading rsmi_read_link_bandwidth(void *symbol, uint32_t card, int direction);

#endif
