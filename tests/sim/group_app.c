/* group_app.c - an application that consumes as a member of a group, by the real client: subscribes to all topics, polls, commits by poll and
 * explicitly, does not poll for a while, leaves and comes back. All clients of a seed are in one group.
 *
 * What must hold of what its members were given, together: every record (30), repeats only from the last commit on (31), nobody is given what
 * another one of his generation has (33), and in the end all of it by a stable group (36). Called by workload.c, cluster.c, check_disk.c.
 * Calls client/consume, check_reads.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cluster.h"
#include "consume/commit.h"
#include "consume/group.h"
#include "consume/consumer.h"

enum { PARTS_MAX = SIM_TOPICS_MAX * 16, EVENTS = 16 };
static const char group_id[] = "shared";

struct member {
    struct sim_role role; /* first */
    struct sim_run *r;
    struct sim_world *w;
    struct kc_config *config;
    struct kc_settings *settings;
    struct kc_consume consume;
    struct sim_tracker parts[PARTS_MAX];
    int32_t since[PARTS_MAX]; /* the generation in which it was given each */
    size_t part_count;
    int64_t every_us, silent_until_us;
    bool kicked, stopping, subscribed;
    struct kc_commit_call call;
    bool calling;
    int number;
};

static void notify(void *ctx) {
    sim_client_wake(((struct member *)ctx)->role.client);
}
static void kick(void *ctx) {
    struct member *a = ctx;
    a->kicked = true;
    sim_client_wake(a->role.client);
}

static struct sim_tracker *tracker(struct member *a, int topic, int partition) {
    for (size_t i = 0; i < a->part_count; i++)
        if (a->parts[i].topic == topic && a->parts[i].partition == partition) return &a->parts[i];
    return NULL;
}

static struct sim_shared *shared(struct sim_run *r, int topic, int partition) {
    return partition < SIM_SHARED_PARTS ? &r->groups.shared[topic][partition] : NULL;
}

/* What is in it nobody can tell, or who had what of it. */
static bool is_open(struct sim_run *r, int topic, int partition) {
    const struct sim_shared *s = shared(r, topic, partition);
    return !s || s->loose || r->model.topics[topic].churned || sim_model_log(&r->model, topic, partition)->tainted;
}

static int32_t generation_of(struct member *a) {
    int32_t generation = -1;
    (void)kc_group_member(&a->consume, &generation, NULL, 0);
    return generation;
}

/* ---- Partitions come and go ---- */

static void given(struct member *a, int topic, int partition) {
    int32_t mine = generation_of(a);
    if (a->part_count == PARTS_MAX || tracker(a, topic, partition)) return;
    a->since[a->part_count] = mine;
    a->parts[a->part_count++] = (struct sim_tracker){topic, partition, -1, true};
    for (int c = 0; c < SIM_CLIENTS_MAX; c++) {
        struct member *b = (struct member *)a->r->groups.members[c];
        const struct sim_tracker *t = b && b != a ? tracker(b, topic, partition) : NULL; /* it may have lost it, and not polled since: in an older one */
        if (t && mine >= 0 && a->r->groups.losses == 0 && b->since[t - b->parts] == mine)
            sim_fail(a->w, 33, "member %d is given %d-%d in generation %d, in which member %d has it", a->number, topic, partition, mine, b->number);
    }
}

static void taken(struct member *a, int topic, int partition) {
    struct sim_tracker *t = tracker(a, topic, partition);
    if (!t) return;
    a->since[t - a->parts] = a->since[--a->part_count];
    *t = a->parts[a->part_count];
}

static void take_partitions(struct member *a, kc_event *e, const char *what) {
    static kc_topic_partition parts[PARTS_MAX];
    size_t n = KW_MIN(kc_event_partitions(e, parts, sizeof *parts, PARTS_MAX), (size_t)PARTS_MAX);
    sim_trace(a->w, "member %d: %s %zu, generation %d", a->number, what, n, generation_of(a));
    for (size_t i = 0; i < n; i++)
        if (kc_event_kind(e) == KC_EVENT_ASSIGNED)
            given(a, parts[i].topic - 1, parts[i].partition);
        else
            taken(a, parts[i].topic - 1, parts[i].partition);
}

/* ---- Records ---- */

/* The first that it is given of a partition: behind what the group was given before, and not before what it has committed. */
static void check_begin(struct member *a, const struct sim_tracker *t, int64_t offset) {
    const struct sim_shared *s = shared(a->r, t->topic, t->partition);
    struct sim_model *m = &a->r->model;
    if (is_open(a->r, t->topic, t->partition)) return;
    if (offset > s->passed && !sim_guid_holes(m, t->topic, t->partition, s->passed, offset) &&
        s->passed >= sim_model_log(m, t->topic, t->partition)->start && m->in_files(m->ctx, t->topic, t->partition, s->passed))
        sim_fail(a->w, 30, "member %d begins %d-%d at %lld, and nobody of its group was given %lld", a->number, t->topic, t->partition, (long long)offset,
                 (long long)s->passed);
    if (offset < s->committed && a->r->groups.losses == 0)
        sim_fail(a->w, 31, "member %d begins %d-%d at %lld, and %lld was committed", a->number, t->topic, t->partition, (long long)offset,
                 (long long)s->committed);
}

static void take_records(struct member *a, kc_event *e) {
    struct sim_tracker *t = tracker(a, kc_event_topic(e) - 1, kc_event_partition(e));
    const kc_view *v = kc_event_views(e);
    size_t span_size, n = kc_event_count(e);
    const uint8_t *span = kc_event_span(e, &span_size);
    if (!t) sim_fail(a->w, 30, "member %d: records of %d-%d, which it does not have", a->number, kc_event_topic(e) - 1, kc_event_partition(e));
    sim_trace(a->w, "member %d: %zu records of %d-%d at %lld", a->number, n, t->topic, t->partition, n ? (long long)v[0].offset : -1);
    if (n > 0 && t->next < 0) check_begin(a, t, v[0].offset);
    for (size_t i = 0; i < n; i++) {
        struct kw_bytes key = {v[i].key_size < 0 ? NULL : span + v[i].key_at, v[i].key_size},
                        value = {v[i].value_size < 0 ? NULL : span + v[i].value_at, v[i].value_size};
        struct kw_in in;
        struct kw_header_view h;
        size_t left = span_size - v[i].headers_at;
        kw_in_init(&in, span + v[i].headers_at, left);
        for (uint32_t k = 0; k < v[i].header_count; k++)
            if (kw_record_header_next(&in, &h) != 1) sim_fail(a->w, 10, "member %d: headers that do not parse", a->number);
        sim_check_read(&a->r->model, t, v[i].offset, e->leader_epoch, e->timestamp_type, v[i].timestamp_ms, key, value, span + v[i].headers_at,
                       left - kw_in_left(&in));
    }
    struct sim_shared *s = shared(a->r, t->topic, t->partition);
    if (s && t->next > s->passed) s->passed = t->next;
    a->r->groups.handed += n;
}

static void take_event(struct member *a, kc_event *e) {
    switch (kc_event_kind(e)) {
    case KC_EVENT_RECORDS:
        take_records(a, e);
        break;
    case KC_EVENT_ASSIGNED:
        take_partitions(a, e, "is given");
        break;
    case KC_EVENT_REVOKED:
        take_partitions(a, e, "gives up");
        break;
    case KC_EVENT_LOST:
        take_partitions(a, e, "has lost");
        break;
    case KC_EVENT_ERROR:
        sim_trace(a->w, "member %d: %s", a->number, kc_err_name(kc_error_code(kc_event_error(e))));
        break;
    default:
        break;
    }
    (void)kc_event_drop(e);
}

/* ---- Commits ---- */

static void committed(struct kc_commit_call *call) {
    struct member *a = call->ctx;
    a->calling = false;
    kc_attempts_unref(call->attempts);
    kw_free(call->items);
}

static void commit(struct member *a) {
    struct kc_commit_item *items = NULL;
    size_t n = 0;
    if (a->calling || kc_commits_gather(a->consume.commits, &items, &n) != KC_OK) return;
    if (n == 0) {
        kw_free(items);
        return;
    }
    a->call = (struct kc_commit_call){
        .items = items, .count = n, .deadline_us = sim_client_now(a->role.client).mono_us + 10 * SIM_S, .done = committed, .ctx = a};
    a->calling = true;
    kc_commits_call(a->consume.commits, &a->call);
}

/* What the coordinator has acknowledged to it. */
static void note_commits(struct member *a) {
    for (size_t i = 0; i < a->part_count && !a->r->groups.brief; i++) {
        const struct sim_tracker *t = &a->parts[i];
        const struct kc_part *p = kw_map_get_u64(&a->consume.by_id, (uint64_t)(uint32_t)(t->topic + 1) << 32 | (uint32_t)t->partition);
        struct sim_shared *s = shared(a->r, t->topic, t->partition);
        if (p && s && p->assigned) s->committed = KW_MAX(s->committed, p->acked);
    }
}

/* ---- Life ---- */

static void subscribe(struct member *a) {
    int32_t topics[SIM_TOPICS_MAX];
    size_t n = 0;
    for (int t = 0; t < a->r->model.topic_count; t++) topics[n++] = t + 1;
    a->subscribed = kc_group_subscribe(&a->consume, topics, n, NULL) == KC_OK; /* else there was no memory: again */
}

static void poll(struct member *a) {
    struct sim_world *w = a->w;
    uint64_t what = w->healed ? 0 : sim_below(w, 400);
    kc_err state = a->subscribed ? kc_group_assigned(&a->consume) : KC_OK;
    if (state != KC_OK && state != KC_BUSY) { /* for good: a request of its life before came late, and fenced it */
        sim_trace(w, "member %d is out: %s", a->number, kc_err_name(state));
        a->part_count = 0;
        a->subscribed = false;
    }
    if (!a->subscribed) subscribe(a);
    if (what == 1) a->silent_until_us = w->now_us + sim_range(w, SIM_S, 15 * SIM_S);
    if (what == 2 && a->subscribed) {
        kc_group_unsubscribe(&a->consume);
        a->part_count = 0;
        a->subscribed = false;
        a->silent_until_us = w->now_us + sim_range(w, 0, 5 * SIM_S);
        sim_trace(w, "member %d leaves", a->number);
    }
    if (what >= 3 && what < 20) commit(a);
    a->role.next_us = w->now_us + a->every_us / 2 + (int64_t)sim_below(w, (uint64_t)a->every_us + 1);
    if (a->silent_until_us > w->now_us && !w->healed) {
        a->role.next_us = a->silent_until_us;
        return;
    }
    for (int i = 0; i < EVENTS; i++) {
        kc_event *e = NULL;
        kc_consume_passed(&a->consume);
        if (kc_group_lapsed(&a->consume, sim_client_now(a->role.client).mono_us)) break;
        if (kc_consume_take(&a->consume, &e) != KC_OK) break;
        take_event(a, e);
    }
}

static bool work(struct sim_role *role) {
    struct member *a = (struct member *)role;
    if (!a->stopping && role->next_us <= a->w->now_us) poll(a);
    note_commits(a);
    if (!a->kicked) return false;
    a->kicked = false;
    if (!a->stopping) kc_consume_run(&a->consume);
    return true;
}

static void stop(struct sim_role *role) {
    struct member *a = (struct member *)role;
    a->stopping = true;
    kc_consume_stop(&a->consume);
}
static bool stopped(const struct sim_role *role) {
    struct member *a = (struct member *)(uintptr_t)role;
    if (a->kicked && !kc_consume_stopped(&a->consume)) {
        a->kicked = false;
        kc_consume_run(&a->consume);
    }
    return kc_consume_stopped(&a->consume) && !a->calling;
}
static void free_role(struct sim_role *role) {
    struct member *a = (struct member *)role;
    a->r->groups.members[role->client->index] = NULL;
    kc_consume_deinit(&a->consume);
    kc_settings_free(a->settings);
    kc_config_free(a->config);
    free(a);
}

static struct kc_config *config_of(struct sim_run *r, int client) {
    static const char *const strategies[] = {"range", "roundrobin", "sticky", "cooperative-sticky"};
    struct kc_config *c = sim_config(NULL);
    char text[32];
    sim_config_set(c, "group.id", group_id);
    sim_config_set(c, "partition.assignment.strategy", strategies[r->groups.strategy % KW_COUNTOF(strategies)]);
    sim_config_set(c, "auto.offset.reset", "earliest");
    sim_config_set(c, "session.timeout.ms", "6000");
    sim_config_set(c, "heartbeat.interval.ms", "1500");
    sim_config_set(c, "max.poll.interval.ms", "10000");
    snprintf(text, sizeof text, "%d", (int)sim_range(&r->w, 300, 5000));
    sim_config_set(c, "auto.commit.interval.ms", text);
    snprintf(text, sizeof text, "member-%d", client);
    if (r->groups.strategy & 4) sim_config_set(c, "group.instance.id", text);
    return c;
}

void sim_member_new(struct sim_run *r, int client) {
    static int numbers;
    struct sim_client *c = &r->clients[client];
    if (!r->groups.members_on) return;
    struct member *a = sim_need(calloc(1, sizeof *a));
    a->role = (struct sim_role){.next_us = r->w.now_us, .work = work, .stop = stop, .stopped = stopped, .free = free_role};
    a->role.client = c;
    a->r = r;
    a->w = &r->w;
    a->number = numbers++;
    a->every_us = sim_range(&r->w, 10 * SIM_MS, 400 * SIM_MS);
    a->config = config_of(r, client);
    a->settings = sim_client_role_settings(c, a->config);
    if (kc_consume_init(&a->consume, c->core, a->settings, notify, kick, a) != KW_OK) sim_fail(&r->w, 37, "a member cannot be made");
    struct kc_commits_options o = {
        .consume = &a->consume, .group_id = kw_str_of(group_id), .mode = KC_PROCESSED_BY_POLL, .refused = kc_group_refused, .ctx = &a->consume};
    struct kc_commits *commits;
    if (kc_commits_new(&o, &commits) != KW_OK) sim_fail(&r->w, 37, "a member's commits cannot be made");
    kc_consume_start(&a->consume);
    sim_client_add(c, &a->role);
    r->groups.members[client] = &a->role;
}

/* ---- 36, and what was lost ---- */

void sim_members_lost(struct sim_run *r, int topic, int partition) {
    struct sim_shared *s = shared(r, topic, partition);
    if (s) s->loose = true;
    for (int c = 0; c < SIM_CLIENTS_MAX; c++) {
        struct member *a = (struct member *)r->groups.members[c];
        struct sim_tracker *t = a ? tracker(a, topic, partition) : NULL;
        if (t) t->may_jump = true;
    }
}

static int64_t end_of(struct sim_run *r, int topic, int partition) {
    if (r->cluster) return r->cluster->parts[topic][partition].end;
    const struct kb_partition *p = sim_node_partition(&r->nodes[0], r->model.topics[topic].name, partition);
    return p && p->state == KB_PART_ONLINE ? p->hw : 0;
}

static int owners_of(struct sim_run *r, int topic, int partition) {
    int n = 0;
    for (int c = 0; c < SIM_CLIENTS_MAX; c++) n += r->groups.members[c] && tracker((struct member *)r->groups.members[c], topic, partition);
    return n;
}

bool sim_members_through(struct sim_run *r, char *why, size_t size) {
    bool any = false;
    for (int c = 0; c < SIM_CLIENTS_MAX; c++) {
        struct member *a = (struct member *)r->groups.members[c];
        kc_why w;
        any |= a != NULL;
        if (!a || kc_group_assigned(&a->consume) == KC_OK) continue;
        snprintf(why, size, "member %d of the shared group has no assignment: %s", a->number, kc_group_why(&a->consume, &w) ? w.text : "no subscription");
        return false;
    }
    for (int t = 0; any && t < r->model.topic_count; t++)
        for (int p = 0; p < r->model.topics[t].partitions && p < SIM_SHARED_PARTS; p++) {
            if (is_open(r, t, p)) continue;
            const struct sim_shared *s = shared(r, t, p);
            int64_t from = KW_MAX(s->passed, sim_model_log(&r->model, t, p)->start); /* retention may have taken the rest of it */
            if (owners_of(r, t, p) == 1 && (from >= end_of(r, t, p) || sim_guid_holes(&r->model, t, p, from, end_of(r, t, p)))) continue;
            snprintf(why, size, "the shared group has %d owners of %d-%d, and was given %lld of %lld", owners_of(r, t, p), t, p, (long long)s->passed,
                     (long long)end_of(r, t, p));
            return false;
        }
    return true;
}
