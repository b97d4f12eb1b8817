/* Taking a text apart from its front: what the parsers are made of. */
#ifndef DTK_SPAN_H
#define DTK_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What is left of a text: from `at` up to `end`. Parsers take pieces off its front. */
struct span {
    const char *at, *end;
};

static inline struct span span_of(const char *text, size_t len)
{
    const char *nul = len > 0 ? memchr(text, '\0', len) : NULL;
    return (struct span){text, nul ? nul : text + len};
}

static inline bool is_empty(const struct span *s)
{
    return s->at == s->end;
}

static inline bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static inline void skip_blanks(struct span *s)
{
    while (!is_empty(s) && is_blank(*s->at))
        s->at++;
}

static inline struct span trimmed(struct span s)
{
    skip_blanks(&s);
    while (!is_empty(&s) && is_blank(s.end[-1]))
        s.end--;
    return s;
}

/* The next line, blank ones included, without its newline. False at the end of the text. */
static inline bool take_line(struct span *s, struct span *line)
{
    if (is_empty(s))
        return false;
    const char *newline = memchr(s->at, '\n', (size_t)(s->end - s->at));
    *line = (struct span){s->at, newline ? newline : s->end};
    s->at = newline ? newline + 1 : s->end;
    return true;
}

/* The next line that is not blank, trimmed. */
static inline bool take_full_line(struct span *s, struct span *line)
{
    while (take_line(s, line)) {
        *line = trimmed(*line);
        if (!is_empty(line))
            return true;
    }
    return false;
}

static inline bool take_char(struct span *s, char c)
{
    if (is_empty(s) || *s->at != c)
        return false;
    s->at++;
    return true;
}

static inline bool take_word(struct span *s, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(s->end - s->at) < len || memcmp(s->at, word, len) != 0)
        return false;
    s->at += len;
    return true;
}

/* Value of a digit in a base up to 16, or -1. */
static inline int digit(char c, int base)
{
    int value = -1;
    if (c >= '0' && c <= '9')
        value = c - '0';
    else if (c >= 'a' && c <= 'f')
        value = c - 'a' + 10;
    else if (c >= 'A' && c <= 'F')
        value = c - 'A' + 10;
    return value < base ? value : -1;
}

/* One digit or more; false when there is none or the number does not fit. */
static inline bool take_digits(struct span *s, int base, uint64_t *ret)
{
    const char *start = s->at;
    uint64_t value = 0;
    for (int d; !is_empty(s) && (d = digit(*s->at, base)) >= 0; s->at++) {
        if (value > (UINT64_MAX - (uint64_t)d) / (uint64_t)base)
            return false;
        value = value * (uint64_t)base + (uint64_t)d;
    }
    *ret = value;
    return s->at > start;
}

#endif
