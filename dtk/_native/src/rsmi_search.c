/* Where the vendor's librocm_smi64 may be: one place after another, in the order of dtk_rsmi_find() in dtk.h. */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dtk.h"

#define NAME "librocm_smi64.so"

enum { VERSIONS_MAX = 16, VALUE_MAX = 400 }; /* a longer value would be cut, and may then name something else */

/* Directories, each below a variable's value or as it stands. "*" is every match, the highest version first. */
static const struct {
    const char *variable, *path;
} places[] = {
    {"ROCM_SMI_LIB_PATH", ""},       {"HYHAL_PATH", "/lib"},
    {NULL, "/opt/hyhal/lib"},        {NULL, "/usr/local/hyhal/lib"},
    {"DTKROOT", "/.hyhal/lib"},      {"DTKROOT", "/.hyhal/rocm_smi/lib"},
    {"DTKROOT", "/rocm_smi/lib"},    {"DTKROOT", "/lib"},
    {NULL, "/opt/dtk/.hyhal/lib"},   {NULL, "/opt/dtk/.hyhal/rocm_smi/lib"},
    {NULL, "/opt/dtk/rocm_smi/lib"}, {NULL, "/opt/dtk/lib"},
    {"ROCM_PATH", "/lib"},           {"ROCM_PATH", "/lib64"},
    {"ROCM_PATH", "/rocm_smi/lib"},  {NULL, "/opt/rocm/lib"},
    {NULL, "/opt/rocm/lib64"},       {NULL, "/opt/rocm/rocm_smi/lib"},
    {NULL, "/opt/rocm-*/lib"},
};

/* What the linker knows, under the names that AMD, Debian, Fedora and Hygon have given it. */
static const char *const names[] = {NAME, NAME ".7", NAME ".6", NAME ".5", NAME ".1", NAME ".1.0", NAME ".2"};

struct search {
    int wanted, seen;
    dtk_rsmi_file *ret;
};

/* One more file; true when it is the wanted one. The linker would look for a name without a slash elsewhere. */
static bool offer(struct search *search, const char *path, const char *origin, int found)
{
    if (search->seen++ != search->wanted)
        return false;
    memset(search->ret, 0, sizeof *search->ret);
    snprintf(search->ret->path, sizeof search->ret->path, "%s%s", found >= 0 && !strchr(path, '/') ? "./" : "", path);
    snprintf(search->ret->origin, sizeof search->ret->origin, "%s", origin);
    search->ret->found = found;
    return true;
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static int later_first(const void *a, const void *b)
{
    return strverscmp(b, a);
}

/* ".7.8" and "6.2.0", but not ".bak". */
static bool is_version(const char *text)
{
    return text[0] && text[strspn(text, "0123456789.")] == '\0';
}

/* Entries of a directory that are `prefix` and a version, the highest first; of very many the highest. */
static int list_versions(const char *directory, const char *prefix, char (*ret)[256])
{
    DIR *stream = opendir(directory);
    const struct dirent *entry;
    int count = 0;

    while (stream && (entry = readdir(stream))) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || !is_version(entry->d_name + strlen(prefix)))
            continue;
        if (count == VERSIONS_MAX && strverscmp(entry->d_name, ret[count - 1]) < 0)
            continue;
        count -= count == VERSIONS_MAX;
        snprintf(ret[count++], sizeof ret[0], "%s", entry->d_name);
        qsort(ret, (size_t)count, sizeof ret[0], later_first);
    }
    if (stream)
        closedir(stream);
    return count;
}

/* A directory's libraries: under the plain name, or else each under its versioned one. Returns 1 when the wanted one was
 * there, 0 when others were, -1 when none was. */
static int offer_directory(struct search *search, const char *directory, const char *origin)
{
    char versions[VERSIONS_MAX][256], path[1024];
    int count, found = -1;

    snprintf(path, sizeof path, "%.500s/" NAME, directory);
    if (is_file(path))
        return offer(search, path, origin, 1);
    count = list_versions(directory, NAME ".", versions);
    for (int i = 0; i < count && found != 1; i++) {
        snprintf(path, sizeof path, "%.500s/%.255s", directory, versions[i]);
        if (is_file(path))
            found = offer(search, path, origin, 1);
    }
    return found;
}

/* "/opt/rocm-6.2.0/lib" and the like. */
static bool offer_pattern(struct search *search, const char *pattern)
{
    char parent[64], prefix[64], versions[VERSIONS_MAX][256], directory[512];
    const char *star = strchr(pattern, '*'), *slash = star;
    int count;

    while (*slash != '/')
        slash--;
    snprintf(parent, sizeof parent, "%.*s", (int)(slash - pattern), pattern);
    snprintf(prefix, sizeof prefix, "%.*s", (int)(star - slash - 1), slash + 1);
    count = list_versions(parent, prefix, versions);
    for (int i = 0; i < count; i++) {
        snprintf(directory, sizeof directory, "%.63s/%.255s%.63s", parent, versions[i], star + 1);
        if (offer_directory(search, directory, pattern) == 1)
            return true;
    }
    return false;
}

static bool offer_place(struct search *search, dtk_environment *environment, const char *variable, const char *path)
{
    const char *value = variable && environment ? environment(variable) : NULL;
    char directory[512];
    int found;

    if (!variable)
        return strchr(path, '*') ? offer_pattern(search, path) : offer_directory(search, path, path) == 1;
    if (!value || !value[0] || strlen(value) > VALUE_MAX)
        return false;
    snprintf(directory, sizeof directory, "%s%s", value, path);
    found = offer_directory(search, directory, variable);
    /* The one variable that names nothing else is told of when it names nothing. */
    return found < 0 && !path[0] ? offer(search, directory, variable, 0) : found == 1;
}

/* Ours names the file, or the directory that holds it. */
static bool offer_override(struct search *search, dtk_environment *environment)
{
    static const char variable[] = "DTK_SMI_ROCM_SMI_LIB";
    const char *value = environment ? environment(variable) : NULL;
    int found;

    if (!value || !value[0] || strlen(value) > VALUE_MAX)
        return false;
    if (is_file(value))
        return offer(search, value, variable, 1);
    found = offer_directory(search, value, variable);
    return found < 0 ? offer(search, value, variable, 0) : found == 1;
}

int dtk_rsmi_find(dtk_environment *environment, int index, dtk_rsmi_file *ret, size_t size)
{
    dtk_rsmi_file file;
    struct search search = {.wanted = index, .ret = &file};
    bool found;

    if (!ret || index < 0)
        return -DTK_INVALID_ARGUMENT;
    found = offer_override(&search, environment);
    for (size_t i = 0; !found && i < sizeof places / sizeof places[0]; i++)
        found = offer_place(&search, environment, places[i].variable, places[i].path);
    for (size_t i = 0; !found && i < sizeof names / sizeof names[0]; i++)
        found = offer(&search, names[i], "the linker's path", -1);
    if (!found)
        return -DTK_NOT_FOUND;
    memcpy(ret, &file, size < sizeof file ? size : sizeof file);
    return 0;
}
