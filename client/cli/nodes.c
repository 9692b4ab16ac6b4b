/* nodes.c - the nodes of a cluster as kc cluster shows them: each broker that is up is asked what it has counted and how its disk is, all at once; and
 * what is wrong with a node, in one line. Called by cluster. Calls view.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define ASIDE_US 2000000     /* for what is nice to know */
#define ALMOST_FULL 50       /* parts of a disk of which the last is left */

/* ---- Who there is ---- */

static bool in_quorum(const struct cli_view *v, int32_t id, kc_quorum_replica *out) {
    for (size_t i = 0; kc_quorum_info_get(v->quorum, i, out) == KC_OK; i++)
        if (out->id == id) return true;
    return false;
}

static struct cli_node *find(const struct cli_nodes *n, int32_t id) {
    for (size_t i = 0; i < n->count; i++)
        if (n->v[i].id == id) return &n->v[i];
    return NULL;
}

static void list_brokers(struct cli_nodes *n) {
    kc_broker_info b;
    for (size_t i = 0; kc_cluster_info_broker(n->view->info, i, &b) == KC_OK; i++)
        n->v[n->count++] = (struct cli_node){.id = b.id, .broker = true, .up = !b.fenced, .info = b, .counts_err = KC_UNSUPPORTED};
}

static void list_controllers(struct cli_nodes *n) {
    const struct cli_view *v = n->view;
    kc_quorum_replica r;
    for (size_t i = 0; kc_quorum_info_get(v->quorum, i, &r) == KC_OK; i++) {
        if (!r.voter || find(n, r.id)) continue;
        bool up = r.id == kc_quorum_info_leader(v->quorum) || (r.fetched_ms_ago >= 0 && r.fetched_ms_ago < VOTER_SILENT_MS);
        n->v[n->count++] = (struct cli_node){.id = r.id, .up = up, .counts_err = KC_UNSUPPORTED};
    }
}

static void count_out_of_sync(struct cli_nodes *n) {
    kc_topic_info t;
    kc_partition_info p;
    for (size_t i = 0; kc_cluster_info_topic(n->view->info, i, &t) == KC_OK; i++) {
        for (size_t k = 0; kc_cluster_info_partition(n->view->info, i, k, &p) == KC_OK; k++) {
            for (size_t j = 0; p.isr_count < p.replica_count && j < p.replica_count; j++) {
                struct cli_node *d = cli_has_id(p.isr, p.isr_count, p.replicas[j]) ? NULL : find(n, p.replicas[j]);
                if (d) d->out_of_sync++;
            }
        }
    }
}

/* ---- What they tell ---- */

static void ask_brokers(struct cli_nodes *n) {
    struct cli_session *s = n->view->session;
    kc_op **ops = calloc(2 * n->count + 1, sizeof(void *)); /* counts and disk of each */
    for (size_t i = 0; ops && i < n->count; i++) {
        struct cli_node *d = &n->v[i];
        if (!d->up) continue;
        d->counts_err = kc_admin_node_counts_start(s->client, d->id, ASIDE_US, 0, &ops[2 * i], NULL);
        (void)kc_admin_describe_log_dirs_start(s->client, d->id, ASIDE_US, 0, &ops[2 * i + 1], NULL);
    }
    for (size_t i = 0; ops && i < n->count; i++) {
        struct cli_node *d = &n->v[i];
        if (ops[2 * i]) d->counts_err = cli_wait(s, ops[2 * i], NULL);
        d->counts = kc_op_result_counts(ops[2 * i]);
        kc_op_free(ops[2 * i]);
        struct cli_disk *disk = ops[2 * i + 1] ? cli_view_disk(n->view, d->id) : NULL;
        if (ops[2 * i + 1]) (void)cli_wait(s, ops[2 * i + 1], NULL);
        if (disk) {
            disk->asked = true;
            d->disk = disk->list = kc_op_result_log_dirs(ops[2 * i + 1]);
        }
        kc_op_free(ops[2 * i + 1]);
    }
    free(ops);
}

/* Of controllers that are no brokers only the active one can be reached, through a broker. */
static void ask_controller(struct cli_nodes *n) {
    struct cli_node *d = find(n, kc_quorum_info_leader(n->view->quorum));
    kc_op *op = NULL;
    if (!d || d->broker) return;
    d->counts_err = kc_admin_node_counts_start(n->view->session->client, -1, ASIDE_US, 0, &op, NULL);
    if (op) d->counts_err = cli_wait(n->view->session, op, NULL);
    d->counts = kc_op_result_counts(op);
    kc_op_free(op);
}

bool cli_nodes_open(struct cli_view *v, struct cli_nodes *out) {
    *out = (struct cli_nodes){.view = v};
    out->v = calloc(kc_cluster_info_broker_count(v->info) + 1, sizeof *out->v);
    if (!out->v) return false;
    list_brokers(out);
    ask_brokers(out);
    cli_view_aside(v); /* only now: where the quorum has no leader its answer comes late, and others behind it */
    struct cli_node *grown = realloc(out->v, (out->count + kc_quorum_info_count(v->quorum) + 1) * sizeof *grown);
    if (!grown) return false;
    out->v = grown;
    list_controllers(out);
    ask_controller(out);
    count_out_of_sync(out);
    return true;
}

void cli_nodes_close(struct cli_nodes *n) {
    for (size_t i = 0; i < n->count; i++) kc_count_list_free(n->v[i].counts);
    free(n->v);
    *n = (struct cli_nodes){0};
}

const char *cli_node_quorum(const struct cli_nodes *n, const struct cli_node *d) {
    kc_quorum_replica r;
    if (!in_quorum(n->view, d->id, &r)) return "-";
    return d->id == kc_quorum_info_leader(n->view->quorum) ? "leader" : r.voter ? "voter" : "observer";
}

bool cli_nodes_sum(const struct cli_nodes *n, size_t index, kc_count *out) {
    const kc_count_list *first = NULL;
    kc_count c;
    for (size_t i = 0; i < n->count && !first; i++) first = n->v[i].counts;
    if (kc_count_list_get(first, index, out) != KC_OK) return false;
    out->value = 0;
    for (size_t i = 0; i < n->count; i++)
        for (size_t k = 0; kc_count_list_get(n->v[i].counts, k, &c) == KC_OK; k++)
            if (!strcmp(c.name, out->name)) out->value += c.value;
    return true;
}

/* ---- What is wrong ---- */

static bool disk_problem(const struct cli_node *d, char *text, size_t size) {
    kc_log_dir l;
    for (size_t i = 0; kc_log_dir_list_get(d->disk, i, &l) == KC_OK; i++) {
        if (l.err != KC_OK)
            snprintf(text, size, "%s is offline (%s): its replicas there do not serve", l.path, kc_err_name(l.err));
        else if (l.total_bytes > 0 && l.usable_bytes >= 0 && l.usable_bytes < l.total_bytes / ALMOST_FULL)
            snprintf(text, size, "the disk of %s is almost full: %lld MB left", l.path, (long long)(l.usable_bytes / 1000000));
        else
            continue;
        return true;
    }
    return false;
}

const char *cli_node_problem(const struct cli_nodes *n, const struct cli_node *d, char *text, size_t size) {
    kc_quorum_replica r;
    char ago[32];
    bool known = in_quorum(n->view, d->id, &r);
    int64_t behind = known && r.log_end >= 0 ? kc_quorum_info_high_watermark(n->view->quorum) - r.log_end : 0;
    if (size > 0) *text = 0;
    if (!d->up && known && r.fetched_ms_ago >= 0)
        snprintf(text, size, "down, last seen %s", cli_ago(ago, sizeof ago, r.fetched_ms_ago));
    else if (!d->up)
        snprintf(text, size, "down");
    else if (d->broker && d->counts_err != KC_OK && d->counts_err != KC_UNSUPPORTED)
        snprintf(text, size, "does not answer: %s", kc_err_text(d->counts_err));
    else if (disk_problem(d, text, size))
        return text;
    else if (behind > 0 && r.caught_up_ms_ago > VOTER_SILENT_MS)
        snprintf(text, size, "%lld records of the metadata behind, caught up last %s", (long long)behind, cli_ago(ago, sizeof ago, r.caught_up_ms_ago));
    else if (d->out_of_sync > 0)
        snprintf(text, size, "%zu of its replicas out of sync", d->out_of_sync);
    return text;
}
