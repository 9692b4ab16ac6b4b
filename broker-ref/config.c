/* config.c - looks entries up, checks values against them, and keeps one node's static values. The table is in config_table.c, files are
 * read in config_file.c, listeners and the checks across entries are in config_net.c.
 *
 * Called by main (files, --set), quorum/image_config (what is effective), api/describe_configs and the controller (checks).
 */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/nearest.h"
#include "config_priv.h"

#define NAME_MAX_LEN 128

void kb_config_text(char *text, size_t size, const char *fmt, ...) {
    if (!text || size == 0) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, size, fmt, ap);
    va_end(ap);
}

/* ---- The table ---- */

const struct kb_config_def *kb_config_def(const char *name, int scope) {
    for (size_t i = 0; i < kb_config_def_count; i++)
        if ((kb_config_defs[i].scope & scope) && strcmp(kb_config_defs[i].name, name) == 0) return &kb_config_defs[i];
    return NULL;
}

const char *kb_config_nearest(const char *name, int scope) {
    struct kw_nearest n;
    kw_nearest_init(&n, name);
    for (size_t i = 0; i < kb_config_def_count; i++)
        if (kb_config_defs[i].scope & scope) kw_nearest_offer(&n, kb_config_defs[i].name);
    return n.best;
}

bool kb_config_synonym_at(const struct kb_config_def *d, size_t i, struct kb_config_synonym *s) {
    const char *p = d->broker_synonym;
    for (; p && i > 0; i--) {
        p = strchr(p, ',');
        if (p) p++;
    }
    if (!p) return false;
    char name[NAME_MAX_LEN];
    size_t n = strcspn(p, ":,");
    KW_ASSERT(n < sizeof(name));
    memcpy(name, p, n);
    name[n] = 0;
    s->def = kb_config_def(name, KB_C_BROKER);
    KW_ASSERT(s->def);
    s->factor = p[n] == ':' ? strtoll(p + n + 1, NULL, 10) : 1;
    return true;
}

/* ---- Values ---- */

bool kb_config_item(const char **list, const char **item, size_t *len) {
    const char *p = *list;
    if (!p) return false;
    const char *end = p + strcspn(p, ",");
    *list = *end ? end + 1 : NULL;
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    while (end > p && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *item = p;
    *len = (size_t)(end - p);
    return true;
}

bool kb_config_list_has(const char *list, const char *item) {
    const char *p;
    size_t n, want = strlen(item);
    while (kb_config_item(&list, &p, &n))
        if (n == want && memcmp(p, item, n) == 0) return true;
    return false;
}

static kw_err check_integer(const struct kb_config_def *d, const char *value, char *text, size_t size) {
    int64_t min = d->min, max = d->max;
    if (d->type == KB_C_INT) min = KW_MAX(min, INT32_MIN), max = KW_MIN(max, INT32_MAX);
    if (d->type == KB_C_SHORT) min = KW_MAX(min, INT16_MIN), max = KW_MIN(max, INT16_MAX);
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (end == value || *end || errno == EINVAL) {
        kb_config_text(text, size, "%s=%s: a whole number is needed", d->name, value);
        return KW_EINVAL;
    }
    if (errno == ERANGE || v < min || v > max) {
        kb_config_text(text, size, "%s=%s: it must lie between %lld and %lld", d->name, value, (long long)min, (long long)max);
        return KW_EINVAL;
    }
    return KW_OK;
}

static kw_err check_double(const struct kb_config_def *d, const char *value, char *text, size_t size) {
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end || v != v) {
        kb_config_text(text, size, "%s=%s: a number is needed", d->name, value);
        return KW_EINVAL;
    }
    if (v >= (double)d->min && v <= (double)d->max) return KW_OK;
    kb_config_text(text, size, "%s=%s: it must be between %lld and %lld", d->name, value, (long long)d->min, (long long)d->max);
    return KW_EINVAL;
}

static bool among(const char *values, const char *p, size_t n) {
    const char *v;
    size_t m;
    while (kb_config_item(&values, &v, &m))
        if (n == m && memcmp(p, v, n) == 0) return true;
    return false;
}

static kw_err check_list(const struct kb_config_def *d, const char *value, char *text, size_t size) {
    const char *rest = value, *p, *seen;
    size_t n, m;
    if (!d->values || !*value) return KW_OK;
    while (kb_config_item(&rest, &p, &n)) {
        if (!among(d->values, p, n)) {
            kb_config_text(text, size, "%s=%s: each item must be one of %s", d->name, value, d->values);
            return KW_EINVAL;
        }
        const char *before = value;
        while (kb_config_item(&before, &seen, &m) && seen < p)
            if (m == n && memcmp(seen, p, n) == 0) {
                kb_config_text(text, size, "%s=%s: %.*s is named twice", d->name, value, (int)n, p);
                return KW_EINVAL;
            }
    }
    return KW_OK;
}

kw_err kb_config_check(const struct kb_config_def *d, const char *value, char *text, size_t size) {
    if (!value) {
        if (!d->def) return KW_OK;
        kb_config_text(text, size, "%s: a value is needed", d->name);
        return KW_EINVAL;
    }
    switch (d->type) {
    case KB_C_BOOL:
        if (strcasecmp(value, "true") == 0 || strcasecmp(value, "false") == 0) break;
        kb_config_text(text, size, "%s=%s: it must be true or false", d->name, value);
        return KW_EINVAL;
    case KB_C_INT:
    case KB_C_LONG:
    case KB_C_SHORT:
        return check_integer(d, value, text, size);
    case KB_C_DOUBLE:
        return check_double(d, value, text, size);
    case KB_C_LIST:
        return check_list(d, value, text, size);
    case KB_C_ENUM:
        if (among(d->values, value, strlen(value))) break;
        kb_config_text(text, size, "%s=%s: it must be one of %s", d->name, value, d->values);
        return KW_EINVAL;
    default:
        break;
    }
    if (strcmp(d->name, "remote.storage.enable") == 0 && strcasecmp(value, "true") == 0) {
        kb_config_text(text, size, "remote.storage.enable=true: there is no tiered storage here; leave it false");
        return KW_EINVAL;
    }
    return KW_OK;
}

int64_t kb_config_number(const struct kb_config_def *d, const char *value) {
    if (!value) return -1;
    switch (d->type) {
    case KB_C_BOOL:
        return strcasecmp(value, "true") == 0;
    case KB_C_INT:
    case KB_C_LONG:
    case KB_C_SHORT:
        return strtoll(value, NULL, 10);
    default:
        return -1;
    }
}

/* ---- One node's static values ---- */

static kw_err index_names(struct kb_config *c) {
    kw_err err = KW_OK;
    for (size_t i = 0; i < kb_config_def_count && !err; i++) {
        const struct kb_config_def *d = &kb_config_defs[i];
        struct kw_map *m = d->scope & KB_C_TOPIC ? &c->topics : &c->brokers;
        err = kw_map_put(m, d->name, strlen(d->name), (void *)(uintptr_t)d);
    }
    return err;
}

static kw_err index_synonyms(struct kb_config *c) {
    struct kb_config_synonym s;
    size_t n = 0;
    for (size_t i = 0; i < kb_config_def_count; i++)
        for (size_t k = 0; k == 0 || kb_config_synonym_at(&kb_config_defs[i], k - 1, &s); k++) n++;
    c->synonyms = kw_calloc(n, sizeof(*c->synonyms));
    c->synonyms_of = kw_calloc(kb_config_def_count, sizeof(*c->synonyms_of));
    if (!c->synonyms || !c->synonyms_of) return KW_ENOMEM;
    struct kb_config_synonym *at = c->synonyms;
    for (size_t i = 0; i < kb_config_def_count; i++) {
        if (!kb_config_defs[i].broker_synonym) continue;
        c->synonyms_of[i] = at;
        for (size_t k = 0; kb_config_synonym_at(&kb_config_defs[i], k, at); k++) at++;
        at++; /* the NULL that ends it */
    }
    return KW_OK;
}

kw_err kb_config_new(struct kb_config **c) {
    struct kb_config *made = kw_calloc(1, sizeof(*made));
    if (!made) return KW_ENOMEM;
    kw_map_init(&made->brokers);
    kw_map_init(&made->topics);
    made->values = kw_calloc(kb_config_def_count, sizeof(char *));
    kw_err err = made->values ? index_names(made) : KW_ENOMEM;
    if (!err) err = index_synonyms(made);
    if (err) {
        kb_config_free(made);
        return err;
    }
    *c = made;
    return KW_OK;
}

void kb_config_free(struct kb_config *c) {
    if (!c) return;
    for (size_t i = 0; c->values && i < kb_config_def_count; i++) kw_free(c->values[i]);
    kw_free(c->values);
    kw_map_deinit(&c->brokers);
    kw_map_deinit(&c->topics);
    kw_free(c->synonyms);
    kw_free(c->synonyms_of);
    kw_free(c);
}

const struct kb_config_def *kb_config_find(const struct kb_config *c, const char *name, int scope) {
    return kw_map_get(scope & KB_C_TOPIC ? &c->topics : &c->brokers, name, strlen(name));
}

const struct kb_config_synonym *kb_config_synonyms(const struct kb_config *c, const struct kb_config_def *d) {
    return c->synonyms_of[d - kb_config_defs];
}

const char *kb_config_static(const struct kb_config *c, const struct kb_config_def *d) {
    return c->values[d - kb_config_defs];
}

kw_err kb_config_store(struct kb_config *c, const struct kb_config_def *d, const char *value) {
    char *copy = kw_memdup(value, strlen(value) + 1);
    if (!copy) return KW_ENOMEM;
    size_t i = (size_t)(d - kb_config_defs);
    kw_free(c->values[i]);
    c->values[i] = copy;
    return KW_OK;
}

/* Names that need more than "unknown": of older releases, of the article, or of a cluster that works otherwise. */
static const struct special {
    const char *name;
    bool accepted;
    const char *text;
} specials[] = {
    {"default.replication.refactor", false, "default.replication.refactor is a misspelling: use default.replication.factor"},
    {"replica.lag.max.messages", true,
     "replica.lag.max.messages is not offered and is ignored: a burst of records would throw healthy followers out of the ISR; "
     "replica.lag.time.max.ms decides"},
    {"zookeeper.connect", false, "zookeeper.connect: there is no ZooKeeper here, the metadata lives in the node's own log; remove it"},
    {"port", false, "port is a name of old releases: use listeners=PLAINTEXT://HOST:PORT"},
    {"host.name", false, "host.name is a name of old releases: use listeners=PLAINTEXT://HOST:PORT"},
    {"advertised.host.name", false, "advertised.host.name is a name of old releases: use advertised.listeners=PLAINTEXT://HOST:PORT"},
    {"advertised.port", false, "advertised.port is a name of old releases: use advertised.listeners=PLAINTEXT://HOST:PORT"},
    {"inter.broker.protocol.version", true, "inter.broker.protocol.version is a name of old releases and is ignored"},
    {"log.message.format.version", true,
     "log.message.format.version is a name of old releases and is ignored: each batch is kept as it comes, in format v2"},
    {"log.message.downconversion.enable", true,
     "log.message.downconversion.enable is a name of old releases and is ignored: old clients are always served"},
};

static kw_err set_unknown(const char *name, char *text, size_t size, void (*warn)(void *, const char *), void *ctx) {
    char line[320];
    for (size_t i = 0; i < KW_COUNTOF(specials); i++) {
        if (strcmp(specials[i].name, name) != 0) continue;
        if (!specials[i].accepted) {
            kb_config_text(text, size, "%s", specials[i].text);
            return KW_EINVAL;
        }
        if (warn) warn(ctx, specials[i].text);
        return KW_OK;
    }
    if (strncmp(name, "listener.name.", 14) == 0 && name[14]) {
        snprintf(line, sizeof(line), "%.200s has no effect here: it is accepted and ignored", name);
        if (warn) warn(ctx, line);
        return KW_OK;
    }
    const struct kb_config_def *topic = kb_config_def(name, KB_C_TOPIC);
    struct kb_config_synonym broker;
    if (topic && kb_config_synonym_at(topic, 0, &broker)) {
        kb_config_text(text, size, "%s is a topic's property: the broker's default for all topics is %s", name, broker.def->name);
        return KW_EINVAL;
    }
    if (topic) {
        kb_config_text(text, size, "%s is a topic's property: set it on the topic, the broker has no default for it", name);
        return KW_EINVAL;
    }
    const char *nearest = kb_config_nearest(name, KB_C_BROKER);
    kb_config_text(text, size, "unknown property %.100s%s%s%s", name,
                   nearest ? ": did you mean " : ": neither kbroker nor Apache Kafka 4.4 has one like it", nearest ? nearest : "",
                   nearest ? "?" : "");
    return KW_EINVAL;
}

kw_err kb_config_set(struct kb_config *c, const char *name, const char *value, char *text, size_t size,
                     void (*warn)(void *ctx, const char *), void *ctx) {
    const struct kb_config_def *d = kb_config_def(name, KB_C_BROKER);
    if (!d) return set_unknown(name, text, size, warn, ctx);
    char trimmed[4096];
    size_t n = strlen(value);
    while (n > 0 && strchr(" \t\r\n", value[n - 1])) n--;
    while (n > 0 && strchr(" \t\r\n", *value)) value++, n--;
    if (n >= sizeof(trimmed)) {
        kb_config_text(text, size, "%s: the value is longer than %zu bytes", name, sizeof(trimmed) - 1);
        return KW_EINVAL;
    }
    memcpy(trimmed, value, n);
    trimmed[n] = 0;
    kw_err err = kb_config_check(d, trimmed, text, size);
    if (err) return err;
    bool first = !c->values[d - kb_config_defs];
    err = kb_config_store(c, d, trimmed);
    if (err) {
        kb_config_text(text, size, "%s: out of memory", name);
        return err;
    }
    if ((d->scope & KB_C_IGNORED) && first && warn) {
        char line[320];
        snprintf(line, sizeof(line), "%s has no effect here: it is accepted and ignored", d->name);
        warn(ctx, line);
    }
    return KW_OK;
}

static const char *value_of(const struct kb_config *c, const struct kb_config_def *d) {
    const char *v = c->values[d - kb_config_defs];
    return v ? v : d->def;
}

const char *kb_config_get(const struct kb_config *c, const char *name) {
    const struct kb_config_def *d = kb_config_find(c, name, KB_C_BROKER);
    return d ? value_of(c, d) : NULL;
}

bool kb_config_is_set(const struct kb_config *c, const char *name) {
    const struct kb_config_def *d = kb_config_find(c, name, KB_C_BROKER);
    return d && c->values[d - kb_config_defs];
}

int64_t kb_config_int(const struct kb_config *c, const char *name) {
    const struct kb_config_def *d = kb_config_find(c, name, KB_C_BROKER);
    KW_ASSERT(d);
    return kb_config_number(d, value_of(c, d));
}

bool kb_config_bool(const struct kb_config *c, const char *name) {
    return kb_config_int(c, name) > 0;
}

const char *kb_config_log_dir(const struct kb_config *c) {
    const char *dirs = kb_config_get(c, "log.dirs");
    return dirs && *dirs ? dirs : kb_config_get(c, "log.dir");
}
