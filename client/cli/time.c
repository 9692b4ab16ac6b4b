/* time.c - moments as command lines name them. Called by group_reset.c. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

/* Exactly n digits at *p. */
static bool digits(const char **p, int n, int *out) {
    *out = 0;
    for (int i = 0; i < n; i++, ++*p) {
        if (!isdigit((unsigned char)**p)) return false;
        *out = *out * 10 + (**p - '0');
    }
    return true;
}

static bool zone(const char *p, int64_t *ms) {
    int hours, minutes = 0;
    if (!*p || !strcmp(p, "Z")) return true;
    int sign = *p == '+' ? 1 : *p == '-' ? -1 : 0;
    if (sign == 0) return false;
    p++;
    if (!digits(&p, 2, &hours)) return false;
    if (*p == ':') p++;
    if (*p && !digits(&p, 2, &minutes)) return false;
    *ms -= sign * (hours * 60 + minutes) * (int64_t)60000;
    return !*p && hours < 24 && minutes < 60;
}

/* 2026-11-30T04:00[:00[.123]][Z|+01:00], or the day alone; UTC where no zone is given. */
static bool date(const char *p, int64_t *ms) {
    struct tm t = {0};
    int year, month, fraction = 0;
    if (!digits(&p, 4, &year) || *p++ != '-' || !digits(&p, 2, &month) || *p++ != '-' || !digits(&p, 2, &t.tm_mday)) return false;
    t.tm_year = year - 1900;
    t.tm_mon = month - 1;
    if (*p == 'T' || *p == ' ') {
        p++;
        if (!digits(&p, 2, &t.tm_hour) || *p++ != ':' || !digits(&p, 2, &t.tm_min)) return false;
        if (*p == ':' && (p++, !digits(&p, 2, &t.tm_sec))) return false;
        if (*p == '.' && (p++, !digits(&p, 3, &fraction))) return false;
    }
    struct tm same = t;
    *ms = (int64_t)timegm(&same) * 1000 + fraction;
    bool valid = same.tm_mday == t.tm_mday && same.tm_mon == t.tm_mon && same.tm_hour == t.tm_hour && same.tm_min == t.tm_min; /* timegm carries */
    return valid && zone(p, ms) && *ms >= 0;
}

bool cli_time(const char *text, int64_t now_ms, int64_t *ms) {
    static const struct {
        char unit;
        int64_t ms;
    } units[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', 86400000}};
    if (*text == '@') return cli_number(text + 1, 0, INT64_MAX, ms);
    char *end;
    errno = 0;
    long long n = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : -1;
    for (size_t i = 0; n >= 0 && !errno && i < sizeof units / sizeof *units; i++) {
        if (end[0] != units[i].unit || end[1]) continue;
        *ms = n > now_ms / units[i].ms ? 0 : now_ms - n * units[i].ms;
        return true;
    }
    return date(text, ms);
}
