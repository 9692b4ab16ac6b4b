/* text.c - clocks, numbers, JSON strings, base64, progress and tables for the commands of kc. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t cli_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void cli_pause(int64_t us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

void cli_pace(int64_t start_us, uint64_t sent, int64_t rate) {
    int64_t wait = rate > 0 ? start_us + (int64_t)((double)sent * 1e6 / (double)rate) - cli_now_us() : 0;
    if (wait > 0) cli_pause(wait);
}

bool cli_split_pair(const char *text, char *name, size_t size, const char **value) {
    const char *eq = strchr(text, '=');
    if (!eq || eq == text || (size_t)(eq - text) >= size) return false;
    memcpy(name, text, (size_t)(eq - text));
    name[eq - text] = 0;
    *value = eq + 1;
    return true;
}

bool cli_number(const char *text, int64_t min, int64_t max, int64_t *out) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < min || v > max) return false;
    *out = v;
    return true;
}

/* Bytes of the UTF-8 character at p (n > 0), 0 when it is malformed, overlong, a surrogate, or past U+10FFFF. */
static size_t utf8_size(const uint8_t *p, size_t n) {
    if (p[0] < 0x80) return 1;
    size_t k = p[0] >= 0xC2 && p[0] <= 0xDF ? 2 : (p[0] & 0xF0) == 0xE0 ? 3 : p[0] >= 0xF0 && p[0] <= 0xF4 ? 4 : 0;
    if (k == 0 || k > n) return 0;
    for (size_t i = 1; i < k; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
        return 0;
    return k;
}

void cli_json_text(FILE *f, const void *p, size_t n) {
    const uint8_t *b = p;
    fputc('"', f);
    for (size_t i = 0; i < n;) {
        size_t k = utf8_size(b + i, n - i);
        if (k == 0) {
            fputs("\\ufffd", f);
            k = 1;
        } else if (k > 1) {
            fwrite(b + i, 1, k, f);
        } else if (b[i] == '"' || b[i] == '\\') {
            fputc('\\', f);
            fputc(b[i], f);
        } else if (b[i] < 0x20 || b[i] == 0x7F) {
            fprintf(f, "\\u%04x", b[i]);
        } else {
            fputc(b[i], f);
        }
        i += k;
    }
    fputc('"', f);
}

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void cli_base64(FILE *f, const void *p, size_t n) {
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)b[i] << 16 | (i + 1 < n ? (uint32_t)b[i + 1] << 8 : 0) | (i + 2 < n ? b[i + 2] : 0);
        fputc(digits64[v >> 18], f);
        fputc(digits64[v >> 12 & 63], f);
        fputc(i + 1 < n ? digits64[v >> 6 & 63] : '=', f);
        fputc(i + 2 < n ? digits64[v & 63] : '=', f);
    }
}

int64_t cli_base64_decode(const char *text, size_t n, uint8_t *out) {
    if (n % 4) return -1;
    int64_t size = 0;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t v = 0;
        int pad = 0;
        for (size_t k = 0; k < 4; k++) {
            char ch = text[i + k];
            const char *d = ch && ch != '=' ? strchr(digits64, ch) : NULL;
            if (ch == '=' && i + 4 == n && k >= 2)
                pad++;
            else if (!d || pad)
                return -1;
            v = v << 6 | (d ? (uint32_t)(d - digits64) : 0);
        }
        out[size++] = (uint8_t)(v >> 16);
        if (pad < 2) out[size++] = (uint8_t)(v >> 8);
        if (pad < 1) out[size++] = (uint8_t)v;
    }
    return size;
}

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

size_t cli_unescape(char *text) {
    char *out = text;
    for (const char *p = text; *p; p++) {
        if (*p != '\\' || !p[1]) {
            *out++ = *p;
            continue;
        }
        p++;
        switch (*p) {
        case 'n':
            *out++ = '\n';
            break;
        case 't':
            *out++ = '\t';
            break;
        case 'r':
            *out++ = '\r';
            break;
        case '0':
            *out++ = 0;
            break;
        case 'x':
            if (hex(p[1]) >= 0 && hex(p[2]) >= 0) {
                *out++ = (char)(hex(p[1]) << 4 | hex(p[2]));
                p += 2;
                break;
            }
            *out++ = 'x';
            break;
        default:
            *out++ = *p;
        }
    }
    *out = 0;
    return (size_t)(out - text);
}

/* ---- Brokers ---- */

bool cli_replicas(const char *text, int32_t *ids, int64_t *partitions, int64_t *rf) {
    int64_t count = 0, in_this = 0;
    *partitions = *rf = 0;
    for (const char *p = text;; p++) {
        char *end;
        if (*p < '0' || *p > '9' || count == CLI_REPLICAS_MAX) return false;
        long id = strtol(p, &end, 10);
        if (id > INT32_MAX) return false;
        ids[count++] = (int32_t)id;
        in_this++;
        p = end;
        if (*p == ':') continue;
        if (*partitions > 0 && in_this != *rf) return false;
        *rf = in_this;
        in_this = 0;
        ++*partitions;
        if (!*p) return true;
        if (*p != ',') return false;
    }
}

size_t cli_ids(const char *text, int32_t *ids, size_t max) {
    size_t n = 0;
    for (const char *p = text;; p++) {
        char *end;
        if (*p < '0' || *p > '9' || n == max) return 0;
        long id = strtol(p, &end, 10);
        if (id > INT32_MAX) return 0;
        for (size_t i = 0; i < n; i++)
            if (ids[i] == id) return 0;
        ids[n++] = (int32_t)id;
        p = end;
        if (!*p) return n;
        if (*p != ',') return 0;
    }
}

bool cli_has_id(const int32_t *v, size_t n, int32_t id) {
    for (size_t i = 0; i < n; i++)
        if (v[i] == id) return true;
    return false;
}

void cli_json_ids(FILE *f, const char *name, const int32_t *v, size_t n) {
    fprintf(f, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++) fprintf(f, "%s%d", i ? "," : "", (int)v[i]);
    fputc(']', f);
}

const char *cli_ids_text(char *text, size_t size, const int32_t *v, size_t n) {
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < n && at + 14 < size; i++) at += (size_t)snprintf(text + at, size - at, "%s%d", i ? "," : "", (int)v[i]);
    return text;
}

/* ---- Progress ---- */

static bool line_stands; /* a progress line, without its end */

void cli_progress_clear(void) {
    if (line_stands) fprintf(stderr, "\r\033[K");
    line_stands = false;
}

void cli_progress_start(struct cli_progress *p, const char *label, uint64_t total) {
    p->on = isatty(2);
    p->started_us = p->shown_us = cli_now_us();
    p->label = label;
    p->total = total;
}

void cli_progress_show(struct cli_progress *p, uint64_t records, uint64_t bytes) {
    if (!p->on) return;
    int64_t now = cli_now_us();
    if (now - p->shown_us < 200000) return;
    p->shown_us = now;
    double s = (double)(now - p->started_us) / 1e6;
    line_stands = true;
    fprintf(stderr, "\r\033[K%s %llu", p->label, (unsigned long long)records);
    if (p->total) fprintf(stderr, "/%llu (%d %%)", (unsigned long long)p->total, (int)(records * 100 / p->total));
    fprintf(stderr, "  %.0f/s  %.1f MB/s", (double)records / s, (double)bytes / s / 1e6);
}

void cli_progress_say(struct cli_progress *p, const char *fmt, ...) {
    va_list ap;
    if (!p->on) return;
    va_start(ap, fmt);
    line_stands = true;
    fprintf(stderr, "\r\033[K");
    vfprintf(stderr, fmt, ap);
    va_end(ap);
}

void cli_progress_end(struct cli_progress *p) {
    if (p->on) cli_progress_clear();
}

#define TABLE_COLUMNS_MAX 16
struct cli_table {
    size_t columns, cells, cap;
    size_t width[TABLE_COLUMNS_MAX];
    char **text;
};

static void table_put(struct cli_table *t, char *text) {
    if (!t || !text) {
        free(text);
        return;
    }
    if (t->cells == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        char **grown = realloc(t->text, cap * sizeof *grown);
        if (!grown) {
            free(text);
            return;
        }
        t->text = grown;
        t->cap = cap;
    }
    size_t *w = &t->width[t->cells % t->columns];
    if (strlen(text) > *w) *w = strlen(text);
    t->text[t->cells++] = text;
}

struct cli_table *cli_table_new(const char *const *heads, size_t columns) {
    struct cli_table *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->columns = columns;
    for (size_t i = 0; i < columns; i++) table_put(t, strdup(heads[i]));
    return t;
}

void cli_table_add(struct cli_table *t, const char *fmt, ...) {
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0) text = NULL;
    va_end(ap);
    table_put(t, text);
}

void cli_table_print(struct cli_table *t) {
    for (size_t i = 0; t && i < t->cells; i++) {
        bool last = i % t->columns == t->columns - 1;
        printf("%-*s%s", last ? 0 : (int)t->width[i % t->columns], t->text[i], last ? "\n" : "  ");
    }
    cli_table_free(t);
}

void cli_table_free(struct cli_table *t) {
    for (size_t i = 0; t && i < t->cells; i++) free(t->text[i]);
    if (t) free(t->text);
    free(t);
}
