/* handover.c - what a membership hands to the application: ASSIGNED, REVOKED, LOST and errors; acknowledged, by whatever thread, or too late.
 *
 * Called by group*.c in loop context, by fetched.c and event.c for poll and for acknowledgements. KIP-429 (partitions that stay).
 */
#include "group.h"

/* ---- Handovers and the tie ---- */

static void tie_unref(struct kc_tie *t) {
    if (atomic_fetch_sub(&t->refs, 1) != 1) return;
    kc_lock_deinit(&t->lock);
    kw_free(t);
}

struct kc_tie *kc_tie_new(struct kc_consume *c) {
    struct kc_tie *t = kw_calloc(1, sizeof(*t));
    if (!t) return NULL;
    if (kc_lock_init(&t->lock, KC_RANK_TIE) != KW_OK) {
        kw_free(t);
        return NULL;
    }
    atomic_init(&t->refs, 1);
    atomic_init(&t->poll_by_us, KW_NEVER);
    t->consume = c;
    return t;
}

void kc_tie_cut(struct kc_tie *t) {
    kc_lock_take(&t->lock);
    t->consume = NULL;
    kc_lock_give(&t->lock);
    tie_unref(t);
}

struct kc_handover *kc_handover_new(struct kc_group *g, int32_t kind, size_t cap) {
    struct kc_handover *h = kw_calloc(1, sizeof(*h) + cap * sizeof(h->parts[0]));
    if (!h) return NULL;
    kw_list_init(&h->news_link);
    kw_list_init(&h->open_link);
    atomic_init(&h->refs, 1);
    atomic_init(&h->deadline_us, KW_NEVER);
    h->kind = kind;
    h->state = kind == KC_EVENT_ASSIGNED || kind == KC_EVENT_REVOKED ? KC_HANDOVER_OPEN : KC_HANDOVER_DONE;
    h->number = ++g->consume->handovers;
    h->cap = cap;
    h->tie = g->tie;
    atomic_fetch_add(&h->tie->refs, 1);
    return h;
}

static struct kc_handover *handover_ref(struct kc_handover *h) {
    atomic_fetch_add(&h->refs, 1);
    return h;
}

void kc_handover_unref(struct kc_handover *h) {
    if (!h || atomic_fetch_sub(&h->refs, 1) != 1) return;
    kc_error_free(h->error);
    tie_unref(h->tie);
    kw_free(h);
}

int64_t kc_handover_deadline(const struct kc_handover *h) {
    if (h->state == KC_HANDOVER_DONE) return KW_NEVER;
    return h->state == KC_HANDOVER_LOST ? 0 : KW_MIN(atomic_load(&h->deadline_us), atomic_load(&h->tie->poll_by_us));
}

void kc_handover_tell(struct kc_group *g, struct kc_handover *h, bool in_front) {
    struct kc_consume *c = g->consume;
    kw_list_insert_before(in_front ? c->news.next : &c->news, &h->news_link);
    if (h->state == KC_HANDOVER_OPEN) kw_list_push(&g->open, &handover_ref(h)->open_link);
    atomic_fetch_add(&c->changes, 1); /* poll_one looks up from the event at hand */
    c->notify(c->ctx);
}

/* Out of the lists, with their references: acknowledged, withdrawn, or lost. */
static void settle(struct kc_consume *c, struct kc_handover *h, int32_t state) {
    h->state = state;
    bool news = !kw_list_empty(&h->news_link), open = !kw_list_empty(&h->open_link), handed = c->handed == h;
    kw_list_remove(&h->news_link);
    kw_list_remove(&h->open_link);
    if (handed) c->handed = NULL;
    if (handed) kc_handover_unref(h);
    if (open) kc_handover_unref(h);
    if (news) kc_handover_unref(h);
}

/* ---- Acknowledging ---- */

static void release(struct kc_part *p) {
    p->held = p->revoked != 0;
    kc_part_look(p);
    kc_part_show(p);
}

static void note_paused(struct kc_group *g, const struct kc_part *p) {
    if (p->paused && g->paused) /* room was made when it was revoked */
        g->paused[g->paused_count++] = (kc_topic_partition){.topic = p->topic, .partition = p->partition};
}

static void give_up_part(struct kc_group *g, struct kc_part *p) {
    note_paused(g, p);
    kc_part_leave(p);
    kc_part_remove(p);
}

static void sought_close(struct kc_group *g) {
    kw_free(g->sought.v);
    g->sought = (struct kc_sought){NULL, 0, 0, false};
}

static kc_err acknowledge(struct kc_consume *c, struct kc_handover *h) {
    struct kc_group *g = atomic_load(&c->group);
    if (h->state != KC_HANDOVER_OPEN) return h->state == KC_HANDOVER_LOST ? KC_LOST : KC_OK;
    for (size_t i = 0; i < h->count; i++) {
        struct kc_part *p = kc_part_find(c, h->parts[i].topic, h->parts[i].partition);
        if (p && h->kind == KC_EVENT_ASSIGNED && p->given == h->number) {
            p->given = 0;
            release(p);
        } else if (p && h->kind == KC_EVENT_REVOKED && p->revoked == h->number) {
            give_up_part(g, p);
        }
    }
    if (h->kind == KC_EVENT_ASSIGNED) sought_close(g);
    settle(c, h, KC_HANDOVER_DONE);
    c->kick(c->ctx);
    return KC_OK;
}

kc_err kc_handover_ack(struct kc_handover *h) {
    struct kc_tie *t = h->tie;
    kc_lock_take(&t->lock);
    struct kc_consume *c = t->consume;
    kc_err err;
    if (c) {
        kc_lock_take(&c->lock);
        err = acknowledge(c, h);
        kc_lock_give(&c->lock);
    } else { /* nobody changes it any more */
        err = h->state == KC_HANDOVER_DONE ? KC_OK : KC_LOST;
    }
    kc_lock_give(&t->lock);
    return err;
}

void kc_group_passed(struct kc_consume *c) {
    kc_polls_add(c, 2);
    if (atomic_load(&c->poll_wanted)) {
        atomic_store(&c->poll_wanted, false);
        c->kick(c->ctx);
    }
    if (!c->handed) return;
    struct kc_handover *h = handover_ref(c->handed);
    (void)acknowledge(c, h);
    kc_handover_unref(h);
}

kc_event *kc_group_take(struct kc_consume *c, kc_err *err) {
    if (kw_list_empty(&c->news)) return NULL;
    kc_event *e = kw_calloc(1, sizeof(*e));
    if (!e) {
        *err = KC_NO_MEMORY;
        return NULL;
    }
    struct kc_handover *h = KW_CONTAINER_OF(kw_list_shift(&c->news), struct kc_handover, news_link);
    atomic_init(&e->refs, 1);
    e->kind = h->kind;
    e->partition = -1;
    e->offset = e->high_watermark = e->position_before = -1;
    e->leader_epoch = e->timestamp_type = -1;
    e->error = h->error;
    h->error = NULL;
    e->handover = h; /* the queue's reference is the event's now */
    h->told = true;
    if (h->state == KC_HANDOVER_OPEN) c->handed = handover_ref(h);
    return e;
}

/* ---- Giving ---- */

static bool was_paused(const struct kc_group *g, int32_t topic, int32_t partition) {
    for (size_t i = 0; i < g->paused_count; i++)
        if (g->paused[i].topic == topic && g->paused[i].partition == partition) return true;
    return false;
}

static const kc_topic_partition *sought(const struct kc_group *g, int32_t topic, int32_t partition) {
    for (size_t i = 0; i < g->sought.count; i++)
        if (g->sought.v[i].topic == topic && g->sought.v[i].partition == partition) return &g->sought.v[i];
    return NULL;
}

static bool is_added(const struct kc_group *g, int32_t topic, int32_t partition) {
    if (!g->consume->settings->added_reset) return false;
    size_t at = kc_group_counts_at(g, topic);
    return at < g->first_count && g->first_counts[at].topic == topic && partition >= g->first_counts[at].partitions;
}

static void begin(struct kc_group *g, struct kc_part *p, struct kc_handover *h, int64_t now_us) {
    const kc_topic_partition *s = sought(g, p->topic, p->partition);
    kc_topic_partition tp = {
        .topic = p->topic, .partition = p->partition, .offset = s ? s->offset : KC_OFFSET_COMMITTED, .leader_epoch = s ? s->leader_epoch : -1};
    p->held = true;
    p->given = h->number;
    p->added = is_added(g, p->topic, p->partition);
    p->paused = was_paused(g, p->topic, p->partition);
    kw_list_push(&g->consume->parts, &p->link);
    kc_part_begin(p, &tp, now_us);
    tp.offset = p->position >= 0 ? p->position : KC_OFFSET_RESET;
    h->parts[h->count++] = tp;
}

/* Makes the parts that are not there yet; all or nothing. */
static kc_err make_parts(struct kc_consume *c, const kc_topic_partition *share, size_t count, struct kw_list *fresh, size_t *n) {
    for (size_t i = 0; i < count; i++) {
        struct kc_part *p = kc_part_find(c, share[i].topic, share[i].partition);
        if (p) {
            p->listed = false;
            continue;
        }
        if (kc_part_make(c, share[i].topic, share[i].partition, fresh) != KC_OK) return KC_NO_MEMORY;
        ++*n;
    }
    return KC_OK;
}

static size_t list_all(struct kc_consume *c) {
    size_t n = 0;
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        p->listed = p->assigned;
        n += p->assigned;
    }
    return n;
}

static void unlist_all(struct kc_consume *c) {
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) KW_CONTAINER_OF(it, struct kc_part, link)->listed = false;
}

static kc_err spare_for(struct kc_group *g, size_t cap) {
    if (g->spare && g->spare->cap >= cap) return KC_OK;
    struct kc_handover *h = kc_handover_new(g, KC_EVENT_LOST, cap);
    if (!h) return KC_NO_MEMORY;
    kc_handover_unref(g->spare);
    g->spare = h;
    return KC_OK;
}

kc_err kc_group_give(struct kc_group *g, const kc_topic_partition *share, size_t count, bool tell_none, int64_t now_us, size_t *gone) {
    struct kc_consume *c = g->consume;
    struct kw_list fresh, *n;
    size_t made = 0, had = list_all(c);
    kw_list_init(&fresh);
    kc_err err = make_parts(c, share, count, &fresh, &made);
    struct kc_handover *h = err == KC_OK ? kc_handover_new(g, KC_EVENT_ASSIGNED, made) : NULL;
    if (!h || spare_for(g, had + made) != KC_OK) {
        kc_parts_unmake(c, &fresh);
        unlist_all(c);
        kc_handover_unref(h);
        return KC_NO_MEMORY;
    }
    while ((n = kw_list_shift(&fresh)) != NULL) begin(g, KW_CONTAINER_OF(n, struct kc_part, link), h, now_us);
    g->paused_count = 0;
    *gone = 0;
    for (n = c->parts.next; n != &c->parts; n = n->next) *gone += KW_CONTAINER_OF(n, struct kc_part, link)->listed;
    if (h->count > 0 || tell_none)
        kc_handover_tell(g, h, false);
    else
        kc_handover_unref(h);
    g->joined = true;
    return KC_OK;
}

/* ---- Taking away ---- */

/* The ASSIGNED that the part waits for; NULL: acknowledged long ago. */
static struct kc_handover *given_by(const struct kc_group *g, const struct kc_part *p) {
    for (struct kw_list *it = g->open.next; p->given && it != &g->open; it = it->next) {
        struct kc_handover *h = KW_CONTAINER_OF(it, struct kc_handover, open_link);
        if (h->number == p->given) return h;
    }
    return NULL;
}

/* It was never told of: nobody has to be asked. */
static void withdraw(struct kc_group *g, struct kc_handover *h, struct kc_part *p) {
    for (size_t i = 0; i < h->count; i++) {
        if (h->parts[i].topic != p->topic || h->parts[i].partition != p->partition) continue;
        h->parts[i] = h->parts[--h->count];
        break;
    }
    note_paused(g, p);
    kc_part_remove(p);
    if (h->count == 0) settle(g->consume, h, KC_HANDOVER_DONE);
}

static bool goes(const struct kc_part *p, bool all) {
    return p->assigned && p->revoked == 0 && (all || p->listed);
}

static kc_err room_for_paused(struct kc_group *g, size_t n) {
    size_t room = g->paused_count + n;
    kc_topic_partition *grown = kw_realloc(g->paused, KW_MAX(room, (size_t)1) * sizeof(*grown));
    if (!grown) return KC_NO_MEMORY;
    g->paused = grown;
    return KC_OK;
}

kc_err kc_group_revoke(struct kc_group *g, bool all, int64_t deadline_us, struct kc_handover **out) {
    struct kc_consume *c = g->consume;
    size_t n = 0;
    *out = NULL;
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) n += goes(KW_CONTAINER_OF(it, struct kc_part, link), all);
    if (n == 0) return KC_OK;
    struct kc_handover *h = kc_handover_new(g, KC_EVENT_REVOKED, n);
    if (!h || room_for_paused(g, n) != KC_OK) {
        kc_handover_unref(h);
        return KC_NO_MEMORY;
    }
    atomic_store(&h->deadline_us, deadline_us);
    for (struct kw_list *it = c->parts.next, *next; it != &c->parts; it = next) {
        next = it->next;
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (!goes(p, all)) continue;
        p->listed = false;
        struct kc_handover *a = given_by(g, p);
        if (a && !a->told) {
            withdraw(g, a, p);
            continue;
        }
        p->held = true;
        p->revoked = h->number;
        kc_part_still(p);
        h->parts[h->count++] = (kc_topic_partition){.topic = p->topic,
                                                    .partition = p->partition,
                                                    .offset = p->position >= 0 ? p->position : KC_OFFSET_RESET,
                                                    .leader_epoch = p->position_epoch};
    }
    if (h->count == 0) {
        kc_handover_unref(h);
    } else {
        *out = handover_ref(h);
        kc_handover_tell(g, h, true);
    }
    return KC_OK;
}

/* All that waits for an acknowledgement is over. */
static void close_open(struct kc_group *g) {
    while (!kw_list_empty(&g->open)) settle(g->consume, KW_CONTAINER_OF(g->open.next, struct kc_handover, open_link), KC_HANDOVER_LOST);
}

void kc_group_give_up(struct kc_group *g) {
    struct kc_consume *c = g->consume;
    for (struct kw_list *it = c->parts.next, *next; it != &c->parts; it = next) {
        next = it->next;
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (!p->assigned) continue;
        kc_part_leave(p);
        kc_part_remove(p);
    }
    close_open(g);
    sought_close(g);
    g->paused_count = 0;
    g->joined = false;
}

bool kc_group_drop_all(struct kc_group *g) {
    struct kc_consume *c = g->consume;
    struct kc_handover *h = g->spare;
    bool any = false;
    for (struct kw_list *it = c->parts.next, *next; it != &c->parts; it = next) {
        next = it->next;
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (!p->assigned) continue;
        struct kc_handover *a = given_by(g, p);
        bool known = !a || a->told;
        any = true;
        if (known && h && h->count < h->cap)
            h->parts[h->count++] = (kc_topic_partition){.topic = p->topic,
                                                        .partition = p->partition,
                                                        .offset = kc_part_position(p) >= 0 ? kc_part_position(p) : KC_OFFSET_RESET,
                                                        .leader_epoch = p->position_epoch};
        kc_part_remove(p);
    }
    close_open(g);
    g->paused_count = 0;
    g->joined = false;
    if (!h || h->count == 0) return any;
    g->spare = NULL;
    kc_handover_tell(g, h, false);
    return any;
}
