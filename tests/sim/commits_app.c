/* commits_app.c - clients of groups that speak the protocol themselves: one that commits and reads alone, and one member of each crew, which
 * joins, is told what it owns, says that it is alive, commits, leaves and comes back; one request of each at a time.
 *
 * Now and then a member says something as it was before: of an older generation, or by the id that it had before its process began anew. Nobody
 * may believe it. Called by workload.c and cluster.c. Calls client/core (requests), group_model.c (what comes of it).
 */
#include <stdio.h>
#include <stdlib.h>

#include "cluster.h"
#include "kw_messages.h"

enum { MEMBERS_MAX = 16, ID_MAX = 96, SESSION_MS = 4000, REBALANCE_MS = 12000, SILENT_S = 20 };
enum step { FIND, CREATE, COMMIT, FETCH, JOIN, SYNC, BEAT, LEAVE, ZOMBIE_COMMIT };
static const int16_t apis[] = {KW_API_FIND_COORDINATOR, KW_API_CREATE_TOPICS, KW_API_OFFSET_COMMIT, KW_API_OFFSET_FETCH,  KW_API_JOIN_GROUP,
                               KW_API_SYNC_GROUP,       KW_API_HEARTBEAT,     KW_API_LEAVE_GROUP,   KW_API_OFFSET_COMMIT};
static const char *const names[] = {"find", "create", "commit", "fetch", "join", "sync", "beat", "leave", "zombie's commit"};

struct app;
struct seat { /* one committer, or one member */
    struct app *a;
    struct sim_group *g;
    struct kc_request rq;
    bool busy;
    enum step step;
    enum kc_channel lane;
    int32_t coordinator; /* -1: not known */
    int64_t next_us, sent_us, ok_us;
    int32_t asked_epoch; /* of its partition's leadership, when it was asked */
    bool asked_right;    /* the one asked led then */
    /* commits and reads under way */
    uint8_t cells[SIM_CELLS];
    int64_t values[SIM_CELLS];
    uint64_t versions[SIM_CELLS];
    int count;
    /* a member */
    char id[ID_MAX], before[ID_MAX], instance[24]; /* before: the id of its life before, of a static one */
    int64_t known_us; /* when it last asked something, of what tells that the coordinator knows it by its present id */
    int32_t generation;
    bool leads, stable, read; /* read: what is committed of what it owns */
    char members[MEMBERS_MAX][ID_MAX];
    int member_count;
    uint8_t owned[SIM_CELLS];
    int owned_count;
};
struct app {
    struct sim_role role; /* first */
    struct sim_run *r;
    struct sim_world *w;
    int64_t every_us;
    bool stopping;
    struct seat seats[1 + SIM_CREWS];
};

static bool alone(const struct seat *s) {
    return !s->g->crew;
}

/* ---- What is asked ---- */

static kw_err encode_commit(struct seat *s, struct kc_request *rq, struct kw_out *out) {
    struct kw_offset_commit_request_partition p[SIM_CELLS];
    struct kw_offset_commit_request_topic t = {.name = kw_str_of(SIM_WATCHED), .partitions = {p, s->count}};
    struct kw_offset_commit_request m;
    bool zombie = s->step == ZOMBIE_COMMIT, former = zombie && s->before[0];
    for (int i = 0; i < s->count; i++)
        p[i] = (struct kw_offset_commit_request_partition){.partition_index = s->cells[i],
                                                           .committed_offset = s->values[i],
                                                           .committed_leader_epoch = -1,
                                                           .commit_timestamp = -1,
                                                           .committed_metadata = kw_str_of("seen")};
    kw_msg_init(&kw_offset_commit_request_desc, &m);
    m.group_id = kw_str_of(s->g->id);
    m.generation_id_or_member_epoch = alone(s) ? -1 : zombie && !former ? s->generation - 1 : s->generation;
    m.member_id = kw_str_of(former ? s->before : s->id);
    if (s->instance[0]) m.group_instance_id = kw_str_of(s->instance);
    m.topics.v = &t;
    m.topics.n = 1;
    return kw_encode(&kw_offset_commit_request_desc, rq->version, &m, out);
}

static kw_err encode_fetch(struct seat *s, struct kc_request *rq, struct kw_out *out) {
    int32_t indexes[SIM_CELLS];
    struct kw_offset_fetch_request m;
    struct kw_offset_fetch_request_topic t = {.name = kw_str_of(SIM_WATCHED), .partition_indexes = {indexes, s->count}};
    struct kw_offset_fetch_request_topics ts = {.name = kw_str_of(SIM_WATCHED), .partition_indexes = {indexes, s->count}};
    struct kw_offset_fetch_request_group g = {.group_id = kw_str_of(s->g->id), .member_id = kw_str_null(), .member_epoch = -1, .topics = {&ts, 1}};
    for (int i = 0; i < s->count; i++) indexes[i] = s->cells[i];
    kw_msg_init(&kw_offset_fetch_request_desc, &m);
    if (rq->version <= 7) {
        m.group_id = kw_str_of(s->g->id);
        m.topics.v = &t;
        m.topics.n = 1;
    } else {
        m.groups.v = &g;
        m.groups.n = 1;
    }
    return kw_encode(&kw_offset_fetch_request_desc, rq->version, &m, out);
}

static kw_err encode_join(struct seat *s, struct kc_request *rq, struct kw_out *out) {
    static const uint8_t subscription[] = "\0\0\0\0\0\1\0\7watched\xff\xff\xff\xff";
    struct kw_join_group_request_protocol p = {.name = kw_str_of("trivial"), .metadata = {subscription, sizeof subscription - 1}};
    struct kw_join_group_request m;
    kw_msg_init(&kw_join_group_request_desc, &m);
    m.group_id = kw_str_of(s->g->id);
    m.session_timeout_ms = SESSION_MS;
    m.rebalance_timeout_ms = REBALANCE_MS;
    m.member_id = kw_str_of(s->id);
    if (s->instance[0]) m.group_instance_id = kw_str_of(s->instance);
    m.protocol_type = kw_str_of("consumer");
    m.protocols.v = &p;
    m.protocols.n = 1;
    return kw_encode(&kw_join_group_request_desc, rq->version, &m, out);
}

/* The leader deals the cells out, one by one. */
static kw_err encode_sync(struct seat *s, struct kc_request *rq, struct kw_out *out) {
    struct kw_sync_group_request_assignment a[MEMBERS_MAX];
    uint8_t owned[MEMBERS_MAX][SIM_CELLS];
    struct kw_sync_group_request m;
    for (int i = 0; i < s->member_count; i++)
        a[i] = (struct kw_sync_group_request_assignment){.member_id = kw_str_of(s->members[i]), .assignment = {owned[i], 0}};
    for (int c = 0; c < SIM_CELLS && s->member_count > 0; c++) {
        int i = c % s->member_count;
        owned[i][a[i].assignment.len++] = (uint8_t)c;
    }
    kw_msg_init(&kw_sync_group_request_desc, &m);
    m.group_id = kw_str_of(s->g->id);
    m.generation_id = s->generation;
    m.member_id = kw_str_of(s->id);
    if (s->instance[0]) m.group_instance_id = kw_str_of(s->instance);
    m.protocol_type = kw_str_of("consumer");
    m.protocol_name = kw_str_of("trivial");
    m.assignments.v = a;
    m.assignments.n = s->leads ? s->member_count : 0;
    return kw_encode(&kw_sync_group_request_desc, rq->version, &m, out);
}

static kw_err encode_rest(struct seat *s, struct kc_request *rq, struct kw_out *out) {
    if (s->step == FIND) {
        struct kw_find_coordinator_request m;
        struct kw_str key = kw_str_of(s->g->id);
        kw_msg_init(&kw_find_coordinator_request_desc, &m);
        if (rq->version <= 3) m.key = key;
        m.coordinator_keys.v = &key;
        m.coordinator_keys.n = rq->version >= 4 ? 1 : 0;
        return kw_encode(&kw_find_coordinator_request_desc, rq->version, &m, out);
    }
    if (s->step == CREATE) {
        struct kw_create_topics_request_creatable_topic t = {
            .name = kw_str_of(SIM_WATCHED), .num_partitions = SIM_CELLS, .replication_factor = s->a->r->cluster ? 3 : 1};
        struct kw_create_topics_request m = {.topics = {&t, 1}, .timeout_ms = 10000};
        return kw_encode(&kw_create_topics_request_desc, rq->version, &m, out);
    }
    if (s->step == LEAVE) {
        struct kw_leave_group_request_member_identity one = {
            .member_id = kw_str_of(s->id), .group_instance_id = s->instance[0] ? kw_str_of(s->instance) : kw_str_null(), .reason = kw_str_null()};
        struct kw_leave_group_request m;
        kw_msg_init(&kw_leave_group_request_desc, &m);
        m.group_id = kw_str_of(s->g->id);
        if (rq->version <= 2) m.member_id = kw_str_of(s->id);
        m.members.v = &one;
        m.members.n = rq->version >= 3 ? 1 : 0;
        return kw_encode(&kw_leave_group_request_desc, rq->version, &m, out);
    }
    struct kw_heartbeat_request m;
    kw_msg_init(&kw_heartbeat_request_desc, &m);
    m.group_id = kw_str_of(s->g->id);
    m.generation_id = s->generation;
    m.member_id = kw_str_of(s->id);
    if (s->instance[0]) m.group_instance_id = kw_str_of(s->instance);
    return kw_encode(&kw_heartbeat_request_desc, rq->version, &m, out);
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct seat *s = rq->ctx;
    switch (s->step) {
    case COMMIT:
    case ZOMBIE_COMMIT:
        return encode_commit(s, rq, out);
    case FETCH:
        return encode_fetch(s, rq, out);
    case JOIN:
        return encode_join(s, rq, out);
    case SYNC:
        return encode_sync(s, rq, out);
    default:
        return encode_rest(s, rq, out);
    }
}

/* ---- What comes of it ---- */

static void lost_place(struct seat *s, bool id_too) {
    s->stable = s->leads = false;
    s->owned_count = 0;
    if (id_too) s->id[0] = 0;
}

/* Everyone's errors: where to ask, whether one is still a member. */
static void failed(struct seat *s, kc_err err) {
    if (err == KE_COORDINATOR_LOAD_IN_PROGRESS || err == KE_UNKNOWN_TOPIC_OR_PARTITION) return;
    if (err == KE_REBALANCE_IN_PROGRESS || err == KE_ILLEGAL_GENERATION)
        lost_place(s, false);
    else if (err == KE_UNKNOWN_MEMBER_ID || err == KE_FENCED_INSTANCE_ID)
        lost_place(s, true);
    else if (err != KE_MEMBER_ID_REQUIRED)
        s->coordinator = -1;
    if (s->step != SYNC) return;
    s->stable = false;
    s->step = JOIN;
}

static bool told_by_coordinator(const struct seat *s) {
    int32_t epoch, leader = sim_offsets_leader(s->a->r, s->g->id, &epoch);
    return s->asked_right && leader == s->coordinator && epoch == s->asked_epoch;
}

static const char *name_of(const struct seat *s) {
    return s->instance[0] ? s->instance : s->id;
}

static kc_err take_find(struct seat *s, struct kw_find_coordinator_response *m) {
    int16_t code = m->error_code;
    int32_t node = m->node_id;
    if (s->rq.version >= 4) {
        if (m->coordinators.n != 1) return KC_BAD_MESSAGE;
        code = m->coordinators.v[0].error_code;
        node = m->coordinators.v[0].node_id;
    }
    if (!code) s->coordinator = node;
    return code;
}

/* That it has another id by now goes with the power, too, and begins no generation. */
static bool is_forgotten(const struct seat *s) {
    return s->before[0] && s->a->r->groups.losses > 0 && s->known_us <= s->a->r->groups.lost_us;
}

static kc_err take_commit(struct seat *s, const struct kw_offset_commit_response *m) {
    if (m->topics.n != 1 || m->topics.v[0].partitions.n != s->count) return KC_BAD_MESSAGE;
    bool zombie = s->step == ZOMBIE_COMMIT;
    int32_t generation = alone(s) ? -1 : zombie && !s->before[0] ? s->generation - 1 : s->generation;
    kc_err err = KC_OK;
    for (int i = 0; i < s->count; i++) {
        int16_t code = m->topics.v[0].partitions.v[i].error_code;
        if (code) err = code;
        if (zombie && !code && s->g->synced >= s->generation && !is_forgotten(s)) /* else the disk has lost that this generation began */
            sim_fail(s->a->w, 33, "%s: what member %s was before (%s, generation %d) commits, in generation %d", s->g->id, s->id,
                     s->before[0] ? s->before : s->id, generation, s->generation);
        /* Of the office that it was in nobody can say what became of it: the others have refused it. */
        bool may_be = code == KE_NOT_COORDINATOR || code == KE_COORDINATOR_NOT_AVAILABLE;
        sim_commit_ended(s->a->r, s->g, s->cells[i], s->values[i], generation, s->sent_us,
                         !code ? SIM_COMMIT_ACKED : may_be ? SIM_COMMIT_UNSURE : SIM_COMMIT_REFUSED);
    }
    return err;
}

static void one_read(struct seat *s, int32_t index, int64_t offset) {
    for (int i = 0; i < s->count; i++)
        if (s->cells[i] == index) sim_commit_read(s->a->r, s->g, s->cells[i], offset, s->versions[i]);
}

static kc_err take_fetch(struct seat *s, const struct kw_offset_fetch_response *m) {
    bool old = s->rq.version <= 7;
    if (!old && m->groups.n != 1) return KC_BAD_MESSAGE;
    int16_t code = old ? m->error_code : m->groups.v[0].error_code;
    if (code) return code;
    if (!told_by_coordinator(s)) return KC_OK; /* who led before may not have heard of it: what it says is old */
    for (int32_t i = 0; old && i < m->topics.n; i++)
        for (int32_t k = 0; k < m->topics.v[i].partitions.n; k++) {
            if (m->topics.v[i].partitions.v[k].error_code) return m->topics.v[i].partitions.v[k].error_code;
            one_read(s, m->topics.v[i].partitions.v[k].partition_index, m->topics.v[i].partitions.v[k].committed_offset);
        }
    for (int32_t i = 0; !old && i < m->groups.v[0].topics.n; i++)
        for (int32_t k = 0; k < m->groups.v[0].topics.v[i].partitions.n; k++) {
            const struct kw_offset_fetch_response_partitions *p = &m->groups.v[0].topics.v[i].partitions.v[k];
            if (p->error_code) return p->error_code;
            one_read(s, p->partition_index, p->committed_offset);
        }
    s->read = true;
    return KC_OK;
}

static kc_err take_join(struct seat *s, const struct kw_join_group_response *m) {
    if (m->error_code == KE_NONE || m->error_code == KE_MEMBER_ID_REQUIRED) {
        if (s->instance[0] && s->id[0] && !kw_str_eq(m->member_id, kw_str_of(s->id))) memcpy(s->before, s->id, sizeof s->before);
        snprintf(s->id, sizeof s->id, "%.*s", (int)m->member_id.len, m->member_id.p);
    }
    if (m->error_code) return m->error_code;
    s->generation = m->generation_id;
    s->known_us = s->sent_us;
    s->leads = kw_str_eq(m->leader, m->member_id);
    s->member_count = KW_MIN(m->members.n, MEMBERS_MAX);
    for (int i = 0; i < s->member_count; i++) snprintf(s->members[i], ID_MAX, "%.*s", (int)m->members.v[i].member_id.len, m->members.v[i].member_id.p);
    s->step = SYNC;
    return KC_OK;
}

static kc_err take_sync(struct seat *s, const struct kw_sync_group_response *m) {
    if (m->error_code) return m->error_code;
    s->owned_count = KW_MIN(m->assignment.len, SIM_CELLS);
    if (s->owned_count > 0) memcpy(s->owned, m->assignment.p, (size_t)s->owned_count);
    s->stable = true;
    s->read = s->owned_count == 0;
    if (!told_by_coordinator(s)) return KC_OK;
    sim_group_sign(s->a->r, s->g);
    sim_group_synced(s->a->r, s->g, s->generation, name_of(s), s->owned, s->owned_count, s->sent_us);
    return KC_OK;
}

static kc_err take_rest(struct seat *s, const void *msg) {
    if (s->step == CREATE) {
        const struct kw_create_topics_response *m = msg;
        int16_t code = m->topics.n == 1 ? m->topics.v[0].error_code : KE_UNKNOWN_SERVER_ERROR;
        s->a->r->groups.made |= code == KE_NONE || code == KE_TOPIC_ALREADY_EXISTS;
        return code == KE_TOPIC_ALREADY_EXISTS ? KC_OK : code;
    }
    if (s->step == LEAVE) {
        lost_place(s, true);
        return KC_OK;
    }
    int16_t code = ((const struct kw_heartbeat_response *)msg)->error_code;
    if (code || !told_by_coordinator(s)) return code;
    sim_group_sign(s->a->r, s->g);
    s->known_us = s->sent_us;
    sim_group_beat(s->a->r, s->g, s->generation, s->sent_us);
    return KC_OK;
}

static kc_err take(struct seat *s, const void *m) {
    switch (s->step) {
    case FIND:
        return take_find(s, (void *)(uintptr_t)m);
    case COMMIT:
        return take_commit(s, m);
    case ZOMBIE_COMMIT:
        (void)take_commit(s, m);
        return KC_OK; /* its errors are the zombie's */
    case FETCH:
        return take_fetch(s, m);
    case JOIN:
        return take_join(s, m);
    case SYNC:
        return take_sync(s, m);
    default:
        return take_rest(s, m);
    }
}

static void done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct seat *s = rq->ctx;
    struct sim_world *w = s->a->w;
    enum step step = s->step;
    struct kw_arena arena;
    (void)blk;
    s->busy = false;
    if (s->a->stopping) return;
    kw_arena_init(&arena, 0);
    void *m = sim_need(calloc(1, rq->api->response->size));
    if (err == KC_OK && kw_decode(rq->api->response, rq->version, body, &arena, m) != KW_OK) err = KC_BAD_MESSAGE;
    if (err == KC_OK) err = take(s, m);
    free(m);
    kw_arena_deinit(&arena);
    sim_trace(w, "%s, client %d: %s: %s", s->g->id, s->a->role.client->index, names[step], kc_err_name(err));
    if (err) failed(s, err);
    if (!err && (step == COMMIT || step == FETCH || step == BEAT)) s->ok_us = w->now_us;
    bool at_once = !err && (step == FIND || step == CREATE || step == JOIN || step == SYNC);
    s->next_us = w->now_us + (at_once ? SIM_MS : s->a->every_us / 4 + (int64_t)sim_below(w, (uint64_t)s->a->every_us));
    if (err == KE_MEMBER_ID_REQUIRED || err == KE_REBALANCE_IN_PROGRESS) s->next_us = w->now_us + 10 * SIM_MS;
    s->a->role.next_us = KW_MIN(s->a->role.next_us, s->next_us);
    sim_host_wake(&s->a->role.client->host, s->next_us);
}

/* ---- What is done next ---- */

static void send(struct seat *s, enum step step) {
    struct sim_client *c = s->a->role.client;
    kc_request_init(&s->rq, apis[step]);
    s->step = step;
    if (apis[step] == KW_API_OFFSET_COMMIT || apis[step] == KW_API_OFFSET_FETCH) s->rq.version_max = KW_MIN(s->rq.version_max, 9); /* by name */
    s->rq.broker = step == FIND ? KC_BROKER_ANY : step == CREATE ? KC_BROKER_CONTROLLER : s->coordinator;
    s->rq.channel = step == FIND || step == CREATE ? KC_CHANNEL_CONTROL : s->lane;
    s->rq.encode = encode;
    s->rq.done = done;
    s->rq.ctx = s;
    int32_t wait_s = step == JOIN ? 2 + REBALANCE_MS / 1000 : step == SYNC ? 8 : 4;
    s->rq.deadline_us = sim_client_now(c).mono_us + wait_s * SIM_S;
    if (step == JOIN || step == SYNC) s->rq.answer_timeout_us = wait_s * SIM_S;
    s->busy = true;
    s->sent_us = s->a->w->now_us;
    s->asked_right = sim_offsets_leader(s->a->r, s->g->id, &s->asked_epoch) == s->coordinator;
    kc_core_send(c->core, &s->rq);
}

static void choose_cells(struct seat *s, bool all) {
    s->count = 0;
    for (int i = 0; i < (alone(s) ? SIM_CELLS : s->owned_count); i++)
        if (all || sim_below(s->a->w, 2)) s->cells[s->count++] = alone(s) ? (uint8_t)i : s->owned[i];
    for (int i = 0; i < s->count; i++) s->versions[i] = s->g->cells[s->cells[i]].version;
}

static void commit(struct seat *s, bool zombie) {
    choose_cells(s, false);
    if (zombie && s->count == 0) s->cells[s->count++] = (uint8_t)sim_below(s->a->w, SIM_CELLS); /* not its own, maybe */
    if (s->count == 0) return;
    int32_t generation = alone(s) ? -1 : zombie && !s->before[0] ? s->generation - 1 : s->generation;
    for (int i = 0; i < s->count; i++) s->values[i] = sim_commit_sent(&s->g->cells[s->cells[i]], generation);
    send(s, zombie ? ZOMBIE_COMMIT : COMMIT);
}

static void act_alone(struct seat *s) {
    if (!s->a->r->groups.made) {
        send(s, CREATE);
    } else if (sim_below(s->a->w, 3) == 0) {
        choose_cells(s, true);
        send(s, FETCH);
    } else {
        commit(s, false);
    }
}

static void act_member(struct seat *s) {
    struct sim_world *w = s->a->w;
    uint64_t what = sim_below(w, 100);
    if (!s->stable) {
        send(s, s->step == SYNC ? SYNC : JOIN);
    } else if (!s->read) {
        choose_cells(s, true);
        send(s, FETCH);
    } else if (what < 40) {
        send(s, BEAT);
    } else if (what < 75) {
        commit(s, false);
    } else if (what < 88) {
        choose_cells(s, true);
        if (s->count > 0) send(s, FETCH);
    } else if (what < 94) {
        if (s->generation > 1 || s->before[0]) commit(s, true);
    } else if (what < 97) {
        send(s, BEAT);
    } else if (!w->healed && !s->instance[0]) {
        send(s, LEAVE);
    } else if (!w->healed) { /* its process begins anew: the id that it had is no longer its own */
        memcpy(s->before, s->id, sizeof s->before);
        lost_place(s, true);
    }
}

static void act(struct seat *s) {
    if (s->coordinator < 0)
        send(s, FIND);
    else if (alone(s))
        act_alone(s);
    else
        act_member(s);
}

/* ---- Life ---- */

static bool work(struct sim_role *role) {
    struct app *a = (struct app *)role;
    int64_t next = SIM_NEVER;
    if (a->stopping || role->next_us > a->w->now_us) return false;
    for (int i = 0; i <= SIM_CREWS; i++) {
        struct seat *s = &a->seats[i];
        if (!s->busy && s->next_us <= a->w->now_us) {
            s->next_us = a->w->now_us + 100 * SIM_MS;
            act(s);
        }
        if (!s->busy) next = KW_MIN(next, s->next_us);
    }
    role->next_us = next;
    return false;
}

static void stop(struct sim_role *role) {
    struct app *a = (struct app *)role;
    a->stopping = true;
    for (int i = 0; i <= SIM_CREWS; i++)
        if (a->seats[i].busy) kc_core_cancel(role->client->core, &a->seats[i].rq);
}
static bool stopped(const struct sim_role *role) {
    const struct app *a = (const struct app *)role;
    for (int i = 0; i <= SIM_CREWS; i++)
        if (a->seats[i].busy) return false;
    return true;
}
static void free_role(struct sim_role *role) {
    struct app *a = (struct app *)role;
    a->r->groups.apps[role->client->index] = NULL;
    for (int i = 1; i <= SIM_CREWS; i++)
        if (a->seats[i].lane != KC_CHANNEL_CONTROL) kc_core_lane_give(role->client->core, a->seats[i].lane);
    free(a);
}

void sim_commits_new(struct sim_run *r, int client) {
    struct sim_client *c = &r->clients[client];
    if (!r->groups.on) return;
    struct app *a = sim_need(calloc(1, sizeof *a));
    a->role = (struct sim_role){.next_us = r->w.now_us, .work = work, .stop = stop, .stopped = stopped, .free = free_role};
    a->r = r;
    a->w = &r->w;
    a->every_us = sim_range(&r->w, 100 * SIM_MS, 1200 * SIM_MS);
    for (int i = 0; i <= SIM_CREWS; i++) {
        struct seat *s = &a->seats[i];
        s->a = a;
        s->g = i ? &r->groups.crews[i - 1] : &r->groups.alone[client];
        s->coordinator = -1;
        s->step = JOIN;
        s->lane = i ? kc_core_lane_take(c->core) : KC_CHANNEL_CONTROL;
        if (i == 2) snprintf(s->instance, sizeof s->instance, "static-%d", client); /* the second crew's members are static */
    }
    sim_client_add(c, &a->role);
    r->groups.apps[client] = &a->role;
}

/* ---- 36 ---- */

static bool seat_is_through(const struct seat *s, int64_t since_us, char *why, size_t size) {
    const struct app *a = s->a;
    bool in = alone(s) || (s->stable && (s->generation == s->g->synced || s->g->synced == 0)); /* 0: the model has forgotten */
    if (in && s->ok_us > KW_MAX(since_us, a->w->now_us - SILENT_S * SIM_S)) return true;
    snprintf(why, size, "%s, client %d: %s, generation %d of %d, asks broker %d (%s%s), the last answer was good %lld ms ago", s->g->id,
             a->role.client->index, s->stable ? "stable" : "not stable", s->generation, s->g->synced, s->coordinator, names[s->step],
             s->busy ? ", under way" : "", (long long)(a->w->now_us - s->ok_us) / 1000);
    return false;
}

bool sim_commits_through(struct sim_run *r, char *why, size_t size) {
    int owned[SIM_CREWS] = {0};
    int32_t generation[SIM_CREWS] = {0};
    bool any = false;
    if (!r->groups.on) return true;
    if (!r->groups.healed_us) r->groups.healed_us = r->w.now_us;
    for (int c = 0; c < SIM_CLIENTS_MAX; c++) {
        const struct app *a = (const struct app *)r->groups.apps[c];
        for (int i = 0; a && i <= SIM_CREWS; i++) {
            if (!seat_is_through(&a->seats[i], r->groups.healed_us, why, size)) return false;
            any = true;
            if (i == 0) continue;
            owned[i - 1] += a->seats[i].owned_count;
            if (generation[i - 1] && generation[i - 1] != a->seats[i].generation) {
                snprintf(why, size, "%s: one is in generation %d, another in %d", a->seats[i].g->id, generation[i - 1], a->seats[i].generation);
                return false;
            }
            generation[i - 1] = a->seats[i].generation;
        }
    }
    for (int i = 0; any && i < SIM_CREWS; i++)
        if (owned[i] != SIM_CELLS) {
            snprintf(why, size, "%s: %d of %d partitions are owned", r->groups.crews[i].id, owned[i], SIM_CELLS);
            return false;
        }
    return true;
}

/* ---- Drawing ---- */

void sim_groups_draw(struct sim_run *r) {
    struct kw_rng rng;
    kw_rng_init(&rng, r->w.seed ^ (r->cluster ? 0x67726f757073u : 0x67726f7570u));
    sim_groups_init(&r->groups);
    r->groups.on = kw_rng_below(&rng, 3) == 0;
    bool clocks_go_wrong = r->cluster ? r->cluster->plan.jump_s || r->cluster->plan.drift : r->plan.jump_s || r->plan.drift || r->plan.image;
    r->groups.brief = !clocks_go_wrong && kw_rng_below(&rng, 2);
    r->groups.partitions = 1 + (int32_t)kw_rng_below(&rng, SIM_OFFSETS_PARTS);
    r->groups.members_on = r->groups.on && kw_rng_below(&rng, 2);
    r->groups.strategy = kw_rng_below(&rng, 8);
}

void sim_groups_set_node(struct sim_run *r, struct sim_broker *b) {
    char text[16];
    if (!r->groups.on) return;
    snprintf(text, sizeof text, "%d", r->groups.partitions);
    sim_broker_set(b, "offsets.topic.num.partitions", text);
    sim_broker_set(b, "offsets.topic.segment.bytes", "40000");
    sim_broker_set(b, "group.min.session.timeout.ms", "1000");
    sim_broker_set(b, "offsets.commit.timeout.ms", "2000");
    if (!r->groups.brief) return;
    sim_broker_set(b, "offsets.retention.minutes", "1");
    sim_broker_set(b, "offsets.retention.check.interval.ms", "2000");
}
