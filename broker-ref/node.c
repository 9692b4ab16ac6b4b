/* node.c - one broker node: its parts, its turns, how it starts and how it stops.
 *
 * Called by the shells (node.h). Calls quorum/store and controller (metadata), replica/ (partitions), conn (network).
 * Start: marker and checkpoints -> marker removed -> metadata log -> logs -> ready. Stop: logs, checkpoints -> metadata -> marker.
 * A start that ends at the metadata log, with nothing changed, puts the marker back.
 */
#include <stdarg.h>
#include <stdio.h>

#include "api/fetch_session.h"
#include "api/pid_source.h"
#include "api/produce_guid.h"
#include "channel.h"
#include "fault.h"
#include "forward.h"
#include "group/coordinator.h"
#include "lifecycle.h"
#include "node_priv.h"
#include "replica/follower.h"
#include "replica/guids.h"
#include "quorum/dialer.h"
#include "replica/partitions_priv.h"

enum { PASSES_MAX = 8, READS = 6, FILE_SIZE_MAX = 64 << 20, READ_MARKER = 0, READ_POINTS = 1, READ_LIST = 4, READ_BOOT_ID = 5 };

struct kb_boot {
    struct kb_disk_req mkdir, reads[READS], unmark, sync, mark, boot_id;
    size_t pending;
    char *paths[READS];
    struct kb_found found;
    struct kb_iov mark_iov, boot_id_iov;
    void (*then)(struct kb_node *n, struct kb_now now); /* once the boot id is stored */
    char mark_text[64];
    bool stop_clean;
    bool unclean; /* no marker, and another boot id: the machine went down */
};

void kb_node_fail(struct kb_node *n, const char *fmt, ...) {
    if (n->state == KB_NODE_FAILED) return;
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(n->failure, sizeof(n->failure), fmt, ap);
    va_end(ap);
    if (len < 0) n->failure[0] = 0;
    n->state = KB_NODE_FAILED;
    KB_SAY(n, KB_ERROR, "%s", n->failure);
}

enum kb_node_state kb_node_state(const struct kb_node *n) {
    return n->state;
}
bool kb_node_accepts(const struct kb_node *n) {
    return n->state == KB_NODE_READY ||
           (n->state == KB_NODE_LOADING && n->parts.store && !kb_store_is_single(n->parts.store) && kb_store_is_loaded(n->parts.store));
}
const char *kb_node_failure(const struct kb_node *n) {
    return n->state == KB_NODE_FAILED ? n->failure : NULL;
}
struct kb_parts *kb_node_parts(struct kb_node *n) {
    return &n->parts;
}
int64_t kb_node_broker_epoch(const struct kb_node *n) {
    return n->parts.store ? kb_store_broker_epoch(n->parts.store) : -1;
}
struct kb_disk *kb_node_disk(struct kb_node *n) {
    return &n->parts.disk;
}
int64_t kb_node_deadline(const struct kb_node *n) {
    return kw_list_empty(&n->net.later) ? kw_timers_next(&n->parts.timers) : n->now.mono_us;
}

/* ---- Fault rules ---- */

kw_err kb_node_faults_add(struct kb_node *n, const char *json, int32_t *first, struct kb_fault_wrong *wrong) {
    if (!n->faults) n->faults = kb_faults_new();
    return n->faults ? kb_faults_add(n->faults, json, first, wrong) : KW_ENOMEM;
}

size_t kb_node_faults_clear(struct kb_node *n, int32_t number, struct kb_now now) {
    n->now = now;
    return n->faults ? kb_faults_clear(n->faults, number) : 0;
}

char *kb_node_faults_list(struct kb_node *n) {
    if (!n->faults) n->faults = kb_faults_new();
    return n->faults ? kb_faults_list(n->faults) : NULL;
}

/* ---- Making ---- */

static kw_err read_addresses(struct kb_node *n) {
    struct kb_listener l;
    if (kb_config_listeners(n->parts.config, true, &l, 1) == 0 || !kb_config_is_set(n->parts.config, "advertised.listeners")) return KW_OK;
    n->advertised_host = kw_malloc((size_t)l.host.len + 1);
    if (!n->advertised_host) return KW_ENOMEM;
    memcpy(n->advertised_host, l.host.p, (size_t)l.host.len);
    n->advertised_host[l.host.len] = 0;
    n->advertised_port = l.port;
    return KW_OK;
}

static kw_err make_parts(struct kb_node *n, const struct kb_node_options *o) {
    const char *dir = kb_config_log_dir(o->config);
    if (strchr(dir, ',')) {
        KB_SAY(n, KB_ERROR, "log.dirs=%s: several folders are not offered; name one, and run one broker a disk", dir);
        return KW_EINVAL;
    }
    n->log_dir = kw_memdup(dir, strlen(dir) + 1);
    n->boot_id = o->boot_id ? kw_memdup(o->boot_id, strlen(o->boot_id) + 1) : NULL;
    n->compressor = kw_compressor_new();
    if (!n->log_dir || !n->compressor) return KW_ENOMEM;
    kb_log_env_init(&n->parts.log_env, &n->parts.disk, &n->parts.timers, n->compressor, &n->logger);
    n->parts.log_env.ephemeral = o->ephemeral;
    n->parts.log_env.ahead_ms = o->ahead_ms;
    if (o->open_files_max > 0) n->parts.log_env.open_files_max = o->open_files_max;
    kw_err err = read_addresses(n);
    if (err == KW_OK) err = kb_net_configure(n);
    if (err == KW_OK) err = kb_partitions_new(n);
    if (err == KW_OK) err = kb_coordinator_new(n);
    if (err == KW_OK) err = kb_guids_node_new(n);
    if (err == KW_OK) err = kb_followers_new(n);
    if (err == KW_OK) err = kb_fetch_cache_new(n);
    if (err == KW_OK) err = kb_pid_source_new(n);
    if (err == KW_OK) err = kb_channel_new(n);
    if (err == KW_OK) err = kb_lifecycle_new(n);
    if (err != KW_OK || !o->faults_json) return err;
    struct kb_fault_wrong wrong = {.text = "out of memory"};
    err = kb_node_faults_add(n, o->faults_json, NULL, &wrong);
    if (err != KW_OK) KB_SAY(n, KB_ERROR, "fault rules: %s", wrong.text);
    return err;
}

kw_err kb_node_new(const struct kb_node_options *o, struct kb_node **node) {
    struct kb_node *n = kw_calloc(1, sizeof(*n));
    if (!n) return KW_ENOMEM;
    n->logger = o->logger;
    n->recorder = o->recorder;
    n->port = o->port;
    n->id = (int32_t)kb_config_int(o->config, "node.id");
    n->roles = kb_config_roles(o->config);
    n->parts.config = o->config;
    n->parts.logger = &n->logger;
    n->parts.image = &n->image;
    kw_rng_init(&n->parts.rng, o->seed);
    kw_timers_init(&n->parts.timers);
    kb_disk_init(&n->parts.disk);
    kb_image_init(&n->image);
    kb_net_init(n);
    kb_links_init(&n->links, n->id);
    kw_list_init(&n->forwards);
    kw_err err = make_parts(n, o);
    if (err != KW_OK) {
        kb_node_free(n);
        return err;
    }
    *node = n;
    return KW_OK;
}

static void boot_free(struct kb_boot *b) {
    if (!b) return;
    for (size_t i = 0; i < READS; i++) {
        kw_free(b->paths[i]);
        kw_free(b->reads[i].data);
    }
    kw_free(b);
}

void kb_node_drop(struct kb_node *n) {
    if (n->dropped) return;
    n->dropped = true;
    kw_timers_deinit(&n->parts.timers); /* first: timers lie in what goes below, and cancelling an idle one is nothing */
    kb_channel_free(n);
    kb_lifecycle_free(n);
    kb_dialer_free(n->dialer);
    if (n->parts.controller) kb_controller_free(n->parts.controller); /* before the requests: changes lie in those that the node made of itself */
    kb_net_deinit(n);
    kb_produce_guids_free(n);
    kb_coordinator_free(n);
    kb_fetch_cache_free(n);
    kb_followers_free(n);
    kb_partitions_free(n);
    if (n->parts.store) kb_store_free(n->parts.store);
    kb_pid_source_free(n);
    kb_links_deinit(&n->links);
}

void kb_node_free(struct kb_node *n) {
    if (!n) return;
    kb_node_drop(n);
    for (struct kb_disk_req *r; (r = kb_disk_take(&n->parts.disk));) r->done(r, n->now); /* closes that the shell did not carry out */
    kb_guids_node_free(n);
    if (n->parts.log_env.disk) kb_log_env_deinit(&n->parts.log_env);
    kw_timers_deinit(&n->parts.timers);
    kb_image_deinit(&n->image);
    kb_faults_free(n->faults);
    kw_compressor_free(n->compressor);
    kb_pool_deinit(&n->net.pool);
    boot_free(n->boot);
    kw_free(n->advertised_host);
    kw_free(n->boot_id);
    kw_free(n->log_dir);
    kw_free(n);
}

/* ---- Starting ---- */

static void store_applied(void *ctx, struct kb_now now) {
    struct kb_node *n = ctx;
    n->now = now;
    kb_partitions_applied(n, now);
    kb_lifecycle_applied(n, now);
    kb_followers_applied(n);
    if (n->parts.controller) kb_controller_replayed(n->parts.controller, now);
    if (kb_partitions_opening(n) == 0 && n->parts.controller) kb_controller_applied(n->parts.controller, now);
}

/* The start is through: clients may come. */
static void boot_id_stored(struct kb_disk_req *r, struct kb_now now) {
    struct kb_node *n = r->ctx;
    n->now = now;
    if (r->err != KB_DISK_OK) KB_SAY(n, KB_WARN, "%s cannot be written (%s)", r->path, kb_os_text(r->os_errno));
    n->boot->then(n, now);
}

static void store_boot_id(struct kb_node *n, void (*then)(struct kb_node *n, struct kb_now now)) {
    struct kb_boot *b = n->boot;
    b->then = then;
    b->boot_id_iov = (struct kb_iov){(const uint8_t *)n->boot_id, strlen(n->boot_id)};
    b->boot_id = (struct kb_disk_req){.op = KB_DISK_WRITE_ATOMIC,
                                      .lane = KB_LANE_JOB,
                                      .path = b->paths[READ_BOOT_ID],
                                      .iov = &b->boot_id_iov,
                                      .iov_count = 1,
                                      .done = boot_id_stored,
                                      .ctx = n};
    kb_disk_submit(&n->parts.disk, &b->boot_id);
}

static void boot_id_kept(struct kb_node *n, struct kb_now now) {
    (void)n, (void)now;
}

void kb_node_unfenced(struct kb_node *n, struct kb_now now) {
    (void)now;
    if (n->state != KB_NODE_LOADING) return;
    n->state = KB_NODE_READY;
    KB_SAY(n, KB_INFO, "node %d is ready: %d partitions, metadata offset %lld", n->id, n->image.partition_count,
           (long long)n->image.offset);
    /* Only now: killed before, the next process must register as this one did, and take folders for nobody's as this one did. */
    if (n->lifecycle && n->boot->unclean) store_boot_id(n, boot_id_kept);
}

/* Changes are answered once the logs that they made are open: a client that was told of a topic can use it. */
void kb_node_opened(struct kb_node *n, struct kb_now now) {
    if (n->state == KB_NODE_LOADING) {
        if (n->lifecycle)
            kb_lifecycle_opened(n, now);
        else
            kb_node_unfenced(n, now);
    }
    kb_forward_applied(n, now);
    if (n->parts.controller) kb_controller_applied(n->parts.controller, now);
}

static void load_partitions(struct kb_node *n, struct kb_now now) {
    if (n->state != KB_NODE_LOADING) return;
    if (kb_partitions_load(n, &n->boot->found, now) != KW_OK) kb_node_fail(n, "no memory to load the partitions");
}

static void write_marker(struct kb_node *n, void (*done)(struct kb_disk_req *r, struct kb_now now)) {
    struct kb_boot *b = n->boot;
    int len = snprintf(b->mark_text, sizeof(b->mark_text), "{\"version\":0,\"brokerEpoch\":%lld}",
                       (long long)kb_store_broker_epoch(n->parts.store));
    b->mark_iov = (struct kb_iov){(const uint8_t *)b->mark_text, (size_t)len};
    b->mark = (struct kb_disk_req){.op = KB_DISK_WRITE_ATOMIC,
                                   .lane = KB_LANE_ATOMIC,
                                   .flags = KB_DISK_SYNC_FLAG,
                                   .path = b->paths[READ_MARKER],
                                   .iov = &b->mark_iov,
                                   .iov_count = 1,
                                   .done = done,
                                   .ctx = n};
    kb_disk_submit(&n->parts.disk, &b->mark);
}

static void fail_for_metadata(struct kb_node *n) {
    const char *why = kb_store_failure(n->parts.store);
    kb_node_fail(n, "the metadata log failed: %s", why ? why : "out of memory");
}

static void marked_again(struct kb_disk_req *r, struct kb_now now) {
    struct kb_node *n = r->ctx;
    n->now = now;
    if (r->err != KB_DISK_OK) KB_SAY(n, KB_ERROR, "%s cannot be written again (%s)", r->path, kb_os_text(r->os_errno));
    fail_for_metadata(n);
}

static void store_ready(void *ctx, kw_err err, struct kb_now now) {
    struct kb_node *n = ctx;
    n->now = now;
    if (err != KW_OK) {
        if (n->parts.controller) kb_controller_failed(n->parts.controller, now);
        /* Nothing was changed, so the stop before this start is as clean as it was. Else the next start would take what is damaged for torn, and cut it. */
        if (n->boot->found.clean && !kb_store_has_written(n->parts.store) && !n->parts.log_env.ephemeral)
            write_marker(n, marked_again);
        else
            fail_for_metadata(n);
        return;
    }
    if (n->state != KB_NODE_LOADING) return;
    kb_lifecycle_start(n, now);
    if (n->boot->unclean && !n->lifecycle)
        store_boot_id(n, load_partitions); /* only now: killed before, the next process must come to the same conclusion */
    else
        load_partitions(n, now);
}

static void store_refused(void *ctx, int64_t from, struct kb_now now) {
    struct kb_node *n = ctx;
    n->now = now;
    if (n->parts.controller) kb_controller_refused(n->parts.controller, from, now);
}

static void store_role(void *ctx, bool leads, struct kb_now now) {
    struct kb_node *n = ctx;
    n->now = now;
    if (leads)
        kb_controller_activate(n->parts.controller, now);
    else
        kb_controller_resign(n->parts.controller, now);
}

static void start_store(struct kb_node *n, struct kb_now now) {
    struct kb_store_options so = {.env = &n->parts.log_env,
                                  .node = n,
                                  .config = n->parts.config,
                                  .rng = &n->parts.rng,
                                  .image = &n->image,
                                  .port = n->port,
                                  .clean = n->boot->found.clean,
                                  .unclean = n->boot->unclean,
                                  .applied = store_applied,
                                  .ready = store_ready,
                                  .role = store_role,
                                  .refused = store_refused,
                                  .ctx = n};
    kw_err err = kb_store_new(&so, &n->parts.store);
    if (err == KW_OK) err = kb_dialer_new(n, &n->dialer);
    struct kb_controller_options ko = {.store = n->parts.store,
                                       .image = &n->image,
                                       .config = n->parts.config,
                                       .rng = &n->parts.rng,
                                       .logger = &n->logger,
                                       .timers = &n->parts.timers,
                                       .dial = kb_dialer_dial,
                                       .ctx = n->dialer};
    if (err == KW_OK) err = kb_controller_new(&ko, &n->parts.controller);
    if (err == KW_OK) err = kb_store_start(n->parts.store, now);
    if (err != KW_OK) {
        const char *why = n->parts.store ? kb_store_failure(n->parts.store) : NULL;
        kb_node_fail(n, "the metadata log cannot be started: %s", why ? why : "out of memory");
    }
}

static void unmarked(struct kb_disk_req *r, struct kb_now now) {
    struct kb_node *n = r->ctx;
    n->now = now;
    if (r->err != KB_DISK_OK) {
        kb_node_fail(n, "%s/.kafka_cleanshutdown cannot be removed (%s); make the data folder writable", n->log_dir, kb_os_text(r->os_errno));
        return;
    }
    if (r == &n->boot->unmark && !n->parts.log_env.ephemeral) { /* gone for good before anything is loaded (BL-02) */
        n->boot->sync =
            (struct kb_disk_req){.op = KB_DISK_SYNC_DIR, .lane = KB_LANE_ATOMIC, .path = n->log_dir, .done = unmarked, .ctx = n};
        kb_disk_submit(&n->parts.disk, &n->boot->sync);
        return;
    }
    if (n->state == KB_NODE_LOADING) start_store(n, now);
}

static bool has_metadata(const struct kb_found *f) {
    const char *name = (const char *)f->names;
    for (int64_t i = 0; i < f->name_count; i++, name += strlen(name) + 1)
        if (strcmp(name, "__cluster_metadata-0") == 0) return true;
    return false;
}

/* kill -9 leaves the page cache whole; a machine that went down does not. True: the id is another than the folder's. */
static bool compare_boot_id(struct kb_node *n) {
    struct kb_boot *b = n->boot;
    const struct kb_disk_req *r = &b->reads[READ_BOOT_ID];
    if (!n->boot_id) return false; /* it cannot be told */
    size_t size = strlen(n->boot_id);
    bool known = r->err == KB_DISK_OK && r->result > 0, same = known && (size_t)r->result == size && memcmp(r->data, n->boot_id, size) == 0;
    if (same) return false;
    b->unclean = !b->found.clean && has_metadata(&b->found);
    if (b->unclean)
        KB_SAY(n, KB_WARN, "%s",
               known ? "the machine was started anew since the last run, which did not stop in order: what was written and not yet "
                       "synced may be lost (flush.on.ack=true keeps what was acknowledged)"
                     : "the last run did not stop in order, and whether the machine went down since is not known: it is taken to have");
    return true;
}

static void go_on(struct kb_node *n, struct kb_now now) {
    struct kb_boot *b = n->boot;
    if (n->state != KB_NODE_LOADING) return;
    if (!b->found.clean) {
        start_store(n, now);
        return;
    }
    b->unmark =
        (struct kb_disk_req){.op = KB_DISK_UNLINK, .lane = KB_LANE_ATOMIC, .path = b->paths[READ_MARKER], .done = unmarked, .ctx = n};
    kb_disk_submit(&n->parts.disk, &b->unmark);
}

static void take_reads(struct kb_node *n, struct kb_now now) {
    struct kb_boot *b = n->boot;
    for (size_t i = 0; i < READS; i++) {
        struct kb_disk_req *r = &b->reads[i];
        if (r->err != KB_DISK_OK && r->err != KB_DISK_ENOENT) {
            kb_node_fail(n, "%s cannot be read (%s)", r->path, kb_os_text(r->os_errno));
            return;
        }
    }
    b->found.clean = b->reads[READ_MARKER].err == KB_DISK_OK;
    for (size_t i = 0; i < KB_POINT_COUNT; i++) {
        b->found.files[i] = b->reads[READ_POINTS + i].data;
        b->found.sizes[i] = b->reads[READ_POINTS + i].result;
    }
    b->found.names = b->reads[READ_LIST].data;
    b->found.name_count = b->reads[READ_LIST].result;
    n->start_marked = b->found.clean;
    bool other_boot = compare_boot_id(n);
    n->start_unclean = b->unclean;
    if (other_boot && !b->unclean)
        store_boot_id(n, go_on); /* before the marker goes: killed in between, it still counts as clean */
    else
        go_on(n, now);
}

static void boot_read(struct kb_disk_req *r, struct kb_now now) {
    struct kb_node *n = r->ctx;
    n->now = now;
    if (--n->boot->pending == 0 && n->state == KB_NODE_LOADING) take_reads(n, now);
}

static void made_dir(struct kb_disk_req *r, struct kb_now now) {
    struct kb_node *n = r->ctx;
    struct kb_boot *b = n->boot;
    n->now = now;
    if (r->err != KB_DISK_OK) {
        kb_node_fail(n, "the data folder %s cannot be made (%s); make it, or choose another with --data or log.dirs", n->log_dir,
                     kb_os_text(r->os_errno));
        return;
    }
    b->pending = READS;
    for (size_t i = 0; i < READS; i++) {
        b->reads[i] = (struct kb_disk_req){.op = i == READ_LIST ? KB_DISK_LIST : KB_DISK_READ_FILE,
                                           .lane = KB_LANE_ATOMIC,
                                           .path = b->paths[i],
                                           .length = FILE_SIZE_MAX,
                                           .done = boot_read,
                                           .ctx = n};
        kb_disk_submit(&n->parts.disk, &b->reads[i]);
    }
}

kw_err kb_node_start(struct kb_node *n, struct kb_now now) {
    static const char *const names[READS] = {
        ".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint", "",
        "kbroker.boot-id"};
    KW_ASSERT(n->state == KB_NODE_NEW);
    n->now = now;
    kb_guids_node_started(n, now);
    n->boot = kw_calloc(1, sizeof(*n->boot));
    if (!n->boot) return KW_ENOMEM;
    for (size_t i = 0; i < READS; i++) {
        size_t size = strlen(n->log_dir) + strlen(names[i]) + 2;
        n->boot->paths[i] = kw_malloc(size);
        if (!n->boot->paths[i]) return KW_ENOMEM;
        snprintf(n->boot->paths[i], size, names[i][0] ? "%s/%s" : "%s", n->log_dir, names[i]);
    }
    n->state = KB_NODE_LOADING;
    n->boot->mkdir = (struct kb_disk_req){.op = KB_DISK_MKDIR, .lane = KB_LANE_ATOMIC, .path = n->log_dir, .done = made_dir, .ctx = n};
    kb_disk_submit(&n->parts.disk, &n->boot->mkdir);
    return KW_OK;
}

/* ---- Turns ---- */

void kb_node_disk_done(struct kb_node *n, struct kb_disk_req *r, struct kb_now now) {
    n->now = now;
    if (n->faults) kb_fault_disk(n, r);
    kb_disk_complete(&n->parts.disk, r, now);
}

void kb_node_tick(struct kb_node *n, struct kb_now now) {
    n->now = now;
    kb_lifecycle_turn(n, now);
    kb_followers_turn(n);
    kw_timers_run(&n->parts.timers, now.mono_us);
    (void)kb_net_pump_all(n);
    kb_links_end_of_turn(n);
    if (n->state == KB_NODE_FAILED) return;
    for (int i = 0; i < PASSES_MAX; i++) { /* what is answered meanwhile lets others begin */
        kb_coordinator_run(n, now);
        kb_partitions_flush(n, now);
        kb_followers_flush(n, now);
        if (n->parts.store) kb_store_flush(n->parts.store, now);
        if (!kb_net_pump_all(n)) break;
    }
    kb_net_end_of_turn(n);
}

/* ---- Stopping ---- */

static void stopped(struct kb_node *n) {
    if (n->state == KB_NODE_FAILED) return;
    n->state = KB_NODE_STOPPED;
    KB_SAY(n, KB_INFO, "node %d has stopped%s", n->id, n->boot->stop_clean ? "" : ", not in order: the next start recovers");
}

static void marked(struct kb_disk_req *r, struct kb_now now) {
    struct kb_node *n = r->ctx;
    n->now = now;
    if (r->err != KB_DISK_OK) {
        n->boot->stop_clean = false;
        KB_SAY(n, KB_ERROR, "%s cannot be written (%s)", r->path, kb_os_text(r->os_errno));
    }
    stopped(n);
}

static void store_stopped(void *ctx, struct kb_now now) {
    struct kb_node *n = ctx;
    struct kb_boot *b = n->boot;
    n->now = now;
    if (!b->stop_clean || n->parts.log_env.ephemeral) {
        stopped(n);
        return;
    }
    write_marker(n, marked);
}

static void partitions_stopped(struct kb_node *n, bool clean, struct kb_now now) {
    n->boot->stop_clean = clean;
    if (n->parts.store)
        kb_store_stop(n->parts.store, store_stopped, n, now);
    else
        stopped(n);
}

static void stop_now(struct kb_node *n, struct kb_now now) {
    if (n->state != KB_NODE_READY && n->state != KB_NODE_LOADING) return;
    n->state = KB_NODE_STOPPING;
    kb_net_stop(n);
    kb_coordinator_stop(n, now);
    kb_followers_stop(n);
    kb_partitions_stop(n, partitions_stopped, now);
}

static void resigned(void *ctx, struct kb_now now) {
    struct kb_node *n = ctx;
    n->now = now;
    stop_now(n, now);
}

/* The brokers' partitions are handed over; the quorum's leadership follows, while others still reach this node. */
static void hand_over(struct kb_node *n, struct kb_now now) {
    if (n->state != KB_NODE_READY && n->state != KB_NODE_LOADING) return;
    if (n->parts.store && !kb_store_is_single(n->parts.store))
        kb_store_resign(n->parts.store, resigned, n, now);
    else
        stop_now(n, now);
}

void kb_node_stop(struct kb_node *n, struct kb_now now) {
    n->now = now;
    if (n->state == KB_NODE_NEW) n->state = KB_NODE_STOPPED;
    if (n->leaving) return;
    bool serves = kb_node_accepts(n);
    bool hands_over = n->state == KB_NODE_READY && kb_lifecycle_leave(n, hand_over, now);
    n->leaving = hands_over || (serves && !kb_store_is_single(n->parts.store));
    if (hands_over) return;
    if (n->leaving)
        hand_over(n, now);
    else
        stop_now(n, now);
}
