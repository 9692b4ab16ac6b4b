/* controller_configs.c - changing dynamic configurations of topics and brokers, whole (AlterConfigs) or one by one (KIP-339), and the
 * checks of single entries that topic creation shares.
 *
 * Called by api/alter_configs, api/incremental_alter_configs through controller.h, and by controller_topics.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "controller_priv.h"

enum { TOPIC = 2, BROKER = 4, BROKER_LOGGER = 8, CLIENT_METRICS = 16, GROUP = 32 };
enum { OP_SET, OP_DELETE, OP_APPEND, OP_SUBTRACT };

#define VALUE_MAX 4096

kw_err kb_config_record(struct kb_controller *k, int8_t type, struct kw_str resource, struct kw_str name, struct kw_str value) {
    struct kw_config_record *r = kb_controller_record(k, KW_RECORD_CONFIG, 0);
    if (!r) return KW_ENOMEM;
    r->resource_type = type;
    r->resource_name = resource.len < 0 ? kw_str_of("") : resource;
    r->name = name;
    r->value = value;
    return KW_OK;
}

/* A zero-terminated copy, without blanks around it; false: too long, or a zero byte inside. */
static bool text_of(struct kw_str s, char *out, size_t size) {
    const char *p = s.p;
    size_t n = s.len < 0 ? 0 : (size_t)s.len;
    while (n > 0 && (*p == ' ' || *p == '\t')) p++, n--;
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t')) n--;
    if (n >= size || (n > 0 && memchr(p, 0, n))) return false;
    if (n) memcpy(out, p, n);
    out[n] = 0;
    return true;
}

static const struct kb_config_def *known(struct kw_str name, int scope, struct kb_result *r) {
    char key[256];
    if (!text_of(name, key, sizeof(key)) || !key[0]) {
        kb_result_set(r, KE_INVALID_REQUEST, "a configuration's name must have between 1 and 255 characters");
        return NULL;
    }
    const struct kb_config_def *d = kb_config_def(key, scope);
    if (d) return d;
    const char *nearest = kb_config_nearest(key, scope);
    kb_result_set(r, KE_INVALID_CONFIG, "there is no %s configuration %.80s%s%s%s", scope == KB_C_TOPIC ? "topic" : "broker", key,
                  nearest ? ": did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    return NULL;
}

static bool value_ok(struct kb_controller *k, const struct kb_config_def *d, const char *value, struct kb_result *r) {
    char why[sizeof(r->text)] = "";
    if (kb_config_check(d, value, why, sizeof(why))) {
        kb_result_set(r, KE_INVALID_CONFIG, "%s", why);
        return false;
    }
    if (d->scope & KB_C_IGNORED) kb_say(k->o.logger, KB_WARN, "%s is set, but has no effect here", d->name);
    return true;
}

bool kb_config_entry_check(struct kb_controller *k, const struct kb_config_kv *kv, int scope, struct kb_result *r) {
    char value[VALUE_MAX];
    const struct kb_config_def *d = known(kv->key, scope, r);
    if (!d) return false;
    if (text_of(kv->value, value, sizeof(value))) return value_ok(k, d, value, r);
    kb_result_set(r, KE_INVALID_CONFIG, "%s: the value is longer than %d bytes, or has a zero byte", d->name, VALUE_MAX - 1);
    return false;
}

/* ---- Lists ---- */

static bool next_item(const char **list, const char **item, size_t *n) {
    const char *p = *list;
    while (*p == ' ' || *p == '\t' || *p == ',') p++;
    if (!*p) return false;
    size_t len = strcspn(p, ",");
    *list = p + len;
    while (len > 0 && (p[len - 1] == ' ' || p[len - 1] == '\t')) len--;
    *item = p;
    *n = len;
    return true;
}

static bool in_list(const char *list, const char *item, size_t n) {
    const char *p;
    size_t m;
    while (next_item(&list, &p, &m))
        if (m == n && memcmp(p, item, n) == 0) return true;
    return false;
}

/* Copies the items of `from` that `unless` lacks behind what out has; false: out is full. */
static bool add_items(char out[VALUE_MAX], const char *from, const char *unless) {
    const char *p;
    size_t n, at = strlen(out);
    while (next_item(&from, &p, &n)) {
        if (in_list(unless, p, n) || in_list(out, p, n)) continue;
        if (at + n + 2 > VALUE_MAX) return false;
        if (at) out[at++] = ',';
        memcpy(out + at, p, n);
        at += n;
        out[at] = 0;
    }
    return true;
}

/* ---- Resources ---- */

static int scope_of(int8_t type) {
    return type == TOPIC ? KB_C_TOPIC : KB_C_BROKER;
}

static bool broker_ok(struct kb_controller *k, struct kw_str name, struct kb_result *r) {
    char text[16];
    if (name.len <= 0) return true; /* the default of all brokers */
    char *end = text;
    long long id = text_of(name, text, sizeof(text)) ? strtoll(text, &end, 10) : -1;
    if (end != text && !*end && id >= 0 && id <= INT32_MAX && kb_image_broker(k->o.image, (int32_t)id)) return true;
    kb_result_set(r, KE_INVALID_REQUEST, "there is no broker %.*s: give a broker's number, or nothing for the default of all",
                  (int)KW_MIN(name.len, 50), name.p);
    return false;
}

static bool resource_ok(struct kb_controller *k, const struct kb_config_alter *a, struct kb_result *r) {
    switch (a->type) {
    case TOPIC:
        if (kb_image_topic(k->o.image, a->name)) return true;
        kb_result_set(r, KE_UNKNOWN_TOPIC_OR_PARTITION, "there is no topic %.*s", (int)KW_MIN(a->name.len, 100), a->name.p);
        return false;
    case BROKER:
        return broker_ok(k, a->name, r);
    case BROKER_LOGGER:
        kb_result_set(r, KE_INVALID_REQUEST, "log levels are fixed when the node starts (kbroker run --verbose)");
        return false;
    case CLIENT_METRICS:
        kb_result_set(r, KE_INVALID_REQUEST, "there are no client metrics subscriptions here");
        return false;
    case GROUP:
        kb_result_set(r, KE_INVALID_REQUEST, "there are no group configurations here");
        return false;
    default:
        kb_result_set(r, KE_INVALID_REQUEST, "resource type %d is unknown: topics are 2, brokers 4", (int)a->type);
        return false;
    }
}

#define KEYS_MAX 1000

static bool keys_unique(const struct kb_config_alter *a, struct kb_result *r) {
    if (a->kv_count > KEYS_MAX) {
        kb_result_set(r, KE_INVALID_REQUEST, "%d configurations of one resource are too many", (int)a->kv_count);
        return false;
    }
    for (int32_t i = 0; i < a->kv_count; i++)
        for (int32_t j = 0; j < i; j++)
            if (kw_str_eq(a->kvs[i].key, a->kvs[j].key)) {
                kb_result_set(r, KE_INVALID_REQUEST, "%.*s is named more than once", (int)KW_MIN(a->kvs[i].key.len, 100), a->kvs[i].key.p);
                return false;
            }
    return true;
}

static bool dynamic_ok(const struct kb_config_alter *a, const struct kb_config_def *d, struct kb_result *r) {
    if (a->type != BROKER || (d->scope & KB_C_DYNAMIC)) return true;
    kb_result_set(r, KE_INVALID_CONFIG, "%s cannot be changed at run time: set it in server.properties and restart", d->name);
    return false;
}

/* What append and subtract start from: what the resource has in effect now. */
static const char *value_now(struct kb_controller *k, const struct kb_config_alter *a, const struct kb_config_def *d,
                             struct kb_effective *e) {
    if (a->type == TOPIC)
        kb_effective_topic(k->o.image, k->o.config, a->name, d, e);
    else if (!(e->value = kb_image_config_get(k->o.image, BROKER, a->name.len < 0 ? kw_str_of("") : a->name, d->name)))
        kb_effective_broker(k->o.image, k->o.config, d, e);
    return e->value ? e->value : "";
}

/* The value after the operation, in out; *gone: the entry goes. false: the result says why not. */
static bool operate(struct kb_controller *k, const struct kb_config_alter *a, const struct kb_config_kv *kv, const struct kb_config_def *d,
                    char out[VALUE_MAX], bool *gone, struct kb_result *r) {
    char given[VALUE_MAX];
    struct kb_effective e;
    *gone = !a->replace_all ? kv->op == OP_DELETE : kv->value.len < 0;
    if (*gone) return true;
    if (kv->value.len < 0 || !text_of(kv->value, given, sizeof(given))) {
        kb_result_set(r, KE_INVALID_REQUEST, "%s: a value of at most %d bytes, without zero bytes, is needed", d->name, VALUE_MAX - 1);
        return false;
    }
    if (a->replace_all || kv->op == OP_SET) {
        memcpy(out, given, strlen(given) + 1);
        return true;
    }
    if (kv->op != OP_APPEND && kv->op != OP_SUBTRACT) {
        kb_result_set(r, KE_INVALID_REQUEST, "%s: operation %d is unknown", d->name, (int)kv->op);
        return false;
    }
    if (d->type != KB_C_LIST) {
        kb_result_set(r, KE_INVALID_CONFIG, "%s is not a list: set it instead of adding to it or taking from it", d->name);
        return false;
    }
    const char *now = value_now(k, a, d, &e);
    out[0] = 0;
    bool fits = kv->op == OP_APPEND ? add_items(out, now, "") && add_items(out, given, "") : add_items(out, now, given);
    if (!fits) kb_result_set(r, KE_INVALID_CONFIG, "%s: the list would be longer than %d bytes", d->name, VALUE_MAX - 1);
    return fits;
}

static bool elects(const char *name) {
    return strcmp(name, "unclean.leader.election.enable") == 0;
}

/* One entry: its record, or the reason why not in the result. */
static kw_err alter_entry(struct kb_controller *k, struct kb_config_alter *a, const struct kb_config_kv *kv) {
    char value[VALUE_MAX];
    bool gone;
    struct kb_result *r = &a->result;
    const struct kb_config_def *d = known(kv->key, scope_of(a->type), r);
    if (!d || !dynamic_ok(a, d, r) || !operate(k, a, kv, d, value, &gone, r)) return KW_OK;
    if (!gone && !value_ok(k, d, value, r)) return KW_OK;
    struct kw_str name = kw_str_of(d->name), text = kw_str_null();
    struct kw_str resource = a->name.len < 0 ? kw_str_of("") : a->name;
    if (!gone) {
        text = (struct kw_str){kw_arena_dup(&k->arena, value, strlen(value) + 1), (int32_t)strlen(value)};
        if (!text.p) return KW_ENOMEM;
    } else if (!kb_image_config_get(k->o.image, a->type, resource, d->name)) {
        return KW_OK;
    }
    k->elects |= elects(d->name);
    return kb_config_record(k, a->type, resource, name, text);
}

static kw_err drop_unnamed(struct kb_controller *k, const struct kb_config_alter *a) {
    const char *key, *value;
    struct kw_str resource = a->name.len < 0 ? kw_str_of("") : a->name;
    for (size_t it = 0; kb_image_config_next(k->o.image, a->type, resource, &it, &key, &value);) {
        bool named = false;
        for (int32_t i = 0; i < a->kv_count; i++) named |= kw_str_eq(a->kvs[i].key, kw_str_of(key));
        if (named) continue;
        k->elects |= elects(key);
        kw_err err = kb_config_record(k, a->type, resource, kw_str_of(key), kw_str_null());
        if (err) return err;
    }
    return KW_OK;
}

static kw_err run_alter(struct kb_controller *k, struct kb_change *c) {
    struct kb_config_alter *alters = c->items;
    kw_err err = KW_OK;
    size_t start = k->record_count, shared = SIZE_MAX; /* shared: from here on there are brokers' values, which topics inherit */
    for (int32_t i = 0; !err && i < c->count; i++) {
        struct kb_config_alter *a = &alters[i];
        size_t mark = k->record_count;
        struct kw_str name = a->name.len < 0 ? kw_str_of("") : a->name;
        if (a->result.code || !resource_ok(k, a, &a->result) || !keys_unique(a, &a->result)) continue;
        for (int32_t j = 0; !err && !a->result.code && j < a->kv_count; j++) err = alter_entry(k, a, &a->kvs[j]);
        if (!err && !a->result.code && a->replace_all) err = drop_unnamed(k, a);
        if (a->type == BROKER) shared = start;
        if (!err && !a->result.code) (void)kb_guid_config_ok(k, a->type, name, mark, KW_MIN(mark, shared), &a->result);
        if (a->result.code) k->record_count = mark; /* a resource changes as a whole or not at all */
    }
    return err;
}

static bool claim_alter(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    const struct kb_config_alter *a = &((struct kb_config_alter *)c->items)[i];
    (void)k;
    if (a->type == TOPIC) return kb_claim_topic(a->name, key, n);
    int made =
        snprintf(key, KB_CLAIM_SIZE, "c%d:%.*s", (int)a->type, (int)KW_MIN(KW_MAX(a->name.len, 0), 200), a->name.len > 0 ? a->name.p : "");
    *n = (size_t)made;
    return true;
}
static bool names_alter(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    const struct kb_config_alter *a = &((struct kb_config_alter *)c->items)[i];
    if (a->type != TOPIC) return claim_alter(k, c, i, key, n);
    return kb_names_topic(a->name, key, n); /* no topic is called "c4:…": the others' keys do not meet these */
}
static struct kb_result *alter_result(struct kb_change *c, int32_t i) {
    return &((struct kb_config_alter *)c->items)[i].result;
}
static const struct kb_change_kind alter_kind = {
    .run = run_alter, .claim = claim_alter, .names = names_alter, .result = alter_result};

kw_err kb_controller_alter_configs(struct kb_controller *k, struct kb_config_alter *alters, int32_t count, bool validate_only,
                                   struct kb_change *c, struct kb_now now) {
    return kb_controller_submit(k, c, &alter_kind, alters, count, validate_only, now);
}
