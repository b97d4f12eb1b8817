/* What dtk-reader writes: frames on its standard output, in the byte order and layout of this machine.
 *
 * A frame is this header and `length` bytes. Every change of a layout raises the version; whoever reads takes any other
 * version, a kind it does not know or a length that does not fit for a crash of the reader.
 *
 * First HELLO; while cards are looked for, TOUCHING; then SYSTEM, a DEVICE for each device and card, and READY, or
 * ERROR and the end. Then for each tick TICK, INFO and SAMPLE from the cards as they answer, and DONE when all that were
 * asked in the tick have; processes and virtual devices, where they are wanted, are asked like a card. What the vendor's
 * library is asked for is STALE in the SAMPLE of the card's files, and told by a second SAMPLE of the same tick. A card
 * that hangs, or a library, is not asked again before it answers. CHANGED, and the end, when cards came or left. */
#ifndef DTK_READER_H
#define DTK_READER_H

#include "dtk.h"

#define FRAME_MAGIC 0x524b5444u /* "DTKR" */
enum { FRAME_VERSION = 3, FRAME_LENGTH_MAX = 64 << 20, PROCESSES_SLOT = -2, VIRTUAL_SLOT = -3 };

enum frame_kind {
    FRAME_HELLO = 1,      /* struct frame_hello */
    FRAME_TOUCHING = 2,   /* what is read next, as text: the address of a card, or a KFD node as "kfd:4" */
    FRAME_SYSTEM = 3,     /* dtk_system_info */
    FRAME_PROBE = 4,      /* dtk_probe: there are no devices */
    FRAME_DEVICE = 5,     /* struct frame_device; the header's slot is its number from now on */
    FRAME_READY = 6,      /* nothing: the cards are known */
    FRAME_ERROR = 7,      /* struct frame_error */
    FRAME_TICK = 8,       /* struct frame_tick, then the slots that are asked, int32_t each */
    FRAME_INFO = 9,       /* dtk_info of the slot, with what the driver told */
    FRAME_SAMPLE = 10,    /* struct frame_sample, then its dtk_values */
    FRAME_DONE = 11,      /* nothing: all that were asked in the tick have answered */
    FRAME_CHANGED = 12,   /* nothing: cards came or left */
    FRAME_ECC = 14,       /* dtk_ecc_blocks of the slot, with the slow tier */
    FRAME_FIRMWARE = 15,  /* dtk_firmwares of the slot, with the slow tier */
    FRAME_LIBRARY = 16,   /* dtk_rsmi: STALE before the vendor's library is loaded, and what came of it */
    FRAME_PROCESSES = 13, /* slot PROCESSES_SLOT: dtk_scan, then its dtk_processes, then its dtk_usages */
    FRAME_FILES = 19,     /* nothing: all that were asked in the tick have told what their files gave */
    FRAME_BANKS = 18,     /* dtk_bank_counts of the slot, with the slow tier */
    FRAME_VIRTUAL = 17,   /* slot VIRTUAL_SLOT: dtk_virtual_scan, then its dtk_virtual_cards, then its dtk_virtuals. Of
                             tick 0: only what the files tell; the library is asked next */
};

struct frame {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t length;
    int32_t slot;
    uint64_t tick;
};

struct frame_hello {
    uint32_t api_version, metric_count, value_size, info_size, system_info_size, probe_size;
    uint32_t scan_size, process_size, usage_size, ecc_size, firmware_size, rsmi_size, bank_size;
};

struct frame_device {
    dtk_info info;     /* as enumeration found it: no file of the driver was read */
    int32_t is_device; /* 1: one of those that were asked for; 0: only the card of some */
    int32_t card_slot; /* slot of its card; its own for a whole card */
    int32_t first;     /* of a card: the lowest index of its devices, those that were not asked for too */
    int32_t count;     /* of a card: how many there are, with the indices from there on; else 0 */
};

struct frame_error {
    int32_t status; /* negative */
    char key[252];  /* the device key it is about, "" for the root */
};

struct frame_tick {
    double monotonic;
    uint32_t tiers;
    int32_t count; /* of the slots that follow */
};

struct frame_sample {
    double time, monotonic; /* Unix seconds, and those of CLOCK_MONOTONIC, when reading began */
    uint32_t tiers;
    int32_t count; /* of the dtk_values that follow */
    int32_t part;  /* enum sample_part: of the files, or with what the vendor's library added */
    int32_t reserved;
};

/* Take the standard output for frames, and leave /dev/null in its place: a vendor's library may print. */
void frame_open(void);

/* Write a frame, whole, from any thread; its payload is `head` and then `rest`. Ends the process when nobody reads. */
void frame_send(enum frame_kind kind, int slot, uint64_t tick, const void *head, size_t head_size, const void *rest,
                size_t rest_size);

/* reader_virtual.c: the frames of the virtual devices. `library` is a path, "" the known places, "none" no library. */
void virtuals_send(dtk_system *system, const char *library, uint64_t tick);

#endif
