/* Parsers of what proc tells of a process. */
#include <string.h>

#include "dtk.h"
#include "parse.h"
#include "span.h"

_Static_assert((int)ENGINES == (int)DTK_ENGINE_COUNT, "parse.h must follow enum dtk_engine");

static size_t length_of(struct span s)
{
    return (size_t)(s.end - s.at);
}

/* What stands before the next `separator`, or all that is left when there is none. */
static struct span take_until(struct span *s, char separator)
{
    const char *found = is_empty(s) ? NULL : memchr(s->at, separator, length_of(*s));
    struct span ret = {s->at, found ? found : s->end};
    s->at = found ? found + 1 : s->end;
    return ret;
}

static bool equals(struct span s, const char *word)
{
    return take_word(&s, word) && is_empty(&s);
}

/* ---- stat, status, cmdline, passwd ---- */

/* Fields of stat by their number in proc(5), and the bit of a kernel thread in its flags. */
enum { STAT_STATE = 3, STAT_PARENT = 4, STAT_FLAGS = 9, STAT_START = 22, KERNEL_THREAD = 0x00200000 };

int parse_process_stat(const char *text, size_t len, struct process_stat *ret)
{
    struct span rest = span_of(text, len), name = rest;
    struct process_stat stat = {0};
    uint64_t number;
    /* The name may hold anything; what follows the last parenthesis is numbers. */
    while (!is_empty(&name) && name.end[-1] != ')')
        name.end--;
    rest.at = name.end;
    take_until(&name, '(');
    if (is_empty(&name))
        return -DTK_FAILED;
    name.end--;
    for (int field = STAT_STATE; field <= STAT_START; field++) {
        skip_blanks(&rest);
        struct span word = take_until(&rest, ' ');
        if (field == STAT_STATE) {
            if (length_of(word) != 1 || (*word.at | 0x20) < 'a' || (*word.at | 0x20) > 'z')
                return -DTK_FAILED;
            stat.state = *word.at;
        } else if (field == STAT_PARENT || field == STAT_FLAGS || field == STAT_START) {
            word = trimmed(word);
            if (!take_digits(&word, 10, &number) || !is_empty(&word) || (field == STAT_PARENT && number > INT32_MAX))
                return -DTK_FAILED;
            if (field == STAT_PARENT)
                stat.parent = (int32_t)number;
            else if (field == STAT_FLAGS)
                stat.kernel = number & KERNEL_THREAD;
            else
                stat.start_ticks = number;
        }
    }
    parse_text(name.at, length_of(name), stat.name, sizeof stat.name);
    *ret = stat;
    return 0;
}

/* The numbers of a line, at most `room` of them; returns how many, or -1 when there is something else. */
static int take_numbers(struct span line, uint64_t *ret, int room)
{
    int count = 0;
    for (skip_blanks(&line); !is_empty(&line); skip_blanks(&line), count++)
        if (count == room || !take_digits(&line, 10, &ret[count]))
            return -1;
    return count;
}

int parse_process_status(const char *text, size_t len, struct process_status *ret)
{
    enum { NESTED_MAX = 33 }; /* PID namespaces nest 32 deep */
    struct span s = span_of(text, len), line;
    struct process_status status = {-1, -1};
    uint64_t numbers[NESTED_MAX];
    bool any = false;
    while (take_full_line(&s, &line)) {
        any = true;
        if (take_word(&line, "Uid:")) {
            if (take_numbers(line, numbers, 4) != 4 || numbers[1] > UINT32_MAX)
                return -DTK_FAILED;
            status.uid = (int64_t)numbers[1]; /* real, effective, saved, of the file system */
        } else if (take_word(&line, "NSpid:")) {
            int count = take_numbers(line, numbers, NESTED_MAX);
            if (count > 1 && numbers[count - 1] <= INT32_MAX)
                status.ns_pid = (int32_t)numbers[count - 1];
        }
    }
    if (status.uid < 0)
        return any ? -DTK_NOT_FOUND : -DTK_FAILED;
    *ret = status;
    return 0;
}

int parse_command(const char *text, size_t len, char *ret, size_t size, bool *cut)
{
    char joined[1024], clean[sizeof joined + 1];
    size_t count = len < sizeof joined ? len : sizeof joined;
    for (size_t i = 0; i < count; i++)
        joined[i] = text[i] == '\0' || is_blank(text[i]) ? ' ' : text[i];
    int status = parse_text(joined, count, clean, sizeof clean);
    if (status == 0)
        status = parse_text(clean, strlen(clean), ret, size);
    if (status == 0)
        *cut = len > count || strlen(clean) > strlen(ret);
    return status;
}

int parse_user(const char *text, size_t len, int64_t uid, char *ret, size_t size)
{
    struct span s = span_of(text, len), line;
    uint64_t number;
    bool any = false;
    while (take_full_line(&s, &line)) {
        any = true;
        struct span name = take_until(&line, ':');
        take_until(&line, ':'); /* the password */
        struct span user = take_until(&line, ':');
        if (take_digits(&user, 10, &number) && is_empty(&user) && uid >= 0 && number == (uint64_t)uid &&
            parse_text(name.at, length_of(name), ret, size) == 0)
            return 0;
    }
    return any ? -DTK_NOT_FOUND : -DTK_FAILED;
}

/* ---- cgroup ---- */

enum { ID_LENGTH = 64, POD_LEAST = 32, POD_MOST = 36 };

static bool is_id(struct span s)
{
    if (length_of(s) != ID_LENGTH)
        return false;
    for (; !is_empty(&s); s.at++)
        if (digit(*s.at, 16) < 0)
            return false;
    return true;
}

static void keep(struct span s, char *ret, size_t size)
{
    ret[0] = '\0';
    parse_text(s.at, length_of(s), ret, size);
}

/* The uid in "pod<uid>" or "kubepods-burstable-pod<uid>.slice", where its dashes are underscores. A static pod has one
 * without dashes. */
static void look_for_pod(struct span name, struct process_group *group)
{
    for (struct span s = name; !is_empty(&s); s.at++) {
        struct span uid = s;
        char found[POD_MOST + 1];
        size_t used = 0;
        if ((s.at > name.at && s.at[-1] != '-') || !take_word(&uid, "pod"))
            continue;
        for (; !is_empty(&uid) && used < POD_MOST; uid.at++, used++) {
            if (digit(*uid.at, 16) < 0 && *uid.at != '-' && *uid.at != '_')
                break;
            found[used] = *uid.at == '_' ? '-' : *uid.at;
        }
        if (used >= POD_LEAST && (is_empty(&uid) || *uid.at == '.')) {
            found[used] = '\0';
            memcpy(group->pod, found, used + 1);
        }
    }
}

/* Who makes control groups of what name. */
static const struct {
    const char *prefix, *runtime;
} runtimes[] = {
    {"docker", "docker"},
    {"cri-containerd", "containerd"},
    {"containerd", "containerd"},
    {"nerdctl", "containerd"},
    {"crio", "crio"},
    {"libpod", "podman"},
};

static const char *runtime_of(struct span prefix)
{
    for (size_t i = 0; i < sizeof runtimes / sizeof runtimes[0]; i++)
        if (equals(prefix, runtimes[i].prefix))
            return runtimes[i].runtime;
    return NULL;
}

static bool set_container(struct process_group *group, struct span id, const char *runtime)
{
    keep(id, group->container, sizeof group->container);
    memcpy(group->runtime, runtime, strlen(runtime) + 1);
    return true;
}

/* "<id>" alone, "docker-<id>.scope", "kubepods-….slice:cri-containerd:<id>", "lxc.payload.<name>", "lxc/<name>". */
static bool look_for_container(struct span name, struct span before, struct process_group *group)
{
    struct span lxc = name, id = name, prefix = before;
    if (take_word(&lxc, "lxc.payload.") || equals(before, "lxc") || equals(before, "lxc.payload"))
        return is_empty(&lxc) ? false : set_container(group, lxc, "lxc");
    if (length_of(name) > 6 && memcmp(name.end - 6, ".scope", 6) == 0)
        id.end -= 6;
    if (length_of(id) > ID_LENGTH) {
        id.at = id.end - ID_LENGTH;
        prefix = (struct span){name.at, id.at - 1};
        if (id.at[-1] != '-' && id.at[-1] != ':')
            return false;
        for (const char *at = prefix.at; at < prefix.end; at++)
            if (*at == ':')
                prefix.at = at + 1;
        if (!runtime_of(prefix)) /* crio-conmon and its like watch over a container from outside */
            return false;
    }
    const char *runtime = runtime_of(prefix);
    return is_id(id) && set_container(group, id, runtime ? runtime : "");
}

static bool ends_with(struct span s, const char *tail)
{
    size_t length = strlen(tail);
    return length_of(s) > length && memcmp(s.end - length, tail, length) == 0;
}

static bool is_slurm(struct span name)
{
    struct span s = name;
    return take_word(&s, "slurm") || ends_with(name, "_slurmstepd.scope");
}

static void look_at_path(struct span path, struct process_group *group)
{
    struct span before = {path.at, path.at};
    bool slurm = false;
    while (!is_empty(&path)) {
        struct span name = take_until(&path, '/'), s = name;
        uint64_t job;
        look_for_pod(name, group);
        if (!look_for_container(name, before, group) && (ends_with(name, ".service") || ends_with(name, ".scope")))
            keep(name, group->unit, sizeof group->unit);
        if (slurm && take_word(&s, "job_") && take_digits(&s, 10, &job) && is_empty(&s)) {
            keep((struct span){name.at + 4, name.end}, group->slurm_job, sizeof group->slurm_job);
            group->slurm_step[0] = '\0';
        } else if (group->slurm_job[0] && take_word(&s, "step_")) {
            keep(s, group->slurm_step, sizeof group->slurm_step);
        }
        slurm = slurm || is_slurm(name);
        before = name;
    }
}

int parse_cgroup(const char *text, size_t len, struct process_group *ret)
{
    struct span s = span_of(text, len), line;
    struct process_group group = {0};
    bool any = false;
    while (take_full_line(&s, &line)) {
        any = true;
        take_until(&line, ':'); /* number of the hierarchy */
        take_until(&line, ':'); /* its controllers */
        look_at_path(line, &group);
    }
    if (!any)
        return -DTK_FAILED;
    *ret = group;
    return 0;
}

/* ---- fdinfo ---- */

/* "12 KiB", "3 MiB" or "4096". Drivers before Linux 5.19 wrote kB and meant KiB. */
static bool take_size(struct span s, uint64_t *ret)
{
    uint64_t number;
    if (!take_digits(&s, 10, &number))
        return false;
    skip_blanks(&s);
    int shift = is_empty(&s) ? 0 : equals(s, "KiB") || equals(s, "kB") ? 10 : equals(s, "MiB") ? 20 : -1;
    if (shift < 0 || number > UINT64_MAX >> shift)
        return false;
    *ret = number << shift;
    return true;
}

/* Video engines of different generations have one name, and some cards have two of a kind. */
static const struct {
    const char *name;
    enum dtk_engine engine;
} engines[] = {
    {"gfx", DTK_ENGINE_GFX},    {"compute", DTK_ENGINE_COMPUTE}, {"dma", DTK_ENGINE_DMA},   {"dec", DTK_ENGINE_DECODE},
    {"enc", DTK_ENGINE_ENCODE}, {"enc_1", DTK_ENGINE_ENCODE},    {"jpeg", DTK_ENGINE_JPEG}, {"vpe", DTK_ENGINE_VPE},
};

static void add_engine(struct span name, struct span value, struct fdinfo *info)
{
    uint64_t ns;
    if (!take_digits(&value, 10, &ns))
        return;
    skip_blanks(&value);
    if (!equals(value, "ns"))
        return;
    for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i++)
        if (equals(name, engines[i].name)) {
            uint64_t *sum = &info->engine[engines[i].engine];
            *sum = ns > UINT64_MAX - *sum ? UINT64_MAX : *sum + ns;
            info->engines |= 1u << engines[i].engine;
        }
}

static bool take_all(struct span value, uint64_t *ret)
{
    uint64_t number;
    if (!take_digits(&value, 10, &number) || !is_empty(&value))
        return false;
    *ret = number;
    return true;
}

enum rank { NONE, ALIAS, RESIDENT };

static void keep_size(struct span value, enum rank rank, enum rank *kept, uint64_t *ret)
{
    if (rank >= *kept && take_size(value, ret))
        *kept = rank;
}

int parse_fdinfo(const char *text, size_t len, struct fdinfo *ret)
{
    struct span s = span_of(text, len), line;
    struct fdinfo info = {0};
    enum rank vram = NONE, gtt = NONE;
    bool any = false;
    while (take_full_line(&s, &line)) {
        struct span key = take_until(&line, ':'), value = trimmed(line), engine = key;
        any = true;
        if (take_word(&engine, "drm-engine-"))
            add_engine(engine, value, &info);
        else if (equals(key, "drm-resident-vram"))
            keep_size(value, RESIDENT, &vram, &info.vram);
        else if (equals(key, "drm-resident-gtt"))
            keep_size(value, RESIDENT, &gtt, &info.gtt);
        else if (equals(key, "drm-memory-vram") || equals(key, "vram mem"))
            keep_size(value, ALIAS, &vram, &info.vram);
        else if (equals(key, "drm-memory-gtt") || equals(key, "gtt mem"))
            keep_size(value, ALIAS, &gtt, &info.gtt);
        else if (equals(key, "drm-client-id"))
            info.has_client |= take_all(value, &info.client);
        else if (equals(key, "pasid"))
            info.has_pasid |= take_all(value, &info.pasid);
        else if (equals(key, "drm-pdev") || equals(key, "pdev"))
            info.has_address |= parse_pci_address(value.at, length_of(value), &info.address) == 0;
    }
    if (!any)
        return -DTK_FAILED;
    info.has_vram = vram != NONE;
    info.has_gtt = gtt != NONE;
    *ret = info;
    return 0;
}
