/* store_load.c - from a folder to a current image: one job reads and writes the small files, then the log is opened and replayed behind the
 * newest valid snapshot. Whatever is missing or corrupt stops the start with a text; nothing is ever guessed or dropped.
 *
 * Called by store.c. Calls the log, snapshot.c, replay.c, store_files.c; store_boot.c at the end.
 */
#include <stdio.h>
#include <stdlib.h>

#include "log/epochs.h"
#include "raft.h"
#include "store_priv.h"

#define SMALL_FILE_MAX (64u << 10)

/* ---- The job, on a lane's thread ---- */

#define WHY(l, ...) snprintf((l)->why, sizeof((l)->why), __VA_ARGS__)

static void join(char *out, size_t size, const char *dir, const char *name) {
    snprintf(out, size, "%s/%s", dir, name);
}

/* The whole file in memory of kw_malloc, one byte longer than *n. */
static enum kb_disk_err read_file(struct kb_fs *fs, const char *path, int64_t max, uint8_t **data, size_t *n) {
    void *f;
    int64_t size;
    enum kb_disk_err err = fs->ops->open(fs, path, 0, &f, &size);
    if (err) return err;
    uint8_t *p = size > max ? NULL : kw_malloc((size_t)size + 1);
    err = size > max ? KB_DISK_EFBIG : p ? KB_DISK_OK : KB_DISK_ENOMEM;
    size_t at = 0, got = 1;
    while (!err && at < (size_t)size && got) {
        err = fs->ops->read(fs, f, (int64_t)at, p + at, (size_t)size - at, &got);
        if (!err) at += got;
    }
    fs->ops->close(fs, f);
    if (err) {
        kw_free(p);
        return err;
    }
    *data = p;
    *n = at;
    return KB_DISK_OK;
}

/* A small file on its way: written aside, then synced, then in its place. All of a start's files go each step together, since one commit of
 * the file system's journal then serves them all. */
struct small_file {
    const char *dir, *name;
    struct kw_out bytes; /* empty: there is nothing to write */
    bool sync;
    void *f;
    char path[4200], tmp[4220];
};

static enum kb_disk_err write_aside(struct kb_fs *fs, struct small_file *s) {
    int64_t size;
    join(s->path, sizeof(s->path), s->dir, s->name);
    snprintf(s->tmp, sizeof(s->tmp), "%s.tmp", s->path);
    enum kb_disk_err err = fs->ops->open(fs, s->tmp, KB_DISK_CREATE, &s->f, &size);
    if (err) {
        s->f = NULL;
        return err;
    }
    if (size > 0) err = fs->ops->truncate(fs, s->f, 0);
    return err ? err : fs->ops->write(fs, s->f, 0, s->bytes.p, s->bytes.len);
}

static bool failed(struct kb_store_load *l, const char *dir, const char *name, enum kb_disk_err err) {
    if (!err) return false;
    WHY(l, "%s/%s: %s", dir, name, kb_disk_text(err));
    return true;
}

struct found { /* the metadata folder's snapshots, as they are listed: ascending */
    uint8_t *names;
    int64_t count;
    bool has_log;
};

static bool list_folder(struct kb_store_load *l, struct kb_fs *fs, struct found *f) {
    enum kb_disk_err err = fs->ops->list(fs, l->meta_dir, &f->names, &f->count);
    if (failed(l, l->meta_dir, "", err)) return false;
    const char *p = (const char *)f->names;
    for (int64_t i = 0; i < f->count; i++, p += strlen(p) + 1) {
        size_t n = strlen(p);
        if (n > 4 && strcmp(p + n - 4, ".log") == 0) f->has_log = true;
    }
    return true;
}

/* The newest valid snapshot is kept in memory; of the one before it only that it is valid. */
static bool load_snapshots(struct kb_store_load *l, struct kb_fs *fs, const struct found *f) {
    const char **names = kw_calloc((size_t)f->count + 1, sizeof(*names));
    if (!names) return !failed(l, l->meta_dir, "", KB_DISK_ENOMEM);
    const char *p = (const char *)f->names;
    for (int64_t i = 0; i < f->count; i++, p += strlen(p) + 1) names[i] = p;
    for (int64_t i = f->count; i-- > 0 && l->previous_end < 0 && !l->why[0];) {
        int64_t end;
        int32_t epoch;
        char path[4200];
        uint8_t *data;
        size_t n;
        if (!kb_snapshot_name_parse(names[i], &end, &epoch)) continue;
        join(path, sizeof(path), l->meta_dir, names[i]);
        enum kb_disk_err err = read_file(fs, path, KB_SNAPSHOT_SIZE_MAX, &data, &n);
        if (err && err != KB_DISK_EIO) {
            failed(l, l->meta_dir, names[i], err);
        } else if (err || !kb_snapshot_whole(data, n)) {
            if (!l->corrupt[0]) snprintf(l->corrupt, sizeof(l->corrupt), "%s", names[i]);
            if (!err) kw_free(data);
        } else if (l->snapshot_end < 0) {
            l->snapshot = data;
            l->snapshot_size = n;
            l->snapshot_end = end;
            l->snapshot_epoch = epoch;
        } else {
            kw_free(data);
            l->previous_end = end;
            l->previous_epoch = epoch;
        }
    }
    kw_free(names);
    return !l->why[0];
}

/* Who the folder belongs to; the bytes of a new file when it is new. */
static bool load_properties(struct kb_store_load *l, struct kb_fs *fs, bool has_metadata, struct kw_out *bytes) {
    char path[4200];
    uint8_t *data;
    size_t n;
    join(path, sizeof(path), l->dir, "meta.properties");
    enum kb_disk_err err = read_file(fs, path, SMALL_FILE_MAX, &data, &n);
    if (!err) {
        kw_err bad = kb_store_properties_read(l, data, n);
        kw_free(data);
        return !bad;
    }
    if (err != KB_DISK_ENOENT) return !failed(l, l->dir, "meta.properties", err);
    if (has_metadata) {
        WHY(l, "%s/meta.properties is missing, but %s has a metadata log: restore the file, or use an empty data folder", l->dir,
            l->meta_dir);
        return false;
    }
    l->fresh = true;
    if (!l->single) return true; /* the cluster's id is asked for first */
    memcpy(l->cluster_id, l->new_cluster_id, sizeof(l->cluster_id));
    err = kb_store_properties_write(bytes, l->node_id, l->cluster_id, l->directory_id) ? KB_DISK_ENOMEM : KB_DISK_OK;
    return !failed(l, l->dir, "meta.properties", err);
}

/* Who votes was agreed on when the file was written: another list may have another majority. */
static bool same_voters(struct kb_store_load *l, const int32_t *v, size_t n) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < l->voter_count; k++) found += v[i] == l->voters[k];
    if (l->rejoin || (found == n && n == l->voter_count)) return true;
    char text[KB_VOTERS_MAX * 12] = "";
    for (size_t i = 0, at = 0; i < n; i++) at += (size_t)snprintf(text + at, sizeof(text) - at, i ? ",%d" : "%d", (int)v[i]);
    WHY(l,
        "%.120s/quorum-state names the voters %s, controller.quorum.voters others: they cannot be exchanged while the quorum has metadata; name "
        "them as they were",
        l->meta_dir, text);
    return false;
}

/* Of several voters: as it was left. None: this node knows nothing of its votes. */
static bool load_state(struct kb_store_load *l, struct kb_fs *fs) {
    char path[4200];
    uint8_t *data;
    size_t n, count;
    int32_t voters[KB_VOTERS_MAX];
    kb_election_none(&l->vote);
    join(path, sizeof(path), l->meta_dir, "quorum-state");
    enum kb_disk_err err = read_file(fs, path, SMALL_FILE_MAX, &data, &n);
    if (err == KB_DISK_ENOENT) return true;
    if (err) return !failed(l, l->meta_dir, "quorum-state", err);
    kw_err bad = kb_store_state_read(data, n, &l->vote, voters, &count);
    kw_free(data);
    if (bad) {
        WHY(l, "%s/quorum-state is corrupt: restore it; without it this voter's votes are not known (controller.quorum.rejoin)", l->meta_dir);
        return false;
    }
    l->has_vote = true;
    return same_voters(l, voters, count);
}

/* The new epoch; it is on the disk before anything is appended in it. */
static bool load_vote(struct kb_store_load *l, struct kb_fs *fs, struct kw_out *bytes) {
    char path[4200];
    uint8_t *data;
    size_t n;
    int32_t stored = 0;
    join(path, sizeof(path), l->meta_dir, "quorum-state");
    enum kb_disk_err err = read_file(fs, path, SMALL_FILE_MAX, &data, &n);
    if (!err) {
        kw_err bad = kb_store_vote_read(data, n, &stored);
        kw_free(data);
        if (bad) {
            WHY(l, "%s/quorum-state is corrupt: restore it, or remove it if this node is its quorum's only member", l->meta_dir);
            return false;
        }
    } else if (err != KB_DISK_ENOENT) {
        return !failed(l, l->meta_dir, "quorum-state", err);
    }
    int32_t known = KW_MAX(stored, l->snapshot_epoch);
    if (known == INT32_MAX) {
        WHY(l, "%s: no epoch comes behind %d, which a snapshot names: remove that snapshot, it is not this quorum's", l->meta_dir, (int)known);
        return false;
    }
    l->epoch = known + 1;
    err = kb_store_vote_write(bytes, l->node_id, l->epoch) ? KB_DISK_ENOMEM : KB_DISK_OK;
    return !failed(l, l->meta_dir, "quorum-state", err);
}

static bool make_folders(struct kb_store_load *l, struct kb_fs *fs) {
    enum kb_disk_err err = fs->ops->mkdir(fs, l->dir);
    if (failed(l, l->dir, "", err)) return false;
    err = fs->ops->mkdir(fs, l->meta_dir);
    return !failed(l, l->meta_dir, "", err);
}

/* Names, durable. Those of a new folder are made so later, beside the first sync of its log: nothing is said before that. */
static enum kb_disk_err sync_names(const struct kb_store_load *l, struct kb_fs *fs) {
    if (l->fresh && l->single) return KB_DISK_OK;
    enum kb_disk_err err = fs->ops->sync_dir(fs, l->meta_dir);
    return err ? err : fs->ops->sync_dir(fs, l->dir);
}

static bool store_small_files(struct kb_store_load *l, struct kb_fs *fs, struct small_file *files, size_t count) {
    enum kb_disk_err err = KB_DISK_OK;
    size_t i;
    for (i = 0; i < count && !err; i++)
        if (files[i].bytes.len) err = write_aside(fs, &files[i]);
    for (size_t k = 0; k < count && !err && fs->ops->start_sync; k++)
        if (files[k].f && files[k].sync && !l->ephemeral) fs->ops->start_sync(fs, files[k].f); /* one commit of the journal for all */
    for (i = err ? i : 0; i < count && !err; i++)
        if (files[i].f && files[i].sync && !l->ephemeral) err = fs->ops->sync(fs, files[i].f);
    for (i = err ? i : 0; i < count && !err; i++)
        if (files[i].f) err = fs->ops->rename(fs, files[i].tmp, files[i].path);
    for (size_t k = 0; k < count; k++)
        if (files[k].f) fs->ops->close(fs, files[k].f);
    if (failed(l, files[i ? i - 1 : 0].dir, files[i ? i - 1 : 0].name, err)) return false;
    return l->ephemeral || !failed(l, l->meta_dir, "", sync_names(l, fs));
}

static void load_job(void *arg, struct kb_fs *fs) {
    struct kb_store_load *l = arg;
    struct found f = {0};
    enum { VOTE, PROPERTIES, TOPIC_ID, FILES };
    struct small_file files[FILES] = {
        {.dir = l->meta_dir, .name = "quorum-state", .sync = true},
        {.dir = l->dir, .name = "meta.properties", .sync = true},
        {.dir = l->meta_dir, .name = "partition.metadata"}}; /* the last is for Apache Kafka's tools: everyone knows the id */
    for (size_t i = 0; i < FILES; i++) kw_out_init(&files[i].bytes);
    if (make_folders(l, fs) && list_folder(l, fs, &f) && load_snapshots(l, fs, &f) &&
        load_properties(l, fs, f.has_log || l->snapshot_end > 0, &files[PROPERTIES].bytes) &&
        (l->single ? load_vote(l, fs, &files[VOTE].bytes) : load_state(l, fs))) {
        if (l->fresh) kw_out_bytes(&files[TOPIC_ID].bytes, "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", 43);
        if (!failed(l, l->meta_dir, "", files[TOPIC_ID].bytes.err ? KB_DISK_ENOMEM : KB_DISK_OK)) store_small_files(l, fs, files, FILES);
    }
    for (size_t i = 0; i < FILES; i++) kw_out_deinit(&files[i].bytes);
    kw_free(f.names);
}

/* ---- Replay, in the core ---- */

/* Everything is read: the epoch must be above all that the log knows before anything is appended. */
static void vote_done(struct kb_disk_req *r, struct kb_now now) {
    struct kb_store *s = r->ctx;
    kw_out_deinit(&s->vote_bytes);
    if (r->err) {
        kb_store_fail(s, now, "%s: %s", s->vote_path, kb_disk_text(r->err));
        return;
    }
    kb_store_boot(s, now);
}

static void replayed(struct kb_store *s, struct kb_now now) {
    int32_t last = KW_MAX(kb_epochs_latest(s->log->epochs), s->o.image->epoch);
    s->epoch = s->load.epoch;
    if (s->epoch > last) {
        kb_store_boot(s, now);
        return;
    }
    if (last == INT32_MAX) {
        kb_store_fail(s, now, "%s: no epoch comes behind %d, which the log names: it is damaged, restore it from a copy", s->load.meta_dir,
                      (int)last);
        return;
    }
    kb_say(s->o.env->logger, KB_WARN, "%s: the log knows epoch %d, quorum-state an older one; going on above both", s->load.meta_dir,
           (int)last);
    s->epoch = last + 1;
    size_t n = strlen(s->load.meta_dir) + sizeof("/quorum-state");
    s->vote_path = kw_malloc(n);
    kw_out_init(&s->vote_bytes);
    if (!s->vote_path || kb_store_vote_write(&s->vote_bytes, s->load.node_id, s->epoch)) {
        kb_store_fail(s, now, "%s: out of memory", s->load.meta_dir);
        return;
    }
    snprintf(s->vote_path, n, "%s/quorum-state", s->load.meta_dir);
    kb_store_write_file(s, &s->vote, s->vote_path, &s->vote_bytes, vote_done, s);
}

/* ---- Between the job and the replay ---- */

/* Where others vote, what is committed is not known yet: the log is not applied before a leader tells. */
static void go_on(struct kb_store *s, struct kb_now now) {
    if (s->raft) {
        s->state = KB_STORE_READY;
        if (!s->naming) kb_raft_loaded(s->raft, now);
    } else {
        kb_store_replay(s, s->log->leo, replayed, now);
    }
}

/* The snapshot of another leader's log had just got its name when the process ended: what this log has there is not what was committed. */
static bool disagrees(const struct kb_store *s, int64_t covered) {
    if (!s->raft || covered == 0 || covered <= s->log->start) return false;
    return kb_epochs_at(s->log->epochs, covered - 1) != s->load.snapshot_epoch;
}

static void reset_done(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    struct kb_store *s = ctx;
    (void)log;
    s->opening = false;
    if (err) {
        kb_store_fail(s, now, "%s: the log could not be brought behind its snapshot: %s", s->load.meta_dir, s->log->failure);
        return;
    }
    go_on(s, now);
}

static void opened(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    struct kb_store *s = ctx;
    struct kb_store_load *l = &s->load;
    s->opening = false;
    if (err) {
        kb_store_fail(s, now, "%s: the metadata log could not be opened (see above)", l->meta_dir);
        return;
    }
    s->log = log;
    int64_t covered = KW_MAX(l->snapshot_end, 0); /* the image holds what is below */
    if (log->start > covered) {
        kb_store_fail(s, now,
                      "%s: the metadata log begins at offset %lld and no valid snapshot reaches it%s%s: restore the snapshot from a copy; "
                      "the node does not serve, so that no partition is taken for deleted",
                      l->meta_dir, (long long)log->start, l->corrupt[0] ? "; corrupt: " : "", l->corrupt);
        return;
    }
    if (log->leo < covered || disagrees(s, covered)) { /* committed once, lost by the log, kept by the snapshot */
        kb_say(s->o.env->logger, KB_WARN,
               "%s: the metadata log ends at offset %lld, below its snapshot at %lld or not in agreement with it; it starts anew there", l->meta_dir,
               (long long)log->leo, (long long)covered);
        s->opening = true;
        err = kb_log_reset(log, covered, reset_done, s, now);
        if (err) {
            s->opening = false;
            kb_store_fail(s, now, "%s: the log could not be brought behind its snapshot", l->meta_dir);
        }
        return;
    }
    go_on(s, now);
}

static kw_err open_log(struct kb_store *s) {
    struct kb_store_load *l = &s->load;
    int64_t between = kb_config_int(s->o.config, "metadata.log.max.record.bytes.between.snapshots");
    s->log_config = (struct kb_log_config){
        /* Whole segments go when snapshots cut the log, so none should outgrow what lies between two snapshots by much. */
        .segment_bytes = KW_MIN(kb_config_int(s->o.config, "metadata.log.segment.bytes"), KW_MAX(between, 1 << 20)),
        .segment_ms = INT64_MAX,
        .index_interval_bytes = 4096,
        .segment_index_bytes = 10 << 20,
        .retention_ms = -1,
        .retention_bytes = -1,
        .file_delete_delay_ms = 60000,
        .flush_on_ack = true,
        .flush_messages = INT64_MAX,
        .flush_ms = INT64_MAX,
        .producer_expiration_ms = 86400000,
    };
    struct kb_log_open o = {
        .env = s->o.env,
        .config = &s->log_config,
        .owner = s->owner,
        .dir = l->meta_dir,
        .create = true,
        .clean = s->o.clean,
        .whole = true,
        /* Of several voters: what stands before the only snapshot tells whether the log agrees with it. */
        .start_checkpoint = l->previous_end >= 0 || s->raft ? l->previous_end : l->snapshot_end,
        .recovery_point = l->snapshot_end, /* what a snapshot holds was synced in the log before */
        .done = opened,
        .ctx = s,
    };
    s->opening = true;
    kw_err err = kb_log_open(&o);
    if (err) s->opening = false;
    return err;
}

/* The data folder's own name, which lies in its parent: in which start the folder was made is not known. */
static void name_synced(struct kb_disk_req *r, struct kb_now now) {
    struct kb_store *s = r->ctx;
    s->naming = false;
    if (r->err)
        kb_store_fail(s, now, "%s: %s", s->name_path, kb_disk_text(r->err));
    else if (s->raft && s->state == KB_STORE_READY)
        kb_raft_loaded(s->raft, now);
    else if (!s->raft)
        kb_store_committed(s, now);
}

static kw_err sync_name(struct kb_store *s) {
    const char *dir = s->load.dir, *slash = strrchr(dir, '/');
    if (s->o.env->ephemeral) return KW_OK;
    size_t n = slash ? (size_t)KW_MAX(slash - dir, 1) : 1;
    s->name_path = kw_malloc(n + 1);
    if (!s->name_path) return KW_ENOMEM;
    memcpy(s->name_path, slash ? dir : ".", n);
    s->name_path[n] = 0;
    s->name = (struct kb_disk_req){.op = KB_DISK_SYNC_DIR, .lane = KB_LANE_ATOMIC, .path = s->name_path, .done = name_synced, .ctx = s};
    s->naming = true;
    kb_disk_submit(s->o.env->disk, &s->name);
    return KW_OK;
}

static void load_done(struct kb_disk_req *r, struct kb_now now) {
    struct kb_store *s = r->ctx;
    struct kb_store_load *l = &s->load;
    if (l->why[0]) {
        kb_store_fail(s, now, "%s", l->why);
        return;
    }
    s->snapshot_end = l->snapshot_end;
    s->snapshot_epoch = l->snapshot_epoch;
    s->snapshot_previous = l->previous_end;
    s->snapshot_previous_epoch = l->previous_epoch;
    if (l->corrupt[0]) kb_say(s->o.env->logger, KB_ERROR, "%s/%s is corrupt: it is not used", l->meta_dir, l->corrupt);
    if (l->snapshot) {
        char why[200];
        /* What Apache Kafka's formatting left before the log's first record is the first leader's to say, or nodes would not have the same. */
        bool first = s->raft && l->snapshot_end == 0;
        kw_err err = kb_snapshot_load(l->snapshot, l->snapshot_size, l->snapshot_end, l->snapshot_epoch, l->single ? l->node_id : -1,
                                      s->o.env->compressor, first ? &s->bootstrap : s->o.image, why, sizeof(why));
        if (first) s->snapshot_end = -1;
        kw_free(l->snapshot);
        l->snapshot = NULL;
        if (err) {
            kb_store_fail(s, now, "%s: the snapshot at %lld cannot be used: %s", l->meta_dir, (long long)l->snapshot_end, why);
            return;
        }
    }
    s->replay.next = KW_MAX(l->snapshot_end, 0);
    if (sync_name(s) || open_log(s)) kb_store_fail(s, now, "%s: out of memory", l->meta_dir);
}

kw_err kb_store_load_start(struct kb_store *s) {
    struct kb_store_load *l = &s->load;
    l->snapshot_end = l->previous_end = -1;
    l->ephemeral = s->o.env->ephemeral;
    l->req = (struct kb_disk_req){.op = KB_DISK_JOB, .lane = KB_LANE_JOB, .job = load_job, .job_arg = l, .done = load_done, .ctx = s};
    kb_disk_submit(s->o.env->disk, &l->req);
    return KW_OK;
}
