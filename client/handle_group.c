/* handle_group.c - the public consumer as a member of a group: kc_consumer_subscribe and its like, patterns, events' acknowledgements.
 *
 * Calls handle.h, loop.h (waiting), consume/group.h (everything else).
 */
#include "handle_consumer.h"

#include "consume/group.h"

#include <regex.h>

/* ---- Patterns ---- */

struct matcher {
    struct kc_matcher base;
    size_t count, except_count; /* of compiled */
    regex_t compiled[];         /* those that a topic may match; then those that it must not */
};

static void matcher_free(struct kc_matcher *base) {
    struct matcher *m = KW_CONTAINER_OF(base, struct matcher, base);
    for (size_t i = 0; i < m->count + m->except_count; i++) regfree(&m->compiled[i]);
    kw_free(m);
}

static bool matcher_matches(const struct kc_matcher *base, const char *topic) {
    const struct matcher *m = KW_CONTAINER_OF((struct kc_matcher *)(uintptr_t)base, struct matcher, base);
    bool yes = false;
    for (size_t i = 0; i < m->count && !yes; i++) yes = regexec(&m->compiled[i], topic, 0, NULL, 0) == 0;
    for (size_t i = 0; i < m->except_count && yes; i++) yes = regexec(&m->compiled[m->count + i], topic, 0, NULL, 0) != 0;
    return yes;
}

static kc_err compile(regex_t *into, const char *pattern, kc_error **error) {
    int rc = regcomp(into, pattern, REG_EXTENDED | REG_NOSUB);
    if (rc == 0) return KC_OK;
    char why[120];
    regerror(rc, into, why, sizeof why);
    kc_err err = rc == REG_ESPACE ? KC_NO_MEMORY : KC_INVALID;
    kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "subscribe: the pattern \"%.200s\" does not compile: %s", pattern, why);
    return err;
}

/* topic.blacklist: patterns between commas. */
static size_t item_count(const char *list) {
    size_t n = 0;
    for (; list && *list; list += strcspn(list, ","), list += *list == ',') n += *list != ',';
    return n;
}

static kc_err compile_except(struct matcher *m, const char *list, kc_error **error) {
    char item[512];
    kc_err err = KC_OK;
    while (list && *list && err == KC_OK) {
        size_t n = strcspn(list, ",");
        if (n > 0 && n < sizeof item) {
            memcpy(item, list, n);
            item[n] = 0;
            err = compile(&m->compiled[m->count + m->except_count], item, error);
            m->except_count += err == KC_OK;
        } else if (n > 0) {
            kc_error_make(error, KC_INVALID, KC_NOT_PERSISTED, NULL, "topic.blacklist: a pattern of more than %zu bytes", sizeof item - 1);
            err = KC_INVALID;
        }
        list += n;
        if (*list) list++;
    }
    return err;
}

static kc_err matcher_new(const char *const *patterns, size_t n, const char *except, struct kc_matcher **out, kc_error **error) {
    size_t excepts = item_count(except);
    struct matcher *m = kw_calloc(1, sizeof(*m) + (n + excepts) * sizeof(m->compiled[0]));
    if (!m) {
        kc_error_make(error, KC_NO_MEMORY, KC_NOT_PERSISTED, NULL, "subscribe: no memory");
        return KC_NO_MEMORY;
    }
    m->base = (struct kc_matcher){matcher_matches, matcher_free};
    kc_err err = KC_OK;
    for (size_t i = 0; i < n && err == KC_OK; i++) {
        err = compile(&m->compiled[i], patterns[i], error);
        m->count += err == KC_OK;
    }
    if (err == KC_OK) err = compile_except(m, except, error);
    if (err != KC_OK) {
        matcher_free(&m->base);
        return err;
    }
    *out = &m->base;
    return KC_OK;
}

/* ---- Subscriptions ---- */

static kc_err refuse(kc_err err, kc_error **error) {
    const char *why = err == KC_CONFIG    ? "group.id is not set"
                      : err == KC_INVALID ? "partitions are assigned by hand (give them up first), or an argument is missing"
                                          : kc_err_text(err);
    kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "subscribe: %s", why);
    return err;
}

static kc_err enter_list(kc_consumer *c, const char *const *list, size_t n) {
    kc_err err = kc_consumer_enter(c);
    if (err == KC_OK && n > 0 && !list) err = KC_INVALID;
    for (size_t i = 0; i < n && err == KC_OK; i++)
        if (!list[i]) err = KC_INVALID;
    return err;
}

kc_err kc_consumer_subscribe(kc_consumer *c, const char *const *topics, size_t n, kc_error **error) {
    kc_err err = enter_list(c, topics, n);
    if (err != KC_OK) return refuse(err, error);
    if (n == 0) return kc_consumer_unsubscribe(c, error);
    int32_t *numbers = kw_malloc(n * sizeof(*numbers));
    if (!numbers) return refuse(KC_NO_MEMORY, error);
    for (size_t i = 0; i < n && err == KC_OK; i++) {
        numbers[i] = kc_client_topic(c->client, topics[i]);
        if (numbers[i] > 0) continue;
        err = KC_INVALID;
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "subscribe: \"%.260s\" is no topic's name", topics[i]);
    }
    if (err == KC_OK) {
        err = kc_group_subscribe(&c->consume, numbers, n, NULL);
        if (err != KC_OK) (void)refuse(err, error);
    }
    kw_free(numbers);
    return err;
}

kc_err kc_consumer_subscribe_regex(kc_consumer *c, const char *const *patterns, size_t n, kc_error **error) {
    struct kc_matcher *m = NULL;
    kc_err err = enter_list(c, patterns, n);
    if (err != KC_OK) return refuse(err, error);
    if (n == 0) return kc_consumer_unsubscribe(c, error);
    err = matcher_new(patterns, n, c->settings->topic_blacklist, &m, error);
    if (err != KC_OK) return err;
    err = kc_group_subscribe(&c->consume, NULL, 0, m);
    return err == KC_OK ? KC_OK : refuse(err, error);
}

kc_err kc_consumer_unsubscribe(kc_consumer *c, kc_error **error) {
    kc_err err = kc_consumer_enter(c);
    if (err != KC_OK) {
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "unsubscribe: %s", kc_err_text(err));
        return err;
    }
    kc_group_unsubscribe(&c->consume);
    return KC_OK;
}

static bool assigned(void *ctx) {
    kc_consumer *c = ctx;
    return atomic_load(&c->closed) || atomic_load(&c->client->closed) || kc_group_assigned(&c->consume) != KC_BUSY;
}

kc_err kc_consumer_await_assigned(kc_consumer *c, int64_t timeout_us, kc_error **error) {
    kc_err err = kc_consumer_enter(c);
    if (err == KC_OK) err = kc_drive_until(c->client, NULL, assigned, c, timeout_us == 0 ? 0 : kc_deadline_after(timeout_us), &c->wake);
    if (err == KC_OK) err = kc_consumer_enter(c);
    if (err == KC_OK) err = kc_group_assigned(&c->consume);
    if (err == KC_OK || err == KC_WOKEN) return err;
    if (err == KC_INVALID)
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "there is no subscription");
    else if (err == KC_TIMED_OUT)
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "the group has given no partitions yet: kc_consumer_why tells what it waits for");
    else
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "group %s: %s", c->settings->group_id, kc_err_text(err));
    return err;
}

size_t kc_consumer_member(kc_consumer *c, int32_t *generation, char *id, size_t size) {
    if (!c || kc_client_is_forked(c->client)) return 0;
    return kc_group_member(&c->consume, generation, id, size);
}

bool kc_consumer_left(kc_consumer *c) {
    struct kc_consume *k = &c->consume;
    if (!k->started || k->stopped || kc_group_gone(k)) return true;
    kc_group_close(k, atomic_load(&c->close_by_us));
    kc_consume_run(k);
    return kc_group_gone(k);
}

/* ---- Events ---- */

kc_err kc_event_ack(kc_event *e) {
    if (!e) return KC_INVALID;
    if (e->client && kc_client_is_forked(e->client)) return KC_FORKED;
    if (!e->handover) return KC_OK;
    /* Too late, also when the loop has not come round to say so. */
    return kc_clock_now().mono_us >= atomic_load(&e->handover->deadline_us) && kc_handover_deadline(e->handover) != KW_NEVER
               ? KC_LOST
               : kc_handover_ack(e->handover);
}

int64_t kc_event_deadline_us(const kc_event *e) {
    if (!e || !e->handover || (e->client && kc_client_is_forked(e->client))) return KC_FOREVER;
    int64_t at_us = kc_handover_deadline(e->handover), now_us = kc_clock_now().mono_us;
    return at_us == KW_NEVER ? KC_FOREVER : at_us > now_us ? at_us - now_us : 0;
}
