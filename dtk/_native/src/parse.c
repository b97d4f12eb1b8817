#include "parse.h"

#include <string.h>

#include "dtk.h"
#include "span.h"

/* Hexadecimal digits, from `least` to `most` of them. */
static bool take_hex(struct span *s, int least, int most, uint64_t *ret)
{
    const char *start = s->at;
    return take_digits(s, 16, ret) && s->at - start >= least && s->at - start <= most;
}

static bool take_0x(struct span *s)
{
    return take_word(s, "0x") || take_word(s, "0X");
}

static bool take_number(struct span *s, uint64_t *ret)
{
    return take_digits(s, take_0x(s) ? 16 : 10, ret);
}

int parse_u64(const char *text, size_t len, uint64_t *ret)
{
    struct span s = trimmed(span_of(text, len));
    uint64_t value;
    if (!take_number(&s, &value) || !is_empty(&s))
        return -DTK_FAILED;
    *ret = value;
    return 0;
}

int parse_i64(const char *text, size_t len, int64_t *ret)
{
    struct span s = trimmed(span_of(text, len));
    bool negative = take_char(&s, '-');
    uint64_t value;
    if (!take_digits(&s, 10, &value) || !is_empty(&s) || value > (uint64_t)INT64_MAX + negative)
        return -DTK_FAILED;
    /* INT64_MIN has no positive counterpart, so the last step down comes after the sign. */
    *ret = negative && value > 0 ? -(int64_t)(value - 1) - 1 : (int64_t)value;
    return 0;
}

int parse_hex64(const char *text, size_t len, uint64_t *ret)
{
    struct span s = trimmed(span_of(text, len));
    uint64_t value;
    take_0x(&s);
    if (!take_hex(&s, 1, 16, &value) || !is_empty(&s))
        return -DTK_FAILED;
    *ret = value;
    return 0;
}

int parse_leading_f64(const char *text, size_t len, double *ret)
{
    /* Below 2^53 and 10^22 both numbers of the quotient are exact, so it is the double nearest to the text. */
    const uint64_t limit = 1000000000000000;
    struct span s = trimmed(span_of(text, len));
    uint64_t value;
    if (!take_digits(&s, 10, &value) || value >= limit)
        return -DTK_FAILED;
    double scale = 1;
    if (take_char(&s, '.')) {
        for (int d; !is_empty(&s) && (d = digit(*s.at, 10)) >= 0; s.at++) {
            value = value * 10 + (uint64_t)d;
            scale *= 10;
            if (value >= limit || scale > 1e22)
                return -DTK_FAILED;
        }
    }
    *ret = (double)value / scale;
    return 0;
}

/* A letter of either case, given in lower case. */
static bool take_letter(struct span *s, char lower)
{
    if (is_empty(s) || (*s->at | 0x20) != lower)
        return false;
    s->at++;
    return true;
}

/* "1: 500Mhz *" */
static bool take_level(struct span s, bool *sleep, double *mhz, bool *star)
{
    uint64_t level, value;
    *sleep = take_char(&s, 'S');
    if (!*sleep && !take_digits(&s, 10, &level))
        return false;
    if (!take_char(&s, ':'))
        return false;
    skip_blanks(&s);
    if (!take_digits(&s, 10, &value) || !take_letter(&s, 'm') || !take_letter(&s, 'h') || !take_letter(&s, 'z'))
        return false;
    *mhz = (double)value;
    skip_blanks(&s);
    *star = take_char(&s, '*');
    return is_empty(&s);
}

int parse_levels(const char *text, size_t len, struct levels *ret)
{
    struct span s = span_of(text, len), line;
    struct levels levels = {0};
    bool any = false, sleep, star;
    double mhz;
    while (take_full_line(&s, &line)) {
        any = true;
        if (!take_level(line, &sleep, &mhz, &star))
            return -DTK_FAILED;
        if (star) {
            levels.stars++;
            levels.current = mhz;
        }
        if (!sleep) {
            levels.count++;
            levels.highest = mhz > levels.highest ? mhz : levels.highest;
        }
    }
    if (!any)
        return -DTK_FAILED;
    *ret = levels;
    return 0;
}

/* What follows `key` and `separator` in the first line that starts so; -DTK_FAILED for a blank text. */
static int find_line(struct span s, const char *key, char separator, struct span *ret)
{
    struct span line;
    bool any = false;
    while (take_full_line(&s, &line)) {
        any = true;
        if (take_word(&line, key) && take_char(&line, separator)) {
            *ret = line;
            return 0;
        }
    }
    return any ? -DTK_NOT_FOUND : -DTK_FAILED;
}

int parse_property(const char *text, size_t len, const char *key, uint64_t *ret)
{
    struct span value;
    int status = find_line(span_of(text, len), key, ' ', &value);
    return status == 0 ? parse_u64(value.at, (size_t)(value.end - value.at), ret) : status;
}

int parse_next_count(const char *text, size_t len, size_t *at, char *name, size_t size, uint64_t *ret)
{
    struct span s = span_of(text, len), line;

    s.at = *at < (size_t)(s.end - s.at) ? s.at + *at : s.end;
    while (take_full_line(&s, &line)) {
        struct span key = line;

        while (!is_empty(&key) && !is_blank(key.end[-1]) && key.end[-1] != ':')
            key.end--;
        line.at = key.end;
        while (!is_empty(&key) && (is_blank(key.end[-1]) || key.end[-1] == ':'))
            key.end--;
        *at = (size_t)(s.at - text);
        if (!is_empty(&key) && parse_u64(line.at, (size_t)(line.end - line.at), ret) == 0 &&
            parse_text(key.at, (size_t)(key.end - key.at), name, size) == 0)
            return 1;
    }
    return 0;
}

int parse_variable(const char *text, size_t len, const char *key, char *ret, size_t size)
{
    struct span value;
    int status = find_line(span_of(text, len), key, '=', &value);
    return status == 0 ? parse_text(value.at, (size_t)(value.end - value.at), ret, size) : status;
}

int parse_error_counts(const char *text, size_t len, struct error_counts *ret)
{
    struct span s = span_of(text, len), line;
    uint64_t count[3];
    bool found[3] = {false};
    while (take_full_line(&s, &line)) {
        int kind = take_word(&line, "ce:") ? 0 : take_word(&line, "ue:") ? 1 : take_word(&line, "de:") ? 2 : -1;
        if (kind < 0)
            continue;
        if (found[kind] || parse_u64(line.at, (size_t)(line.end - line.at), &count[kind]) != 0)
            return -DTK_FAILED;
        found[kind] = true;
    }
    if (!found[0] || !found[1])
        return -DTK_FAILED;
    *ret = (struct error_counts){count[0], count[1], found[2] ? count[2] : 0, found[2]};
    return 0;
}

/* " : " between the columns of the bad page list, with any number of blanks. */
static bool take_colon(struct span *s)
{
    skip_blanks(s);
    bool found = take_char(s, ':');
    skip_blanks(s);
    return found;
}

int parse_bad_pages(const char *text, size_t len, uint64_t *retired, uint64_t *pending)
{
    struct span s = span_of(text, len), line;
    uint64_t page, bytes, counts[2] = {0, 0};
    while (take_full_line(&s, &line)) {
        if (!take_number(&line, &page) || !take_colon(&line) || !take_number(&line, &bytes) || !take_colon(&line))
            return -DTK_FAILED;
        if (take_char(&line, 'R'))
            counts[0]++;
        else if (take_char(&line, 'P'))
            counts[1]++;
        else if (!take_char(&line, 'F'))
            return -DTK_FAILED;
        if (!is_empty(&line))
            return -DTK_FAILED;
    }
    *retired = counts[0];
    *pending = counts[1];
    return 0;
}

int parse_pci_address(const char *text, size_t len, struct pci_address *ret)
{
    struct span s = span_of(text, len);
    uint64_t domain = 0, bus, device, function;
    const char *first = (s.end > s.at) ? memchr(s.at, ':', (size_t)(s.end - s.at)) : NULL;
    bool has_domain = first && memchr(first + 1, ':', (size_t)(s.end - first - 1));
    if (has_domain && !(take_hex(&s, 1, 8, &domain) && take_char(&s, ':')))
        return -DTK_FAILED;
    if (!take_hex(&s, 2, 2, &bus) || !take_char(&s, ':') || !take_hex(&s, 2, 2, &device) || device > 0x1f ||
        !take_char(&s, '.') || !take_hex(&s, 1, 1, &function) || function > 7 || !is_empty(&s))
        return -DTK_FAILED;
    *ret = (struct pci_address){(uint32_t)domain, (uint8_t)bus, (uint8_t)device, (uint8_t)function};
    return 0;
}

/* Length of the UTF-8 character at the front, 0 when it is none. Overlong forms, surrogates and what is beyond U+10FFFF
 * are none. */
static size_t utf8_length(const struct span *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = (const unsigned char *)s->at;
    size_t length = byte[0] < 0x80 ? 1 : byte[0] >> 5 == 6 ? 2 : byte[0] >> 4 == 14 ? 3 : byte[0] >> 3 == 30 ? 4 : 0;
    if (length == 0 || length > (size_t)(s->end - s->at))
        return 0;
    uint32_t code = length == 1 ? byte[0] : byte[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (byte[i] >> 6 != 2)
            return 0;
        code = code << 6 | (byte[i] & 0x3f);
    }
    bool valid = code >= least[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return valid ? length : 0;
}

/* C0, DEL and C1 (two bytes in UTF-8): what could steer a terminal. */
static bool is_control(const char *at)
{
    unsigned char first = (unsigned char)at[0];
    return first < 0x20 || first == 0x7f || (first == 0xc2 && (unsigned char)at[1] < 0xa0);
}

int parse_text(const char *text, size_t len, char *ret, size_t size)
{
    struct span s = span_of(text, len), line;
    if (!take_line(&s, &line))
        return -DTK_FAILED;
    line = trimmed(line);
    size_t used = 0;
    while (!is_empty(&line)) {
        size_t length = utf8_length(&line);
        bool keep = length > 0 && !is_control(line.at);
        size_t width = keep ? length : 1;
        if (used + width >= size)
            break;
        memcpy(ret + used, keep ? line.at : "?", width);
        used += width;
        line.at += length > 0 ? length : 1;
    }
    if (used == 0)
        return -DTK_FAILED;
    ret[used] = '\0';
    return 0;
}

int parse_number_after(const char *name, const char *prefix, uint32_t *ret)
{
    struct span s = span_of(name, strlen(name));
    uint64_t value;
    if (!take_word(&s, prefix) || !take_digits(&s, 10, &value) || !is_empty(&s) || value > UINT32_MAX)
        return -DTK_FAILED;
    *ret = (uint32_t)value;
    return 0;
}
