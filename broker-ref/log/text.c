/* text.c - lines, fields and integers of small text files. Called by epochs and checkpoint; calls base/buf. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>

bool kb_text_line(struct kb_text *t, const char **line, size_t *n) {
    if (t->p >= t->end) return false;
    const uint8_t *nl = memchr(t->p, '\n', (size_t)(t->end - t->p));
    const uint8_t *stop = nl ? nl : t->end;
    *line = (const char *)t->p;
    *n = (size_t)(stop - t->p);
    if (*n && (*line)[*n - 1] == '\r') --*n;
    t->p = nl ? nl + 1 : t->end;
    return true;
}

bool kb_text_field(const char **line, size_t *n, const char **field, size_t *field_n) {
    while (*n && **line == ' ') ++*line, --*n;
    if (!*n) return false;
    const char *sp = memchr(*line, ' ', *n);
    *field = *line;
    *field_n = sp ? (size_t)(sp - *line) : *n;
    *line += *field_n;
    *n -= *field_n;
    return true;
}

bool kb_text_int(const char *p, size_t n, int64_t min, int64_t max, int64_t *v) {
    bool negative = n && *p == '-';
    if (negative) p++, n--;
    if (!n || n > 19) return false;
    uint64_t u = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        u = u * 10 + (uint64_t)(p[i] - '0'); /* 19 digits fit 64 bits */
    }
    if (u > INT64_MAX) return false;
    int64_t r = negative ? -(int64_t)u : (int64_t)u;
    if (r < min || r > max) return false;
    *v = r;
    return true;
}

void kb_text_add(struct kw_out *out, const char *fmt, ...) {
    char b[600];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(b, sizeof(b), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(b)) kw_out_fail(out, KW_EINVAL);
    else kw_out_bytes(out, b, (size_t)n);
}
