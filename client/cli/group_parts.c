/* group_parts.c - see group.h. */
#include "group.h"

#include <stdlib.h>
#include <string.h>

/* ---- Partitions ---- */

struct group_part *group_parts_add(struct group_parts *p, const char *topic, int32_t partition) {
    if (p->count == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 64;
        struct group_part *grown = realloc(p->v, cap * sizeof *grown);
        if (!grown) return NULL;
        p->v = grown;
        p->cap = cap;
    }
    p->v[p->count] = (struct group_part){
        .topic = topic, .partition = partition, .committed = -1, .epoch = -1, .metadata = "", .start = -1, .end = -1, .at = -1};
    return &p->v[p->count++];
}

static int by_place(const void *a, const void *b) {
    const struct group_part *x = a, *y = b;
    int topics = strcmp(x->topic, y->topic);
    return topics != 0 ? topics : x->partition < y->partition ? -1 : x->partition > y->partition;
}

static void join(struct group_part *into, const struct group_part *from) {
    if (from->committed >= 0) {
        into->committed = from->committed;
        into->epoch = from->epoch;
        into->metadata = from->metadata;
    }
    if (from->owner) *(into->owner ? &into->other : &into->owner) = from->owner;
    into->subscribed = into->subscribed || from->subscribed;
}

void group_parts_order(struct group_parts *p) {
    size_t kept = 0;
    if (p->count > 0) qsort(p->v, p->count, sizeof *p->v, by_place);
    for (size_t i = 0; i < p->count; i++) {
        if (kept > 0 && by_place(&p->v[kept - 1], &p->v[i]) == 0)
            join(&p->v[kept - 1], &p->v[i]);
        else
            p->v[kept++] = p->v[i];
    }
    p->count = kept;
}

const struct group_part *group_parts_find(const struct group_parts *p, const char *topic, int32_t partition) {
    const struct group_part key = {.topic = topic, .partition = partition};
    return p->count > 0 ? bsearch(&key, p->v, p->count, sizeof key, by_place) : NULL;
}

void group_parts_free(struct group_parts *p) {
    free(p->v);
    *p = (struct group_parts){0};
}

bool group_parts_committed(struct group_parts *p, const kc_group_offsets *o, size_t group) {
    kc_group_offset at;
    for (size_t i = 0; kc_group_offsets_get(o, group, i, &at) == KC_OK; i++) {
        if (at.err != KC_OK || at.offset < 0) continue;
        struct group_part *part = group_parts_add(p, at.topic, at.partition);
        if (!part) return false;
        part->committed = at.offset;
        part->epoch = at.leader_epoch;
        part->metadata = at.metadata;
    }
    return true;
}

/* ---- Logs ---- */

static kc_err open_log(struct cli_session *s, struct group_log *log, kc_error **error) {
    if (log->consumer) return KC_OK;
    kc_config *config = kc_config_new();
    kc_err err = config ? kc_config_set(config, "isolation.level", "read_uncommitted", error) : KC_NO_MEMORY; /* lag counts all that is stored */
    if (err == KC_OK) err = kc_consumer_new(s->client, config, KC_PROCESSED_EXPLICIT, &log->consumer, error);
    kc_config_free(config);
    return err;
}

void group_log_close(struct group_log *log) {
    if (log->consumer) (void)kc_consumer_close(log->consumer, 1000000, NULL);
    kc_consumer_free(log->consumer);
    log->consumer = NULL;
}

/* What has no answer when the time is up stays without. */
static kc_err look_up(struct cli_session *s, struct group_log *log, kc_topic_partition *v, size_t n, int64_t limit_us, kc_error **error) {
    kc_op *op = NULL;
    kc_error *own = NULL;
    kc_err err = kc_consumer_offsets_start(log->consumer, v, sizeof *v, n, 0, &op, error);
    if (err != KC_OK) return err;
    int64_t until = limit_us > 0 ? cli_now_us() + limit_us : INT64_MAX;
    while (!kc_op_done(op) && !cli_interrupted && cli_now_us() < until) {
        (void)kc_op_wait(op, 100000, NULL);
        cli_session_logs(s);
    }
    bool cut = !kc_op_done(op);
    if (cut) kc_op_cancel(op);
    err = cli_wait(s, op, &own);
    for (size_t i = 0; i < n; i++) v[i].err = KC_TIMED_OUT;
    (void)kc_op_result_offsets(op, v, sizeof *v, n);
    kc_op_free(op);
    for (size_t i = 0; i < n; i++)
        if (v[i].err == KC_CANCELLED) v[i].err = KC_TIMED_OUT;
    kc_error_free(own);
    return err == KC_NO_MEMORY || err == KC_CLOSED || (err == KC_CANCELLED && !cut) || cli_interrupted ? err : KC_OK; /* the rest is each partition's */
}

/* One kind of offset for all that have a leader: into the field at `at`. */
static kc_err ask(struct cli_session *s, struct group_log *log, struct group_parts *p, int64_t what, size_t at, int64_t limit_us, kc_error **error) {
    kc_topic_partition *v = calloc(p->count + 1, sizeof *v);
    size_t *of = calloc(p->count + 1, sizeof *of), n = 0;
    kc_err err = v && of ? KC_OK : KC_NO_MEMORY;
    for (size_t i = 0; err == KC_OK && i < p->count; i++) {
        if (p->v[i].log_err != KC_OK) continue;
        v[n] = (kc_topic_partition){.topic = kc_client_topic(s->client, p->v[i].topic), .partition = p->v[i].partition, .offset = what, .leader_epoch = -1};
        if (v[n].topic == 0) err = KC_NO_MEMORY;
        of[n++] = i;
    }
    if (err == KC_OK && n > 0) err = look_up(s, log, v, n, limit_us, error);
    for (size_t k = 0; err == KC_OK && k < n; k++) {
        struct group_part *part = &p->v[of[k]];
        if (v[k].err != KC_OK)
            part->log_err = v[k].err;
        else
            memcpy((uint8_t *)part + at, &v[k].offset, sizeof v[k].offset);
    }
    free(v);
    free(of);
    return err;
}

kc_err group_log_ask(struct cli_session *s, struct group_log *log, const struct cli_topics *topics, struct group_parts *p, int64_t ms, int64_t limit_us,
                     kc_error **error) {
    kc_err err = open_log(s, log, error);
    if (err != KC_OK) return err;
    for (size_t i = 0; i < p->count; i++) {
        kc_partition_info part;
        bool there = cli_part_find(topics, p->v[i].topic, p->v[i].partition, &part);
        p->v[i].log_err = !there ? KE_UNKNOWN_TOPIC_OR_PARTITION : part.leader < 0 ? KE_LEADER_NOT_AVAILABLE : KC_OK;
    }
    err = ask(s, log, p, KC_OFFSET_BEGINNING, offsetof(struct group_part, start), limit_us, error);
    if (err == KC_OK) err = ask(s, log, p, KC_OFFSET_END, offsetof(struct group_part, end), limit_us, error);
    if (err == KC_OK && ms >= 0) err = ask(s, log, p, ms, offsetof(struct group_part, at), limit_us, error);
    return err;
}

/* ---- Groups ---- */

kc_err group_describe_all(struct cli_session *s, const char *const *groups, size_t n, kc_group_details **out, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = kc_admin_describe_groups_start(s->client, groups, n, 0, 0, &op, error);
    if (err == KC_OK) err = cli_wait(s, op, error);
    if (err == KC_OK && !(*out = kc_op_result_group_details(op))) err = KC_NO_MEMORY;
    kc_op_free(op);
    return err;
}

kc_err group_offsets_all(struct cli_session *s, const char *const *groups, size_t n, kc_group_offsets **out, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = kc_admin_group_offsets_start(s->client, groups, n, NULL, 0, 0, 0, 0, 0, &op, error);
    if (err == KC_OK) err = cli_wait(s, op, error);
    if (err == KC_OK && !(*out = kc_op_result_group_offsets(op))) err = KC_NO_MEMORY;
    kc_op_free(op);
    return err;
}

/* ---- Words ---- */

#define WORDS_MAX 10000

static bool add_word(struct group_words *w, const char *topic, size_t topic_size, const char *number, size_t number_size) {
    char **grown = realloc(w->v, ((size_t)w->count + 1) * sizeof *grown);
    if (!grown) return false;
    w->v = grown;
    char *word = malloc(topic_size + number_size + 2);
    if (!word) return false;
    memcpy(word, topic, topic_size);
    if (number_size > 0) {
        word[topic_size++] = ':';
        memcpy(word + topic_size, number, number_size);
    }
    word[topic_size + number_size] = 0;
    w->v[w->count++] = word;
    return true;
}

int group_words_make(const struct cli_command *c, const char *const *words, int count, struct group_words *out) {
    *out = (struct group_words){0};
    for (int i = 0; i < count; i++) {
        const char *colon = strchr(words[i], ':');
        size_t topic = colon ? (size_t)(colon - words[i]) : strlen(words[i]);
        const char *number = colon ? colon + 1 : NULL;
        bool more = true;
        while (more) {
            size_t n = number ? strcspn(number, ",") : 0;
            if (number && n == 0) return cli_usage_error(c, "'%s' is neither TOPIC nor TOPIC:PARTITION,...", words[i]);
            if (out->count == WORDS_MAX) return cli_usage_error(c, "more than %d partitions are named", WORDS_MAX);
            if (!add_word(out, words[i], topic, number, n)) return cli_fail(c->name, KC_NO_MEMORY, NULL);
            more = number && number[n];
            if (more) number += n + 1;
        }
    }
    return cli_parts_check(c, (const char *const *)out->v, out->count);
}

void group_words_free(struct group_words *w) {
    for (int i = 0; i < w->count; i++) free(w->v[i]);
    free(w->v);
    *w = (struct group_words){0};
}

void group_json(char before, const char *name, const char *value) {
    printf("%c\"%s\":", before, name);
    if (value)
        cli_json_text(stdout, value, strlen(value));
    else
        fputs("null", stdout);
}

void group_json_error(kc_err err, const char *message) {
    if (err == KC_OK) return;
    group_json(',', "error", kc_err_name(err));
    group_json(',', "message", message);
}
