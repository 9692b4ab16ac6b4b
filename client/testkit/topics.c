/* topics.c - topics made, and what a test waits for: a leader, replicas in sync, a consumer's partitions. By libkclient's own calls, on the kit's client. */
#include "testkit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_US = 2000000, SEEN_MAX = 1000 };

/* What was seen last, for the error. */
struct seen {
    char text[SEEN_MAX];
    bool real; /* of the cluster, not that nobody could be asked */
};

static void say(struct seen *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct seen *s, const char *fmt, ...) {
    size_t n = strlen(s->text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->text + n, sizeof s->text - n, fmt, ap);
    va_end(ap);
}

static void say_ids(struct seen *s, const char *what, const int32_t *ids, size_t n) {
    say(s, ", %s", what);
    for (size_t i = 0; i < n; i++) say(s, "%s%d", i ? "," : " ", (int)ids[i]);
    if (n == 0) say(s, " nobody");
}

static void say_partition(struct seen *s, const char *topic, const kc_partition_info *p) {
    s->text[0] = 0;
    if (p->leader >= 0) say(s, "%s-%d is led by %d (epoch %d)", topic, (int)p->partition, (int)p->leader, (int)p->leader_epoch);
    else say(s, "%s-%d is led by nobody", topic, (int)p->partition);
    say_ids(s, "replicas", p->replicas, p->replica_count);
    say_ids(s, "in sync", p->isr, p->isr_count);
}

/* ---- Looking at partitions ---- */

/* What is waited for. partition -1: all. */
struct wish {
    const char *topic;
    int32_t partition;
    bool (*holds)(const struct wish *w, const kc_partition_info *p);
    int32_t leader;
    const int32_t *brokers;
    size_t broker_count;
    int32_t *leader_out;
};

/* The topic among all that there are: asked for alone its offsets would be asked of leaders that may be gone. */
static bool find_topic(const kc_cluster_info *info, const char *name, size_t *index, kc_topic_info *out) {
    for (size_t i = 0; kc_cluster_info_topic(info, i, out) == KC_OK; i++) {
        if (strcmp(out->name, name) != 0) continue;
        *index = i;
        return true;
    }
    return false;
}

static bool comes_true(const struct wish *w, const kc_cluster_info *info, struct seen *seen) {
    kc_topic_info topic;
    kc_partition_info p;
    size_t index, found = 0;
    seen->text[0] = 0;
    seen->real = true;
    if (!find_topic(info, w->topic, &index, &topic)) {
        say(seen, "there is no topic %s", w->topic);
        return false;
    }
    for (size_t i = 0; kc_cluster_info_partition(info, index, i, &p) == KC_OK; i++) {
        if (w->partition >= 0 && p.partition != w->partition) continue;
        say_partition(seen, w->topic, &p);
        if (!w->holds(w, &p)) return false;
        if (w->leader_out) *w->leader_out = p.leader;
        found++;
    }
    if (found == 0) say(seen, "topic %s has no partition %d, only %zu of them", w->topic, (int)w->partition, topic.partition_count);
    return found > 0;
}

/* The last look is cut short by the end of the wait: what was seen before it tells more. */
static void say_error(struct seen *seen, kc_err err, const kc_error *e) {
    if (seen->real) return;
    seen->text[0] = 0;
    say(seen, "no broker tells (%s)", e ? kc_error_message(e) : kc_err_text(err));
}

static kc_err wait_for(kc_test_cluster *c, const struct wish *w, int64_t timeout_us, const char *what, kc_error **error) {
    int64_t deadline_us = kt_deadline(timeout_us, KT_WAIT_DEFAULT_S);
    struct seen seen = {.text = "nothing was seen yet"};
    kc_client *client = NULL;
    kc_err failed = kt_watcher(c, &client, error);
    if (failed) return failed;
    for (int64_t ms = 2;; ms = ms < 50 ? 2 * ms : ms) {
        kc_cluster_info *info = NULL;
        kc_error *e = NULL;
        int64_t left = deadline_us == INT64_MAX ? LOOK_US : deadline_us - kt_now_us();
        kc_err err = kc_admin_describe(client, NULL, left < 1000 ? 1000 : left < LOOK_US ? left : LOOK_US, &info, &e);
        bool done = err == KC_OK && comes_true(w, info, &seen);
        if (err) say_error(&seen, err, e);
        kc_error_free(e);
        kc_cluster_info_free(info);
        if (done) return KC_OK;
        if (err == KC_CLOSED || err == KC_NO_MEMORY) return kt_fail(error, err, "%s: %s", what, kc_err_text(err));
        if (kt_now_us() >= deadline_us) return kt_fail(error, KC_TIMED_OUT, "%s was waited for in vain: %s", what, seen.text);
        kt_sleep_ms(ms);
    }
}

/* ---- Leaders and replicas ---- */

static bool is_led(const struct wish *w, const kc_partition_info *p) {
    if (w->leader == KC_TEST_NOBODY) return p->leader < 0;
    return w->leader == KC_TEST_ANYBODY ? p->leader >= 0 : p->leader == w->leader;
}

static bool is_in_sync(const struct wish *w, const kc_partition_info *p) {
    if (p->isr_count != w->broker_count) return false;
    for (size_t i = 0; i < w->broker_count; i++) {
        bool there = false;
        for (size_t k = 0; k < p->isr_count; k++) there |= p->isr[k] == w->brokers[i];
        if (!there) return false;
    }
    return true;
}

kc_err kc_test_wait_leader(kc_test_cluster *c, const char *topic, int32_t partition, int32_t wanted, int64_t timeout_us, int32_t *leader, kc_error **error) {
    char what[400];
    int32_t found = -1;
    if (!c || !topic || partition < 0 || wanted < KC_TEST_NOBODY) return kt_fail(error, KC_INVALID, "a topic, a partition from 0 on and a broker are needed");
    struct wish w = {.topic = topic, .partition = partition, .holds = is_led, .leader = wanted, .leader_out = &found};
    if (wanted >= 0) snprintf(what, sizeof what, "%.249s-%d led by %d", topic, (int)partition, (int)wanted);
    else snprintf(what, sizeof what, "%.249s-%d led by %s", topic, (int)partition, wanted == KC_TEST_NOBODY ? "nobody" : "anybody");
    kc_err err = wait_for(c, &w, timeout_us, what, error);
    if (!err && leader) *leader = found;
    return err;
}

kc_err kc_test_wait_isr(kc_test_cluster *c, const char *topic, int32_t partition, const int32_t *brokers, size_t n, int64_t timeout_us, kc_error **error) {
    struct seen what = {.text = ""};
    if (!c || !topic || partition < 0 || !brokers || n == 0) return kt_fail(error, KC_INVALID, "a topic, a partition from 0 on and brokers are needed");
    struct wish w = {.topic = topic, .partition = partition, .holds = is_in_sync, .brokers = brokers, .broker_count = n};
    say(&what, "%.249s-%d", topic, (int)partition);
    say_ids(&what, "in sync", brokers, n);
    return wait_for(c, &w, timeout_us, what.text, error);
}

kc_err kc_test_topic_create(kc_test_cluster *c, const char *name, int32_t partitions, int32_t replication_factor, const kc_config_pair *configs,
                            size_t config_count, kc_error **error) {
    char what[400];
    if (!c || !name) return kt_fail(error, KC_INVALID, "the cluster, or the topic's name, is missing");
    kc_client *client = kc_test_cluster_client(c);
    if (!client) return kt_fail(error, KC_CLOSED, "the cluster was stopped, or is another process's");
    kc_topic_new topic = {.name = name, .partitions = partitions, .replication_factor = replication_factor, .configs = configs, .config_count = config_count};
    kc_err err = kc_admin_create_topics(client, &topic, sizeof topic, 1, 0, c->timeout_us ? c->timeout_us : KT_CALL_DEFAULT_S * INT64_C(1000000), error);
    if (err) return err;
    struct wish w = {.topic = name, .partition = -1, .holds = is_led, .leader = KC_TEST_ANYBODY};
    snprintf(what, sizeof what, "a leader of each partition of %.249s", name);
    return wait_for(c, &w, 0, what, error);
}

/* ---- Consumers ---- */

/* On what it waits, by its own account. */
static void say_why(struct seen *seen, kc_consumer *consumer) {
    enum { WHYS = 16 };
    kc_why why[WHYS];
    size_t count = 0;
    kc_err err = kc_consumer_why(consumer, why, sizeof why[0], WHYS, &count);
    seen->text[0] = 0;
    if (err || count == 0) say(seen, "%s", err ? kc_err_text(err) : "it is no member of a group");
    for (size_t i = 0; !err && i < count && i < WHYS; i++) say(seen, "%s%s", i ? "; " : "", why[i].text);
}

kc_err kc_test_wait_assigned(kc_consumer *consumer, int64_t timeout_us, kc_error **error) {
    struct seen seen = {.text = ""};
    kc_error *e = NULL;
    if (!consumer) return kt_fail(error, KC_INVALID, "the consumer is missing");
    kc_err err = kc_consumer_await_assigned(consumer, timeout_us == 0 ? KT_WAIT_DEFAULT_S * INT64_C(1000000) : timeout_us, &e);
    if (err == KC_TIMED_OUT) {
        say_why(&seen, consumer);
        kc_error_free(e);
        return kt_fail(error, err, "the consumer was not given its partitions: %s", seen.text);
    }
    if (error && e) *error = e;
    else kc_error_free(e);
    return err;
}
