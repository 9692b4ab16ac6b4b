/* admin_groups.c - the public administration calls that look at groups: which there are, on every broker; what some of them are doing.
 *
 * An answer's strings and arrays live in one arena that goes with what is handed out. Called by the application. Calls admin_call.c, admin_group_route.c
 * (coordinators), consume/assignor.h (what members said and were given). KIP-222, KIP-518, KIP-848, KIP-1043.
 */
#include <stdlib.h>

#include "admin_group.h"
#include "consume/assignor.h"

/* ---- List: metadata, then every broker; a broker that cannot be asked leads back to metadata, and all are asked anew, since its groups may have
 * gone to any of the others. ---- */

#define LOOKS_MAX 4 /* because of brokers that cannot be reached; then they are told of as failures */

struct listed {
    kc_group_listing said;
    size_t at; /* in the order of telling */
};
struct kc_group_list {
    struct kw_arena arena;
    struct listed *v;
    size_t count, cap;
    kc_group_list_failure *failures;
    size_t failure_count;
};
struct filter {
    struct kw_str *v;
    size_t n;
};
struct list {
    struct kw_arena arena; /* of the filters */
    struct filter states, types;
    kc_group_list *list; /* NULL: taken */
    int32_t *brokers;    /* of the last metadata */
    size_t broker_count, asked;
    int32_t looks;
};

void kc_group_list_free(kc_group_list *l) {
    if (!l) return;
    kw_arena_deinit(&l->arena);
    kw_free(l->v);
    kw_free(l);
}

static void list_free(void *call) {
    struct list *l = call;
    if (!l) return;
    kc_group_list_free(l->list);
    kw_arena_deinit(&l->arena);
    kw_free(l->brokers);
    kw_free(l);
}

static kw_err list_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct list *l = a->call;
    (void)arena;
    if (a->api == KW_API_METADATA) {
        struct kw_metadata_request m;
        kw_msg_init(&kw_metadata_request_desc, &m);
        m.topics.n = 0; /* none: the brokers alone */
        m.allow_auto_topic_creation = version < ADMIN_METADATA_MIN;
        return kw_encode(&kw_metadata_request_desc, version, &m, out);
    }
    struct kw_list_groups_request m;
    kw_msg_init(&kw_list_groups_request_desc, &m);
    m.states_filter.v = l->states.v;
    m.states_filter.n = (int32_t)l->states.n;
    m.types_filter.v = l->types.v;
    m.types_filter.n = (int32_t)l->types.n;
    return kw_encode(&kw_list_groups_request_desc, version, &m, out);
}

static kc_err begin_look(struct kc_admin *a, const struct kw_metadata_response *m) {
    struct list *l = a->call;
    size_t n = (size_t)KW_MAX(m->brokers.n, 0);
    if (n == 0) return kc_admin_again(a, KE_LEADER_NOT_AVAILABLE) ? ADMIN_AGAIN : KC_TIMED_OUT;
    kw_free(l->brokers);
    l->brokers = kw_calloc(n, sizeof *l->brokers);
    l->broker_count = l->asked = 0;
    kw_arena_reset(&l->list->arena);
    l->list->count = l->list->failure_count = 0;
    l->list->failures = kw_arena_calloc(&l->list->arena, n, sizeof *l->list->failures);
    if (!l->brokers || !l->list->failures) return KC_NO_MEMORY;
    for (size_t i = 0; i < n; i++) l->brokers[l->broker_count++] = m->brokers.v[i].node_id;
    return KC_OK;
}

static kc_err keep_groups(kc_group_list *l, const struct kw_list_groups_response *m, int32_t broker) {
    size_t n = (size_t)KW_MAX(m->groups.n, 0);
    if (l->cap - l->count < n) {
        size_t cap = KW_MAX(l->cap * 2, l->count + n);
        struct listed *grown = kw_realloc(l->v, cap * sizeof *grown);
        if (!grown) return KC_NO_MEMORY;
        l->v = grown;
        l->cap = cap;
    }
    for (size_t i = 0; i < n; i++) {
        const struct kw_list_groups_response_listed_group *g = &m->groups.v[i];
        kc_group_listing *o = &l->v[l->count].said;
        l->v[l->count].at = l->count;
        l->count++;
        *o = (kc_group_listing){.group = kc_admin_keep_str(&l->arena, g->group_id),
                                .protocol_type = kc_admin_keep_str(&l->arena, g->protocol_type),
                                .state = kc_admin_keep_str(&l->arena, g->group_state),
                                .type = kc_admin_keep_str(&l->arena, g->group_type),
                                .coordinator = broker};
        if (!o->group || !o->protocol_type || !o->state || !o->type) return KC_NO_MEMORY;
    }
    return KC_OK;
}

/* By name; of two the one that was told last first: a group that moves while the brokers are asked is told of twice. */
static int by_group(const void *a, const void *b) {
    const struct listed *x = a, *y = b;
    int names = strcmp(x->said.group, y->said.group);
    return names != 0 ? names : x->at > y->at ? -1 : x->at < y->at;
}

static void finish_list(kc_group_list *l) {
    size_t kept = 0;
    if (l->count > 0) qsort(l->v, l->count, sizeof *l->v, by_group);
    for (size_t i = 0; i < l->count; i++)
        if (kept == 0 || strcmp(l->v[kept - 1].said.group, l->v[i].said.group) != 0) l->v[kept++] = l->v[i];
    l->count = kept;
}

static kc_err next_broker(struct kc_admin *a) {
    struct list *l = a->call;
    if (l->asked < l->broker_count) {
        kc_admin_step(a, KW_API_LIST_GROUPS, l->types.n > 0 ? 5 : l->states.n > 0 ? 4 : 0, l->brokers[l->asked]);
        return ADMIN_NEXT;
    }
    finish_list(l->list);
    return KC_OK;
}

/* Everything anew, or, where that has no end in time, the broker is told of. */
static kc_err list_failed(struct kc_admin *a, kc_err err, bool limited) {
    struct list *l = a->call;
    a->tries = l->looks;
    if (err != KC_UNSUPPORTED && kc_err_retriable(err) && (!limited || l->looks < LOOKS_MAX) && kc_admin_again_at_us(a) < a->deadline_us) {
        if (l->looks < INT32_MAX) l->looks++;
        kc_admin_step(a, KW_API_METADATA, 1, KC_BROKER_ANY);
        return ADMIN_AGAIN;
    }
    l->list->failures[l->list->failure_count++] = (kc_group_list_failure){l->brokers[l->asked++], err};
    return next_broker(a);
}

static kc_err list_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct list *l = a->call;
    (void)error;
    if (a->api == KW_API_METADATA) {
        struct kw_metadata_response m;
        kc_err err = kc_admin_decode(a, &kw_metadata_response_desc, body, arena, &m, &m.throttle_time_ms);
        if (err == KC_OK) err = begin_look(a, &m);
        return err == KC_OK ? next_broker(a) : err;
    }
    struct kw_list_groups_response m;
    kc_err err = kc_admin_decode(a, &kw_list_groups_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    if (m.error_code != KE_NONE) {
        a->last = m.error_code;
        return list_failed(a, m.error_code, false); /* loading, as a rule */
    }
    err = keep_groups(l->list, &m, l->brokers[l->asked++]);
    return err == KC_OK ? next_broker(a) : err;
}

static kc_err list_unreachable(struct kc_admin *a, kc_err err) {
    if (a->api == KW_API_METADATA) return ADMIN_AGAIN;
    if (err == KC_UNSUPPORTED) return err;
    return list_failed(a, err, true);
}

static const struct kc_admin_kind list_kind = {"list groups", KW_API_METADATA, 1, KC_BROKER_ANY, list_encode, list_read, NULL, list_unreachable, list_free};

static kc_err keep_filter(struct list *l, struct filter *f, const char *const *v, size_t n) {
    if (n > INT16_MAX || (n > 0 && !v)) return KC_INVALID;
    f->v = kw_arena_calloc(&l->arena, n + 1, sizeof *f->v);
    if (!f->v) return KC_NO_MEMORY;
    for (; f->n < n; f->n++) {
        if (!v[f->n]) return KC_INVALID;
        const char *kept = kw_arena_dup(&l->arena, v[f->n], strlen(v[f->n]) + 1);
        if (!kept) return KC_NO_MEMORY;
        f->v[f->n] = kw_str_of(kept);
    }
    return KC_OK;
}

/* KC_INVALID, KC_NO_MEMORY. */
static kc_err list_new(const char *const *states, size_t state_count, const char *const *types, size_t type_count, struct list **out) {
    struct list *l = kw_calloc(1, sizeof *l);
    if (!l) return KC_NO_MEMORY;
    kw_arena_init(&l->arena, 0);
    l->list = kw_calloc(1, sizeof *l->list);
    kc_err err = l->list ? KC_OK : KC_NO_MEMORY;
    if (l->list) kw_arena_init(&l->list->arena, 0);
    if (err == KC_OK) err = keep_filter(l, &l->states, states, state_count);
    if (err == KC_OK) err = keep_filter(l, &l->types, types, type_count);
    if (err == KC_OK)
        *out = l;
    else
        list_free(l);
    return err;
}

static kc_err list_make(kc_client *c, const char *const *states, size_t state_count, const char *const *types, size_t type_count, int64_t timeout_us,
                        uint64_t opaque, kc_op **op, kc_error **error) {
    struct list *l = NULL;
    kc_err err = list_new(states, state_count, types, type_count, &l);
    if (err == KC_INVALID) return kc_admin_invalid(&list_kind, error);
    return kc_group_make(c, &list_kind, l, timeout_us, opaque, op, error); /* which tells a want of memory */
}

kc_group_list *kc_op_result_groups(kc_op *op) {
    struct list *l = kc_admin_done_call(op, &list_kind);
    kc_group_list *list = l && op->err == KC_OK ? l->list : NULL;
    if (list) l->list = NULL;
    return list;
}

kc_err kc_admin_list_groups(kc_client *c, const char *const *states, size_t state_count, const char *const *types, size_t type_count,
                            int64_t timeout_us, kc_group_list **out, kc_error **error) {
    kc_op *op = NULL;
    if (!out) return kc_admin_invalid(&list_kind, error);
    kc_err err = list_make(c, states, state_count, types, type_count, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error); /* the call keeps its own limit */
    if (err == KC_OK) *out = kc_op_result_groups(op);
    kc_op_free(op);
    return err;
}

kc_err kc_admin_list_groups_start(kc_client *c, const char *const *states, size_t state_count, const char *const *types, size_t type_count,
                                  int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(&list_kind, error);
    kc_err err = list_make(c, states, state_count, types, type_count, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

size_t kc_group_list_count(const kc_group_list *l) {
    return l ? l->count : 0;
}

kc_err kc_group_list_get(const kc_group_list *l, size_t index, kc_group_listing *out) {
    if (!l || !out || index >= l->count) return KC_INVALID;
    *out = l->v[index].said;
    return KC_OK;
}

kc_err kc_group_list_failed(const kc_group_list *l, size_t index, kc_group_list_failure *out) {
    if (!l || !out || index >= l->failure_count) return KC_INVALID;
    *out = l->failures[index];
    return KC_OK;
}

/* ---- Describe ---- */

struct group {
    kc_group_info info;
    kc_group_member *members; /* info.member_count of them */
};
struct kc_group_details {
    struct kw_arena arena;
    struct group *v;
    size_t count;
};
struct describe {
    struct kc_routes routes;
    kc_group_details *details; /* NULL: taken */
};

void kc_group_details_free(kc_group_details *d) {
    if (!d) return;
    kw_arena_deinit(&d->arena);
    kw_free(d);
}

static void describe_free(void *call) {
    struct describe *d = call;
    if (!d) return;
    kc_routes_deinit(&d->routes);
    kc_group_details_free(d->details);
    kw_free(d);
}

static void describe_failed(struct kc_admin *a, size_t i, kc_err err, struct kw_str text) {
    struct describe *d = a->call;
    kc_group_info *info = &d->details->v[i].info;
    const char *message = text.len > 0 ? kc_admin_keep_str(&d->details->arena, text) : NULL;
    info->err = err;
    info->message = message ? message : kc_err_text(err);
    info->coordinator = d->routes.v[i].broker;
}

static kw_err describe_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    struct kc_routes *r = &((struct describe *)a->call)->routes;
    struct kw_describe_groups_request m;
    if (a->api == KW_API_FIND_COORDINATOR) return kc_routes_encode(r, version, arena, out);
    kw_msg_init(&kw_describe_groups_request_desc, &m);
    m.groups.v = kw_arena_calloc(arena, kc_routes_batch(r) + 1, sizeof *m.groups.v);
    if (!m.groups.v) return KW_ENOMEM;
    for (size_t k = 0; k < kc_routes_batch(r); k++) m.groups.v[m.groups.n++] = kw_str_of(r->v[kc_routes_at(r, k)].group);
    return kw_encode(&kw_describe_groups_request_desc, version, &m, out);
}

static kc_bytes keep_bytes(struct kw_arena *a, struct kw_bytes b, bool *ok) {
    kc_bytes kept = {0};
    if (b.len <= 0) return kept;
    kept.p = kw_arena_dup(a, b.p, (size_t)b.len);
    if (kept.p)
        kept.size = (size_t)b.len;
    else
        *ok = false;
    return kept;
}

/* What it subscribes to, and what it has, as far as both are told. KC_BAD_MESSAGE: that follows no form that we know. */
static kc_err keep_consumer(struct kw_arena *to, struct kw_arena *arena, struct kw_bytes said, struct kw_bytes given, kc_group_member *m) {
    struct kc_subscription s = {0};
    struct kc_share share = {0};
    kw_err err = said.len > 0 ? kc_subscription_read(KC_ASSIGN_RANGE, said, arena, &s) : KW_OK; /* any: what comes behind differs */
    if (err == KW_OK && given.len > 0) err = kc_share_read(given, arena, &share);
    if (err != KW_OK) return kc_err_from(err);
    const char **topics = kw_arena_calloc(to, (size_t)s.topic_count + 1, sizeof *topics);
    size_t count = 0;
    for (int32_t t = 0; t < share.topic_count; t++) count += (size_t)KW_MAX(share.topics[t].partitions.n, 0);
    kc_group_partition *v = kw_arena_calloc(to, count + 1, sizeof *v);
    if (!topics || !v) return KC_NO_MEMORY;
    for (int32_t t = 0; t < s.topic_count; t++)
        if (!(topics[t] = kc_admin_keep_str(to, s.topics[t]))) return KC_NO_MEMORY;
    for (int32_t t = 0; t < share.topic_count; t++) {
        const char *topic = kc_admin_keep_str(to, share.topics[t].topic);
        if (!topic) return KC_NO_MEMORY;
        for (int32_t i = 0; i < share.topics[t].partitions.n; i++) v[m->assigned_count++] = (kc_group_partition){topic, share.topics[t].partitions.v[i]};
    }
    m->topics = topics;
    m->topic_count = (size_t)s.topic_count;
    m->assigned = v;
    return KC_OK;
}

static kc_err keep_member(struct kw_arena *to, struct kw_arena *arena, const struct kw_describe_groups_response_described_group_member *said, bool consumer,
                          kc_group_member *m) {
    bool ok = true;
    *m = (kc_group_member){.id = kc_admin_keep_str(to, said->member_id),
                           .client_id = kc_admin_keep_str(to, said->client_id),
                           .host = kc_admin_keep_str(to, said->client_host),
                           .metadata = keep_bytes(to, said->member_metadata, &ok),
                           .assignment = keep_bytes(to, said->member_assignment, &ok)};
    if (said->group_instance_id.len >= 0 && !(m->instance_id = kc_admin_keep_str(to, said->group_instance_id))) ok = false;
    if (!ok || !m->id || !m->client_id || !m->host) return KC_NO_MEMORY;
    m->err = consumer ? keep_consumer(to, arena, said->member_metadata, said->member_assignment, m) : KC_OK;
    return m->err == KC_NO_MEMORY ? KC_NO_MEMORY : KC_OK;
}

static kc_err keep_group(struct kw_arena *to, struct kw_arena *arena, const struct kw_describe_groups_response_described_group *said, struct group *g) {
    kc_group_info *info = &g->info;
    bool consumer = kw_str_eq(said->protocol_type, kw_str_of("consumer"));
    info->err = said->error_code;
    bool dead = kw_str_eq(said->group_state, kw_str_of("Dead"));
    if (dead && info->err == KC_OK) info->err = KE_GROUP_ID_NOT_FOUND; /* as it is told before version 6 */
    info->message = said->error_message.len > 0 ? kc_admin_keep_str(to, said->error_message) : info->err == KC_OK ? "" : kc_err_text(info->err);
    info->state = kc_admin_keep_str(to, said->group_state);
    info->protocol_type = kc_admin_keep_str(to, said->protocol_type);
    info->protocol = kc_admin_keep_str(to, said->protocol_data);
    info->member_count = (size_t)KW_MAX(said->members.n, 0);
    g->members = kw_arena_calloc(to, info->member_count + 1, sizeof *g->members);
    if (!info->message || !info->state || !info->protocol_type || !info->protocol || !g->members) return KC_NO_MEMORY;
    kc_err err = KC_OK;
    for (size_t i = 0; i < info->member_count && err == KC_OK; i++) err = keep_member(to, arena, &said->members.v[i], consumer, &g->members[i]);
    return err;
}

static kc_err describe_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct describe *d = a->call;
    struct kc_routes *r = &d->routes;
    struct kw_describe_groups_response m;
    (void)error;
    if (a->api == KW_API_FIND_COORDINATOR) return kc_routes_read(a, r, body, arena);
    kc_err err = kc_admin_decode(a, &kw_describe_groups_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    struct kc_names names;
    if (!kc_names_make(&names, arena, m.groups.v, m.groups.n, sizeof *m.groups.v, offsetof(struct kw_describe_groups_response_described_group, group_id)))
        return KC_NO_MEMORY;
    for (size_t k = 0; k < kc_routes_batch(r) && err == KC_OK; k++) {
        size_t i = kc_routes_at(r, k);
        const struct kw_describe_groups_response_described_group *said = kc_names_find(&names, r->v[i].group);
        if (said && kc_routes_again(a, r, i, said->error_code)) continue;
        if (!said) {
            kc_routes_fail(a, r, i, KC_BAD_MESSAGE, kw_str_of("the answer does not name it"));
            continue;
        }
        kc_routes_settle(r, i);
        d->details->v[i].info.coordinator = r->v[i].broker;
        err = keep_group(&d->details->arena, arena, said, &d->details->v[i]);
    }
    return err == KC_OK ? kc_routes_next(a, r) : err;
}

static kc_err describe_unreachable(struct kc_admin *a, kc_err err) {
    return kc_routes_unreachable(a, &((struct describe *)a->call)->routes, err);
}

static const struct kc_admin_kind describe_kind = {"describe groups", KW_API_FIND_COORDINATOR, 0,    KC_BROKER_ANY, describe_encode,
                                                   describe_read,     NULL,                    describe_unreachable, describe_free};

static kc_err copy_groups(struct describe *d, const char *const *groups, size_t n) {
    kc_group_details *details = d->details;
    const char **names;
    kc_err err = kc_group_keep_names(&details->arena, groups, n, &names);
    if (err != KC_OK) return err;
    details->v = kw_arena_calloc(&details->arena, n + 1, sizeof *details->v);
    if (!details->v) return KC_NO_MEMORY;
    for (; details->count < n; details->count++)
        details->v[details->count].info =
            (kc_group_info){.group = names[details->count], .state = "", .protocol_type = "", .protocol = "", .coordinator = -1, .message = ""};
    return kc_routes_init(&d->routes, names, sizeof *names, n, KW_API_DESCRIBE_GROUPS, 0, INT16_MAX, describe_failed);
}

/* KC_INVALID, KC_NO_MEMORY. */
static kc_err describe_new(const char *const *groups, size_t n, struct describe **out) {
    struct describe *d = kw_calloc(1, sizeof *d);
    if (!d) return KC_NO_MEMORY;
    d->details = kw_calloc(1, sizeof *d->details);
    kc_err err = KC_NO_MEMORY;
    if (d->details) {
        kw_arena_init(&d->details->arena, 0);
        err = copy_groups(d, groups, n);
    }
    if (err == KC_OK)
        *out = d;
    else
        describe_free(d);
    return err;
}

static kc_err describe_make(kc_client *c, const char *const *groups, size_t n, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    struct describe *d = NULL;
    kc_err err = n == 0 || !groups ? KC_INVALID : describe_new(groups, n, &d);
    if (err == KC_INVALID) return kc_admin_invalid(&describe_kind, error);
    return kc_group_make(c, &describe_kind, d, timeout_us, opaque, op, error);
}

kc_group_details *kc_op_result_group_details(kc_op *op) {
    struct describe *d = kc_admin_done_call(op, &describe_kind);
    kc_group_details *details = d && op->err == KC_OK ? d->details : NULL;
    if (details) d->details = NULL;
    return details;
}

kc_err kc_admin_describe_groups(kc_client *c, const char *const *groups, size_t n, int64_t timeout_us, kc_group_details **out, kc_error **error) {
    kc_op *op = NULL;
    if (!out) return kc_admin_invalid(&describe_kind, error);
    kc_err err = describe_make(c, groups, n, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error); /* the call keeps its own limit */
    if (err == KC_OK) *out = kc_op_result_group_details(op);
    kc_op_free(op);
    return err;
}

kc_err kc_admin_describe_groups_start(kc_client *c, const char *const *groups, size_t n, int64_t timeout_us, uint64_t opaque, kc_op **op,
                                      kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(&describe_kind, error);
    kc_err err = describe_make(c, groups, n, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

size_t kc_group_details_count(const kc_group_details *d) {
    return d ? d->count : 0;
}

kc_err kc_group_details_get(const kc_group_details *d, size_t index, kc_group_info *out) {
    if (!d || !out || index >= d->count) return KC_INVALID;
    *out = d->v[index].info;
    return KC_OK;
}

kc_err kc_group_details_member(const kc_group_details *d, size_t group, size_t index, kc_group_member *out) {
    if (!d || !out || group >= d->count || index >= d->v[group].info.member_count) return KC_INVALID;
    *out = d->v[group].members[index];
    return KC_OK;
}
