/* reassign_watch.c - kc reassign waits: which moves are under way still, how much is left to copy, and whether they ended where they were to. */
#include <string.h>

#include "reassign.h"

#define LOOK_US 200000      /* between looks */
#define ASIDE_US 2000000    /* for how much is left to copy, which is nice to know */
#define SETTLE_US 10000000  /* the broker that is asked may hear a little later than the controller that it is over */

/* Answers come in much the order of the command line: *at, 0 at first, is where the last one was. */
static struct cli_shift *find(struct cli_reassign *r, const char *topic, int32_t partition, size_t *at) {
    for (size_t i = 0; i < r->parts.count; i++) {
        struct cli_shift *s = &r->v[(*at + i) % r->parts.count];
        if (s->part->p.partition != partition || strcmp(s->part->topic, topic) != 0) continue;
        *at = (size_t)(s - r->v);
        return s;
    }
    return NULL;
}

/* Records that brokers which get replicas are behind in them; -1: none of them said. */
static int64_t left_to_copy(struct cli_reassign *r) {
    int64_t left = -1;
    for (size_t b = 0; b < r->to_count; b++) {
        kc_op *op = NULL;
        kc_log_dir_replica d;
        size_t at = 0;
        if (kc_admin_describe_log_dirs_start(r->s.client, r->to[b], ASIDE_US, 0, &op, NULL) == KC_OK) (void)cli_wait(&r->s, op, NULL);
        kc_log_dir_list *l = kc_op_result_log_dirs(op);
        for (size_t i = 0; kc_log_dir_list_replica(l, i, &d) == KC_OK; i++) {
            const struct cli_shift *s = d.future ? NULL : find(r, d.topic, d.partition, &at);
            bool counts = s && s->state == SHIFT_MOVING && !cli_has_id(s->now, s->now_count, r->to[b]);
            if (counts && d.lag >= 0) left = (left < 0 ? 0 : left) + d.lag;
        }
        kc_log_dir_list_free(l);
        kc_op_free(op);
    }
    return left;
}

/* How many are in the list still; those that are not are over. -1: it cannot be had, the error was printed. */
static int64_t look(struct cli_reassign *r, struct cli_progress *progress, size_t *total) {
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_reassignment m;
    int64_t left = 0;
    size_t at = 0;
    kc_err err = kc_admin_list_reassignments_start(r->s.client, 0, 0, &op, &error);
    if (err == KC_OK) err = cli_wait(&r->s, op, &error);
    kc_reassignment_list *l = kc_op_result_reassignments(op);
    kc_op_free(op);
    if (err == KC_OK && !l) err = KC_NO_MEMORY;
    if (err != KC_OK) {
        cli_progress_end(progress);
        cli_fail("reassign", err, error);
        return -1;
    }
    *total = 0;
    for (size_t i = 0; i < r->parts.count; i++) *total += r->v[i].state == SHIFT_MOVING;
    for (size_t i = 0; kc_reassignment_list_get(l, i, &m) == KC_OK; i++) {
        const struct cli_shift *s = find(r, m.topic, m.partition, &at);
        left += s && s->state == SHIFT_MOVING;
    }
    kc_reassignment_list_free(l);
    return left;
}

/* Where they are now. False: one is elsewhere than it was to go. */
static bool settle(struct cli_reassign *r, bool last, size_t *elsewhere_led) {
    kc_cluster_info *info = NULL;
    struct cli_topics topics = {0};
    bool all = true;
    *elsewhere_led = 0;
    if (cli_describe(&r->s, NULL, &info, NULL) != KC_OK || !cli_topics_make(&topics, info)) {
        kc_cluster_info_free(info);
        return false;
    }
    for (size_t i = 0; i < r->parts.count; i++) {
        struct cli_shift *s = &r->v[i];
        kc_partition_info p;
        if (s->state != SHIFT_MOVING && s->state != SHIFT_MOVED) continue;
        bool there = cli_part_find(&topics, s->part->topic, s->part->p.partition, &p) && p.replica_count == s->then_count &&
                     !memcmp(p.replicas, s->then, s->then_count * sizeof *s->then);
        all = all && there;
        if (there) s->state = SHIFT_MOVED;
        if (there && p.leader != s->then[0]) ++*elsewhere_led;
        if (!there && last) cli_reassign_fail(s, KC_CANCELLED, "the move was stopped, or replaced by another one, before it was done");
    }
    cli_topics_free(&topics);
    kc_cluster_info_free(info);
    return all;
}

static int told_to_stop(struct cli_progress *progress) {
    cli_progress_end(progress);
    fflush(stdout);
    fprintf(stderr, "kc: reassign: not waited for: the move goes on in the cluster\n  kc reassign --list shows how far it is, --cancel stops it\n");
    return CLI_FAILURE;
}

int cli_reassign_watch(struct cli_reassign *r) {
    struct cli_progress progress;
    size_t total = 0, led_elsewhere = 0;
    int64_t left, started = cli_now_us(), until;
    bool all = false;
    cli_catch_signals(NULL, NULL);
    cli_progress_start(&progress, "", 0);
    while ((left = look(r, &progress, &total)) > 0 && !cli_interrupted) {
        int64_t records = progress.on ? left_to_copy(r) : -1;
        if (records >= 0)
            cli_progress_say(&progress, "moving: %lld of %zu partitions left, %lld records to copy", (long long)left, total, (long long)records);
        else
            cli_progress_say(&progress, "moving: %lld of %zu partitions left", (long long)left, total);
        if (!cli_interrupted) cli_pause(LOOK_US);
    }
    if (cli_interrupted) return told_to_stop(&progress);
    cli_progress_end(&progress);
    if (left < 0) return CLI_FAILURE;
    for (until = cli_now_us() + SETTLE_US; !all && !cli_interrupted && cli_now_us() < until;)
        if (!(all = settle(r, false, &led_elsewhere))) cli_pause(LOOK_US);
    if (cli_interrupted) return told_to_stop(&progress);
    if (!all) (void)settle(r, true, &led_elsewhere);
    size_t moved = 0;
    for (size_t i = 0; i < r->parts.count; i++) moved += r->v[i].state == SHIFT_MOVED;
    if (!r->json) printf("moved %zu partition%s in %.1f s\n", moved, moved == 1 ? "" : "s", (double)(cli_now_us() - started) / 1e6);
    if (!r->json && led_elsewhere > 0)
        printf("%zu of them %s led by another than the first replica: kc elect preferred changes that\n", led_elsewhere, led_elsewhere == 1 ? "is" : "are");
    return all ? CLI_OK : CLI_FAILURE;
}
