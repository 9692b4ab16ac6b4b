/* why.c - what each partition waits for, in numbers and words (kc_consumer_why). Loop context; called by handle_consumer.c's post. */
#include <stdio.h>

#include "group.h"

enum {
    DELIVERING,
    PAUSED,
    LOOKUP,
    LEADER_UNKNOWN,
    CONNECTING,
    FETCH_OUTSTANDING,
    AT_THE_END,
    BACKING_OFF,
    HELD_BACK,
    COMMITTED,
    NOT_ACKNOWLEDGED,
    BEING_REVOKED
};

static int32_t state_of(const struct kc_part *p, int32_t broker, int64_t now_us) {
    if (p->revoked) return BEING_REVOKED;
    if (p->given) return NOT_ACKNOWLEDGED;
    if (p->paused) return PAUSED;
    if (p->kept || !kw_list_empty(&p->chunks)) return DELIVERING;
    if (p->state == KC_PART_FAILED || p->not_before_us > now_us) return BACKING_OFF;
    if (p->state == KC_PART_COMMITTED) return COMMITTED;
    if (broker < 0) return LEADER_UNKNOWN;
    if (p->state == KC_PART_LOOKUP || p->state == KC_PART_VALIDATE) return LOOKUP;
    if (kc_part_in_request(p)) return p->high_watermark >= 0 && p->fetch_offset >= p->high_watermark ? AT_THE_END : FETCH_OUTSTANDING;
    if (p->empty_us >= 0 && p->high_watermark >= 0 && p->fetch_offset >= p->high_watermark) return AT_THE_END; /* asked for now and then */
    if (!p->fetcher) return HELD_BACK;
    if (p->fetcher->outstanding) return p->fetcher->encoded ? FETCH_OUTSTANDING : CONNECTING;
    return p->fetcher->not_before_us > now_us ? BACKING_OFF : HELD_BACK;
}

static void describe(const struct kc_part *p, kc_why *w) {
    struct kc_core *core = p->consume->core;
    char status[160] = "";
    if (w->broker >= 0) kc_core_broker_status(core, w->broker, status, sizeof status);
    const struct kc_topic_meta *t = kc_metadata_topic(core, p->topic);
    switch (w->state) {
    case DELIVERING:
        snprintf(w->text, sizeof w->text, "records wait for the application's next poll");
        break;
    case PAUSED:
        snprintf(w->text, sizeof w->text, "paused by the application");
        break;
    case LOOKUP:
        snprintf(w->text, sizeof w->text, "%s at broker %d: %s",
                 p->state == KC_PART_LOOKUP ? "its start offset is looked up" : "its position is held against the new leader's log",
                 (int)w->broker, status);
        break;
    case NOT_ACKNOWLEDGED:
        snprintf(w->text, sizeof w->text, "waits for the application to acknowledge ASSIGNED");
        break;
    case BEING_REVOKED:
        snprintf(w->text, sizeof w->text, "is being revoked: waits for the application to acknowledge REVOKED");
        break;
    case LEADER_UNKNOWN:
        snprintf(w->text, sizeof w->text, "no leader is known%s%s", t && t->known && t->err != KE_NONE ? ": " : "",
                 t && t->known && t->err != KE_NONE ? kc_err_text(t->err) : "");
        break;
    case COMMITTED: {
        struct kc_coordinator *coordinator = kc_commits_coordinator(p->consume->commits);
        if (coordinator) {
            w->broker = kc_coordinator_broker(coordinator);
            kc_coordinator_status(coordinator, status, sizeof status);
        }
        snprintf(w->text, sizeof w->text, "its committed offset is asked for: %s", status);
        break;
    }
    case CONNECTING:
        snprintf(w->text, sizeof w->text, "a fetch waits for broker %d: %s", (int)w->broker, status);
        break;
    case FETCH_OUTSTANDING:
        snprintf(w->text, sizeof w->text, "a fetch at offset %lld is outstanding at broker %d: %s", (long long)p->fetch_offset,
                 (int)w->broker, status);
        break;
    case AT_THE_END:
        snprintf(w->text, sizeof w->text, "at the end, offset %lld: a fetch at broker %d waits for new records", (long long)p->fetch_offset,
                 (int)w->broker);
        break;
    case BACKING_OFF:
        snprintf(w->text, sizeof w->text, "%s after %s: %s",
                 p->state == KC_PART_FAILED ? "waits for a seek" : "waits before it is tried again", kc_err_name(p->last_error),
                 p->last_error == KC_TRANSPORT && *status ? status : kc_err_text(p->last_error));
        break;
    default:
        snprintf(w->text, sizeof w->text, "held back: %lld bytes are fetched and not taken, or the memory budget is used up",
                 (long long)atomic_load(&p->consume->queued_bytes));
        break;
    }
}

size_t kc_consume_why(struct kc_consume *c, kc_why *out, size_t stride, size_t max) {
    size_t n = 0;
    kc_why group;
    int64_t now_us = kc_core_now(c->core).mono_us;
    if (kc_group_why(c, &group) && n++ < max) *KW_AT(kc_why, out, stride, 0) = group;
    kc_lock_take(&c->lock);
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (!p->assigned) continue;
        if (n++ >= max) continue;
        int32_t epoch, broker = kc_part_broker(p, now_us, p->state != KC_PART_FETCHING, &epoch);
        kc_why *w = KW_AT(kc_why, out, stride, n - 1);
        w->topic = p->topic;
        w->partition = p->partition;
        w->broker = p->fetcher ? p->fetcher->broker : broker;
        w->state = state_of(p, broker, now_us);
        w->since_us = p->since_us > 0 && now_us > p->since_us ? now_us - p->since_us : 0;
        w->last_error = p->last_error;
        describe(p, w);
    }
    kc_lock_give(&c->lock);
    return n;
}
