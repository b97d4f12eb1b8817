/* Every call reads the file anew, so that a test may change its mind while a program runs. Nothing is kept, so any
 * number of threads may call. */
#include "control.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

atomic_int control_users;

static FILE *open_control(void)
{
    const char *path = getenv("DTK_STANDIN");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) {
        fprintf(stderr, "stand-in: DTK_STANDIN must name its control file\n");
        abort();
    }
    return file;
}

/* The rest of the next line that begins with the key. */
static bool next(FILE *file, const char *key, char ret[LINE_SIZE])
{
    char line[LINE_SIZE];
    size_t length = strlen(key);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            line[strcspn(line, "\n")] = '\0';
            strcpy(ret, line + length + 1);
            return true;
        }
    }
    return false;
}

bool control_line(const char *key, unsigned index, char ret[LINE_SIZE])
{
    FILE *file = open_control();
    bool found;
    do {
        found = next(file, key, ret);
    } while (found && index-- > 0);
    fclose(file);
    return found;
}

uint32_t control_devices(void)
{
    char line[LINE_SIZE];
    uint32_t count = 0;
    while (control_line("device", count, line)) {
        count++;
    }
    return count;
}

bool control_bdf(uint32_t device, uint64_t *ret)
{
    char line[LINE_SIZE];
    unsigned domain, bus, slot, function, partition = 0;
    if (!control_line("device", device, line) ||
        sscanf(line, "%x:%x:%x.%u/%u", &domain, &bus, &slot, &function, &partition) < 4) {
        return false;
    }
    *ret = (uint64_t)domain << 32 | (uint64_t)partition << 28 | bus << 8 | slot << 3 | function;
    return true;
}

/* The last line "key subject device rest" that is about them, where "*" stands for all; `ret` is the rest. */
static bool find(const char *key, const char *subject, uint32_t device, char ret[LINE_SIZE])
{
    FILE *file = open_control();
    char line[LINE_SIZE], subjects[64], devices[16], number[16];
    bool found = false;
    snprintf(number, sizeof number, "%u", device);
    while (next(file, key, line)) {
        int rest = 0;
        if (sscanf(line, "%63s %15s %n", subjects, devices, &rest) == 2 &&
            (strcmp(subjects, "*") == 0 || strcmp(subjects, subject) == 0) &&
            (strcmp(devices, "*") == 0 || strcmp(devices, number) == 0)) {
            strcpy(ret, line + rest);
            found = true;
        }
    }
    fclose(file);
    return found;
}

int64_t control_value(enum reading reading, uint32_t device)
{
    static const struct {
        const char *name;
        int64_t base, step;
    } readings[] = {
#define READING(name, unit, base, step) {#name, base, step},
#include "readings.def"
#undef READING
    };
    char text[LINE_SIZE];
    if (find("value", readings[reading].name, device, text)) {
        return (int64_t)strtoull(text, NULL, 0); /* takes negative numbers too */
    }
    return readings[reading].base + readings[reading].step * device;
}

void wait_milliseconds(int64_t duration)
{
    struct timespec time = {.tv_sec = duration / 1000, .tv_nsec = duration % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* One write, so that lines of several threads do not mix. */
static void log_call(const char *call, uint32_t device, uint64_t argument)
{
    char path[LINE_SIZE], line[LINE_SIZE];
    if (!control_line("log", 0, path)) {
        return;
    }
    int length = snprintf(line, sizeof line, "%s %lld %ld %llu\n", call, device == NO_DEVICE ? -1LL : (long long)device,
                          (long)syscall(SYS_gettid), (unsigned long long)argument);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, (size_t)length) != length) {
        abort();
    }
    close(file);
}

static void flood(void)
{
    char text[4096];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\n';
    for (int i = 0; i < 1024; i++) {
        fwrite(text, 1, sizeof text, stdout);
        fwrite(text, 1, sizeof text, stderr);
    }
    fflush(stdout);
}

int control_enter(const char *call, uint32_t device, uint64_t argument)
{
    char text[LINE_SIZE];
    log_call(call, device, argument);
    if (find("print", call, device, text)) {
        printf("%s\n", text);
        fflush(stdout);
        fprintf(stderr, "%s\n", text);
    }
    if (find("flood", call, device, text)) {
        flood();
    }
    if (find("sleep", call, device, text)) {
        wait_milliseconds(atol(text));
    }
    while (find("hang", call, device, text)) {
        wait_milliseconds(10);
    }
    if (find("abort", call, device, text)) {
        abort();
    }
    if (find("exit", call, device, text)) {
        exit(atoi(text));
    }
    if (find("throw", call, device, text)) {
        throw_exception();
    }
    return find("status", call, device, text) ? (int)strtoul(text, NULL, 0) : 0;
}

int control_enter_device(const char *call, uint32_t device, uint64_t argument, const void *ret)
{
    int status = control_enter(call, device, argument);
    if (status) {
        return status;
    }
    if (control_users == 0) {
        return INIT_ERROR;
    }
    bool there = device == NO_DEVICE || device < control_devices();
    return there && ret ? SUCCESS : INVALID_ARGS;
}
