/* classic.c - a classic group: its members and their sessions, protocols, what is stored and read of it, its end.
 *
 * Called by coordinator.c, classic_join.c, classic_sync.c. Calls base/ alone. KIP-345, KIP-394.
 */
#include "group_priv.h"

#define FAR_US (INT64_C(3650) * 86400 * 1000000) /* a timer that nobody waits for stays armed, so that arming it never needs memory */

const char *kb_group_state_text(enum kb_group_state s) {
    static const char *const text[] = {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"};
    return text[s];
}

void kb_group_state_set(struct kb_group *g, enum kb_group_state s, struct kb_now now) {
    kb_say(g->env->logger, KB_DEBUG, "group %s: %s, generation %d, %d members", g->id, kb_group_state_text(s), (int)g->generation,
           (int)g->count);
    g->state = s;
    g->since_ms = now.wall_ms;
}

uint64_t kb_group_store(struct kb_group *g, struct kb_now now) {
    g->env->store(g, ++g->number, now);
    return g->number;
}

static char *copy(struct kw_str s) {
    char *z = kw_malloc((size_t)s.len + 1);
    if (!z) return NULL;
    memcpy(z, s.p, (size_t)s.len);
    z[s.len] = 0;
    return z;
}

static struct kb_now now_of(const struct kb_group *g, int64_t now_us) {
    struct kb_now now = *g->env->now;
    now.mono_us = KW_MAX(now.mono_us, now_us);
    return now;
}

/* ---- The group ---- */

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_group *g = ctx;
    struct kb_now now = now_of(g, now_us);
    bool due = g->deadline_us <= now_us;
    (void)!kw_timers_set(g->env->timers, t,
                         due || g->deadline_us == KW_NEVER ? now_us + FAR_US : g->deadline_us); /* it was armed: there is room */
    if (due) kb_group_complete(g, now);
}

struct kb_group *kb_group_new(const struct kb_group_env *env, struct kw_str id, void *owner) {
    struct kb_group *g = kw_calloc(1, sizeof(*g));
    if (!g) return NULL;
    g->env = env;
    g->owner = owner;
    g->id = copy(id);
    g->since_ms = -1;
    g->deadline_us = KW_NEVER;
    kw_list_init(&g->members);
    kw_map_init(&g->by_id);
    kw_map_init(&g->by_instance);
    kw_map_init(&g->pending);
    kw_timer_init(&g->timer, fire, g);
    if (g->id && kw_timers_set(env->timers, &g->timer, env->now->mono_us + FAR_US) == KW_OK) return g;
    kw_free(g->id);
    kw_free(g);
    return NULL;
}

void kb_group_free(struct kb_group *g, int16_t code) {
    struct kb_pending *p;
    for (struct kw_list *l; (l = g->members.next) != &g->members;) {
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        g->state = KB_GROUP_EMPTY; /* nothing follows any more */
        kb_group_drop(m, code, *g->env->now);
    }
    for (size_t it = 0; (p = kw_map_next(&g->pending, &it));) {
        kw_timers_cancel(g->env->timers, &p->timer);
        kw_free(p);
    }
    kw_timers_cancel(g->env->timers, &g->timer);
    kw_map_deinit(&g->by_id);
    kw_map_deinit(&g->by_instance);
    kw_map_deinit(&g->pending);
    kw_free(g->protocol_type);
    kw_free(g->protocol);
    kw_free(g->id);
    kw_free(g);
}

void kb_group_advance(struct kb_group *g, int64_t by_us) {
    struct kb_pending *p;
    for (struct kw_list *l = g->members.next; l != &g->members; l = l->next) {
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        m->deadline_us -= by_us;
        kw_timers_hasten(g->env->timers, &m->timer, by_us);
    }
    for (size_t it = 0; (p = kw_map_next(&g->pending, &it));) kw_timers_hasten(g->env->timers, &p->timer, by_us);
    if (g->deadline_us == KW_NEVER) return;
    g->deadline_us -= by_us;
    kw_timers_hasten(g->env->timers, &g->timer, by_us);
}

/* ---- Members ---- */

struct kb_member *kb_group_member(const struct kb_group *g, struct kw_str id) {
    return kw_map_get_str(&g->by_id, id);
}

int16_t kb_group_check_member(const struct kb_group *g, struct kw_str id, struct kw_str instance_id, struct kb_member **m) {
    struct kb_member *found = instance_id.len >= 0 ? kw_map_get_str(&g->by_instance, instance_id) : kb_group_member(g, id);
    if (!found) return KE_UNKNOWN_MEMBER_ID;
    if (instance_id.len >= 0 && !kw_str_eq(kw_str_of(found->id), id)) return KE_FENCED_INSTANCE_ID;
    *m = found;
    return KE_NONE;
}

void kb_member_alive(struct kb_member *m, struct kb_now now) {
    m->deadline_us = now.mono_us + (int64_t)m->session_timeout_ms * 1000;
    if (m->deadline_us >= m->timer.at_us) return; /* it fires early, and looks */
    (void)!kw_timers_set(m->group->env->timers, &m->timer, m->deadline_us);
}

/* Who waits for an answer of the group need not send heartbeats; a new member does not wait for ever, since its client may have lost its
 * id. */
static void session_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_member *m = ctx;
    struct kb_now now = now_of(m->group, now_us);
    bool waits = (m->join_wait && !m->is_new) || m->sync_wait;
    int64_t next = m->deadline_us > now_us ? m->deadline_us : now_us + (int64_t)m->session_timeout_ms * 1000;
    (void)!kw_timers_set(m->group->env->timers, t, next);
    if (m->deadline_us > now_us || waits) return;
    kb_say(m->group->env->logger, KB_INFO, "group %s: member %s was silent for its session timeout of %d ms: it is taken out", m->group->id,
           m->id, (int)m->session_timeout_ms);
    kb_group_drop(m, KE_UNKNOWN_MEMBER_ID, now);
}

/* One block: the protocols, their names and metadata, the client's id and host. */
kw_err kb_member_say(struct kb_member *m, const struct kb_join *j) {
    size_t n = (size_t)j->protocol_count,
           size = n * sizeof(*m->protocols) + (size_t)KW_MAX(j->client_id.len, 0) + (size_t)KW_MAX(j->client_host.len, 0) + 2;
    for (size_t i = 0; i < n; i++) size += (size_t)j->protocols[i].name.len + (size_t)KW_MAX(j->protocols[i].metadata.len, 0);
    uint8_t *p = kw_malloc(size);
    if (!p) return KW_ENOMEM;
    kw_free(m->said);
    m->said = p;
    m->protocols = (void *)p;
    m->protocol_count = j->protocol_count;
    p += n * sizeof(*m->protocols);
    for (size_t i = 0; i < n; i++) {
        size_t name = (size_t)j->protocols[i].name.len, data = (size_t)KW_MAX(j->protocols[i].metadata.len, 0);
        m->protocols[i].name = (struct kw_str){(char *)p, (int32_t)name};
        m->protocols[i].metadata = (struct kw_bytes){p + name, (int32_t)data};
        memcpy(p, j->protocols[i].name.p, name);
        if (data > 0) memcpy(p + name, j->protocols[i].metadata.p, data);
        p += name + data;
    }
    const struct kw_str texts[] = {j->client_id, j->client_host};
    char **const into[] = {&m->client_id, &m->client_host};
    for (size_t i = 0; i < KW_COUNTOF(texts); i++) {
        size_t len = (size_t)KW_MAX(texts[i].len, 0);
        *into[i] = (char *)p;
        if (len > 0) memcpy(p, texts[i].p, len);
        p[len] = 0;
        p += len + 1;
    }
    m->session_timeout_ms = j->session_timeout_ms;
    m->rebalance_timeout_ms = j->rebalance_timeout_ms;
    return KW_OK;
}

static void member_free(struct kb_member *m) {
    struct kb_group *g = m->group;
    kw_timers_cancel(g->env->timers, &m->timer);
    if (kb_group_member(g, kw_str_of(m->id)) == m) kw_map_remove(&g->by_id, m->id, strlen(m->id));
    if (m->instance_id && kw_map_get(&g->by_instance, m->instance_id, strlen(m->instance_id)) == m)
        kw_map_remove(&g->by_instance, m->instance_id, strlen(m->instance_id));
    kw_list_remove(&m->link);
    kw_free(m->said);
    kw_free(m->assignment);
    kw_free(m->replaced_id);
    kw_free(m->instance_id);
    kw_free(m->id);
    kw_free(m);
}

kw_err kb_group_add(struct kb_group *g, const struct kb_join *j, struct kw_str id, struct kb_now now, struct kb_member **out) {
    struct kb_member *m = kw_calloc(1, sizeof(*m));
    char *type = g->count == 0 ? copy(j->protocol_type) : NULL;
    bool is_static = j->instance_id.len >= 0;
    if (!m || (g->count == 0 && !type)) {
        kw_free(m);
        kw_free(type);
        return KW_ENOMEM;
    }
    m->group = g;
    kw_list_init(&m->link);
    kw_timer_init(&m->timer, session_fire, m);
    m->is_new = true;
    m->id = copy(id);
    m->instance_id = is_static ? copy(j->instance_id) : NULL;
    m->deadline_us = now.mono_us + KB_GROUP_NEW_MEMBER_US;
    kw_err err = !m->id || (is_static && !m->instance_id) ? KW_ENOMEM : kb_member_say(m, j);
    if (!err) err = kw_map_put(&g->by_id, m->id, strlen(m->id), m);
    if (!err && is_static) err = kw_map_put(&g->by_instance, m->instance_id, strlen(m->instance_id), m);
    if (!err) err = kw_timers_set(g->env->timers, &m->timer, m->deadline_us);
    if (err) {
        if (!m->id) m->id = copy(kw_str_of(""));
        kw_free(type);
        if (m->id) {
            member_free(m);
        } else {
            kw_free(m->instance_id);
            kw_free(m);
        }
        return err;
    }
    kw_list_push(&g->members, &m->link);
    if (type) {
        kw_free(g->protocol_type);
        g->protocol_type = type;
    }
    if (!g->leader) g->leader = m;
    g->count++;
    g->newcomer = true;
    *out = m;
    return KW_OK;
}

void kb_group_drop(struct kb_member *m, int16_t code, struct kb_now now) {
    struct kb_group *g = m->group;
    if (m->join_wait) kb_group_join_error(m->join_wait, code, kw_str_of(m->id));
    kb_group_sync_error(m, code, now);
    g->joined -= m->joined;
    g->synced -= m->synced;
    g->count--;
    bool led = g->leader == m;
    member_free(m);
    if (led) g->leader = g->count > 0 ? KW_CONTAINER_OF(g->members.next, struct kb_member, link) : NULL;
    if (g->state == KB_GROUP_STABLE || g->state == KB_GROUP_COMPLETING)
        kb_group_prepare(g, now);
    else if (g->state == KB_GROUP_PREPARING)
        kb_group_maybe_complete(g, now);
}

/* Its id becomes another; *old is the caller's. */
kw_err kb_member_rename(struct kb_member *m, struct kw_str id, char **old) {
    struct kb_group *g = m->group;
    char *z = copy(id);
    if (!z) return KW_ENOMEM;
    if (kw_map_put(&g->by_id, z, strlen(z), m)) {
        kw_free(z);
        return KW_ENOMEM;
    }
    kw_map_remove(&g->by_id, m->id, strlen(m->id));
    *old = m->id;
    m->id = z;
    return KW_OK;
}

void kb_group_forget(struct kb_group_wait *w, struct kb_now now) {
    struct kb_member *m = w->member;
    if (!m) return;
    w->member = NULL;
    if (m->join_wait == w) m->join_wait = NULL;
    if (m->sync_wait == w) m->sync_wait = NULL;
    kb_member_alive(m, now);
}

/* ---- Protocols ---- */

static const struct kb_member_protocol *protocol_of(const struct kb_member *m, struct kw_str name) {
    for (int32_t i = 0; i < m->protocol_count; i++)
        if (kw_str_eq(m->protocols[i].name, name)) return &m->protocols[i];
    return NULL;
}

static bool all_know(const struct kb_group *g, struct kw_str name) {
    for (const struct kb_member *m = NULL; (m = kb_group_next(g, m));)
        if (!protocol_of(m, name)) return false;
    return true;
}

bool kb_group_supports(const struct kb_group *g, const struct kb_join *j) {
    if (j->protocol_type.len <= 0 || j->protocol_count == 0 || j->protocol_count > KB_GROUP_PROTOCOLS_MAX) return false;
    if (g->count == 0) return true;
    if (!kw_str_eq(kw_str_of(g->protocol_type), j->protocol_type)) return false;
    for (int32_t i = 0; i < j->protocol_count; i++)
        if (all_know(g, j->protocols[i].name)) return true;
    return false;
}

bool kb_member_matches(const struct kb_member *m, const struct kb_join *j) {
    if (m->protocol_count != j->protocol_count) return false;
    for (int32_t i = 0; i < m->protocol_count; i++) {
        const struct kb_member_protocol *p = &m->protocols[i];
        struct kw_bytes data = j->protocols[i].metadata;
        if (!kw_str_eq(p->name, j->protocols[i].name) || p->metadata.len != KW_MAX(data.len, 0)) return false;
        if (p->metadata.len > 0 && memcmp(p->metadata.p, data.p, (size_t)data.len) != 0) return false;
    }
    return true;
}

static const struct kb_member_protocol *favourite(const struct kb_member *m, const struct kb_member *first, uint64_t known) {
    for (int32_t i = 0; i < m->protocol_count; i++)
        for (int32_t k = 0; k < first->protocol_count; k++)
            if (known >> k & 1 && kw_str_eq(m->protocols[i].name, first->protocols[k].name)) return &first->protocols[k];
    return NULL;
}

/* Each member's vote goes to the first of its own that all know; a draw goes to what the first member likes better. */
struct kw_str kb_group_select(const struct kb_group *g) {
    const struct kb_member *first = kb_group_next(g, NULL);
    int32_t votes[KB_GROUP_PROTOCOLS_MAX] = {0}, best = -1;
    uint64_t known = 0;
    for (int32_t i = 0; first && i < first->protocol_count; i++)
        if (all_know(g, first->protocols[i].name)) known |= UINT64_C(1) << i;
    for (const struct kb_member *m = NULL; (m = kb_group_next(g, m));) {
        const struct kb_member_protocol *p = favourite(m, first, known);
        if (p) votes[p - first->protocols]++;
    }
    for (int32_t i = 0; first && i < first->protocol_count; i++)
        if (votes[i] > (best < 0 ? 0 : votes[best])) best = i;
    return best < 0 ? kw_str_null() : first->protocols[best].name;
}

/* ---- What is stored ---- */

static struct kw_bytes said_for(const struct kb_group *g, const struct kb_member *m) {
    const struct kb_member_protocol *p = g->protocol ? protocol_of(m, kw_str_of(g->protocol)) : NULL;
    return p ? p->metadata : (struct kw_bytes){(const uint8_t *)"", 0};
}

kw_err kb_group_record(const struct kb_group *g, struct kw_arena *a, struct kw_group_metadata_value *v) {
    kw_msg_init(&kw_group_metadata_value_desc, v);
    v->protocol_type = kw_str_of(g->protocol_type ? g->protocol_type : "");
    v->generation = g->generation;
    v->protocol = kw_str_of(g->protocol);
    v->leader = g->leader ? kw_str_of(g->leader->id) : kw_str_null();
    v->current_state_timestamp = g->since_ms;
    v->members.n = 0;
    v->members.v = kw_arena_calloc(a, (size_t)g->count, sizeof(*v->members.v));
    if (g->count > 0 && !v->members.v) return KW_ENOMEM;
    for (const struct kb_member *m = NULL; (m = kb_group_next(g, m));)
        v->members.v[v->members.n++] = (struct kw_group_metadata_value_member_metadata){.member_id = kw_str_of(m->id),
                                                                                        .group_instance_id = kw_str_of(m->instance_id),
                                                                                        .client_id = kw_str_of(m->client_id),
                                                                                        .client_host = kw_str_of(m->client_host),
                                                                                        .rebalance_timeout = m->rebalance_timeout_ms,
                                                                                        .session_timeout = m->session_timeout_ms,
                                                                                        .subscription = said_for(g, m),
                                                                                        .assignment = {m->assignment, m->assignment_size}};
    return KW_OK;
}

void kb_group_stored(struct kb_group *g, uint64_t number, int16_t code, struct kb_now now) {
    g->stored = KW_MAX(g->stored, number);
    if (g->sync_number != 0 && g->sync_number <= number) kb_group_sync_stored(g, code, now);
    kb_group_replaced(g, code, now);
}

static kw_err restore_member(struct kb_group *g, const struct kw_group_metadata_value *v,
                             const struct kw_group_metadata_value_member_metadata *s) {
    struct kw_join_group_request_protocol protocol = {.name = v->protocol, .metadata = s->subscription};
    struct kb_join j = {.member_id = s->member_id,
                        .instance_id = s->group_instance_id,
                        .protocol_type = v->protocol_type,
                        .client_id = s->client_id,
                        .client_host = s->client_host,
                        .session_timeout_ms = KW_MAX(s->session_timeout, 1),
                        .rebalance_timeout_ms = s->rebalance_timeout > 0 ? s->rebalance_timeout : KW_MAX(s->session_timeout, 1),
                        .protocols = &protocol,
                        .protocol_count = 1};
    struct kb_member *m;
    bool twice =
        kb_group_member(g, s->member_id) || (s->group_instance_id.len >= 0 && kw_map_get_str(&g->by_instance, s->group_instance_id));
    if (s->member_id.len <= 0 || twice) return KW_EINVAL;
    if (kb_group_add(g, &j, s->member_id, *g->env->now, &m)) return KW_ENOMEM;
    m->is_new = false;
    m->deadline_us = g->env->now->mono_us + FAR_US; /* until kb_group_begin */
    m->assignment = s->assignment.len > 0 ? kw_memdup(s->assignment.p, (size_t)s->assignment.len) : NULL;
    if (s->assignment.len > 0 && !m->assignment) return KW_ENOMEM;
    m->assignment_size = KW_MAX(s->assignment.len, 0);
    return KW_OK;
}

kw_err kb_group_restore(struct kb_group *g, const struct kw_group_metadata_value *v) {
    KW_ASSERT(g->count == 0 && g->state == KB_GROUP_EMPTY);
    kw_err err = KW_OK;
    if (v->generation < 0 || (v->members.n > 0 && (v->protocol.len <= 0 || v->protocol_type.len <= 0))) return KW_EINVAL;
    if (v->protocol.len >= 0 && !(g->protocol = copy(v->protocol))) return KW_ENOMEM;
    for (int32_t i = 0; i < v->members.n && !err; i++) err = restore_member(g, v, &v->members.v[i]);
    if (!err && v->members.n == 0 && v->protocol_type.len > 0 && !(g->protocol_type = copy(v->protocol_type))) err = KW_ENOMEM;
    if (err) return err;
    struct kb_member *leader = v->leader.len >= 0 ? kb_group_member(g, v->leader) : NULL;
    if (leader) g->leader = leader;
    g->generation = v->generation;
    g->state = g->count > 0 ? KB_GROUP_STABLE : KB_GROUP_EMPTY;
    g->since_ms = v->current_state_timestamp;
    return KW_OK;
}

void kb_group_begin(struct kb_group *g, struct kb_now now) {
    for (struct kw_list *l = g->members.next; l != &g->members; l = l->next) {
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        kb_member_alive(m, now);
    }
}

/* ---- What it says ---- */

void *kb_group_owner(const struct kb_group *g) {
    return g->owner;
}

struct kw_str kb_group_id(const struct kb_group *g) {
    return kw_str_of(g->id);
}

enum kb_group_state kb_group_state(const struct kb_group *g) {
    return g->state;
}

int32_t kb_group_generation(const struct kb_group *g) {
    return g->generation;
}

int32_t kb_group_size(const struct kb_group *g) {
    return g->count;
}

bool kb_group_is_unused(const struct kb_group *g) {
    return g->state == KB_GROUP_EMPTY && g->pending.count == 0 && g->stored == g->number;
}

int64_t kb_group_since_ms(const struct kb_group *g) {
    return g->since_ms;
}

struct kw_str kb_group_protocol_type(const struct kb_group *g) {
    return kw_str_of(g->protocol_type ? g->protocol_type : "");
}

struct kw_str kb_group_protocol(const struct kb_group *g) {
    return kw_str_of(g->protocol);
}

const struct kb_member *kb_group_next(const struct kb_group *g, const struct kb_member *m) {
    const struct kw_list *l = m ? m->link.next : g->members.next;
    return l == &g->members ? NULL : KW_CONTAINER_OF(l, struct kb_member, link);
}

void kb_member_view(const struct kb_group *g, const struct kb_member *m, struct kb_member_view *v) {
    *v = (struct kb_member_view){.id = kw_str_of(m->id),
                                 .instance_id = kw_str_of(m->instance_id),
                                 .client_id = kw_str_of(m->client_id),
                                 .client_host = kw_str_of(m->client_host),
                                 .metadata = said_for(g, m),
                                 .assignment = {m->assignment ? m->assignment : (const uint8_t *)"", m->assignment_size}};
}

/* The topics come first in every version: version int16, count int32, names. */
static bool may_consume(struct kw_bytes subscription, struct kw_str topic) {
    struct kw_in in;
    kw_in_init(&in, subscription.p, (size_t)KW_MAX(subscription.len, 0));
    int16_t version = kw_in_i16(&in);
    int32_t n = kw_in_i32(&in);
    if (in.err || version < 0 || n < 0) return true;
    for (int32_t i = 0; i < n; i++) {
        int16_t len = kw_in_i16(&in);
        const uint8_t *p = kw_in_take(&in, len < 0 ? SIZE_MAX : (size_t)len);
        if (!p) return true;
        if (kw_str_eq((struct kw_str){(const char *)p, len}, topic)) return true;
    }
    return false;
}

bool kb_group_subscribes(const struct kb_group *g, struct kw_str topic) {
    if (!g->protocol_type || strcmp(g->protocol_type, "consumer") != 0) return false;
    for (const struct kb_member *m = NULL; (m = kb_group_next(g, m));) {
        if (m->protocol_count == 0 || may_consume(g->protocol ? said_for(g, m) : m->protocols[0].metadata, topic)) return true;
    }
    return false;
}
