/* offsets.c - a group's committed offsets. Called by coordinator.c. */
#include "offsets.h"

void kb_committed_init(struct kb_committed *t) {
    *t = (struct kb_committed){0};
    kw_map_init(&t->topics);
}

void kb_committed_deinit(struct kb_committed *t) {
    struct kb_offset_topic *topic;
    struct kb_offset_entry *e;
    for (size_t i = 0; (topic = kw_map_next(&t->topics, &i));) {
        for (size_t k = 0; (e = kw_map_next(&topic->partitions, &k));) {
            kw_free(e->stored.metadata);
            kw_free(e);
        }
        kw_map_deinit(&topic->partitions);
        kw_free(topic);
    }
    kw_map_deinit(&t->topics);
}

static struct kb_offset_entry *find(const struct kb_committed *t, struct kw_str topic, int32_t partition) {
    struct kb_offset_topic *found = kw_map_get_str(&t->topics, topic);
    return found ? kw_map_get_u64(&found->partitions, (uint32_t)partition) : NULL;
}

static void topic_drop_empty(struct kb_committed *t, struct kb_offset_topic *topic) {
    if (topic->partitions.count > 0) return;
    kw_map_remove(&t->topics, topic->name, (size_t)topic->len);
    kw_map_deinit(&topic->partitions);
    kw_free(topic);
}

static void entry_drop_unused(struct kb_committed *t, struct kb_offset_entry *e) {
    struct kb_offset_topic *topic = e->topic;
    if (e->pending > 0 || e->log_offset >= 0) return;
    kw_map_remove_u64(&topic->partitions, (uint32_t)e->partition);
    t->entries--;
    kw_free(e);
    topic_drop_empty(t, topic);
}

static kw_err topic_of(struct kb_committed *t, struct kw_str name, struct kb_offset_topic **out) {
    *out = kw_map_get_str(&t->topics, name);
    if (*out) return KW_OK;
    size_t len = (size_t)KW_MAX(name.len, 0);
    struct kb_offset_topic *topic = kw_malloc(sizeof(*topic) + len + 1);
    if (!topic) return KW_ENOMEM;
    kw_map_init(&topic->partitions);
    topic->len = (int32_t)len;
    if (len > 0) memcpy(topic->name, name.p, len);
    topic->name[len] = 0;
    if (kw_map_put(&t->topics, topic->name, len, topic)) {
        kw_free(topic);
        return KW_ENOMEM;
    }
    *out = topic;
    return KW_OK;
}

static kw_err entry_of(struct kb_committed *t, struct kw_str name, int32_t partition, struct kb_offset_entry **out) {
    struct kb_offset_topic *topic;
    if ((*out = find(t, name, partition))) return KW_OK;
    if (topic_of(t, name, &topic)) return KW_ENOMEM;
    struct kb_offset_entry *e = kw_calloc(1, sizeof(*e));
    if (!e || kw_map_put_u64(&topic->partitions, (uint32_t)partition, e)) {
        kw_free(e);
        topic_drop_empty(t, topic);
        return KW_ENOMEM;
    }
    e->topic = topic;
    e->partition = partition;
    e->log_offset = -1;
    t->entries++;
    *out = e;
    return KW_OK;
}

kw_err kb_committed_begin(struct kb_committed *t, struct kw_str topic, int32_t partition, struct kb_offset_entry **entry) {
    struct kb_offset_entry *e;
    kw_err err = entry_of(t, topic, partition, &e);
    if (err) return err;
    e->pending++;
    *entry = e;
    return KW_OK;
}

static void store(struct kb_committed *t, struct kb_offset_entry *e, int64_t log_offset, struct kb_offset *v) {
    if (log_offset < e->log_offset) {
        kw_free(v->metadata);
    } else {
        t->stored += e->log_offset < 0;
        kw_free(e->stored.metadata);
        e->stored = *v;
        e->log_offset = log_offset;
    }
    v->metadata = NULL;
}

void kb_committed_end(struct kb_committed *t, struct kb_offset_entry *e, int64_t log_offset, struct kb_offset *v) {
    KW_ASSERT(e->pending > 0);
    e->pending--;
    if (v) store(t, e, log_offset, v);
    entry_drop_unused(t, e);
}

kw_err kb_committed_load(struct kb_committed *t, struct kw_str topic, int32_t partition, int64_t log_offset, struct kb_offset *v) {
    struct kb_offset_entry *e;
    if (!v) {
        kb_committed_forget(t, topic, partition, log_offset);
        return KW_OK;
    }
    kw_err err = entry_of(t, topic, partition, &e);
    if (err) {
        kw_free(v->metadata);
        v->metadata = NULL;
        return err;
    }
    store(t, e, log_offset, v);
    return KW_OK;
}

void kb_committed_forget(struct kb_committed *t, struct kw_str topic, int32_t partition, int64_t log_offset) {
    struct kb_offset_entry *e = find(t, topic, partition);
    if (!e || e->log_offset < 0 || e->log_offset > log_offset) return;
    kw_free(e->stored.metadata);
    e->stored = (struct kb_offset){0};
    e->log_offset = -1;
    t->stored--;
    entry_drop_unused(t, e);
}

const struct kb_offset *kb_committed_get(const struct kb_committed *t, struct kw_str topic, int32_t partition) {
    const struct kb_offset_entry *e = find(t, topic, partition);
    return e && e->log_offset >= 0 ? &e->stored : NULL;
}

struct kb_offset_entry *kb_committed_next(const struct kb_committed *t, struct kb_committed_walk *w) {
    for (;;) {
        size_t at = w->from;
        struct kb_offset_topic *topic = kw_map_next(&t->topics, &at);
        if (!topic) return NULL;
        if (at != w->to) { /* the next one; the one before may have gone with its last entry */
            w->to = at;
            w->partition = 0;
        }
        struct kb_offset_entry *e = kw_map_next(&topic->partitions, &w->partition);
        if (e) return e;
        w->from = at;
    }
}
