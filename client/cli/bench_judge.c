/* bench_judge.c - what of numbered records is in a topic's log: all partitions are read to their ends, and each number is counted. Called by bench_kills. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { SLICE_US = 200000, IDLE_US = 30000000 };

struct reading {
    struct bench_run *r;
    const int64_t *ends;
    int32_t partitions, left; /* left: partitions whose end is not reached */
    bool *over;
    uint8_t *copies;
    uint64_t count;
};

static void reached(struct reading *g, int32_t partition, int64_t position) {
    if (partition < 0 || partition >= g->partitions || g->over[partition] || position < g->ends[partition]) return;
    g->over[partition] = true;
    g->left--;
}

static void take(struct reading *g, const kc_event *e) {
    if (kc_event_kind(e) == KC_EVENT_ERROR) fprintf(stderr, "kc: bench: %s\n", kc_error_message(kc_event_error(e)));
    if (kc_event_kind(e) != KC_EVENT_RECORDS) return;
    size_t size, n = kc_event_count(e);
    const kc_view *v = kc_event_views(e);
    const uint8_t *span = kc_event_span(e, &size);
    for (size_t i = 0; i < n; i++) {
        uint64_t number;
        if (v[i].value_size < (int32_t)sizeof number) continue; /* one that warmed up */
        memcpy(&number, span + v[i].value_at, sizeof number);
        if (number < g->count && g->copies[number] < UINT8_MAX) g->copies[number]++;
    }
    reached(g, kc_event_partition(e), kc_event_offset(e));
}

static kc_err begin(struct reading *g, const struct bench_topic *t, kc_consumer **c, kc_error **error) {
    kc_err err = kc_consumer_new(g->r->s.client, NULL, KC_PROCESSED_EXPLICIT, c, error);
    kc_topic_partition *parts = calloc((size_t)g->partitions, sizeof *parts);
    if (err == KC_OK && !parts) err = KC_NO_MEMORY;
    for (int32_t i = 0; parts && i < g->partitions; i++)
        parts[i] = (kc_topic_partition){.topic = t->id, .partition = i, .offset = KC_OFFSET_BEGINNING, .leader_epoch = -1};
    if (err == KC_OK) err = kc_consumer_assign(*c, parts, sizeof *parts, (size_t)g->partitions, error);
    free(parts);
    return err;
}

int bench_read_back(struct bench_run *r, const struct bench_topic *t, const int64_t *ends, int32_t partitions, uint8_t *copies, uint64_t count) {
    struct reading g = {.r = r, .ends = ends, .partitions = partitions, .left = partitions, .copies = copies, .count = count};
    kc_consumer *c = NULL;
    kc_error *error = NULL;
    g.over = calloc((size_t)partitions, sizeof *g.over);
    kc_err err = g.over ? begin(&g, t, &c, &error) : KC_NO_MEMORY;
    for (int32_t i = 0; err == KC_OK && i < partitions; i++) reached(&g, i, 0); /* the empty ones */
    for (int64_t idle = 0; err == KC_OK && g.left > 0 && !cli_interrupted;) {
        kc_event *e = NULL;
        err = kc_consumer_poll(c, &e, SLICE_US);
        if (err == KC_OK) take(&g, e);
        idle = err == KC_OK ? 0 : idle + SLICE_US;
        if (err == KC_TIMED_OUT && idle < IDLE_US) err = KC_OK;
        kc_event_free(e);
        cli_session_logs(&r->s);
    }
    free(g.over);
    if (c) (void)kc_consumer_close(c, 2000000, NULL);
    kc_consumer_free(c);
    if (err == KC_OK && g.left == 0) return CLI_OK;
    return cli_fail("bench: reading back", err == KC_OK ? KC_CANCELLED : err, error);
}
