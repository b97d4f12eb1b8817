/* Drives every parser and the gpu_metrics decoder with any bytes at all, and checks what must hold for all of them.
 *
 *     test_fuzz COUNT [gpu_metrics table...]     COUNT mutations of the built-in texts and of the tables, always the same
 *
 * Built with sanitizers it finds what the parsers must not do; each input lies in a block of exactly its size. The entry
 * point is libFuzzer's: clang -DFUZZ_NO_MAIN -fsanitize=fuzzer,address,undefined takes it as it is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtk.h"
#include "gpu_metrics.h"
#include "parse.h"

#define LENGTH(array) (sizeof array / sizeof array[0])
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- One driver a parser ---- */

/* 0 or a failure, and after a failure the result is as it was. */
static void check_status(int status, const void *ret, const void *before, size_t size)
{
    CHECK(status == 0 || status == -DTK_FAILED || status == -DTK_NOT_FOUND);
    CHECK(status == 0 || memcmp(ret, before, size) == 0);
}

#define DRIVER(name, type, ...)                                                                                        \
    static void drive_##name(const char *text, size_t len)                                                             \
    {                                                                                                                  \
        type ret, before;                                                                                              \
        memset(&ret, 0x5a, sizeof ret);                                                                                \
        memcpy(&before, &ret, sizeof ret);                                                                             \
        check_status(parse_##name(text, len, __VA_ARGS__), &ret, &before, sizeof ret);                                 \
    }

DRIVER(u64, uint64_t, &ret)
DRIVER(i64, int64_t, &ret)
DRIVER(hex64, uint64_t, &ret)
DRIVER(leading_f64, double, &ret)
DRIVER(levels, struct levels, &ret)
DRIVER(property, uint64_t, "simd_count", &ret)
DRIVER(error_counts, struct error_counts, &ret)
DRIVER(pci_address, struct pci_address, &ret)

/* Comes to an end, and never goes back. */
static void drive_next_count(const char *text, size_t len)
{
    size_t at = 0, before = 0;
    char name[40];
    uint64_t count;

    while (parse_next_count(text, len, &at, name, sizeof name, &count) == 1) {
        CHECK(at > before && at <= len && name[0] && memchr(name, 0, sizeof name));
        before = at;
    }
}

static void drive_bad_pages(const char *text, size_t len)
{
    uint64_t ret[2] = {7, 7}, before[2] = {7, 7};
    check_status(parse_bad_pages(text, len, &ret[0], &ret[1]), ret, before, sizeof ret);
}

/* Rooms of all small sizes, each a block of its own, so that one byte too many is seen. */
static void drive_strings(const char *text, size_t len, const char *key)
{
    static const size_t sizes[] = {0, 1, 2, 3, 4, 5, 16, 4096};
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        char *ret = malloc(sizes[i]), *before = malloc(sizes[i]);
        CHECK(ret && before);
        memset(ret, 0x5a, sizes[i]);
        memset(before, 0x5a, sizes[i]);
        int status = key ? parse_variable(text, len, key, ret, sizes[i]) : parse_text(text, len, ret, sizes[i]);
        check_status(status, ret, before, sizes[i]);
        if (status == 0) {
            CHECK(memchr(ret, '\0', sizes[i]) && ret[0] != '\0');
            for (const char *c = ret; *c; c++)
                CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
        }
        free(before);
        free(ret);
    }
}

static void drive_text(const char *text, size_t len)
{
    drive_strings(text, len, NULL);
}

static void drive_variable(const char *text, size_t len)
{
    drive_strings(text, len, "DRIVER");
}

static void drive_number_after(const char *text, size_t len)
{
    char *name = malloc(len + 1);
    uint32_t ret = 7, before = 7;
    CHECK(name);
    memcpy(name, text, len);
    name[len] = '\0';
    check_status(parse_number_after(name, "card", &ret), &ret, &before, sizeof ret);
    free(name);
}

/* Terminated within its room, and fit to print. */
static void check_string(const char *string, size_t size)
{
    CHECK(memchr(string, '\0', size));
    for (const char *c = string; *c; c++)
        CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
}

#define CHECK_STRING(array) check_string(array, sizeof array)

static void drive_process_stat(const char *text, size_t len)
{
    struct process_stat ret, before;
    memset(&ret, 0x5a, sizeof ret);
    memcpy(&before, &ret, sizeof ret);
    int status = parse_process_stat(text, len, &ret);
    check_status(status, &ret, &before, sizeof ret);
    if (status == 0) {
        CHECK_STRING(ret.name);
        CHECK(ret.parent >= 0 && ret.state > ' ');
    }
}

static void drive_process_status(const char *text, size_t len)
{
    struct process_status ret = {-7, -7}, before = ret;
    int status = parse_process_status(text, len, &ret);
    check_status(status, &ret, &before, sizeof ret);
    CHECK(status != 0 || (ret.uid >= 0 && ret.uid <= UINT32_MAX && ret.ns_pid >= -1));
}

static void drive_cgroup(const char *text, size_t len)
{
    struct process_group ret, before;
    memset(&ret, 0x5a, sizeof ret);
    memcpy(&before, &ret, sizeof ret);
    int status = parse_cgroup(text, len, &ret);
    check_status(status, &ret, &before, sizeof ret);
    if (status == 0) {
        CHECK_STRING(ret.container);
        CHECK_STRING(ret.runtime);
        CHECK_STRING(ret.pod);
        CHECK_STRING(ret.slurm_job);
        CHECK_STRING(ret.slurm_step);
        CHECK_STRING(ret.unit);
    }
}

static void drive_fdinfo(const char *text, size_t len)
{
    struct fdinfo ret, before;
    memset(&ret, 0x5a, sizeof ret);
    memcpy(&before, &ret, sizeof ret);
    int status = parse_fdinfo(text, len, &ret);
    check_status(status, &ret, &before, sizeof ret);
    CHECK(status != 0 || ret.engines >> ENGINES == 0);
}

static void drive_command(const char *text, size_t len)
{
    char ret[24] = "before", before[24] = "before";
    bool cut = false;
    int status = parse_command(text, len, ret, sizeof ret, &cut);
    check_status(status, ret, before, sizeof ret);
    CHECK_STRING(ret);
    CHECK(status != 0 || len >= strlen(ret));
}

static void drive_user(const char *text, size_t len)
{
    char ret[8] = "before", before[8] = "before";
    check_status(parse_user(text, len, 1000, ret, sizeof ret), ret, before, sizeof ret);
    CHECK_STRING(ret);
}

static void drive_vdev(const char *text, size_t len)
{
    struct vdev ret, before;
    memset(&ret, 0x5a, sizeof ret);
    memcpy(&before, &ret, sizeof ret);
    int status = parse_vdev(text, len, &ret);
    check_status(status, &ret, &before, sizeof ret);
    if (status == 0) {
        CHECK(ret.memory.value <= (uint64_t)1 << 50 && ret.compute_units.value <= 65535 && ret.enabled.value <= 1);
        CHECK(ret.id.status == DTK_OK || ret.id.value == 0);
    }
}

static void check_value(const struct table_value *value, double least, double most)
{
    CHECK(!value->valid || (isfinite(value->f64) && value->f64 >= least && value->f64 <= most));
}

static void drive_gpu_metrics(const char *text, size_t len)
{
    static struct gpu_metrics ret, before; /* padding and all */
    memset(&ret, 0, sizeof ret);
    memcpy(&before, &ret, sizeof ret);
    int status = gpu_metrics_decode((const uint8_t *)text, len, &ret);
    if (status == -DTK_UNSUPPORTED) {
        before.format = ret.format;
        before.content = ret.content;
    }
    if (status != 0) {
        CHECK(status == -DTK_FAILED || status == -DTK_UNSUPPORTED);
        CHECK(memcmp(&ret, &before, sizeof ret) == 0);
        return;
    }
    for (int i = TABLE_GFX_ACTIVITY; i <= TABLE_MEDIA_ACTIVITY; i++)
        check_value(&ret.field[i], 0, 100);
    for (int i = TABLE_TEMPERATURE_EDGE; i <= TABLE_TEMPERATURE_HBM3; i++)
        check_value(&ret.field[i], -100, 500);
    for (int i = TABLE_POWER_CURRENT; i <= TABLE_LINK_SPEED; i++)
        check_value(&ret.field[i], 0, 0x1p64);
    for (int i = 0; i < PARTITIONS_MAX; i++) {
        check_value(&ret.partition[i].gfx_activity, 0, 100);
        check_value(&ret.partition[i].media_activity, 0, 100);
    }
}

/* The driver, and texts to start from. */
static const struct {
    void (*drive)(const char *text, size_t len);
    const char *seeds[4];
} drivers[] = {
    {drive_gpu_metrics, {""}}, /* its seeds are files */
    {drive_u64, {"18446744073709551615\n", " 0x1dabc\n", "0\n"}},
    {drive_i64, {"-9223372036854775808\n", "9223372036854775807", "-1\n"}},
    {drive_hex64, {"0x0123456789abcdef\n", "DEADBEEFdeadbeef", "0\n"}},
    {drive_leading_f64, {"16.0 GT/s PCIe\n", "2.5 GT/s", "Unknown\n", "123456789.012345"}},
    {drive_levels,
     {"0: 500Mhz \n1: 800Mhz *\n", "S: 19Mhz *\n1: 615Mhz \n2: 3010Mhz \n", "0: 8.0GT/s, x16 619Mhz *\n"}},
    {drive_property, {"cpu_cores_count 0\nsimd_count 256\nmem_banks_count 1\n", "simd_count 18446744073709551616\n"}},
    {drive_variable, {"DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_ID=1002:740F\n", "PCI_ID=1D94:6210\nDRIVER=hycu"}},
    {drive_error_counts, {"ue: 0\nce: 17\n", "ue: 1\nce: 2\nde: 3\n"}},
    {drive_bad_pages, {"0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n0x0 : 0x1000 : F\n", ""}},
    {drive_next_count, {"ce_count 5\nue count: 0x12\n\nname\n: 3\nmode auto\n", "1 2", "a:1\n"}},
    {drive_pci_address, {"0000:43:00.0", "43:1f.7", "ffffffff:00:00.0"}},
    {drive_text,
     {"Instinct MI210\n", "  \xe5\x8d\x8e\xe4\xb8\xba \xf0\x9f\x90\x8d\x1b[31m\xc2\x9b\xff ", "\xed\xa0\x80\xc0\x80"}},
    {drive_number_after, {"card128", "card4294967295", "renderD128"}},
    {drive_process_stat,
     {"4711 (a) b) R 1 4711 1 0 -1 4194304 0 0 0 0 1 2 0 0 20 0 1 0 123456 0 0\n",
      "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0 18446744073709551615\n"}},
    {drive_process_status,
     {"Name:\tx\nUid:\t0\t1000\t0\t0\nNSpid:\t4711\t12\n", "Uid:\t4294967295\t4294967295\t0\t0\nNSpid:\t1\n"}},
    {drive_cgroup,
     {"12:devices:/kubepods/burstable/pod01234567-89ab-cdef-0123-456789abcdef/"
      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n1:name=systemd:/system.slice/a.service\n",
      "0::/system.slice/slurmstepd.scope/job_1234/step_batch/user/task_0\n",
      "0::/machine.slice/libpod-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope/container\n",
      "4:cpu:/lxc.payload.name/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice:cri-containerd:0123\n"}},
    {drive_fdinfo,
     {"pos:\t0\ndrm-client-id:\t42\ndrm-pdev:\t0000:43:00.0\npasid:\t32770\ndrm-memory-vram:\t12 KiB\n"
      "drm-resident-vram:\t16 MiB\ndrm-engine-gfx:\t18446744073709551615 ns\ndrm-engine-gfx:\t1 ns\n",
      "drm-resident-gtt:\t18446744073709551615 KiB\ndrm-engine-enc_1:\t5 ns\nvram mem:\t8 kB\ngtt mem:\t0\n"}},
    {drive_command, {"a b\n", " -c \xe5\x8d\x8e\xe4\xb8\xba\xe5\x8d\x8e\xe4\xb8\xba\xe5\x8d\x8e\xe4\xb8\xba"}},
    {drive_vdev,
     {"PciBusId: 0000:07:00.0\ncu_mask: 0x00000000000000ff\ncu_count: 8\nmem: 2000 MiB\ndevice_id: 0\nvdev_id: 3\n",
      "pipe_id: 2\nenable: 1\nmem: 1073741824 MiB\n", "cu_count: 65536\nenable: 2\n"}},
    {drive_user, {"root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n", "averylongname:x:1000:1::/:\n"}},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte chooses the driver. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0)
        drivers[data[0] % LENGTH(drivers)].drive((const char *)data + 1, size - 1);
    return 0;
}

#ifndef FUZZ_NO_MAIN

/* ---- Mutations ---- */

enum { INPUT_MAX = 8192, TABLES_MAX = 64 };

struct input {
    size_t size;
    uint8_t bytes[INPUT_MAX];
};

static uint32_t random_below(uint32_t limit)
{
    static uint64_t state = 0x9e3779b97f4a7c15; /* xorshift64: the same sequence every time */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit > 0 ? (uint32_t)(state >> 32) % limit : 0;
}

static uint8_t random_byte(void)
{
    static const char likely[] = "0019afAF:.-=*xSMhz \n\t\r\x7f\xff\x80\xc2\xe0";
    return random_below(2) ? (uint8_t)random_below(256) : (uint8_t)likely[random_below(sizeof likely)];
}

/* Change what stands from `first` on. */
static void mutate(struct input *input, size_t first)
{
    size_t room = input->size - first;
    size_t at = first + random_below((uint32_t)room);
    size_t length = room > 0 ? 1 + random_below((uint32_t)(input->size - at)) : 0;
    uint8_t *place = input->bytes + at;
    switch (random_below(6)) {
    case 0: /* another byte */
        if (room > 0)
            *place = random_byte();
        break;
    case 1: /* one bit */
        if (room > 0)
            *place ^= (uint8_t)(1 << random_below(8));
        break;
    case 2: /* all the same */
        memset(place, random_byte(), length);
        break;
    case 3: /* shorter at the end */
        input->size = at;
        break;
    case 4: /* shorter in the middle */
        memmove(place, place + length, input->size - at - length);
        input->size -= length;
        break;
    case 5: /* a piece twice, or a new byte */
        if (length == 0)
            length = 1;
        if (input->size + length > INPUT_MAX)
            break;
        memmove(place + length, place, input->size - at);
        if (random_below(2))
            memset(place, random_byte(), length);
        input->size += length;
        break;
    }
}

static void run(const struct input *input)
{
    uint8_t *exact = malloc(input->size);
    CHECK(exact || input->size == 0);
    memcpy(exact, input->bytes, input->size);
    LLVMFuzzerTestOneInput(exact, input->size);
    free(exact);
}

static void load_table(struct input *input, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    input->bytes[0] = 0;
    input->size = 1 + fread(input->bytes + 1, 1, INPUT_MAX - 1, file);
    fclose(file);
}

static void seed(struct input *input, const struct input *tables, size_t table_count)
{
    if (table_count > 0 && random_below(3) == 0) {
        *input = tables[random_below((uint32_t)table_count)];
        return;
    }
    uint32_t driver = random_below(LENGTH(drivers));
    const char *text = drivers[driver].seeds[random_below(LENGTH(drivers[driver].seeds))];
    input->bytes[0] = (uint8_t)driver;
    input->size = 1;
    if (text) {
        memcpy(input->bytes + 1, text, strlen(text));
        input->size += strlen(text);
    }
}

int main(int argc, char **argv)
{
    static struct input tables[TABLES_MAX], input;
    char *end = NULL;
    unsigned long count = argc > 1 ? strtoul(argv[1], &end, 10) : 0;
    if (argc < 2 || *end || argc - 2 > TABLES_MAX) {
        fprintf(stderr, "usage: %s COUNT [at most %d gpu_metrics tables]\n", argv[0], TABLES_MAX);
        return 2;
    }
    size_t table_count = (size_t)argc - 2;
    for (size_t i = 0; i < table_count; i++) {
        load_table(&tables[i], argv[i + 2]);
        run(&tables[i]);
    }
    for (unsigned long i = 0; i < count; i++) {
        seed(&input, tables, table_count);
        /* Mostly leave the header of a table alone, or nothing behind it is ever looked at. */
        size_t first = input.bytes[0] == 0 && input.size > 5 && random_below(4) ? 5 : 1;
        for (uint32_t changes = random_below(6); changes > 0; changes--)
            mutate(&input, first < input.size ? first : 1);
        run(&input);
    }
    printf("%lu inputs, %zu tables\n", count, table_count);
    return 0;
}
#endif
