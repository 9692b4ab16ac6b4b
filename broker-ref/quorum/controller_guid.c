/* controller_guid.c - what message.guid.dedup asks of a topic's other settings, and what more partitions mean for it.
 *
 * Called by controller_topics, controller_configs, controller_grow. Calls effective.
 */
#include <stdio.h>

#include "controller_priv.h"

enum { TOPIC = 2, BROKER = 4 };
enum { NAMED_MAX = 3 }; /* topics in a message */

/* Of this change, that is not in the image yet. */
struct pending {
    struct kb_controller *k;
    size_t from;   /* its first record that counts */
    char text[64]; /* long enough for what is asked for here */
};

static const char *copy(struct pending *p, struct kw_str s) {
    size_t n = KW_MIN((size_t)KW_MAX(s.len, 0), sizeof(p->text) - 1);
    if (n > 0) memcpy(p->text, s.p, n);
    p->text[n] = 0;
    return p->text + strspn(p->text, " \t");
}

static bool is_pending(void *ctx, int8_t type, struct kw_str resource, const char *name, const char **value) {
    struct pending *p = ctx;
    for (size_t i = p->k->record_count; i > p->from; i--) {
        const struct kw_config_record *r = p->k->records[i - 1].message;
        if (p->k->records[i - 1].type != KW_RECORD_CONFIG || r->resource_type != type) continue;
        if (!kw_str_eq(r->resource_name, resource) || !kw_str_eq(r->name, kw_str_of(name))) continue;
        *value = r->value.len >= 0 ? copy(p, r->value) : NULL;
        return true;
    }
    return false;
}

static int64_t number_of(const struct kb_effective_view *v, struct kw_str topic, const char *name) {
    const struct kb_config_def *d = kb_config_find(v->config, name, KB_C_TOPIC);
    struct kb_effective e;
    kb_effective_topic_in(v, topic, d, &e);
    return kb_config_number(d, e.value);
}

/* What the check rests on, of topics and of brokers. What is not changed now, and was no trouble when it was, is none of this change's. */
static bool concerns(const struct kb_controller *k, size_t mark) {
    static const char *const names[] = {"message.guid.dedup",     "message.guid.window.ms",     "retention.ms",     "cleanup.policy",
                                        "log.message.guid.dedup", "log.message.guid.window.ms", "log.retention.ms", "log.cleanup.policy"};
    for (size_t i = mark; i < k->record_count; i++) {
        const struct kw_config_record *r = k->records[i].message;
        if (k->records[i].type == KW_RECORD_TOPIC) return true;
        for (size_t j = 0; k->records[i].type == KW_RECORD_CONFIG && j < KW_COUNTOF(names); j++)
            if (kw_str_eq(r->name, kw_str_of(names[j]))) return true;
    }
    return false;
}

/* false: the topic's records would go while their GUIDs have to be known, and how long each would be kept. */
static bool is_kept(const struct kb_effective_view *v, struct kw_str topic, int64_t *window, int64_t *retention) {
    struct kb_effective e;
    if (number_of(v, topic, "message.guid.dedup") <= 0) return true;
    *window = number_of(v, topic, "message.guid.window.ms");
    *retention = number_of(v, topic, "retention.ms");
    if (*retention < 0 || *window <= *retention) return true;
    kb_effective_topic_in(v, topic, kb_config_find(v->config, "cleanup.policy", KB_C_TOPIC), &e);
    return !e.value || !kb_config_list_has(e.value, "delete");
}

/* By the cluster's values, and by those of each broker that has some of its own. */
static bool is_kept_anywhere(struct kb_effective_view *v, struct kw_str topic, int64_t *window, int64_t *retention) {
    const struct kb_image_broker *b;
    v->broker = kw_str_of("");
    if (!is_kept(v, topic, window, retention)) return false;
    for (size_t it = 0; (b = kw_map_next(&v->image->brokers, &it));) {
        char id[16];
        const char *key, *value;
        snprintf(id, sizeof(id), "%d", (int)b->id);
        v->broker = kw_str_of(id);
        bool has = kb_image_config_next(v->image, BROKER, v->broker, &(size_t){0}, &key, &value), kept = !has || is_kept(v, topic, window, retention);
        v->broker = kw_str_of("");
        if (!kept) return false;
    }
    return true;
}

/* Names the first ones that it breaks, with the numbers of the first. */
static bool all_topics_kept(struct kb_effective_view *v, struct kw_str broker, struct kb_result *r) {
    char names[120] = "";
    size_t at = 0, count = 0;
    int64_t window = 0, retention = 0;
    const struct kb_image_topic *t;
    for (size_t it = 0; (t = kw_map_next(&v->image->topics_by_name, &it));) {
        int64_t w, ret;
        v->broker = broker;
        bool kept = broker.len > 0 ? is_kept(v, kw_str_of(t->name), &w, &ret) : is_kept_anywhere(v, kw_str_of(t->name), &w, &ret);
        if (kept) continue;
        if (count++ == 0) {
            window = w;
            retention = ret;
        }
        if (count <= NAMED_MAX) at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%.30s", at ? ", " : "", t->name);
    }
    if (count == 0) return true;
    kb_result_set(r, KE_INVALID_CONFIG, "message.guid.window.ms=%lld would be more than retention.ms=%lld of %zu deduped topic%s: %s%s", (long long)window,
                  (long long)retention, count, count > 1 ? "s" : "", names, count > NAMED_MAX ? ", ..." : "");
    return false;
}

bool kb_guid_config_ok(struct kb_controller *k, int8_t type, struct kw_str name, size_t mark, size_t from, struct kb_result *r) {
    struct pending p = {.k = k, .from = from};
    struct kb_effective_view v = {.image = k->o.image, .config = k->o.config, .changed = is_pending, .ctx = &p};
    int64_t window, retention;
    if (!concerns(k, mark)) return true;
    if (type == BROKER) return all_topics_kept(&v, name, r);
    if (is_kept_anywhere(&v, name, &window, &retention)) return true;
    kb_result_set(r, KE_INVALID_CONFIG,
                  "message.guid.window.ms=%lld is more than retention.ms=%lld: records would go while their GUIDs have to be known; lower the "
                  "one, or raise the other",
                  (long long)window, (long long)retention);
    return false;
}

void kb_guid_warn_of_growth(struct kb_controller *k, const struct kb_image_topic *t, int32_t total) {
    if (kb_effective_topic_int(k->o.image, k->o.config, kw_str_of(t->name), "message.guid.dedup") <= 0) return;
    kb_say(k->o.logger, KB_WARN,
           "topic %s gets %d partitions instead of %d: each dedups its own records (message.guid.dedup), so what was stored before and is sent "
           "again may go to another partition now, and be stored twice",
           t->name, (int)total, (int)t->partition_count);
}
