/* config.c - properties: set, read, explained, and parsed into the settings that the cores read. The table is config_table.h.
 *
 * Called by applications (kc_config_*), handle and the roles (kc_settings_new). Calls base/nearest.
 */
#include "config.h"

#include "base/nearest.h"
#include "config_table.h"

#include <stdio.h>
#include <stdlib.h>

enum kind { K_STRING, K_ADDRESSES, K_BOOL, K_NOT, K_INT, K_UINT, K_DECIMAL, K_FOREVER, K_FOREVER0, K_ENUM, K_LEVEL };

static const struct row {
    const char *name, *aliases, *scope, *def, *choices, *text;
    int64_t scale, min, max;
    uint32_t offset;
    uint8_t kind, size, twin;
} rows[] = {
#define ROW_(name, aliases, scope, kind, field, scale, min, max, def, choices, text, twin)                                                 \
    {name,    aliases,                                                                                                                     \
     scope,   def,                                                                                                                         \
     choices, text,                                                                                                                        \
     scale,   min,                                                                                                                         \
     max,     offsetof(struct kc_settings, field),                                                                                         \
     kind,    sizeof(((struct kc_settings *)0)->field),                                                                                    \
     twin},
#define ROW(name, aliases, scope, kind, field, scale, min, max, def, choices, text)                                                        \
    ROW_(name, aliases, scope, kind, field, scale, min, max, def, choices, text, 0)
#define TWIN(name, aliases, scope, kind, field, scale, min, max, def, choices, text)                                                       \
    ROW_(name, aliases, scope, kind, field, scale, min, max, def, choices, text, 1)
    KC_PROPERTIES(ROW, TWIN)
#undef ROW
#undef TWIN
#undef ROW_
};
enum { ROW_COUNT = KW_COUNTOF(rows), WARNINGS_MAX = 32 };

struct kc_config {
    char *values[ROW_COUNT]; /* as given; NULL: not set */
    char *warnings[WARNINGS_MAX];
    size_t warning_count;
    char scratch[32];
};

kc_config *kc_config_new(void) {
    return kw_calloc(1, sizeof(struct kc_config));
}

void kc_config_free(kc_config *c) {
    if (!c) return;
    for (size_t i = 0; i < ROW_COUNT; i++) kw_free(c->values[i]);
    for (size_t i = 0; i < c->warning_count; i++) kw_free(c->warnings[i]);
    kw_free(c);
}

kc_config *kc_config_dup(const kc_config *c) {
    kc_config *d = kc_config_new();
    if (!d || !c) return d;
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (c->values[i] && !(d->values[i] = kw_memdup(c->values[i], strlen(c->values[i]) + 1))) goto fail;
    }
    for (; d->warning_count < c->warning_count; d->warning_count++) {
        const char *w = c->warnings[d->warning_count];
        if (!(d->warnings[d->warning_count] = kw_memdup(w, strlen(w) + 1))) goto fail;
    }
    return d;
fail:
    kc_config_free(d);
    return NULL;
}

/* ---- Names ---- */

/* Item `index` of a comma-separated list, copied out; false past the end. */
static bool list_item(const char *list, size_t index, char *item, size_t size) {
    for (; *list && index > 0; index--) {
        list += strcspn(list, ",");
        if (*list) list++;
    }
    size_t n = strcspn(list, ",");
    if (n == 0 || n >= size) return false;
    memcpy(item, list, n);
    item[n] = 0;
    return true;
}

static bool is_alias(const struct row *r, const char *name) {
    char item[64];
    for (size_t i = 0; list_item(r->aliases, i, item, sizeof item); i++) {
        if (strcmp(item, name) == 0) return true;
    }
    return false;
}

static const struct row *row_of(const char *name) {
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (strcmp(rows[i].name, name) == 0 || is_alias(&rows[i], name)) return &rows[i];
    }
    return NULL;
}

static const char *refusal(const char *name) {
    for (size_t i = 0; i < KW_COUNTOF(refused); i++) {
        size_t n = strlen(refused[i].name);
        bool prefix = refused[i].name[n - 1] == '.' || refused[i].name[n - 1] == '_';
        if (prefix ? strncmp(name, refused[i].name, n) == 0 : strcmp(name, refused[i].name) == 0) return refused[i].why;
    }
    return NULL;
}

static bool is_without_effect(const char *name) {
    for (size_t i = 0; i < KW_COUNTOF(without_effect); i++) {
        if (strcmp(without_effect[i], name) == 0) return true;
    }
    return false;
}

static kc_err unknown_name(const char *name, kc_error **error) {
    char aliases[ROW_COUNT][2][64];
    struct kw_nearest n;
    kw_nearest_init(&n, name);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        kw_nearest_offer(&n, rows[i].name);
        for (size_t k = 0; k < 2; k++) {
            if (!list_item(rows[i].aliases, k, aliases[i][k], sizeof aliases[i][k])) break;
            kw_nearest_offer(&n, aliases[i][k]);
        }
    }
    for (size_t i = 0; i < KW_COUNTOF(without_effect); i++) kw_nearest_offer(&n, without_effect[i]);
    if (n.best)
        kc_error_make(error, KC_CONFIG, KC_NOT_PERSISTED, NULL, "unknown property \"%s\": did you mean \"%s\"?", name, n.best);
    else
        kc_error_make(error, KC_CONFIG, KC_NOT_PERSISTED, NULL, "unknown property \"%s\": kc config explain lists those that there are",
                      name);
    return KC_CONFIG;
}

/* ---- Values ---- */

static void range_text(const struct row *r, char *text, size_t size) {
    switch (r->kind) {
    case K_BOOL:
    case K_NOT:
        snprintf(text, size, "true or false");
        break;
    case K_ENUM: {
        char item[96];
        size_t at = 0;
        text[0] = 0;
        for (size_t i = 0; list_item(r->choices, i, item, sizeof item) && at < size; i++) {
            item[strcspn(item, "=")] = 0;
            int n = snprintf(text + at, size - at, "%s%s", i ? ", " : "", item);
            at += n > 0 ? (size_t)n : 0;
        }
        break;
    }
    case K_STRING:
        snprintf(text, size, "text");
        break;
    case K_ADDRESSES:
        snprintf(text, size, "host:port,…");
        break;
    case K_UINT:
        snprintf(text, size, "0 to 18446744073709551615");
        break;
    default:
        if (r->max == INT64_MAX)
            snprintf(text, size, "%lld or more", (long long)r->min);
        else
            snprintf(text, size, "%lld to %lld", (long long)r->min, (long long)r->max);
    }
}

static bool parse_choice(const struct row *r, const char *value, int64_t *out) {
    char item[96];
    for (size_t i = 0; list_item(r->choices, i, item, sizeof item); i++) {
        char *eq = strchr(item, '=');
        *eq = 0;
        if (strcasecmp(item, value) == 0) {
            *out = atoll(eq + 1);
            return true;
        }
    }
    return false;
}

static bool parse_bool(const char *v, int64_t *out) {
    static const char *const words[] = {"false", "true", "no", "yes", "0", "1", "off", "on", "f", "t"};
    for (size_t i = 0; i < KW_COUNTOF(words); i++) {
        if (strcasecmp(words[i], v) == 0) {
            *out = (int64_t)(i & 1);
            return true;
        }
    }
    return false;
}

static bool parse_addresses(const char *v) {
    const char *host;
    size_t len;
    uint16_t port;
    bool ok;
    while (kc_bootstrap_next(&v, &host, &len, &port, &ok)) {
        if (!ok) return false;
    }
    return true;
}

/* Digits with a point among them or none, whatever the application's locale makes of a point. */
static bool parse_decimal(const struct row *r, const char *v, int64_t *out) {
    double d = 0, place = 1;
    bool any = false, point = false;
    for (; *v; v++) {
        if (*v == '.' && !point) {
            point = true;
            continue;
        }
        if (*v < '0' || *v > '9') return false;
        any = true;
        if (point && place >= 1e6) continue; /* finer than anything here */
        d = d * 10 + (*v - '0');
        if (point) place *= 10;
        if (d > 1e15) return false;
    }
    d /= place;
    if (!any || d < (double)r->min || d > (double)r->max) return false;
    *out = (int64_t)(d * (double)r->scale + 0.5);
    return true;
}

/* To the settings' unit. */
static bool parse_number(const struct row *r, const char *v, int64_t *out) {
    char *end;
    if (r->kind == K_DECIMAL) return parse_decimal(r, v, out);
    if (r->kind == K_UINT) {
        *out = (int64_t)strtoull(v, &end, 10);
        return end != v && !*end && *v != '-';
    }
    long long n = strtoll(v, &end, 10);
    if (end == v || *end || n < r->min || n > r->max) return false;
    if (r->kind == K_LEVEL && n == -1) {
        *out = KW_LEVEL_DEFAULT;
        return true;
    }
    if ((r->kind == K_FOREVER || r->kind == K_FOREVER0) && n == -1)
        *out = KC_FOREVER;
    else if (r->kind == K_FOREVER0 && n == 0)
        *out = KC_FOREVER;
    else if (n > INT64_MAX / r->scale)
        return false;
    else
        *out = n * r->scale;
    return true;
}

static bool parse(const struct row *r, const char *v, int64_t *out) {
    *out = 0;
    switch (r->kind) {
    case K_STRING:
        return true;
    case K_ADDRESSES:
        return parse_addresses(v);
    case K_ENUM:
        return parse_choice(r, v, out);
    case K_BOOL:
        return parse_bool(v, out);
    case K_NOT: {
        bool ok = parse_bool(v, out);
        *out = !*out;
        return ok;
    }
    default:
        return parse_number(r, v, out);
    }
}

static char *trimmed(const char *v) {
    while (*v == ' ' || *v == '\t') v++;
    size_t n = strlen(v);
    while (n > 0 && (v[n - 1] == ' ' || v[n - 1] == '\t' || v[n - 1] == '\r' || v[n - 1] == '\n')) n--;
    char *t = kw_malloc(n + 1);
    if (!t) return NULL;
    memcpy(t, v, n);
    t[n] = 0;
    return t;
}

static kc_err out_of_memory(kc_error **error) {
    kc_error_make(error, KC_NO_MEMORY, KC_NOT_PERSISTED, NULL, "out of memory");
    return KC_NO_MEMORY;
}

static kc_err warn(kc_config *c, const char *name, kc_error **error) {
    char text[200];
    snprintf(text, sizeof text, "property %.100s has no effect in this library", name);
    for (size_t i = 0; i < c->warning_count; i++) {
        if (strcmp(c->warnings[i], text) == 0) return KC_OK;
    }
    if (c->warning_count == WARNINGS_MAX) return KC_OK;
    char *copy = kw_memdup(text, strlen(text) + 1);
    if (!copy) return out_of_memory(error);
    c->warnings[c->warning_count++] = copy;
    return KC_OK;
}

const char *kc_config_warning(const kc_config *c, size_t index) {
    return c && index < c->warning_count ? c->warnings[index] : NULL;
}

static kc_err refuse(const char *name, const char *why, kc_error **error) {
    kc_error_make(error, KC_UNSUPPORTED, KC_NOT_PERSISTED, NULL, "property %s: %s", name, why);
    return KC_UNSUPPORTED;
}

static kc_err set_other(kc_config *c, const char *name, const char *value, kc_error **error) {
    if (strcmp(name, "security.protocol") == 0) {
        if (strcasecmp(value, "plaintext") == 0) return KC_OK;
        return refuse(name, "TLS and SASL are not in this build yet; only plaintext is", error);
    }
    const char *why = refusal(name);
    if (why) return refuse(name, why, error);
    if (is_without_effect(name)) return warn(c, name, error);
    return unknown_name(name, error);
}

kc_err kc_config_set(kc_config *c, const char *name, const char *value, kc_error **error) {
    if (!c || !name || !value) {
        kc_error_make(error, KC_INVALID, KC_NOT_PERSISTED, NULL, "kc_config_set needs a configuration, a name and a value");
        return KC_INVALID;
    }
    const struct row *r = row_of(name);
    if (!r) return set_other(c, name, value, error);
    char *copy = trimmed(value);
    if (!copy) return out_of_memory(error);
    int64_t number;
    if (!parse(r, copy, &number)) {
        char range[700];
        range_text(r, range, sizeof range);
        kc_error_make(error, KC_CONFIG, KC_NOT_PERSISTED, NULL, "%s: \"%.80s\" is not a valid value; give %.400s", name, value, range);
        kw_free(copy);
        return KC_CONFIG;
    }
    for (size_t i = 0; i < ROW_COUNT; i++) { /* twins of another unit: the last one set counts */
        if (rows[i].offset != r->offset) continue;
        kw_free(c->values[i]);
        c->values[i] = NULL;
    }
    c->values[r - rows] = copy;
    return KC_OK;
}

/* ---- Effective values ---- */

static const char *profile_value(int64_t profile, const char *name) {
    static const struct {
        int64_t profile;
        const char *name, *value;
    } defaults[] = {
        {1, "linger.ms", "5000"},
        {1, "queue.buffering.max.messages", "10000"},
        {1, "batch.num.messages", "200"},
        {1, "queue.enqueue.timeout.ms", "-1"},
        {1, "acks", "0"},
        {1, "retries", "3"},
        {1, "producer.type", "sync"},
        {1, "enable.idempotence", "false"},
        {1, "partitioner", "consistent_random"},
        {2, "acks", "-1"},
        {2, "enable.idempotence", "true"},
        {2, "producer.type", "sync"},
    };
    for (size_t i = 0; i < KW_COUNTOF(defaults); i++) {
        if (defaults[i].profile == profile && strcmp(defaults[i].name, name) == 0) return defaults[i].value;
    }
    return NULL;
}

static int64_t profile_of(const kc_config *client, const kc_config *role) {
    const struct row *r = row_of("profile");
    const char *v = role && role->values[r - rows] ? role->values[r - rows] : client ? client->values[r - rows] : NULL;
    int64_t profile = 0;
    if (v) (void)parse_choice(r, v, &profile);
    return profile;
}

static const char *given(const kc_config *client, const kc_config *role, const struct row *r) {
    const kc_config *layers[] = {role, client};
    for (size_t k = 0; k < 2; k++) {
        if (!layers[k]) continue;
        if (layers[k]->values[r - rows]) return layers[k]->values[r - rows];
        for (size_t i = 0; i < ROW_COUNT; i++) { /* a twin in a nearer layer hides this one in a farther */
            if (rows[i].offset == r->offset && layers[k]->values[i]) return NULL;
        }
    }
    return NULL;
}

static const struct row *given_twin(const kc_config *c, const struct row *r) {
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (rows[i].offset == r->offset && c->values[i]) return &rows[i];
    }
    return NULL;
}

const char *kc_config_get(const kc_config *c, const char *name) {
    const struct row *r = c && name ? row_of(name) : NULL;
    if (!r) return NULL;
    if (c->values[r - rows]) return c->values[r - rows];
    const struct row *t = given_twin(c, r), *main_row = r;
    while (main_row->twin) main_row--; /* a twin follows its row */
    const char *text = t ? c->values[t - rows] : profile_value(profile_of(c, NULL), main_row->name);
    if (!t) t = main_row;
    if (!text) text = main_row->def;
    if (t == r) return text[0] ? text : NULL;
    int64_t v = 0;
    (void)parse(t, text, &v);
    kc_config *mutable = (kc_config *)(uintptr_t)c;
    snprintf(mutable->scratch, sizeof mutable->scratch, "%lld", (long long)(v / r->scale));
    return mutable->scratch;
}

kc_err kc_config_describe(size_t index, kc_config_entry *out) {
    static char ranges[ROW_COUNT][400];
    static _Atomic int filled[ROW_COUNT]; /* 0 not yet, 1 being filled by some thread, 2 filled */
    static const char *const kinds[] = {"text",    "addresses", "boolean", "boolean", "integer", "integer",
                                        "decimal", "integer",   "integer", "choice",  "integer"};
    if (index >= ROW_COUNT || !out) return KC_INVALID;
    const struct row *r = &rows[index];
    int expected = 0;
    if (atomic_compare_exchange_strong(&filled[index], &expected, 1)) {
        range_text(r, ranges[index], sizeof ranges[index]);
        atomic_store(&filled[index], 2);
    }
    while (atomic_load(&filled[index]) != 2) {
    } /* some microseconds, once */
    *out = (kc_config_entry){r->name, r->aliases, r->scope, kinds[r->kind], ranges[index], r->def, r->text};
    return KC_OK;
}

/* ---- Settings ---- */

static kw_err store(struct kc_settings *s, const struct row *r, const char *text) {
    uint8_t *at = (uint8_t *)s + r->offset;
    if (r->kind == K_STRING || r->kind == K_ADDRESSES) {
        char *copy = kw_memdup(text, strlen(text) + 1), *old;
        if (!copy) return KW_ENOMEM;
        memcpy(&old, at, sizeof old);
        kw_free(old);
        memcpy(at, &copy, sizeof copy);
        return KW_OK;
    }
    int64_t v = 0;
    bool ok = parse(r, text, &v);
    KW_ASSERT(ok); /* checked when it was set; defaults by the unit test */
    switch (r->size) {
    case 1:
        *(bool *)(void *)at = v != 0;
        break;
    case 2:
        *(int16_t *)(void *)at = (int16_t)v;
        break;
    case 4:
        *(int32_t *)(void *)at = (int32_t)v;
        break;
    default:
        *(int64_t *)(void *)at = v;
        break;
    }
    return KW_OK;
}

static kc_err bad(kc_error **error, const char *text) {
    kc_error_make(error, KC_CONFIG, KC_NOT_PERSISTED, NULL, "%s", text);
    return KC_CONFIG;
}

/* KIP-679: what contradicts idempotence turns it off, unless idempotence was asked for in so many words. */
static kc_err check_idempotence(struct kc_settings *s, const kc_config *client, const kc_config *role, kc_error **error) {
    bool asked = given(client, role, row_of("enable.idempotence")) != NULL;
    const char *why = s->acks != -1                   ? "enable.idempotence=true needs acks=-1"
                      : s->retries_max == 0           ? "enable.idempotence=true needs retries above 0"
                      : s->producer_in_flight_max > 5 ? "enable.idempotence=true needs max.in.flight.requests.per.connection of at most 5"
                                                      : NULL;
    if (!why || !s->idempotence) return KC_OK;
    if (asked) return bad(error, why);
    s->idempotence = false;
    return KC_OK;
}

static kc_err check_codec(struct kc_settings *s, kc_error **error) {
    char text[160];
    if (!kw_codec_built(s->codec)) {
        snprintf(text, sizeof text, "compression.type=%s: this build of the library leaves that codec out", kw_codec_name(s->codec));
        return bad(error, text);
    }
    int32_t own = s->codec == KW_CODEC_GZIP   ? s->level_gzip
                  : s->codec == KW_CODEC_LZ4  ? s->level_lz4
                  : s->codec == KW_CODEC_ZSTD ? s->level_zstd
                                              : KW_LEVEL_DEFAULT;
    if (own != KW_LEVEL_DEFAULT) s->level = own;
    if (s->level == KW_LEVEL_DEFAULT || s->codec == KW_CODEC_NONE || kw_codec_level_valid(s->codec, s->level)) return KC_OK;
    snprintf(text, sizeof text, "compression level %d is none that %s has", s->level, kw_codec_name(s->codec));
    return bad(error, text);
}

static kc_err finish(struct kc_settings *s, const kc_config *client, const kc_config *role, kc_error **error) {
    kc_err err = check_idempotence(s, client, role, error);
    if (err == KC_OK) err = check_codec(s, error);
    if (err != KC_OK) return err;
    if ((int64_t)s->receive_bytes_max < (int64_t)s->fetch_max_bytes + 512) {
        if (given(client, role, row_of("fetch.max.bytes")) && given(client, role, row_of("receive.message.max.bytes")))
            return bad(error, "receive.message.max.bytes must be at least fetch.max.bytes + 512");
        /* One of them was given: the other one follows. */
        if (given(client, role, row_of("fetch.max.bytes")))
            s->receive_bytes_max = s->fetch_max_bytes + 512;
        else
            s->fetch_max_bytes = KW_MAX(s->receive_bytes_max - 512, 1);
    }
    if (s->reconnect_max_us < s->reconnect_min_us) s->reconnect_max_us = s->reconnect_min_us;
    if (s->retry_backoff_max_us < s->retry_backoff_us) s->retry_backoff_max_us = s->retry_backoff_us;
    if (!given(client, role, row_of("heartbeat.interval.ms")))
        s->heartbeat_us = KW_MIN(s->heartbeat_us, s->session_timeout_us / 3);
    else if (s->heartbeat_us >= s->session_timeout_us)
        return bad(error, "heartbeat.interval.ms must be less than session.timeout.ms");
    s->request_timeout_produce_us = s->request_timeout_us;
    s->in_flight_max = given(client, role, row_of("max.in.flight.requests.per.connection")) ? s->producer_in_flight_max : 100;
    return KC_OK;
}

kc_err kc_settings_new(const kc_config *client, const kc_config *role, struct kc_settings **out, kc_error **error) {
    struct kc_settings *s = kw_calloc(1, sizeof *s);
    if (!s) return out_of_memory(error);
    int64_t profile = profile_of(client, role);
    kc_err err = KC_OK;
    for (size_t i = 0; i < ROW_COUNT && err == KC_OK; i++) {
        const char *text = given(client, role, &rows[i]);
        if (!text && rows[i].twin) continue;
        if (!text) text = profile_value(profile, rows[i].name);
        if (!text) text = rows[i].def;
        if (store(s, &rows[i], text) != KW_OK) err = out_of_memory(error);
    }
    if (err == KC_OK) err = finish(s, client, role, error);
    if (err != KC_OK) {
        kc_settings_free(s);
        return err;
    }
    *out = s;
    return KC_OK;
}

void kc_settings_free(struct kc_settings *s) {
    if (!s) return;
    kw_free(s->bootstrap);
    kw_free(s->client_id);
    kw_free(s->rack);
    kw_free(s->group_id);
    kw_free(s->group_instance_id);
    kw_free(s->assignors);
    kw_free(s->topic_blacklist);
    kw_free(s);
}
