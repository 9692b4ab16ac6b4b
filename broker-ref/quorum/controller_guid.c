/* controller_guid.c - what message.guid.dedup asks of a topic's other settings, and what more partitions mean for it.
 *
 * Called by controller_topics, controller_configs, controller_grow. Calls effective.
 */
#include "controller_priv.h"

enum { TOPIC = 2 };

/* Long enough for what is asked for here. */
struct value {
    struct kb_effective e;
    char text[64];
};

static const char *copy(struct value *v, struct kw_str s) {
    size_t n = KW_MIN((size_t)KW_MAX(s.len, 0), sizeof(v->text) - 1);
    if (n > 0) memcpy(v->text, s.p, n);
    v->text[n] = 0;
    return v->text + strspn(v->text, " \t");
}

/* As it will be once the records from `mark` on are applied; NULL: null. */
static const char *value_of(struct kb_controller *k, struct kw_str topic, size_t mark, const char *name, struct value *v) {
    const struct kb_config_def *d = kb_config_find(k->o.config, name, KB_C_TOPIC);
    for (size_t i = k->record_count; i > mark; i--) {
        const struct kw_config_record *r = k->records[i - 1].message;
        if (k->records[i - 1].type != KW_RECORD_CONFIG || r->resource_type != TOPIC) continue;
        if (!kw_str_eq(r->resource_name, topic) || !kw_str_eq(r->name, kw_str_of(name))) continue;
        if (r->value.len >= 0) return copy(v, r->value);
        topic = kw_str_null(); /* it goes: what a topic has without it */
        break;
    }
    kb_effective_topic(k->o.image, k->o.config, topic, d, &v->e);
    return v->e.value;
}

static int64_t number_of(struct kb_controller *k, struct kw_str topic, size_t mark, const char *name) {
    struct value v;
    const char *text = value_of(k, topic, mark, name, &v);
    return kb_config_number(kb_config_find(k->o.config, name, KB_C_TOPIC), text);
}

/* What is not changed now, and was no trouble when it was, is none of this change's. */
static bool concerns(const struct kb_controller *k, size_t mark) {
    static const char *const names[] = {"message.guid.dedup", "message.guid.window.ms", "retention.ms", "cleanup.policy"};
    for (size_t i = mark; i < k->record_count; i++) {
        const struct kw_config_record *r = k->records[i].message;
        if (k->records[i].type == KW_RECORD_TOPIC) return true;
        for (size_t j = 0; k->records[i].type == KW_RECORD_CONFIG && j < KW_COUNTOF(names); j++)
            if (kw_str_eq(r->name, kw_str_of(names[j]))) return true;
    }
    return false;
}

bool kb_guid_config_ok(struct kb_controller *k, struct kw_str topic, size_t mark, struct kb_result *r) {
    struct value v;
    if (!concerns(k, mark)) return true;
    if (number_of(k, topic, mark, "message.guid.dedup") <= 0) return true;
    int64_t window = number_of(k, topic, mark, "message.guid.window.ms"), retention = number_of(k, topic, mark, "retention.ms");
    const char *policy = value_of(k, topic, mark, "cleanup.policy", &v);
    if (retention < 0 || window <= retention || !policy || !kb_config_list_has(policy, "delete")) return true;
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
