/* print_json.c - JSON text of what frames hold: numbers, strings, bytes, ids, times. Called by the other print files. See print.h. */
#include <stdio.h>

#include "print.h"
#include "uuid.h"

void kb_json_text(struct kw_out *out, const char *text) {
    kw_out_bytes(out, text, strlen(text));
}

void kb_json_int(struct kw_out *out, int64_t v) {
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)v);
    kb_json_text(out, text);
}

/* The length of the UTF-8 sequence at p; 0: none (overlong, a surrogate, cut). */
static size_t utf8(const uint8_t *p, size_t n) {
    if (p[0] < 0x80) return 1;
    size_t len = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool beyond = (p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf4 && p[1] >= 0x90);
    return overlong || beyond ? 0 : len;
}

static void put_escaped(struct kw_out *out, const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n;) {
        char text[8];
        size_t len = utf8(p + i, n - i);
        if (p[i] == '"' || p[i] == '\\') {
            snprintf(text, sizeof(text), "\\%c", p[i]);
            kb_json_text(out, text);
        } else if (p[i] < ' ' || p[i] == 0x7f) {
            snprintf(text, sizeof(text), "\\u%04x", p[i]);
            kb_json_text(out, text);
        } else if (len == 0) {
            kb_json_text(out, "\\ufffd");
        } else {
            kw_out_bytes(out, p + i, len);
        }
        i += KW_MAX(len, (size_t)1);
    }
}

void kb_json_string(struct kw_out *out, const char *p, size_t n) {
    kw_out_i8(out, '"');
    put_escaped(out, (const uint8_t *)p, n);
    kw_out_i8(out, '"');
}

void kb_json_name(struct kw_out *out, bool *first, const char *name) {
    if (!*first) kw_out_i8(out, ',');
    *first = false;
    kw_out_i8(out, '"');
    kb_json_text(out, name);
    kb_json_text(out, "\":");
}

static void put_rest(struct kw_out *out, size_t n) {
    char text[40];
    if (n == 0) return;
    snprintf(text, sizeof(text), "\xe2\x80\xa6(+%zu bytes)", n);
    kb_json_text(out, text);
}

void kb_json_bytes(struct kw_out *out, const uint8_t *p, size_t n, size_t max) {
    static const char digits[] = "0123456789abcdef";
    size_t shown = KW_MIN(n, max);
    kw_out_i8(out, '"');
    uint8_t *to = kw_out_reserve(out, 2 * shown);
    for (size_t i = 0; to && i < shown; i++) {
        *to++ = (uint8_t)digits[p[i] >> 4];
        *to++ = (uint8_t)digits[p[i] & 15];
    }
    put_rest(out, n - shown);
    kw_out_i8(out, '"');
}

static bool is_text(const uint8_t *p, size_t n) {
    for (size_t i = 0, len; i < n; i += len) {
        len = utf8(p + i, n - i);
        if (len == 0 || (p[i] < ' ' && p[i] != '\t' && p[i] != '\n' && p[i] != '\r')) return false;
    }
    return true;
}

void kb_json_value(struct kw_out *out, const uint8_t *p, int32_t n, size_t max) {
    size_t size = (size_t)KW_MAX(n, 0), shown = KW_MIN(size, max);
    if (n < 0) {
        kb_json_text(out, "null");
        return;
    }
    if (shown < size)
        while (shown > 0 && (p[shown] & 0xc0) == 0x80) shown--; /* between letters */
    if (!is_text(p, shown)) {
        kb_json_text(out, "{\"hex\":");
        kb_json_bytes(out, p, size, max);
        kw_out_i8(out, '}');
        return;
    }
    kw_out_i8(out, '"');
    put_escaped(out, p, shown);
    put_rest(out, size - shown);
    kw_out_i8(out, '"');
}

void kb_json_uuid(struct kw_out *out, struct kw_uuid id) {
    char text[23];
    kb_uuid_text(id, text);
    kb_json_string(out, text, strlen(text));
}

/* The day's date, from days since 1970-01-01: years begin in March, so that the leap day is their last. */
static void civil(int64_t days, int64_t *year, int *month, int *day) {
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    *day = (int)(doy - (153 * mp + 2) / 5 + 1);
    *month = (int)(mp < 10 ? mp + 3 : mp - 9);
    *year = yoe + era * 400 + (*month <= 2);
}

void kb_json_time(struct kw_out *out, int64_t at_us) {
    char text[80];
    int64_t s = at_us / 1000000 - (at_us % 1000000 < 0), us = (at_us % 1000000 + 1000000) % 1000000, days = s / 86400 - (s % 86400 < 0), year;
    int left = (int)(s - days * 86400), month, day;
    civil(days, &year, &month, &day);
    snprintf(text, sizeof(text), "\"%04lld-%02d-%02dT%02d:%02d:%02d.%06dZ\"", (long long)year, month, day, left / 3600, left / 60 % 60, left % 60, (int)us);
    kb_json_text(out, text);
}
