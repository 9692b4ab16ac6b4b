/* reassign.c - kc reassign: partitions move onto other brokers; a plan before, progress meanwhile, --list and --cancel of what is under way.
 *
 * Calls parts (what is named), plan (where it goes), reassign_watch (until it is there). KIP-455.
 */
#include "reassign.h"

#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {"unchanged", "planned", "moving", "moved", "cancelled", "failed"};

void cli_reassign_fail(struct cli_shift *s, kc_err err, const char *text) {
    s->state = SHIFT_FAILED;
    s->err = err;
    snprintf(s->why, sizeof s->why, "%s", text);
    fprintf(stderr, "kc: reassign: %s partition %d: %s (%s)\n", s->part->topic, (int)s->part->p.partition, text, kc_err_name(err));
}

/* ---- What is shown ---- */

/* Those of a that are not in b. */
static size_t without(const int32_t *a, size_t n, const int32_t *b, size_t m, int32_t *out) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (!cli_has_id(b, m, a[i])) out[count++] = a[i];
    return count;
}

static void print_json(const struct cli_reassign *r) {
    int32_t ids[CLI_SHIFT_MAX];
    for (size_t i = 0; i < r->parts.count; i++) {
        const struct cli_shift *s = &r->v[i];
        cli_json_part(s->part->topic, s->part->p.partition);
        cli_json_ids(stdout, "from", s->now, s->now_count);
        cli_json_ids(stdout, "to", s->then, s->then_count);
        cli_json_ids(stdout, "adding", ids, without(s->then, s->then_count, s->now, s->now_count, ids));
        cli_json_ids(stdout, "removing", ids, without(s->now, s->now_count, s->then, s->then_count, ids));
        printf(",\"state\":\"%s\"", state_names[s->state]);
        if (s->state == SHIFT_FAILED) {
            printf(",\"error\":\"%s\",\"message\":", kc_err_name(s->err));
            cli_json_text(stdout, s->why, strlen(s->why));
        }
        puts("}");
    }
}

static const char *some(char *text, size_t size, const int32_t *v, size_t n) {
    return n > 0 ? cli_ids_text(text, size, v, n) : "-";
}

static void print_plan(const struct cli_reassign *r) {
    static const char *const heads[] = {"topic", "partition", "now", "then", "copied to", "removed from"};
    struct cli_table *table = cli_table_new(heads, sizeof heads / sizeof *heads);
    size_t moves = 0, copies = 0;
    int32_t ids[CLI_SHIFT_MAX];
    char text[256];
    for (size_t i = 0; i < r->parts.count; i++) {
        const struct cli_shift *s = &r->v[i];
        if (s->state == SHIFT_UNCHANGED) continue;
        size_t adding = without(s->then, s->then_count, s->now, s->now_count, ids);
        moves++;
        copies += adding;
        cli_table_add(table, "%s", s->part->topic);
        cli_table_add(table, "%d", (int)s->part->p.partition);
        cli_table_add(table, "%s", some(text, sizeof text, s->now, s->now_count));
        cli_table_add(table, "%s", some(text, sizeof text, s->then, s->then_count));
        cli_table_add(table, "%s", some(text, sizeof text, ids, adding));
        cli_table_add(table, "%s", some(text, sizeof text, ids, without(s->now, s->now_count, s->then, s->then_count, ids)));
    }
    if (moves > 0)
        cli_table_print(table);
    else
        cli_table_free(table);
    printf("%zu of %zu partitions to change, %zu replicas to copy\n", moves, r->parts.count, copies);
    fflush(stdout);
}

/* ---- The plan ---- */

/* Whether a move is of a partition that was named. Lists come in much the order of the command line: *at, 0 at first, is where the last one was. */
static bool is_wanted(const struct cli_reassign *r, const kc_reassignment *m, size_t *at) {
    for (size_t i = 0; i < r->parts.count; i++) {
        size_t k = (*at + i) % r->parts.count;
        if (r->parts.v[k].p.partition != m->partition || strcmp(r->parts.v[k].topic, m->topic) != 0) continue;
        *at = k;
        return true;
    }
    return false;
}

/* What holds the partitions, or shall once the moves that are under way are over. */
static void take_present(struct cli_reassign *r) {
    kc_reassignment m;
    size_t at = 0;
    for (size_t i = 0; i < r->parts.count; i++) {
        struct cli_shift *s = &r->v[i];
        s->part = &r->parts.v[i];
        for (size_t k = 0; k < s->part->p.replica_count && k < CLI_SHIFT_MAX; k++) s->now[s->now_count++] = s->part->p.replicas[k];
    }
    for (size_t i = 0; kc_reassignment_list_get(r->moves, i, &m) == KC_OK; i++)
        if (is_wanted(r, &m, &at)) r->v[at].now_count = without(r->v[at].now, r->v[at].now_count, m.removing, m.removing_count, r->v[at].now);
}

static int take_brokers(struct cli_reassign *r, struct cli_plan_broker *out) {
    for (size_t i = 0; i < r->to_count; i++) {
        kc_broker_info b = {.id = -1};
        for (size_t k = 0; kc_cluster_info_broker(r->info, k, &b) == KC_OK && b.id != r->to[i]; k++) b.id = -1;
        if (b.id < 0) {
            fprintf(stderr, "kc: reassign: there is no broker %d; kc cluster shows which there are\n", (int)r->to[i]);
            return CLI_FAILURE;
        }
        if (b.fenced) fprintf(stderr, "kc: reassign: broker %d is down: what it gets is copied once it is back\n", (int)b.id);
        out[i] = (struct cli_plan_broker){b.id, b.rack};
    }
    return CLI_OK;
}

static int spread(struct cli_reassign *r, const struct cli_plan_broker *brokers) {
    struct cli_move *moves = calloc(r->parts.count + 1, sizeof *moves);
    if (!moves) return cli_fail("reassign", KC_NO_MEMORY, NULL);
    int rc = CLI_OK;
    for (size_t i = 0; i < r->parts.count && rc == CLI_OK; i++) {
        struct cli_shift *s = &r->v[i];
        s->then_count = r->rf > 0 ? (size_t)r->rf : s->now_count;
        moves[i] = (struct cli_move){.now = s->now, .now_count = s->now_count, .then = s->then, .want = s->then_count};
        if (s->then_count <= r->to_count) continue;
        rc = cli_usage_error(r->c, "%s needs %zu replicas, and --to names %zu broker%s: name more, or say --rf N", s->part->topic, s->then_count, r->to_count,
                             r->to_count == 1 ? "" : "s");
    }
    if (rc == CLI_OK && cli_plan(moves, r->parts.count, brokers, r->to_count) != 0) rc = cli_fail("reassign", KC_NO_MEMORY, NULL);
    free(moves);
    return rc;
}

static int place_as_told(struct cli_reassign *r) {
    if ((int64_t)r->parts.count != r->told_partitions)
        return cli_usage_error(r->c, "--replicas is for %lld partition%s, and %zu are named", (long long)r->told_partitions, r->told_partitions == 1 ? "" : "s",
                               r->parts.count);
    for (size_t i = 0; i < r->parts.count; i++) {
        r->v[i].then_count = (size_t)r->rf;
        memcpy(r->v[i].then, r->told + i * (size_t)r->rf, (size_t)r->rf * sizeof *r->told);
    }
    return CLI_OK;
}

static int make_plan(struct cli_reassign *r) {
    struct cli_plan_broker brokers[CLI_SHIFT_MAX];
    int rc = take_brokers(r, brokers);
    if (rc == CLI_OK) take_present(r);
    if (rc == CLI_OK) rc = r->told ? place_as_told(r) : spread(r, brokers);
    for (size_t i = 0; rc == CLI_OK && i < r->parts.count; i++) {
        struct cli_shift *s = &r->v[i];
        bool same = s->then_count == s->now_count && !memcmp(s->then, s->now, s->now_count * sizeof *s->now);
        s->state = same ? SHIFT_UNCHANGED : SHIFT_PLANNED;
    }
    return rc;
}

/* ---- Carried out ---- */

/* Those of this state begin, or (cancel) end where they are. */
static int submit(struct cli_reassign *r, enum cli_shift_state of, bool cancel) {
    kc_partition_item *items = calloc(r->parts.count + 1, sizeof *items);
    struct cli_shift **which = calloc(r->parts.count + 1, sizeof(void *));
    kc_admin_result *results = NULL;
    kc_error *error = NULL;
    kc_op *op = NULL;
    size_t n = 0, count = 0;
    kc_err err = items && which ? KC_OK : KC_NO_MEMORY;
    for (size_t i = 0; err == KC_OK && i < r->parts.count; i++) {
        struct cli_shift *s = &r->v[i];
        if (s->state != of) continue;
        which[n] = s;
        items[n++] = (kc_partition_item){
            .topic = s->part->topic, .partition = s->part->p.partition, .replicas = cancel ? NULL : s->then, .replica_count = cancel ? 0 : s->then_count};
    }
    if (err == KC_OK) err = kc_admin_alter_reassignments_start(r->s.client, items, sizeof *items, n, 0, 0, &op, &error);
    int rc = cli_wait_results(&r->s, "reassign", err, op, error, &results, &count);
    for (size_t i = 0; i < count && i < n; i++) {
        if (results[i].err == KC_OK) {
            which[i]->state = cancel ? SHIFT_CANCELLED : SHIFT_MOVING;
            continue;
        }
        cli_reassign_fail(which[i], results[i].err, results[i].message);
        rc = CLI_FAILURE;
    }
    free(results);
    free(items);
    free(which);
    kc_op_free(op);
    return rc;
}

static int move(struct cli_reassign *r) {
    int rc = make_plan(r);
    if (rc != CLI_OK) return rc;
    size_t planned = 0;
    for (size_t i = 0; i < r->parts.count; i++) planned += r->v[i].state == SHIFT_PLANNED;
    if (!r->json) print_plan(r);
    if (r->dry || planned == 0) {
        if (r->json) print_json(r);
        return CLI_OK;
    }
    rc = submit(r, SHIFT_PLANNED, false);
    bool any = false;
    for (size_t i = 0; i < r->parts.count; i++) any = any || r->v[i].state == SHIFT_MOVING;
    if (any && !r->no_wait && cli_reassign_watch(r) != CLI_OK) rc = CLI_FAILURE;
    if (any && r->no_wait && !r->json) puts("begun; kc reassign --list shows how far it is");
    if (r->json && any) print_json(r);
    return rc;
}

/* ---- What is under way ---- */

static int list(struct cli_reassign *r, struct cli_view *view) {
    static const char *const heads[] = {"topic", "partition", "replicas", "copied to", "removed from", "state"};
    struct cli_table *table = r->json ? NULL : cli_table_new(heads, sizeof heads / sizeof *heads);
    kc_reassignment m;
    size_t shown = 0, at = 0;
    for (size_t i = 0; kc_reassignment_list_get(view->moves, i, &m) == KC_OK; i++) {
        char problem[512] = "", text[256];
        if (!is_wanted(r, &m, &at)) continue;
        const struct cli_part *part = &r->parts.v[at];
        kc_topic_info t = {.name = part->topic};
        (void)cli_view_partition(view, &t, &part->p, problem, sizeof problem);
        shown++;
        if (r->json) {
            cli_json_part(m.topic, m.partition);
            cli_json_ids(stdout, "replicas", m.replicas, m.replica_count);
            cli_json_ids(stdout, "adding", m.adding, m.adding_count);
            cli_json_ids(stdout, "removing", m.removing, m.removing_count);
            printf(",\"problem\":");
            cli_json_text(stdout, problem, strlen(problem));
            puts("}");
            continue;
        }
        cli_table_add(table, "%s", m.topic);
        cli_table_add(table, "%d", (int)m.partition);
        cli_table_add(table, "%s", some(text, sizeof text, m.replicas, m.replica_count));
        cli_table_add(table, "%s", some(text, sizeof text, m.adding, m.adding_count));
        cli_table_add(table, "%s", some(text, sizeof text, m.removing, m.removing_count));
        cli_table_add(table, "%s", *problem ? problem : "about to be done");
    }
    if (shown > 0 && table)
        cli_table_print(table);
    else
        cli_table_free(table);
    if (shown == 0 && !r->json) puts("no partition is being moved");
    return CLI_OK;
}

static int cancel(struct cli_reassign *r) {
    kc_reassignment m;
    size_t n = 0, at = 0;
    for (size_t i = 0; i < r->parts.count; i++) r->v[i].part = &r->parts.v[i];
    for (size_t i = 0; kc_reassignment_list_get(r->moves, i, &m) == KC_OK; i++) {
        if (!is_wanted(r, &m, &at)) continue;
        r->v[at].state = SHIFT_MOVING;
        n++;
    }
    if (n == 0) {
        if (!r->json) puts("no partition is being moved");
        return CLI_OK;
    }
    int rc = submit(r, SHIFT_MOVING, true);
    for (size_t i = 0; i < r->parts.count; i++) {
        const struct cli_shift *s = &r->v[i];
        if (s->state != SHIFT_CANCELLED) continue;
        if (r->json) {
            cli_json_part(s->part->topic, s->part->p.partition);
            printf(",\"state\":\"%s\"}\n", state_names[s->state]);
        } else {
            printf("%s partition %d stays where it was\n", s->part->topic, (int)s->part->p.partition);
        }
    }
    return rc;
}

/* ---- The command ---- */

enum what { MOVE, LIST, CANCEL };

static bool knows_all(const struct cli_reassign *r, const kc_cluster_info *info) {
    for (size_t i = 0; i < r->to_count; i++) {
        kc_broker_info b = {.id = -1};
        for (size_t k = 0; kc_cluster_info_broker(info, k, &b) == KC_OK && b.id != r->to[i]; k++) b.id = -1;
        if (b.id < 0) return false;
    }
    return true;
}

/* The broker that is asked may not have heard yet of one that has just been added: it is asked again for a second. */
static kc_err look(struct cli_reassign *r, struct cli_view *view, kc_error **error) {
    for (int tries = 0;; tries++) {
        kc_err err = cli_view_open(&r->s, NULL, view, error);
        if (err == KC_OK && !view->moves) err = view->moves_err;
        if (err != KC_OK || tries == 5 || knows_all(r, view->info)) return err;
        cli_view_close(view);
        cli_pace(cli_now_us(), 1, 5);
    }
}

static int run(struct cli_reassign *r, enum what what, const char *const *words, int count) {
    kc_error *error = NULL;
    struct cli_view view = {0};
    int rc = cli_session_open(&r->s);
    if (rc != CLI_OK) return rc;
    kc_err err = look(r, &view, &error);
    rc = err == KC_OK ? cli_parts_find(r->c, view.info, words, count, &r->parts) : cli_fail("reassign", err, error);
    r->info = view.info;
    r->moves = view.moves;
    r->v = calloc(r->parts.count + 1, sizeof *r->v);
    if (rc == CLI_OK && !r->v) rc = cli_fail("reassign", KC_NO_MEMORY, NULL);
    if (rc == CLI_OK) rc = what == LIST ? list(r, &view) : what == CANCEL ? cancel(r) : move(r);
    free(r->v);
    cli_parts_free(&r->parts);
    cli_view_close(&view);
    cli_session_close(&r->s);
    return rc;
}

/* -1: go on. */
static int check_move(struct cli_reassign *r, const char *to, const char *replicas, int words) {
    const struct cli_command *c = r->c;
    if (words == 0) return cli_usage_error(c, "say which: TOPIC or TOPIC:PARTITION");
    if (!to == !replicas) return cli_usage_error(c, "say where to: either --to ID,... or --replicas ID:ID,...");
    if (to && (r->to_count = cli_ids(to, r->to, CLI_SHIFT_MAX)) == 0)
        return cli_usage_error(c, "--to takes brokers' ids, each once, such as 1,2,3 (at most %d), not '%s'", CLI_SHIFT_MAX, to);
    if (!replicas) return -1;
    if (r->rf > 0) return cli_usage_error(c, "--replicas says what --rf would: give it alone");
    static int32_t told[CLI_REPLICAS_MAX];
    if (!cli_replicas(replicas, told, &r->told_partitions, &r->rf) || r->rf > CLI_SHIFT_MAX)
        return cli_usage_error(c, "--replicas wants as many broker ids for each partition, such as 0:1:2,1:2:0, not '%s'", replicas);
    r->told = told;
    for (int64_t i = 0; i < r->told_partitions * r->rf; i++) /* each broker that is named, once, to see that it is there */
        if (!cli_has_id(r->to, r->to_count, told[i]) && r->to_count < CLI_SHIFT_MAX) r->to[r->to_count++] = told[i];
    return -1;
}

int cmd_reassign(int argc, char **argv) {
    struct cli_reassign r = {0};
    const char *to = NULL, *replicas = NULL;
    bool lists = false, cancels = false, all = false;
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&r.s),
        {0, "to", "ID,...", "onto these brokers, in even shares; what is there stays", CLI_TEXT, &to},
        {0, "rf", "N", "with --to: replicas of each partition (default: as many as now)", CLI_COUNT, &r.rf},
        {0, "replicas", "ID:ID,...", "brokers of each partition named, in place of --to, as 0:1:2,1:2:0; the preferred leader first", CLI_TEXT, &replicas},
        {0, "dry-run", NULL, "only show the plan", CLI_FLAG, &r.dry},
        {0, "no-wait", NULL, "only begin, do not wait until all is moved", CLI_FLAG, &r.no_wait},
        {0, "list", NULL, "show what is being moved", CLI_FLAG, &lists},
        {0, "cancel", NULL, "stop moves: partitions stay where they were", CLI_FLAG, &cancels},
        {0, "all", NULL, "with --cancel: all moves", CLI_FLAG, &all},
        {0, "json", NULL, "print JSON, a line a partition", CLI_FLAG, &r.json},
    };
    const struct cli_command c = {"reassign",
                                  "TOPIC[:PARTITION]...",
                                  "Moves partitions onto other brokers.",
                                  "Shows the plan, begins, and waits until all is copied; records go on being written and read meanwhile. Ctrl-C ends the "
                                  "waiting, not the move.",
                                  0,
                                  CLI_OPERANDS_MAX,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc reassign orders --to 0,1,2,3 --dry-run\n"
                                  "  kc reassign orders:0 orders:1 --replicas 3:1:2,1:2:3\n"
                                  "  kc reassign --list\n"
                                  "  kc reassign --cancel orders\n"};
    struct cli_operands o;
    int rc = cli_parse(&c, argc, argv, &o);
    if (rc >= 0) return rc;
    r.c = &c;
    bool moves = to || replicas || r.rf > 0 || r.dry || r.no_wait;
    if (lists + cancels + moves > 1) return cli_usage_error(&c, "%s goes alone", lists ? "--list" : "--cancel");
    if (all && (!cancels || o.count > 0)) return cli_usage_error(&c, "--all goes with --cancel, without topics");
    if (cancels && !all && o.count == 0) return cli_usage_error(&c, "say which: TOPIC, TOPIC:PARTITION, or --all");
    if (r.rf > CLI_SHIFT_MAX) return cli_usage_error(&c, "--rf is at most %d", CLI_SHIFT_MAX);
    if (!lists && !cancels && (rc = check_move(&r, to, replicas, o.count)) >= 0) return rc;
    if ((rc = cli_parts_check(&c, o.v, o.count)) >= 0) return rc;
    return run(&r, lists ? LIST : cancels ? CANCEL : MOVE, o.v, o.count);
}
