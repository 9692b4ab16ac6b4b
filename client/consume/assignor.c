/* assignor.c - the forms of subscriptions and shares, and the assignors that look at the members alone: range and roundrobin. Contract:
 * assignor.h. */
#include "assignor_priv.h"

#include <stdlib.h>

static const char *const names[KC_ASSIGNOR_COUNT] = {"range", "roundrobin", "sticky", "cooperative-sticky"};

const char *kc_assignor_name(enum kc_assignor how) {
    return names[how];
}

bool kc_assignor_by_name(struct kw_str name, enum kc_assignor *how) {
    for (int i = 0; i < KC_ASSIGNOR_COUNT; i++)
        if (kw_str_eq(name, kw_str_of(names[i]))) {
            *how = (enum kc_assignor)i;
            return true;
        }
    return false;
}

bool kc_assignor_is_cooperative(enum kc_assignor how) {
    return how == KC_ASSIGN_COOPERATIVE_STICKY;
}

/* ---- Bytes ---- */

enum { SUBSCRIPTION_VERSION = 3, SHARE_VERSION = 3 };

/* Java's sticky assignor keeps what it gave in its user data, since it is older than owned partitions; the cooperative one the generation.
 */
static void user_data(enum kc_assignor how, const struct kc_subscription *s, struct kw_out *out) {
    if (how == KC_ASSIGN_STICKY) {
        kw_out_i32(out, s->owned.topic_count);
        for (int32_t i = 0; i < s->owned.topic_count; i++) {
            const struct kw_consumer_protocol_assignment_topic_partition *t = &s->owned.topics[i];
            kw_out_i16(out, (int16_t)t->topic.len);
            kw_out_bytes(out, t->topic.p, (size_t)t->topic.len);
            kw_out_i32(out, t->partitions.n);
            for (int32_t k = 0; k < t->partitions.n; k++) kw_out_i32(out, t->partitions.v[k]);
        }
    }
    if (how == KC_ASSIGN_STICKY || how == KC_ASSIGN_COOPERATIVE_STICKY) kw_out_i32(out, s->generation);
}

kw_err kc_subscription_write(enum kc_assignor how, const struct kc_subscription *s, struct kw_out *out) {
    struct kw_out data;
    struct kw_consumer_protocol_subscription m;
    kw_out_init(&data);
    user_data(how, s, &data);
    kw_msg_init(&kw_consumer_protocol_subscription_desc, &m);
    m.topics.v = (struct kw_str *)(uintptr_t)s->topics;
    m.topics.n = s->topic_count;
    m.user_data = data.len > 0 ? (struct kw_bytes){data.p, (int32_t)data.len} : (struct kw_bytes){NULL, -1};
    m.owned_partitions.v = (void *)s->owned.topics; /* of the same form */
    m.owned_partitions.n = s->owned.topic_count;
    m.generation_id = s->generation;
    m.rack_id = s->rack;
    kw_out_i16(out, SUBSCRIPTION_VERSION);
    kw_err err = data.err ? data.err : kw_encode(&kw_consumer_protocol_subscription_desc, SUBSCRIPTION_VERSION, &m, out);
    kw_out_deinit(&data);
    return err ? err : out->err;
}

static kw_err read_topics(struct kw_in *in, struct kw_arena *a, struct kc_share *s) {
    int32_t n = kw_in_i32(in);
    if (in->err || n < 0 || (size_t)n > kw_in_left(in) / 6) return KW_EDECODE;
    s->topics = kw_arena_calloc(a, (size_t)n, sizeof(*s->topics));
    if (!s->topics) return KW_ENOMEM;
    for (int32_t i = 0; i < n; i++) {
        int16_t len = kw_in_i16(in);
        const uint8_t *p = kw_in_take(in, len < 0 ? SIZE_MAX : (size_t)len);
        int32_t count = kw_in_i32(in);
        if (in->err || count < 0 || (size_t)count > kw_in_left(in) / 4) return KW_EDECODE;
        int32_t *v = kw_arena_alloc(a, ((size_t)count + 1) * sizeof(*v));
        if (!v) return KW_ENOMEM;
        for (int32_t k = 0; k < count; k++) v[k] = kw_in_i32(in);
        s->topics[s->topic_count].topic = (struct kw_str){(const char *)p, len};
        s->topics[s->topic_count].partitions.v = v;
        s->topics[s->topic_count++].partitions.n = count;
    }
    return KW_OK;
}

static kw_err read_user_data(enum kc_assignor how, struct kw_bytes b, struct kw_arena *a, struct kc_subscription *s) {
    struct kw_in in;
    if (b.len <= 0) return KW_OK;
    kw_in_init(&in, b.p, (size_t)b.len);
    if (how == KC_ASSIGN_STICKY) {
        struct kc_share owned = {0};
        kw_err err = read_topics(&in, a, &owned);
        if (err) return err == KW_EDECODE ? KW_OK : err; /* nothing is known of what it had: it says so itself */
        s->owned = owned;
    }
    if ((how != KC_ASSIGN_STICKY && how != KC_ASSIGN_COOPERATIVE_STICKY) || kw_in_left(&in) < 4) return KW_OK;
    int32_t generation = kw_in_i32(&in);
    s->generation = KW_MAX(s->generation, generation);
    return KW_OK;
}

kw_err kc_subscription_read(enum kc_assignor how, struct kw_bytes b, struct kw_arena *a, struct kc_subscription *s) {
    struct kw_consumer_protocol_subscription m;
    struct kw_in in;
    kw_in_init(&in, b.p, (size_t)KW_MAX(b.len, 0));
    int16_t version = kw_in_i16(&in);
    if (in.err || version < 0) return KW_EDECODE;
    kw_err err = kw_decode(&kw_consumer_protocol_subscription_desc, KW_MIN(version, SUBSCRIPTION_VERSION), &in, a, &m);
    if (err) return err == KW_ENOMEM ? err : KW_EDECODE;
    *s = (struct kc_subscription){.topics = m.topics.v,
                                  .topic_count = m.topics.n,
                                  .owned = {(void *)m.owned_partitions.v, m.owned_partitions.n}, /* of the same form */
                                  .generation = m.generation_id,
                                  .rack = m.rack_id};
    return read_user_data(how, m.user_data, a, s);
}

kw_err kc_share_write(const struct kc_share *s, struct kw_out *out) {
    struct kw_consumer_protocol_assignment m = {.assigned_partitions = {s->topics, s->topic_count}, .user_data = {NULL, -1}};
    kw_out_i16(out, SHARE_VERSION);
    kw_err err = kw_encode(&kw_consumer_protocol_assignment_desc, SHARE_VERSION, &m, out);
    return err ? err : out->err;
}

kw_err kc_share_read(struct kw_bytes b, struct kw_arena *a, struct kc_share *s) {
    struct kw_consumer_protocol_assignment m;
    struct kw_in in;
    *s = (struct kc_share){0};
    if (b.len <= 0) return KW_OK;
    kw_in_init(&in, b.p, (size_t)b.len);
    int16_t version = kw_in_i16(&in);
    if (in.err || version < 0) return KW_EDECODE;
    kw_err err = kw_decode(&kw_consumer_protocol_assignment_desc, KW_MIN(version, SHARE_VERSION), &in, a, &m);
    if (err) return err == KW_ENOMEM ? err : KW_EDECODE;
    *s = (struct kc_share){m.assigned_partitions.v, m.assigned_partitions.n};
    return KW_OK;
}

/* ---- The table ---- */

static int by_name(const void *x, const void *y) {
    const struct kw_str *a = &((const struct kc_table_topic *)x)->name, *b = &((const struct kc_table_topic *)y)->name;
    int c = memcmp(a->p, b->p, (size_t)KW_MIN(a->len, b->len));
    return c ? c : a->len - b->len;
}

static int by_id(const void *x, const void *y) {
    const struct kc_table_member *a = x, *b = y;
    bool sa = a->in->instance_id.len >= 0, sb = b->in->instance_id.len >= 0;
    const struct kw_str *p = sa ? &a->in->instance_id : &a->in->id, *q = sb ? &b->in->instance_id : &b->in->id;
    if (sa != sb) return sa ? -1 : 1; /* static ones first */
    int c = memcmp(p->p, q->p, (size_t)KW_MIN(p->len, q->len));
    return c ? c : p->len - q->len;
}

int32_t kc_table_topic_of(const struct kc_table *t, struct kw_str name) {
    struct kc_table_topic key = {.name = name};
    const struct kc_table_topic *found = bsearch(&key, t->topics, (size_t)t->topic_count, sizeof(*t->topics), by_name);
    return found ? (int32_t)(found - t->topics) : -1;
}

static kw_err fill_topics(struct kc_table *t, const struct kc_member_in *members, size_t count,
                          int32_t (*partitions)(void *, struct kw_str), void *ctx) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) n += (size_t)members[i].said.topic_count;
    t->topics = kw_arena_calloc(t->arena, n + 1, sizeof(*t->topics));
    if (!t->topics) return KW_ENOMEM;
    for (size_t i = 0; i < count; i++)
        for (int32_t k = 0; k < members[i].said.topic_count; k++) t->topics[t->topic_count++].name = members[i].said.topics[k];
    qsort(t->topics, (size_t)t->topic_count, sizeof(*t->topics), by_name);
    int32_t kept = 0;
    for (int32_t i = 0; i < t->topic_count; i++) {
        if (kept > 0 && kw_str_eq(t->topics[kept - 1].name, t->topics[i].name)) continue;
        t->topics[kept] = t->topics[i];
        t->topics[kept].partitions = KW_MAX(partitions(ctx, t->topics[i].name), 0);
        t->topics[kept].first = t->partition_count;
        t->partition_count += t->topics[kept++].partitions;
    }
    t->topic_count = kept;
    return KW_OK;
}

static kw_err fill_members(struct kc_table *t, const struct kc_member_in *members, size_t count) {
    size_t words = ((size_t)t->topic_count + 63) / 64;
    t->members = kw_arena_calloc(t->arena, count + 1, sizeof(*t->members));
    if (!t->members) return KW_ENOMEM;
    t->member_count = (int32_t)count;
    for (size_t i = 0; i < count; i++) {
        struct kc_table_member *m = &t->members[i];
        m->in = &members[i];
        m->at = i;
        m->wants = kw_arena_calloc(t->arena, words + 1, sizeof(*m->wants));
        if (!m->wants) return KW_ENOMEM;
        for (int32_t k = 0; k < members[i].said.topic_count; k++) {
            int32_t at = kc_table_topic_of(t, members[i].said.topics[k]);
            m->wants[at / 64] |= UINT64_C(1) << (at % 64);
        }
    }
    qsort(t->members, count, sizeof(*t->members), by_id);
    return KW_OK;
}

/* ---- Range: topic by topic, neighbours together; who comes first may have one more ---- */

static void assign_range(struct kc_table *t) {
    for (int32_t topic = 0; topic < t->topic_count; topic++) {
        const struct kc_table_topic *tt = &t->topics[topic];
        int32_t takers = 0, next = 0, seen = 0;
        for (int32_t m = 0; m < t->member_count; m++) takers += kc_table_wants(t, m, topic);
        for (int32_t m = 0; m < t->member_count; m++) {
            if (!kc_table_wants(t, m, topic)) continue;
            int32_t n = tt->partitions / takers + (seen++ < tt->partitions % takers);
            for (int32_t k = 0; k < n; k++) t->owner[tt->first + next++] = m;
        }
    }
}

/* ---- Round robin: all partitions in turn, past those who do not want the topic ---- */

static void assign_roundrobin(struct kc_table *t) {
    int32_t next = 0;
    for (int32_t topic = 0; topic < t->topic_count; topic++)
        for (int32_t p = 0; p < t->topics[topic].partitions; p++) { /* somebody wants it, or it were not in the table */
            while (!kc_table_wants(t, next, topic)) next = (next + 1) % t->member_count;
            t->owner[t->topics[topic].first + p] = next;
            next = (next + 1) % t->member_count;
        }
}

/* ---- Shares ---- */

static kw_err fill_shares(const struct kc_table *t, struct kc_share *shares) {
    for (int32_t m = 0; m < t->member_count; m++) {
        struct kc_share *s = &shares[t->members[m].at];
        *s = (struct kc_share){.topics = kw_arena_calloc(t->arena, (size_t)t->topic_count + 1, sizeof(*s->topics))};
        if (!s->topics) return KW_ENOMEM;
    }
    for (int32_t topic = 0; topic < t->topic_count; topic++) {
        const struct kc_table_topic *tt = &t->topics[topic];
        for (int32_t p = 0; p < tt->partitions; p++) {
            int32_t m = t->owner[tt->first + p];
            if (m < 0) continue;
            struct kc_share *s = &shares[t->members[m].at];
            struct kw_consumer_protocol_assignment_topic_partition *o = &s->topics[s->topic_count - 1];
            if (s->topic_count == 0 || !kw_str_eq(o->topic, tt->name)) {
                o = &s->topics[s->topic_count++];
                o->topic = tt->name;
                o->partitions.v = kw_arena_alloc(t->arena, (size_t)(tt->partitions - p) * sizeof(int32_t));
                if (!o->partitions.v) return KW_ENOMEM;
            }
            o->partitions.v[o->partitions.n++] = p;
        }
    }
    return KW_OK;
}

kw_err kc_assign(enum kc_assignor how, const struct kc_member_in *members, size_t count,
                 int32_t (*partitions)(void *ctx, struct kw_str topic), void *ctx, struct kw_arena *a, struct kc_share *shares) {
    struct kc_table t = {.arena = a};
    if (count == 0) return KW_OK;
    if (fill_topics(&t, members, count, partitions, ctx) || fill_members(&t, members, count)) return KW_ENOMEM;
    t.owner = kw_arena_alloc(a, ((size_t)t.partition_count + 1) * sizeof(*t.owner));
    if (!t.owner) return KW_ENOMEM;
    for (int32_t i = 0; i < t.partition_count; i++) t.owner[i] = -1;
    if (how == KC_ASSIGN_RANGE)
        assign_range(&t);
    else if (how == KC_ASSIGN_ROUNDROBIN)
        assign_roundrobin(&t);
    else if (kc_assign_sticky(&t, how == KC_ASSIGN_COOPERATIVE_STICKY))
        return KW_ENOMEM;
    return fill_shares(&t, shares);
}
