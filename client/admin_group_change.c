/* admin_group_change.c - the public administration calls that change groups: offsets altered and deleted, groups deleted, members put out.
 *
 * Each states how its request is made of the items and how the answer goes back into them. The items of one group go to its coordinator in chunks;
 * groups to be deleted in a batch a coordinator. Called by the application. Calls admin_items.c (items and their results), admin_group_route.c
 * (coordinators), admin_call.c. KIP-222, KIP-229, KIP-345, KIP-496, KIP-800.
 */
#include <stdio.h>

#include "admin_group.h"
#include "admin_items.h"

#define ITEMS_BATCH_MAX 2000 /* the coordinator writes those of one request as one batch, which has its own limit */

struct change {
    struct kc_routes routes; /* of one group, or, group NULL, of each item */
    char *group, *reason, *about;
    size_t begin, end; /* of a group: its open items among these are in the request under way; those before are settled, unless a round begins */
};

static void change_free(void *more) {
    struct change *g = more;
    if (!g) return;
    kc_routes_deinit(&g->routes);
    kw_free(g->group);
    kw_free(g->reason);
    kw_free(g->about);
    kw_free(g);
}

static struct change *change_of(const struct kc_admin *a) {
    return ((const struct items *)a->call)->more;
}

/* ---- Which items are in a request ---- */

/* Of a group: the next item that is to go into the request under way, which begins at g->begin; NULL: no more. */
static void *ask_next(struct kc_admin *a, size_t *count) {
    const struct items *it = a->call;
    struct change *g = it->more;
    while (g->end < it->n && *count < ITEMS_BATCH_MAX) {
        size_t i = g->end++;
        void *item = kc_items_open(it, i);
        if (!item) continue;
        ++*count;
        return item;
    }
    return NULL;
}

static void change_unsure(struct kc_admin *a) {
    const struct items *it = a->call;
    const struct change *g = it->more;
    if (a->api != g->routes.api) return;
    for (size_t i = g->begin; i < g->end; i++)
        if (it->marks[i].state == ITEM_OPEN) it->marks[i].unsure = true;
    for (size_t k = 0; !g->group && k < kc_routes_batch(&g->routes); k++) it->marks[kc_routes_at(&g->routes, k)].unsure = true;
}

/* ---- Answers ---- */

static void change_failed(struct kc_admin *a, size_t route, kc_err err, struct kw_str text) {
    const struct items *it = a->call;
    if (!change_of(a)->group) {
        kc_items_settle(it, route, err, text);
        return;
    }
    for (size_t i = 0; i < it->n; i++)
        if (it->marks[i].state == ITEM_OPEN) kc_items_settle(it, i, err, text);
}

/* All are settled. What a call without items (all members) failed with has nowhere else to go. */
static kc_err change_end(struct kc_admin *a, kc_error **error) {
    const struct change *g = change_of(a);
    kc_err err = g->routes.n == 1 ? g->routes.v[0].err : KC_OK;
    if (((const struct items *)a->call)->n > 0 || err == KC_OK) return kc_items_end(a, error);
    kc_error_make(error, err, KC_NOT_PERSISTED, a->attempts, "%s%s: %s", a->kind->what, g->about, kc_err_text(err));
    return err;
}

static kc_err change_next(struct kc_admin *a, kc_error **error) {
    kc_err err = kc_routes_next(a, &change_of(a)->routes);
    return err == KC_OK ? change_end(a, error) : err;
}

static kc_err found_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    kc_err err = kc_routes_read(a, &change_of(a)->routes, body, arena);
    return err == KC_OK ? change_end(a, error) : err;
}

/* Of one group: what is left of its items goes in the next chunk, unless some have to wait. */
static kc_err take_of_group(struct kc_admin *a, struct result *r, size_t count, kc_error **error) {
    const struct items *it = a->call;
    struct change *g = it->more;
    bool waits = false;
    for (size_t i = g->begin; i < g->end; i++)
        if (it->marks[i].state == ITEM_OPEN && kc_items_take_one(a, i, r, count)) waits = true;
    g->begin = waits ? 0 : g->end;
    while (g->begin < it->n && it->marks[g->begin].state != ITEM_OPEN) g->begin++;
    g->end = g->begin;
    if (waits)
        kc_routes_wait(&g->routes, 0, a->last);
    else if (g->begin < it->n)
        return ADMIN_NEXT; /* the same step */
    else
        kc_routes_settle(&g->routes, 0);
    return change_next(a, error);
}

static kc_err take(struct kc_admin *a, struct result *r, size_t count, kc_error **error) {
    struct kc_routes *routes = &change_of(a)->routes;
    kc_items_sort(r, count);
    if (change_of(a)->group) return take_of_group(a, r, count, error);
    for (size_t k = 0; k < kc_routes_batch(routes); k++) {
        size_t i = kc_routes_at(routes, k);
        if (kc_items_take_one(a, i, r, count))
            kc_routes_wait(routes, i, a->last);
        else
            kc_routes_settle(routes, i);
    }
    return change_next(a, error);
}

/* What answers say by a code alone, with what to do. */
static struct kw_str change_text(int16_t code) {
    return code == KE_NON_EMPTY_GROUP            ? kw_str_of("the group has active members: stop them first")
           : code == KE_GROUP_SUBSCRIBED_TO_TOPIC ? kw_str_of("a member of the group reads the topic: stop those that do first")
           : code == KE_GROUP_ID_NOT_FOUND        ? kw_str_of("there is no such group")
                                                  : kw_str_null();
}

/* An error of the whole answer is one of its only group. True: *err is what read answers. */
static bool whole(struct kc_admin *a, int16_t code, kc_error **error, kc_err *err) {
    struct kc_routes *routes = &change_of(a)->routes;
    if (code == KE_NONE) return false;
    if (!kc_routes_again(a, routes, 0, code)) kc_routes_fail(a, routes, 0, code, change_text(code));
    change_of(a)->begin = change_of(a)->end = 0;
    *err = change_next(a, error);
    return true;
}

static kc_err change_unreachable(struct kc_admin *a, kc_err err) {
    struct change *g = change_of(a);
    kc_err next = kc_routes_unreachable(a, &g->routes, err);
    g->begin = g->end = 0;
    return next == KC_OK ? change_end(a, NULL) : next;
}

/* ---- Offsets altered ---- */

static kw_err alter_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct change *g = it->more;
    struct kw_offset_commit_request m;
    if (a->api == KW_API_FIND_COORDINATOR) return kc_routes_encode(&g->routes, version, arena, out);
    kw_msg_init(&kw_offset_commit_request_desc, &m);
    m.group_id = kw_str_of(g->group);
    m.generation_id_or_member_epoch = -1; /* no member's */
    m.member_id = kw_str_of("");
    size_t max = KW_MIN(it->n, ITEMS_BATCH_MAX), count = 0;
    m.topics.v = kw_arena_calloc(arena, max, sizeof *m.topics.v);
    struct kw_offset_commit_request_partition *parts = kw_arena_calloc(arena, max, sizeof *parts);
    if (!m.topics.v || !parts) return KW_ENOMEM;
    struct kw_offset_commit_request_topic *e = NULL; /* neighbours of one topic go together */
    g->end = g->begin;
    for (const kc_group_offset_item *item; (item = ask_next(a, &count));) {
        if (!e || !kw_str_eq(e->name, kw_str_of(item->topic))) {
            e = &m.topics.v[m.topics.n++];
            e->name = kw_str_of(item->topic);
            e->partitions.v = parts;
        }
        e->partitions.n++;
        parts->partition_index = item->partition;
        parts->committed_offset = item->offset;
        parts->committed_leader_epoch = version >= 6 && item->leader_epoch > 0 ? item->leader_epoch : -1;
        parts->commit_timestamp = -1;
        parts->committed_metadata = kw_str_of(item->metadata ? item->metadata : "");
        parts++;
    }
    return kw_encode(&kw_offset_commit_request_desc, version, &m, out);
}

/* The codes of a member's commit, as they are meant for one that is no member. */
static struct kw_str alter_text(int16_t code) {
    bool members = code == KE_UNKNOWN_MEMBER_ID || code == KE_ILLEGAL_GENERATION || code == KE_REBALANCE_IN_PROGRESS;
    return members ? kw_str_of("the group has active members, who alone commit its offsets: stop them first") : kw_str_null();
}

static kc_err alter_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct kw_offset_commit_response m;
    if (a->api == KW_API_FIND_COORDINATOR) return found_read(a, body, arena, error);
    kc_err err = kc_admin_decode(a, &kw_offset_commit_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    size_t count = 0;
    for (int32_t t = 0; t < m.topics.n; t++) count += (size_t)KW_MAX(m.topics.v[t].partitions.n, 0);
    struct result *r = kw_arena_calloc(arena, count + 1, sizeof *r), *to = r;
    if (!r) return KC_NO_MEMORY;
    for (int32_t t = 0; t < m.topics.n; t++)
        for (int32_t i = 0; i < m.topics.v[t].partitions.n; i++) {
            int16_t code = m.topics.v[t].partitions.v[i].error_code;
            *to++ = (struct result){
                .resource = m.topics.v[t].partitions.v[i].partition_index, .name = m.topics.v[t].name, .text = alter_text(code), .code = code};
        }
    return take(a, r, count, error);
}

static bool alter_valid(const void *v) {
    const kc_group_offset_item *item = v;
    return item->partition >= 0 && item->offset >= 0;
}

static bool alter_copy(struct items *it, void *v) {
    kc_group_offset_item *item = v;
    return !item->metadata || (item->metadata = kw_arena_dup(&it->arena, item->metadata, strlen(item->metadata) + 1));
}

#define OFFSET_SHAPE(text, is_valid, copier)                                                                                               \
    {                                                                                                                                      \
        .verb = (text), .size = sizeof(kc_group_offset_item), .name_at = offsetof(kc_group_offset_item, topic),                           \
        .err_at = offsetof(kc_group_offset_item, err), .message_at = offsetof(kc_group_offset_item, message),                             \
        .resource_at = offsetof(kc_group_offset_item, partition), .unknown_is_final = true, .partitioned = true, .valid = (is_valid),      \
        .copy = (copier)                                                                                                                   \
    }
static const struct kc_admin_kind alter_kind = {"alter a group's offsets", KW_API_FIND_COORDINATOR, 0, KC_BROKER_ANY, alter_encode, alter_read,
                                                change_unsure, change_unreachable, kc_items_free};
static const struct shape alter_shape = OFFSET_SHAPE("alter the offset of", alter_valid, alter_copy);

/* ---- Offsets deleted ---- */

static kw_err forget_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct change *g = it->more;
    struct kw_offset_delete_request m;
    if (a->api == KW_API_FIND_COORDINATOR) return kc_routes_encode(&g->routes, version, arena, out);
    kw_msg_init(&kw_offset_delete_request_desc, &m);
    m.group_id = kw_str_of(g->group);
    size_t max = KW_MIN(it->n, ITEMS_BATCH_MAX), count = 0;
    m.topics.v = kw_arena_calloc(arena, max, sizeof *m.topics.v);
    struct kw_offset_delete_request_partition *parts = kw_arena_calloc(arena, max, sizeof *parts);
    if (!m.topics.v || !parts) return KW_ENOMEM;
    struct kw_offset_delete_request_topic *e = NULL;
    g->end = g->begin;
    for (const kc_group_offset_item *item; (item = ask_next(a, &count));) {
        if (!e || !kw_str_eq(e->name, kw_str_of(item->topic))) {
            e = &m.topics.v[m.topics.n++];
            e->name = kw_str_of(item->topic);
            e->partitions.v = parts;
        }
        e->partitions.n++;
        parts++->partition_index = item->partition;
    }
    return kw_encode(&kw_offset_delete_request_desc, version, &m, out);
}

static kc_err forget_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct kw_offset_delete_response m;
    if (a->api == KW_API_FIND_COORDINATOR) return found_read(a, body, arena, error);
    kc_err err = kc_admin_decode(a, &kw_offset_delete_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK || whole(a, m.error_code, error, &err)) return err;
    size_t count = 0;
    for (int32_t t = 0; t < m.topics.n; t++) count += (size_t)KW_MAX(m.topics.v[t].partitions.n, 0);
    struct result *r = kw_arena_calloc(arena, count + 1, sizeof *r), *to = r;
    if (!r) return KC_NO_MEMORY;
    for (int32_t t = 0; t < m.topics.n; t++)
        for (int32_t i = 0; i < m.topics.v[t].partitions.n; i++) {
            int16_t code = m.topics.v[t].partitions.v[i].error_code;
            *to++ = (struct result){
                .resource = m.topics.v[t].partitions.v[i].partition_index, .name = m.topics.v[t].name, .text = change_text(code), .code = code};
        }
    return take(a, r, count, error);
}

static bool forget_valid(const void *v) {
    return ((const kc_group_offset_item *)v)->partition >= 0;
}

static bool forget_copy(struct items *it, void *v) {
    (void)it;
    ((kc_group_offset_item *)v)->metadata = NULL; /* not looked at */
    return true;
}

static const struct kc_admin_kind forget_kind = {"delete a group's offsets", KW_API_FIND_COORDINATOR, 0, KC_BROKER_ANY, forget_encode, forget_read,
                                                 change_unsure, change_unreachable, kc_items_free};
static const struct shape forget_shape = OFFSET_SHAPE("delete the offset of", forget_valid, forget_copy);

/* ---- Groups deleted ---- */

static kw_err delete_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    struct change *g = change_of(a);
    struct kw_delete_groups_request m;
    if (a->api == KW_API_FIND_COORDINATOR) return kc_routes_encode(&g->routes, version, arena, out);
    kw_msg_init(&kw_delete_groups_request_desc, &m);
    m.groups_names.v = kw_arena_calloc(arena, kc_routes_batch(&g->routes) + 1, sizeof *m.groups_names.v);
    if (!m.groups_names.v) return KW_ENOMEM;
    for (size_t k = 0; k < kc_routes_batch(&g->routes); k++) m.groups_names.v[m.groups_names.n++] = kw_str_of(g->routes.v[kc_routes_at(&g->routes, k)].group);
    return kw_encode(&kw_delete_groups_request_desc, version, &m, out);
}

static kc_err delete_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct kw_delete_groups_response m;
    if (a->api == KW_API_FIND_COORDINATOR) return found_read(a, body, arena, error);
    kc_err err = kc_admin_decode(a, &kw_delete_groups_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    size_t count = (size_t)KW_MAX(m.results.n, 0);
    struct result *r = kw_arena_calloc(arena, count + 1, sizeof *r);
    if (!r) return KC_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct kw_delete_groups_response_deletable_group_result *said = &m.results.v[i];
        struct kw_str ours = change_text(said->error_code); /* says what to do */
        r[i] = (struct result){.name = said->group_id, .text = ours.len > 0 ? ours : said->error_message, .code = said->error_code};
    }
    return take(a, r, count, error);
}

static const struct kc_admin_kind delete_kind = {"delete groups", KW_API_FIND_COORDINATOR, 0, KC_BROKER_ANY, delete_encode, delete_read,
                                                 change_unsure, change_unreachable, kc_items_free};
static const struct shape delete_shape = SHAPE(kc_admin_item, "delete group", -1, true, KE_GROUP_ID_NOT_FOUND, false, NULL, NULL);

/* ---- Members put out ---- */

#define LEAVE_MIN 3 /* before, a member leaves alone */

static kw_err leave_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct change *g = it->more;
    struct kw_leave_group_request m;
    if (a->api == KW_API_FIND_COORDINATOR) return kc_routes_encode(&g->routes, version, arena, out);
    if (a->api == KW_API_DESCRIBE_GROUPS) {
        struct kw_describe_groups_request d;
        struct kw_str name = kw_str_of(g->group);
        kw_msg_init(&kw_describe_groups_request_desc, &d);
        d.groups.v = &name;
        d.groups.n = 1;
        return kw_encode(&kw_describe_groups_request_desc, version, &d, out);
    }
    kw_msg_init(&kw_leave_group_request_desc, &m);
    m.group_id = kw_str_of(g->group);
    m.members.v = kw_arena_calloc(arena, KW_MIN(it->n, ITEMS_BATCH_MAX) + 1, sizeof *m.members.v);
    if (!m.members.v) return KW_ENOMEM;
    size_t count = 0;
    g->end = g->begin;
    for (const kc_group_member_item *item; (item = ask_next(a, &count));)
        m.members.v[m.members.n++] = (struct kw_leave_group_request_member_identity){.member_id = kw_str_of(item->is_static ? "" : item->name),
                                                                                     .group_instance_id = kw_str_of(item->is_static ? item->name : NULL),
                                                                                     .reason = kw_str_of(g->reason)};
    return kw_encode(&kw_leave_group_request_desc, version, &m, out);
}

/* No items were given: the members that the group has now. */
static kc_err items_of_group(struct items *it, const struct kw_describe_groups_response_described_group *d) {
    size_t n = (size_t)KW_MAX(d->members.n, 0);
    kc_group_member_item *v = kw_arena_calloc(&it->arena, n + 1, sizeof *v);
    struct item_mark *marks = kw_arena_calloc(&it->arena, n + 1, sizeof *marks);
    if (!v || !marks) return KC_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        bool is_static = d->members.v[i].group_instance_id.len > 0;
        const char *name = kc_admin_keep_str(&it->arena, is_static ? d->members.v[i].group_instance_id : d->members.v[i].member_id);
        if (!name) return KC_NO_MEMORY;
        v[i] = (kc_group_member_item){.name = name, .is_static = is_static};
    }
    it->v = v;
    it->marks = marks;
    it->n = n;
    return KC_OK;
}

static kc_err members_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct items *it = a->call;
    struct change *g = it->more;
    struct kw_describe_groups_response m;
    kc_err err = kc_admin_decode(a, &kw_describe_groups_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    if (m.groups.n != 1) return KC_BAD_MESSAGE;
    if (whole(a, m.groups.v[0].error_code, error, &err)) return err;
    err = items_of_group(it, &m.groups.v[0]);
    if (err != KC_OK) return err;
    g->routes.api = KW_API_LEAVE_GROUP;
    g->routes.version_min = LEAVE_MIN;
    if (it->n == 0) {
        kc_routes_settle(&g->routes, 0);
        return change_next(a, error);
    }
    kc_admin_step(a, KW_API_LEAVE_GROUP, LEAVE_MIN, a->broker);
    return ADMIN_NEXT;
}

static kc_err leave_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct kw_leave_group_response m;
    if (a->api == KW_API_FIND_COORDINATOR) return found_read(a, body, arena, error);
    if (a->api == KW_API_DESCRIBE_GROUPS) return members_read(a, body, arena, error);
    kc_err err = kc_admin_decode(a, &kw_leave_group_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK || whole(a, m.error_code, error, &err)) return err;
    size_t count = (size_t)KW_MAX(m.members.n, 0);
    struct result *r = kw_arena_calloc(arena, count + 1, sizeof *r);
    if (!r) return KC_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        bool is_static = m.members.v[i].group_instance_id.len > 0;
        r[i] = (struct result){.resource = is_static,
                               .name = is_static ? m.members.v[i].group_instance_id : m.members.v[i].member_id,
                               .text = kw_str_null(),
                               .code = m.members.v[i].error_code};
    }
    return take(a, r, count, error);
}

static bool leave_valid(const void *v) {
    const kc_group_member_item *item = v;
    return *item->name && (item->is_static == 0 || item->is_static == 1);
}

static const struct kc_admin_kind leave_kind = {"remove members of a group", KW_API_FIND_COORDINATOR, 0, KC_BROKER_ANY, leave_encode, leave_read,
                                                change_unsure, change_unreachable, kc_items_free};
static const struct shape leave_shape =
    SHAPE(kc_group_member_item, "remove member", offsetof(kc_group_member_item, is_static), false, KE_UNKNOWN_MEMBER_ID, false, leave_valid, NULL);

/* ---- Made ---- */

struct call {
    const struct kc_admin_kind *kind;
    const struct shape *shape;
    int16_t api, version_min, version_max;
    const char *group, *reason; /* group NULL: the items are groups */
    bool all;
};

static char *keep_text(const char *text, bool *ok) {
    char *kept = text ? kw_memdup(text, strlen(text) + 1) : NULL;
    if (text && !kept) *ok = false;
    return kept;
}

static kc_err change_new(struct items *it, const struct call *call) {
    bool ok = true;
    struct change *g = kw_calloc(1, sizeof *g);
    if (!g) return KC_NO_MEMORY;
    it->more = g;
    it->more_free = change_free;
    g->group = keep_text(call->group, &ok);
    g->reason = keep_text(call->reason, &ok);
    if (call->group) {
        size_t size = strlen(call->group) + sizeof " of group ";
        g->about = kw_malloc(size);
        if (!g->about) return KC_NO_MEMORY;
        snprintf(g->about, size, " of group %s", call->group);
        it->about = g->about;
    }
    if (!ok) return KC_NO_MEMORY;
    const void *groups = g->group ? (const void *)&g->group : (const uint8_t *)it->v + it->shape->name_at;
    return kc_routes_init(&g->routes, groups, it->shape->size, g->group ? 1 : it->n, call->api, call->version_min, call->version_max, change_failed);
}

static kc_err change_make(kc_client *c, const struct call *call, const void *v, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque, kc_op **op,
                          kc_error **error) {
    kc_err err = KC_INVALID;
    bool valid = (n > 0 || call->all) && (call->group || call->api == KW_API_DELETE_GROUPS);
    struct items *it = valid ? kc_items_new(v, stride, n, call->shape, 0, &err) : NULL;
    if (it && (err = change_new(it, call)) != KC_OK) {
        kc_items_free(it);
        it = NULL;
    }
    if (err == KC_INVALID) return kc_admin_invalid(call->kind, error);
    return kc_admin_make(c, call->kind, it, timeout_us, opaque, op, error);
}

static kc_err change_call(kc_client *c, const struct call *call, void *v, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = change_make(c, call, v, stride, n, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error); /* the call keeps its own limit */
    kc_items_give(op, kc_admin_of(op)->call, v, stride, n);
    kc_op_free(op);
    return err;
}

static kc_err change_start(kc_client *c, const struct call *call, const void *v, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque, kc_op **op,
                           kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(call->kind, error);
    kc_err err = change_make(c, call, v, stride, n, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

static struct call alter_call(const char *group) { /* from 10 on topics are told by id; 0 and 1 store elsewhere, or otherwise */
    return (struct call){.kind = &alter_kind, .shape = &alter_shape, .api = KW_API_OFFSET_COMMIT, .version_min = 2, .version_max = 9, .group = group};
}

kc_err kc_admin_alter_group_offsets(kc_client *c, const char *group, kc_group_offset_item *items, size_t stride, size_t n, int64_t timeout_us,
                                    kc_error **error) {
    const struct call call = alter_call(group);
    return change_call(c, &call, items, stride, n, timeout_us, error);
}

kc_err kc_admin_alter_group_offsets_start(kc_client *c, const char *group, const kc_group_offset_item *items, size_t stride, size_t n, int64_t timeout_us,
                                          uint64_t opaque, kc_op **op, kc_error **error) {
    const struct call call = alter_call(group);
    return change_start(c, &call, items, stride, n, timeout_us, opaque, op, error);
}

static struct call forget_call(const char *group) {
    return (struct call){.kind = &forget_kind, .shape = &forget_shape, .api = KW_API_OFFSET_DELETE, .version_max = INT16_MAX, .group = group};
}

kc_err kc_admin_delete_group_offsets(kc_client *c, const char *group, kc_group_offset_item *items, size_t stride, size_t n, int64_t timeout_us,
                                     kc_error **error) {
    const struct call call = forget_call(group);
    return change_call(c, &call, items, stride, n, timeout_us, error);
}

kc_err kc_admin_delete_group_offsets_start(kc_client *c, const char *group, const kc_group_offset_item *items, size_t stride, size_t n, int64_t timeout_us,
                                           uint64_t opaque, kc_op **op, kc_error **error) {
    const struct call call = forget_call(group);
    return change_start(c, &call, items, stride, n, timeout_us, opaque, op, error);
}

static const struct call delete_call = {.kind = &delete_kind, .shape = &delete_shape, .api = KW_API_DELETE_GROUPS, .version_max = INT16_MAX};

kc_err kc_admin_delete_groups(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    return change_call(c, &delete_call, items, stride, n, timeout_us, error);
}

kc_err kc_admin_delete_groups_start(kc_client *c, const kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque, kc_op **op,
                                    kc_error **error) {
    return change_start(c, &delete_call, items, stride, n, timeout_us, opaque, op, error);
}

static struct call leave_call(const char *group, const char *reason, size_t n) {
    bool all = n == 0;
    return (struct call){.kind = &leave_kind,
                         .shape = &leave_shape,
                         .api = all ? KW_API_DESCRIBE_GROUPS : KW_API_LEAVE_GROUP,
                         .version_min = all ? 4 : LEAVE_MIN, /* before, it does not tell which are static */
                         .version_max = INT16_MAX,
                         .group = group,
                         .reason = reason,
                         .all = all};
}

kc_err kc_admin_remove_group_members(kc_client *c, const char *group, const char *reason, kc_group_member_item *items, size_t stride, size_t n,
                                     int64_t timeout_us, kc_error **error) {
    const struct call call = leave_call(group, reason, n);
    return change_call(c, &call, items, stride, n, timeout_us, error);
}

kc_err kc_admin_remove_group_members_start(kc_client *c, const char *group, const char *reason, const kc_group_member_item *items, size_t stride, size_t n,
                                           int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    const struct call call = leave_call(group, reason, n);
    return change_start(c, &call, items, stride, n, timeout_us, opaque, op, error);
}
