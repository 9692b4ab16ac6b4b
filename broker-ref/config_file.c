/* config_file.c - reads the bytes of a server.properties file, in the format of Java's Properties, into a kb_config.
 *
 * Called by main, which has read the file. Calls config.
 */
#include <stdio.h>

#include "config_priv.h"

#define LINE_SIZE_MAX 8192

struct reader {
    const char *p, *end;
    int32_t line;
};

static bool blank(char c) {
    return c == ' ' || c == '\t' || c == '\f';
}

/* One escape after a backslash. Unicode escapes of a single byte are enough for names, numbers and paths of ASCII; others are kept as
 * UTF-8. */
static size_t put_escape(struct reader *r, char *out) {
    char c = *r->p++;
    switch (c) {
    case 't':
        *out = '\t';
        return 1;
    case 'n':
        *out = '\n';
        return 1;
    case 'r':
        *out = '\r';
        return 1;
    case 'f':
        *out = '\f';
        return 1;
    case 'u':
        break;
    default:
        *out = c;
        return 1;
    }
    unsigned code = 0;
    int digits = 0;
    for (; digits < 4 && r->p < r->end; digits++, r->p++) {
        char h = *r->p;
        unsigned v = h >= '0' && h <= '9' ? (unsigned)(h - '0') : (h | 32) >= 'a' && (h | 32) <= 'f' ? (unsigned)((h | 32) - 'a' + 10) : 16;
        if (v > 15) break;
        code = code * 16 + v;
    }
    if (code < 0x80) {
        *out = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | (code >> 6));
        out[1] = (char)(0x80 | (code & 63));
        return 2;
    }
    out[0] = (char)(0xe0 | (code >> 12));
    out[1] = (char)(0x80 | ((code >> 6) & 63));
    out[2] = (char)(0x80 | (code & 63));
    return 3;
}

/* The next logical line without leading blanks, continued lines joined; `split` gets where the key ends. false at the end of the file. */
static bool next_line(struct reader *r, char *out, size_t *len, size_t *key_len, size_t *value_at, bool *too_long) {
    while (r->p < r->end) {
        r->line++;
        while (r->p < r->end && blank(*r->p)) r->p++;
        if (r->p < r->end && *r->p != '#' && *r->p != '!' && *r->p != '\n' && *r->p != '\r') break;
        while (r->p < r->end && *r->p != '\n') r->p++;
        if (r->p < r->end) r->p++;
    }
    if (r->p == r->end) return false;
    size_t n = 0;
    enum { KEY, GAP, AFTER, VALUE } at = KEY;
    *key_len = *value_at = 0;
    *too_long = false;
    while (r->p < r->end && *r->p != '\n') {
        char c = *r->p++;
        if (c == '\r' && (r->p == r->end || *r->p == '\n')) continue;
        if (n + 4 >= LINE_SIZE_MAX) {
            *too_long = true;
            n = 0;
        }
        if (at == KEY && (c == '=' || c == ':' || blank(c))) {
            *key_len = n;
            at = blank(c) ? GAP : AFTER;
            continue;
        }
        if (at == GAP && (c == '=' || c == ':')) {
            at = AFTER;
            continue;
        }
        if ((at == GAP || at == AFTER) && blank(c)) continue;
        if (c == '\\' && r->p < r->end) {
            if (*r->p == '\r' && r->p + 1 < r->end && r->p[1] == '\n') r->p++;
            if (*r->p == '\n') { /* the line goes on */
                r->line++;
                for (r->p++; r->p < r->end && blank(*r->p);) r->p++;
                continue;
            }
            if (at == GAP || at == AFTER) *value_at = n, at = VALUE;
            n += put_escape(r, out + n);
            continue;
        }
        if (at == GAP || at == AFTER) *value_at = n, at = VALUE;
        out[n++] = c;
    }
    if (r->p < r->end) r->p++;
    if (at == KEY) *key_len = n;
    if (at != VALUE) *value_at = n;
    *len = n;
    return true;
}

kw_err kb_config_load(struct kb_config *c, const char *file, const void *p, size_t n, char *text, size_t size,
                      void (*warn)(void *ctx, const char *), void *ctx) {
    struct reader r = {.p = p, .end = (const char *)p + n};
    char *line = kw_malloc(2 * LINE_SIZE_MAX + 2);
    if (!line) {
        kb_config_text(text, size, "%s: out of memory", file);
        return KW_ENOMEM;
    }
    char *key = line + LINE_SIZE_MAX + 1;
    size_t len, key_len, value_at;
    bool too_long;
    kw_err err = KW_OK;
    while (!err && next_line(&r, line, &len, &key_len, &value_at, &too_long)) {
        if (too_long) {
            kb_config_text(text, size, "%s:%d: the line is longer than %d bytes", file, (int)r.line, LINE_SIZE_MAX);
            err = KW_EINVAL;
            break;
        }
        line[len] = 0;
        memcpy(key, line, key_len);
        key[key_len] = 0;
        char why[400] = "";
        err = kb_config_set(c, key, line + value_at, why, sizeof(why), warn, ctx);
        if (err) kb_config_text(text, size, "%s:%d: %s", file, (int)r.line, why);
    }
    kw_free(line);
    return err;
}
