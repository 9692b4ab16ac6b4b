/* controller_dirs.c - a broker says in which directory its replicas are: above all that some are in none any more, because their logs failed, and
 * that they have one again; and that some lack what they had acknowledged. KIP-858.
 *
 * Called by api/assign_replicas_to_dirs through controller.h. A replica whose directory is "lost" is as good as dead: it neither leads nor is in sync
 * (elect.h), until its broker, started anew, says otherwise. The record of the directory elects at once.
 */
#include "controller_priv.h"

static int32_t place_of(const struct kb_image_partition *p, int32_t id) {
    for (int32_t i = 0; i < p->replica_count; i++)
        if (p->replicas[i] == id) return i;
    return -1;
}

static const struct kw_uuid *directory_at(const struct kb_image_partition *p, int32_t place) {
    static const struct kw_uuid unassigned;
    return place < p->directory_count ? &p->directories[place] : &unassigned;
}

/* The partition as it will be, for what is decided by it; NULL: out of memory. */
static struct kb_image_partition *moved(struct kb_controller *k, const struct kb_image_partition *p, int32_t place, struct kw_uuid directory) {
    struct kb_image_partition *q = kw_arena_dup(&k->arena, p, sizeof(*q));
    struct kw_uuid *v = kw_arena_calloc(&k->arena, (size_t)p->replica_count, sizeof(*v));
    if (!q || !v) return NULL;
    for (int32_t i = 0; i < p->replica_count; i++) v[i] = *directory_at(p, i);
    v[place] = directory;
    q->directories = v;
    q->directory_count = p->replica_count;
    return q;
}

/* Who is in sync, and who leads. lost: the replica at that place may lack what it acknowledged. */
static kw_err elect(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p, int32_t place, bool lost,
                    struct kb_elected *e) {
    struct kb_elect_rules rules = kb_elect_rules_of(k, t);
    uint8_t *states = kb_replica_states(k, t, p);
    e->isr = kw_arena_alloc(&k->arena, ((size_t)p->replica_count + 1) * sizeof(int32_t));
    if (!states || !e->isr) return KW_ENOMEM;
    if (lost) states[place] |= KB_REPLICA_LOST;
    kb_elect(p, states, &rules, e);
    return KW_OK;
}

static void count(struct kb_dirs_request *d, const struct kb_image_partition *p, const struct kb_elected *e, bool lost) {
    d->lost += lost;
    d->found += !lost;
    d->led_anew += e->led_anew && e->leader >= 0;
    d->leaderless += e->leader < 0 && p->leader >= 0;
}

static kw_err change(struct kb_controller *k, struct kb_dirs_request *d, const struct kb_image_topic *t, const struct kb_image_partition *p,
                     int32_t place, struct kw_uuid directory) {
    const struct kb_image_partition *q = moved(k, p, place, directory);
    struct kb_elected e = {.leader = p->leader};
    struct kw_partition_change_record *r;
    if (!q) return KW_ENOMEM;
    bool concerned = p->leader < 0 || kb_elect_has(p->isr, p->isr_count, d->broker);
    bool unsynced = kb_elect_is_lost(p, d->broker) && !kb_topic_is_flushed(k, t); /* a log that comes back may have lost what was only written */
    kw_err err = concerned ? elect(k, t, q, place, unsynced, &e) : KW_OK;
    if (err) return err;
    if (e.changed) {
        kb_election_tell(k, t, p, &e);
        r = kb_election_record(k, t, q, &e);
    } else {
        r = kb_controller_record(k, KW_RECORD_PARTITION_CHANGE, 0);
        if (r) r->topic_id = t->id, r->partition_id = p->index;
    }
    if (!r) return KW_ENOMEM;
    if (r->directories.n < 0) r->directories.v = q->directories, r->directories.n = q->directory_count;
    kb_change_version(k, r);
    count(d, p, &e, kw_uuid_eq(directory, kb_directory_lost));
    return KW_OK;
}

/* Its log is there, and something that it acknowledged is not: whatever its topic syncs, it does not count until it has caught up. The last in sync
 * leads only as the last known leader. */
static kw_err lacks(struct kb_controller *k, const struct kb_dirs_request *d, const struct kb_image_topic *t, const struct kb_image_partition *p,
                    int32_t place) {
    struct kb_elected e = {.leader = p->leader};
    if (!kb_elect_has(p->isr, p->isr_count, d->broker)) return KW_OK;
    kw_err err = elect(k, t, p, place, true, &e);
    if (err) return err;
    bool last = e.gave_up || kb_elect_has(e.isr, e.isr_count, d->broker);
    kb_say(k->o.logger, KB_WARN, "%s-%d: the log of broker %d lacks something that was acknowledged: %s", t->name, (int)p->index, (int)d->broker,
           last ? "it was the last in sync, so that is lost unless it was still on its way" : "it is not in sync any more");
    if (!e.changed) return KW_OK;
    kb_election_tell(k, t, p, &e);
    return kb_election_record(k, t, p, &e) ? KW_OK : KW_ENOMEM;
}

static kw_err assign_one(struct kb_controller *k, struct kb_dirs_request *d, struct kb_dir_assign *a, const struct kb_image_broker *b) {
    const struct kb_image_topic *t = kb_image_topic_by_id(k->o.image, a->topic_id);
    if (a->result.code) return KW_OK;
    if (!t || a->partition < 0 || a->partition >= t->partition_count) {
        kb_result_set(&a->result, t ? KE_UNKNOWN_TOPIC_OR_PARTITION : KE_UNKNOWN_TOPIC_ID, "there is no such partition");
        return KW_OK;
    }
    const struct kb_image_partition *p = &t->partitions[a->partition];
    int32_t place = place_of(p, d->broker);
    if (place < 0) {
        kb_result_set(&a->result, KE_NOT_LEADER_OR_FOLLOWER, "broker %d is no replica of it", (int)d->broker);
        return KW_OK;
    }
    if (kw_uuid_eq(a->directory, kb_directory_lacking)) return lacks(k, d, t, p, place);
    if (kw_uuid_eq(*directory_at(p, place), a->directory)) return KW_OK;
    bool known = kw_uuid_eq(a->directory, kb_directory_lost);
    for (int32_t i = 0; i < b->log_dir_count; i++) known = known || kw_uuid_eq(a->directory, b->log_dirs[i]);
    if (!known) {
        kb_result_set(&a->result, KE_INVALID_REQUEST, "broker %d has not registered this directory", (int)d->broker);
        return KW_OK;
    }
    if (kb_elect_other_disk(p, d->broker, b->log_dirs, b->log_dir_count) && kb_elect_has(p->isr, p->isr_count, d->broker)) {
        kb_result_set(&a->result, KE_INELIGIBLE_REPLICA, "broker %d has another disk than the partition was put on: it has to catch up first",
                      (int)d->broker);
        return KW_OK;
    }
    return change(k, d, t, p, place, a->directory);
}

static kw_err run_assign(struct kb_controller *k, struct kb_change *c) {
    struct kb_dirs_request *d = c->items;
    const struct kb_image_broker *b = kb_image_broker(k->o.image, d->broker);
    kw_err err = KW_OK;
    d->stale = !b || b->epoch != d->broker_epoch;
    for (int32_t i = 0; !err && i < c->count; i++) {
        if (d->stale)
            kb_result_set(&d->items[i].result, KE_STALE_BROKER_EPOCH, "the broker was registered anew since");
        else
            err = assign_one(k, d, &d->items[i], b);
    }
    if (!err && d->lost > 0)
        kb_say(k->o.logger, KB_WARN, "broker %d cannot use the logs of %d partitions any more: %d of them have a new leader, %d have none",
               (int)d->broker, (int)d->lost, (int)d->led_anew, (int)d->leaderless);
    else if (!err && d->found > 0)
        kb_say(k->o.logger, KB_INFO, "broker %d has the logs of %d partitions again", (int)d->broker, (int)d->found);
    return err;
}

static bool claim_assign(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    const struct kb_image_topic *t = kb_image_topic_by_id(k->o.image, ((struct kb_dirs_request *)c->items)->items[i].topic_id);
    return t && kb_claim_topic(kw_str_of(t->name), key, n);
}
static bool names_assign(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    const struct kb_dir_assign *a = &((struct kb_dirs_request *)c->items)->items[i];
    const struct kb_image_topic *t = kb_image_topic_by_id(k->o.image, a->topic_id);
    return t && kb_names_partition(kw_str_of(t->name), a->partition, key, n);
}
static struct kb_result *assign_result(struct kb_change *c, int32_t i) {
    return &((struct kb_dirs_request *)c->items)->items[i].result;
}
static const struct kb_change_kind assign_kind = {
    .run = run_assign, .claim = claim_assign, .names = names_assign, .result = assign_result, .soon = true};

kw_err kb_controller_assign_dirs(struct kb_controller *k, struct kb_dirs_request *d, int32_t count, struct kb_change *c, struct kb_now now) {
    d->stale = false;
    d->lost = d->found = d->led_anew = d->leaderless = 0;
    return kb_controller_submit(k, c, &assign_kind, d, count, false, now);
}
