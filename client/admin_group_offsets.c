/* admin_group_offsets.c - kc_admin_group_offsets: what groups have committed.
 *
 * Called by the application. Calls admin_call.c, admin_group_route.c (coordinators). KIP-88, KIP-447, KIP-709.
 */
#include <stdlib.h>

#include "admin_group.h"

#define OFFSETS_VERSION_MAX 9 /* from 10 on topics are told by id */

struct group {
    kc_err err;
    kc_group_offset *v;
    size_t count;
};
struct kc_group_offsets {
    struct kw_arena arena;
    struct group *groups;
    size_t count;
};
struct read_offsets {
    struct kw_arena arena; /* of what is asked for */
    struct kc_routes routes;
    kc_group_partition *parts;
    size_t part_count; /* 0: all */
    bool require_stable;
    kc_group_offsets *offsets; /* NULL: taken */
};

void kc_group_offsets_free(kc_group_offsets *o) {
    if (!o) return;
    kw_arena_deinit(&o->arena);
    kw_free(o);
}

static void read_free(void *call) {
    struct read_offsets *d = call;
    if (!d) return;
    kc_routes_deinit(&d->routes);
    kc_group_offsets_free(d->offsets);
    kw_arena_deinit(&d->arena);
    kw_free(d);
}

static void read_failed(struct kc_admin *a, size_t i, kc_err err, struct kw_str text) {
    (void)text;
    ((struct read_offsets *)a->call)->offsets->groups[i].err = err;
}

/* ---- Request: neighbours of one topic go together ---- */

static kw_err topics_of_group(const struct read_offsets *d, struct kw_arena *arena, struct kw_offset_fetch_request_topics **v, int32_t *n) {
    *v = NULL;
    *n = -1; /* all */
    if (d->part_count == 0) return KW_OK;
    *n = 0;
    *v = kw_arena_calloc(arena, d->part_count, sizeof **v);
    int32_t *numbers = kw_arena_calloc(arena, d->part_count, sizeof *numbers);
    if (!*v || !numbers) return KW_ENOMEM;
    struct kw_offset_fetch_request_topics *e = NULL;
    for (size_t i = 0; i < d->part_count; i++) {
        struct kw_str topic = kw_str_of(d->parts[i].topic);
        if (!e || !kw_str_eq(e->name, topic)) {
            e = &(*v)[(*n)++];
            e->name = topic;
            e->partition_indexes.v = numbers;
        }
        e->partition_indexes.n++;
        *numbers++ = d->parts[i].partition;
    }
    return KW_OK;
}

static kw_err encode_one(const struct read_offsets *d, int16_t version, struct kw_arena *arena, struct kw_offset_fetch_request *m, struct kw_out *out) {
    struct kw_offset_fetch_request_topics *from;
    int32_t n;
    kw_err err = topics_of_group(d, arena, &from, &n);
    if (err != KW_OK) return err;
    m->group_id = kw_str_of(d->routes.v[kc_routes_at(&d->routes, 0)].group);
    m->topics.n = n;
    m->topics.v = n > 0 ? kw_arena_calloc(arena, (size_t)n, sizeof *m->topics.v) : NULL;
    if (n > 0 && !m->topics.v) return KW_ENOMEM;
    for (int32_t i = 0; i < n; i++) {
        m->topics.v[i].name = from[i].name;
        m->topics.v[i].partition_indexes.v = from[i].partition_indexes.v;
        m->topics.v[i].partition_indexes.n = from[i].partition_indexes.n;
    }
    return kw_encode(&kw_offset_fetch_request_desc, version, m, out);
}

static kw_err read_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    struct read_offsets *d = a->call;
    struct kc_routes *r = &d->routes;
    struct kw_offset_fetch_request m;
    if (a->api == KW_API_FIND_COORDINATOR) return kc_routes_encode(r, version, arena, out);
    kw_msg_init(&kw_offset_fetch_request_desc, &m);
    m.require_stable = d->require_stable;
    if (version < 8) {
        kc_routes_one(r);
        return encode_one(d, version, arena, &m, out);
    }
    struct kw_offset_fetch_request_topics *topics;
    int32_t n;
    kw_err err = topics_of_group(d, arena, &topics, &n);
    m.groups.v = kw_arena_calloc(arena, kc_routes_batch(r) + 1, sizeof *m.groups.v);
    if (err == KW_OK && !m.groups.v) err = KW_ENOMEM;
    for (size_t k = 0; err == KW_OK && k < kc_routes_batch(r); k++) {
        struct kw_offset_fetch_request_group *g = &m.groups.v[m.groups.n++];
        g->group_id = kw_str_of(r->v[kc_routes_at(r, k)].group);
        g->member_id = kw_str_null();
        g->member_epoch = -1;
        g->topics.v = topics; /* of each the same */
        g->topics.n = n;
    }
    return err == KW_OK ? kw_encode(&kw_offset_fetch_request_desc, version, &m, out) : err;
}

/* ---- Answer ---- */

static int by_place(const void *a, const void *b) {
    const kc_group_offset *x = a, *y = b;
    int topics = strcmp(x->topic, y->topic);
    return topics != 0 ? topics : x->partition < y->partition ? -1 : x->partition > y->partition;
}

/* UNSTABLE_OFFSET_COMMIT passes, for the whole group. */
static bool is_unstable(const struct kw_offset_fetch_response_topics *v, int32_t n) {
    for (int32_t t = 0; t < n; t++)
        for (int32_t i = 0; i < v[t].partitions.n; i++)
            if (v[t].partitions.v[i].error_code == KE_UNSTABLE_OFFSET_COMMIT) return true;
    return false;
}

static kc_err keep_offsets(struct kc_group_offsets *o, struct group *g, const struct kw_offset_fetch_response_topics *v, int32_t n) {
    size_t count = 0;
    for (int32_t t = 0; t < n; t++) count += (size_t)KW_MAX(v[t].partitions.n, 0);
    g->v = kw_arena_calloc(&o->arena, count + 1, sizeof *g->v);
    if (!g->v) return KC_NO_MEMORY;
    for (int32_t t = 0; t < n; t++) {
        const char *topic = kc_admin_keep_str(&o->arena, v[t].name);
        if (!topic) return KC_NO_MEMORY;
        for (int32_t i = 0; i < v[t].partitions.n; i++) {
            const struct kw_offset_fetch_response_partitions *p = &v[t].partitions.v[i];
            const char *metadata = p->metadata.len > 0 ? kc_admin_keep_str(&o->arena, p->metadata) : "";
            if (!metadata) return KC_NO_MEMORY;
            g->v[g->count++] = (kc_group_offset){.topic = topic,
                                                 .partition = p->partition_index,
                                                 .leader_epoch = p->committed_leader_epoch,
                                                 .offset = p->error_code == KE_NONE ? p->committed_offset : -1,
                                                 .metadata = metadata,
                                                 .err = p->error_code};
        }
    }
    qsort(g->v, g->count, sizeof *g->v, by_place);
    return KC_OK;
}

static kc_err take_group(struct kc_admin *a, size_t i, int16_t code, const struct kw_offset_fetch_response_topics *v, int32_t n) {
    struct read_offsets *d = a->call;
    struct group *g = &d->offsets->groups[i];
    if (code == KE_NONE && is_unstable(v, n)) code = KE_UNSTABLE_OFFSET_COMMIT;
    if (kc_routes_again(a, &d->routes, i, code)) return KC_OK;
    kc_routes_settle(&d->routes, i);
    g->err = code == KE_GROUP_ID_NOT_FOUND ? KC_OK : code; /* it has none committed */
    return code == KE_NONE ? keep_offsets(d->offsets, g, v, n) : KC_OK;
}

/* The answer for one group, before version 8, as one of the newer kind. */
static kc_err take_one(struct kc_admin *a, const struct kw_offset_fetch_response *m, struct kw_arena *arena) {
    const struct read_offsets *d = a->call;
    size_t n = (size_t)KW_MAX(m->topics.n, 0);
    struct kw_offset_fetch_response_topics *v = kw_arena_calloc(arena, n + 1, sizeof *v);
    if (!v) return KC_NO_MEMORY;
    for (size_t t = 0; t < n; t++) {
        size_t parts = (size_t)KW_MAX(m->topics.v[t].partitions.n, 0);
        v[t].name = m->topics.v[t].name;
        v[t].partitions.v = kw_arena_calloc(arena, parts + 1, sizeof *v[t].partitions.v);
        if (!v[t].partitions.v) return KC_NO_MEMORY;
        for (size_t i = 0; i < parts; i++) {
            const struct kw_offset_fetch_response_partition *p = &m->topics.v[t].partitions.v[i];
            v[t].partitions.v[v[t].partitions.n++] = (struct kw_offset_fetch_response_partitions){.partition_index = p->partition_index,
                                                                                                 .committed_offset = p->committed_offset,
                                                                                                 .committed_leader_epoch = p->committed_leader_epoch,
                                                                                                 .metadata = p->metadata,
                                                                                                 .error_code = p->error_code};
        }
    }
    return take_group(a, kc_routes_at(&d->routes, 0), m->error_code, v, (int32_t)n);
}

static kc_err read_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct read_offsets *d = a->call;
    struct kc_routes *r = &d->routes;
    struct kw_offset_fetch_response m;
    (void)error;
    if (a->api == KW_API_FIND_COORDINATOR) return kc_routes_read(a, r, body, arena);
    kc_err err = kc_admin_decode(a, &kw_offset_fetch_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    if (a->rq.version < 8) {
        err = take_one(a, &m, arena);
        return err == KC_OK ? kc_routes_next(a, r) : err;
    }
    struct kc_names names;
    if (!kc_names_make(&names, arena, m.groups.v, m.groups.n, sizeof *m.groups.v, offsetof(struct kw_offset_fetch_response_group, group_id)))
        return KC_NO_MEMORY;
    for (size_t k = 0; k < kc_routes_batch(r) && err == KC_OK; k++) {
        size_t i = kc_routes_at(r, k);
        const struct kw_offset_fetch_response_group *g = kc_names_find(&names, r->v[i].group);
        if (g)
            err = take_group(a, i, g->error_code, g->topics.v, g->topics.n);
        else
            kc_routes_fail(a, r, i, KC_BAD_MESSAGE, kw_str_null());
    }
    return err == KC_OK ? kc_routes_next(a, r) : err;
}

static kc_err read_unreachable(struct kc_admin *a, kc_err err) {
    return kc_routes_unreachable(a, &((struct read_offsets *)a->call)->routes, err);
}

static const struct kc_admin_kind read_kind = {"read groups' offsets", KW_API_FIND_COORDINATOR, 0, KC_BROKER_ANY, read_encode, read_read, NULL,
                                               read_unreachable, read_free};

/* ---- Made ---- */

static kc_err copy_parts(struct read_offsets *d, const kc_group_partition *parts, size_t stride, size_t n) {
    if (n > 0 && (!parts || stride < sizeof *parts)) return KC_INVALID;
    d->parts = kw_arena_calloc(&d->arena, n + 1, sizeof *d->parts);
    if (!d->parts) return KC_NO_MEMORY;
    for (; d->part_count < n; d->part_count++) {
        const kc_group_partition *p = KW_AT(const kc_group_partition, parts, stride, d->part_count);
        kc_group_partition *to = &d->parts[d->part_count];
        if (!p->topic || p->partition < 0) return KC_INVALID;
        bool same = d->part_count > 0 && !strcmp(to[-1].topic, p->topic);
        to->topic = same ? to[-1].topic : kw_arena_dup(&d->arena, p->topic, strlen(p->topic) + 1);
        to->partition = p->partition;
        if (!to->topic) return KC_NO_MEMORY;
    }
    return KC_OK;
}

static kc_err copy_groups(struct read_offsets *d, const char *const *groups, size_t n) {
    const char **names;
    kc_group_offsets *o = d->offsets;
    kc_err err = kc_group_keep_names(&d->arena, groups, n, &names);
    if (err != KC_OK) return err;
    o->groups = kw_arena_calloc(&o->arena, n + 1, sizeof *o->groups);
    if (!o->groups) return KC_NO_MEMORY;
    o->count = n;
    return kc_routes_init(&d->routes, names, sizeof *names, n, KW_API_OFFSET_FETCH, d->require_stable ? 7 : 2, OFFSETS_VERSION_MAX, read_failed);
}

static kc_err read_new(const char *const *groups, size_t group_count, const kc_group_partition *parts, size_t stride, size_t n, int32_t require_stable,
                       struct read_offsets **out) {
    if (group_count == 0 || !groups) return KC_INVALID;
    struct read_offsets *d = kw_calloc(1, sizeof *d);
    if (!d) return KC_NO_MEMORY;
    kw_arena_init(&d->arena, 0);
    d->require_stable = require_stable != 0;
    d->offsets = kw_calloc(1, sizeof *d->offsets);
    kc_err err = d->offsets ? KC_OK : KC_NO_MEMORY;
    if (err == KC_OK) {
        kw_arena_init(&d->offsets->arena, 0);
        err = copy_parts(d, parts, stride, n);
    }
    if (err == KC_OK) err = copy_groups(d, groups, group_count);
    if (err == KC_OK)
        *out = d;
    else
        read_free(d);
    return err;
}

static kc_err read_make(kc_client *c, const char *const *groups, size_t group_count, const kc_group_partition *parts, size_t stride, size_t n,
                        int32_t require_stable, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    struct read_offsets *d = NULL;
    kc_err err = read_new(groups, group_count, parts, stride, n, require_stable, &d);
    if (err == KC_INVALID) return kc_admin_invalid(&read_kind, error);
    return kc_group_make(c, &read_kind, d, timeout_us, opaque, op, error);
}

kc_group_offsets *kc_op_result_group_offsets(kc_op *op) {
    struct read_offsets *d = kc_admin_done_call(op, &read_kind);
    kc_group_offsets *o = d && op->err == KC_OK ? d->offsets : NULL;
    if (o) d->offsets = NULL;
    return o;
}

kc_err kc_admin_group_offsets(kc_client *c, const char *const *groups, size_t group_count, const kc_group_partition *parts, size_t stride, size_t n,
                              int32_t require_stable, int64_t timeout_us, kc_group_offsets **out, kc_error **error) {
    kc_op *op = NULL;
    if (!out) return kc_admin_invalid(&read_kind, error);
    kc_err err = read_make(c, groups, group_count, parts, stride, n, require_stable, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error); /* the call keeps its own limit */
    if (err == KC_OK) *out = kc_op_result_group_offsets(op);
    kc_op_free(op);
    return err;
}

kc_err kc_admin_group_offsets_start(kc_client *c, const char *const *groups, size_t group_count, const kc_group_partition *parts, size_t stride, size_t n,
                                    int32_t require_stable, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(&read_kind, error);
    kc_err err = read_make(c, groups, group_count, parts, stride, n, require_stable, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

kc_err kc_group_offsets_err(const kc_group_offsets *o, size_t group) {
    return !o || group >= o->count ? KC_INVALID : o->groups[group].err;
}

size_t kc_group_offsets_count(const kc_group_offsets *o, size_t group) {
    return !o || group >= o->count ? 0 : o->groups[group].count;
}

kc_err kc_group_offsets_get(const kc_group_offsets *o, size_t group, size_t index, kc_group_offset *out) {
    if (!o || !out || group >= o->count || index >= o->groups[group].count) return KC_INVALID;
    *out = o->groups[group].v[index];
    return KC_OK;
}
