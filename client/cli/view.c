/* view.c - a cluster as kc cluster and kc topic describe see it at one moment, and what is wrong with a partition, in one line.
 *
 * Metadata tells leaders and who is in sync; the quorum's leader tells when it last heard from a node that is away; a broker that is there but
 * behind tells how far, as far as it knows; the topic's configuration tells how many must be in sync. Each of the latter may be unknown: then the
 * line says less.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define ASIDE_US 2000000 /* for what is nice to know */

/* What there is one of, whatever the topic. */
void cli_view_aside(struct cli_view *v) {
    if (v->asked_aside) return;
    kc_op *moves = NULL, *quorum = NULL;
    kc_client *c = v->session->client;
    /* Only now: where the quorum has no leader a broker keeps them for as long as they may wait, and all answers behind them on that connection. */
    (void)kc_admin_describe_quorum_start(c, ASIDE_US, 0, &quorum, NULL);
    (void)kc_admin_list_reassignments_start(c, ASIDE_US, 0, &moves, NULL);
    if (quorum) v->quorum_err = cli_wait(v->session, quorum, NULL);
    if (moves) v->moves_err = cli_wait(v->session, moves, NULL);
    v->quorum = kc_op_result_quorum(quorum);
    v->moves = kc_op_result_reassignments(moves);
    kc_op_free(quorum);
    kc_op_free(moves);
    v->asked_aside = true;
}

kc_err cli_view_open(struct cli_session *s, const char *topic, struct cli_view *v, kc_error **error) {
    *v = (struct cli_view){.session = s};
    return cli_view_topic(v, topic, error);
}

kc_err cli_view_topic(struct cli_view *v, const char *topic, kc_error **error) {
    kc_cluster_info_free(v->info);
    v->info = NULL;
    kc_err err = cli_describe(v->session, topic, &v->info, error);
    if (err == KC_OK && !v->later) cli_view_aside(v);
    return err;
}

void cli_view_close(struct cli_view *v) {
    kc_cluster_info_free(v->info);
    kc_quorum_info_free(v->quorum);
    kc_reassignment_list_free(v->moves);
    for (size_t i = 0; i < v->disk_count; i++) kc_log_dir_list_free(v->disks[i].list);
    free(v->disks);
    free(v->topic);
    *v = (struct cli_view){0};
}

/* ---- Brokers ---- */

bool cli_view_is_up(const struct cli_view *v, int32_t id) {
    kc_broker_info b;
    for (size_t i = 0; kc_cluster_info_broker(v->info, i, &b) == KC_OK; i++)
        if (b.id == id) return !b.fenced;
    return false;
}

int64_t cli_view_seen_ms_ago(const struct cli_view *v, int32_t id) {
    kc_quorum_replica r;
    for (size_t i = 0; kc_quorum_info_get(v->quorum, i, &r) == KC_OK; i++)
        if (r.id == id) return r.fetched_ms_ago;
    return -1;
}

const char *cli_ago(char *text, size_t size, int64_t ms) {
    if (ms < 1000)
        snprintf(text, size, "%lld ms ago", (long long)ms);
    else if (ms < 120000)
        snprintf(text, size, "%lld s ago", (long long)(ms / 1000));
    else
        snprintf(text, size, "%lld min ago", (long long)(ms / 60000));
    return text;
}

struct cli_disk *cli_view_disk(struct cli_view *v, int32_t id) {
    for (size_t i = 0; i < v->disk_count; i++)
        if (v->disks[i].broker == id) return &v->disks[i];
    struct cli_disk *grown = realloc(v->disks, (v->disk_count + 1) * sizeof *grown);
    if (!grown) return NULL;
    v->disks = grown;
    v->disks[v->disk_count] = (struct cli_disk){.broker = id};
    return &v->disks[v->disk_count++];
}

/* What a broker that is there says of its replica: how far it is behind (-1 unknown), and whether its disk takes no more of it. */
struct cli_replica {
    int64_t lag;
    enum { DISK_OK, DISK_FULL, DISK_FAILED } disk;
};
static struct cli_replica replica_of(struct cli_view *v, int32_t id, const char *topic, int32_t partition) {
    struct cli_replica found = {.lag = -1};
    struct cli_disk *d = cli_view_disk(v, id);
    if (!d) return found;
    if (!d->asked) {
        kc_op *op = NULL;
        d->asked = true;
        if (kc_admin_describe_log_dirs_start(v->session->client, id, ASIDE_US, 0, &op, NULL) == KC_OK) (void)cli_wait(v->session, op, NULL);
        d->list = kc_op_result_log_dirs(op);
        kc_op_free(op);
    }
    kc_log_dir_replica r;
    kc_log_dir dir;
    for (size_t i = 0; kc_log_dir_list_replica(d->list, i, &r) == KC_OK; i++) {
        if (r.future || r.partition != partition || strcmp(r.topic, topic) != 0) continue;
        found.lag = r.lag;
        if (kc_log_dir_list_get(d->list, r.dir, &dir) == KC_OK && dir.err != KC_OK)
            found.disk = dir.usable_bytes == 0 ? DISK_FULL : DISK_FAILED;
        break;
    }
    return found;
}

/* ---- Partitions ---- */

static int32_t min_isr_of(struct cli_view *v, const char *topic) {
    if (v->topic && !strcmp(v->topic, topic)) return v->min_isr;
    free(v->topic);
    v->topic = strdup(topic);
    v->min_isr = 0;
    kc_op *op = NULL;
    if (kc_admin_describe_configs_start(v->session->client, KC_RESOURCE_TOPIC, topic, ASIDE_US, 0, &op, NULL) == KC_OK)
        (void)cli_wait(v->session, op, NULL);
    kc_config_list *l = kc_op_result_configs(op);
    kc_config_item item;
    for (size_t i = 0; kc_config_list_get(l, i, &item) == KC_OK; i++) {
        int64_t n;
        if (!strcmp(item.name, "min.insync.replicas") && item.value && cli_number(item.value, 0, INT32_MAX, &n)) v->min_isr = (int32_t)n;
    }
    kc_config_list_free(l);
    kc_op_free(op);
    return v->min_isr;
}

struct line {
    char *text;
    size_t size, at;
};
static void say(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct line *l, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = l->at < l->size ? vsnprintf(l->text + l->at, l->size - l->at, fmt, ap) : 0;
    va_end(ap);
    if (n > 0) l->at += (size_t)n;
}

/* "; waiting for broker 2, last seen 4 s ago, and broker 3, 17 records behind": those of `ids` that are not in sync. */
static void say_waiting(struct line *l, struct cli_view *v, const kc_topic_info *t, const kc_partition_info *p, const int32_t *ids, size_t n,
                        bool any) {
    size_t said = 0;
    bool comma = false;
    for (size_t i = 0; i < n; i++) {
        int32_t id = ids[i];
        char ago[32];
        if (p->leader >= 0 && cli_has_id(p->isr, p->isr_count, id)) continue;
        say(l, "%s%s broker %d", comma ? "," : "", said++ == 0 ? "; waiting for" : any ? " or" : " and", (int)id);
        bool up = cli_view_is_up(v, id);
        int64_t seen = up ? -1 : cli_view_seen_ms_ago(v, id);
        struct cli_replica r = {.lag = -1};
        if (up) r = replica_of(v, id, t->name, p->partition);
        int64_t lag = p->leader >= 0 ? r.lag : -1;
        comma = seen >= 0 || !up || lag >= 0 || r.disk;
        if (seen >= 0)
            say(l, ", last seen %s", cli_ago(ago, sizeof ago, seen));
        else if (!up)
            say(l, ", which is down");
        else if (r.disk)
            say(l, r.disk == DISK_FULL ? ", whose disk is full" : ", whose disk failed");
        else if (lag > 0)
            say(l, ", %lld records behind", (long long)lag);
        else if (lag == 0) /* it is not in sync all the same: by its own word, which is as old as its leader's last answer */
            say(l, ", which has all that it was told of");
    }
}

/* The brokers that the partition is being moved onto and that are not in sync yet. */
static size_t adding_of(const struct cli_view *v, const kc_topic_info *t, const kc_partition_info *p, kc_reassignment *move) {
    size_t left = 0;
    for (size_t i = 0; kc_reassignment_list_get(v->moves, i, move) == KC_OK; i++) {
        if (move->partition != p->partition || strcmp(move->topic, t->name) != 0) continue;
        for (size_t k = 0; k < move->adding_count; k++) left += !cli_has_id(p->isr, p->isr_count, move->adding[k]);
        return left;
    }
    *move = (kc_reassignment){0};
    return 0;
}

/* Its own word, since metadata does not tell. */
static bool is_leaders_disk_full(struct cli_view *v, const kc_topic_info *t, const kc_partition_info *p) {
    return cli_view_is_up(v, p->leader) && replica_of(v, p->leader, t->name, p->partition).disk == DISK_FULL;
}

enum cli_state cli_view_partition(struct cli_view *v, const kc_topic_info *t, const kc_partition_info *p, char *text, size_t size) {
    struct line l = {text, size, 0};
    kc_reassignment move = {0};
    if (size > 0) *text = 0;
    if (p->leader < 0) {
        bool known = p->isr_count > 0; /* who was in sync last may lead without losing anything */
        say(&l, "no leader, nothing is served");
        say_waiting(&l, v, t, p, known ? p->isr : p->replicas, known ? p->isr_count : p->replica_count, true);
        return CLI_OFFLINE;
    }
    if (p->err < 0) { /* no answer at all: what metadata says of it may be old */
        say(&l, "the leader, broker %d, does not answer: %s", (int)p->leader, kc_err_text(p->err));
        return CLI_OFFLINE;
    }
    if (is_leaders_disk_full(v, t, p)) {
        say(&l, "the disk of the leader, broker %d, is full, writes refused", (int)p->leader);
        return CLI_READ_ONLY;
    }
    if (p->isr_count < p->replica_count) {
        int32_t min = min_isr_of(v, t->name);
        if ((int32_t)p->isr_count < min) {
            say(&l, "below min.insync.replicas (%zu of %d in sync), writes refused", p->isr_count, (int)min);
            say_waiting(&l, v, t, p, p->replicas, p->replica_count, false);
            return CLI_READ_ONLY;
        }
        bool moves = adding_of(v, t, p, &move) + p->isr_count == p->replica_count;
        if (moves)
            say(&l, "being moved");
        else
            say(&l, "%zu of %zu replicas in sync", p->isr_count, p->replica_count);
        say_waiting(&l, v, t, p, p->replicas, p->replica_count, false);
        return moves ? CLI_MOVING : CLI_DEGRADED;
    }
    if (p->err != KC_OK) {
        say(&l, "the leader, broker %d, did not tell its offsets: %s", (int)p->leader, kc_err_text(p->err));
        return CLI_DEGRADED;
    }
    return CLI_HEALTHY;
}

const char *cli_state_name(enum cli_state s) {
    static const char *const names[] = {"ok", "moving", "degraded", "read only", "offline"};
    return names[s];
}
