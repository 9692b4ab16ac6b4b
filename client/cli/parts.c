/* parts.c - the partitions that a command line names: TOPIC, TOPIC:PARTITION, or all. Called by elect and reassign. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

struct word {
    char topic[250];
    int64_t partition; /* -1: all */
};

static bool split(const char *text, struct word *w) {
    const char *colon = strchr(text, ':'); /* no topic's name has one */
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (n == 0 || n >= sizeof w->topic) return false;
    memcpy(w->topic, text, n);
    w->topic[n] = 0;
    w->partition = -1;
    return !colon || (colon[1] != '-' && cli_number(colon + 1, 0, INT32_MAX, &w->partition));
}

int cli_parts_check(const struct cli_command *c, const char *const *words, int count) {
    struct word w;
    for (int i = 0; i < count; i++)
        if (!split(words[i], &w)) return cli_usage_error(c, "'%s' is neither TOPIC nor TOPIC:PARTITION", words[i]);
    return -1;
}

static bool is_named(const struct word *w, const char *topic, int32_t partition) {
    return !strcmp(w->topic, topic) && (w->partition < 0 || w->partition == partition);
}

bool cli_part_find(const kc_cluster_info *info, const char *topic, int32_t partition, kc_partition_info *out) {
    kc_topic_info t;
    for (size_t i = 0; kc_cluster_info_topic(info, i, &t) == KC_OK; i++) {
        if (strcmp(t.name, topic) != 0) continue;
        if (kc_cluster_info_partition(info, i, (size_t)partition, out) == KC_OK && out->partition == partition) return true; /* as it mostly is */
        for (size_t k = 0; kc_cluster_info_partition(info, i, k, out) == KC_OK; k++)
            if (out->partition == partition) return true;
        return false;
    }
    return false;
}

/* w NULL: all. How many it added, -1: no memory. */
static int64_t add(const kc_cluster_info *info, const struct word *w, struct cli_parts *out, size_t *cap) {
    int64_t added = 0;
    kc_topic_info t;
    for (size_t i = 0; kc_cluster_info_topic(info, i, &t) == KC_OK; i++) {
        kc_partition_info p;
        if (w && strcmp(w->topic, t.name) != 0) continue;
        for (size_t k = 0; kc_cluster_info_partition(info, i, k, &p) == KC_OK; k++) {
            if (w && !is_named(w, t.name, p.partition)) continue;
            if (out->count == *cap) {
                *cap = *cap ? *cap * 2 : 64;
                struct cli_part *grown = realloc(out->v, *cap * sizeof *grown);
                if (!grown) return -1;
                out->v = grown;
            }
            out->v[out->count++] = (struct cli_part){t.name, p};
            added++;
        }
    }
    return added;
}

int cli_parts_find(const struct cli_command *c, const kc_cluster_info *info, const char *const *words, int count, struct cli_parts *out) {
    size_t cap = 0;
    *out = (struct cli_parts){0};
    if (count == 0 && add(info, NULL, out, &cap) < 0) return cli_fail(c->name, KC_NO_MEMORY, NULL);
    for (int i = 0; i < count; i++) {
        struct word w = {0}, before;
        size_t from = out->count;
        (void)split(words[i], &w); /* checked before */
        int64_t added = add(info, &w, out, &cap);
        if (added < 0) return cli_fail(c->name, KC_NO_MEMORY, NULL);
        if (added == 0) {
            fprintf(stderr, "kc: %s: there is no %s %s\n  kc topic list shows which topics there are\n", c->name,
                    w.partition < 0 ? "topic" : "partition", words[i]);
            return CLI_FAILURE;
        }
        for (int k = 0; k < i; k++)
            for (size_t j = from; split(words[k], &before) && j < out->count; j++)
                if (is_named(&before, out->v[j].topic, out->v[j].p.partition))
                    return cli_usage_error(c, "'%s' and '%s' name the same partition", words[k], words[i]);
    }
    return CLI_OK;
}

void cli_parts_free(struct cli_parts *p) {
    free(p->v);
    *p = (struct cli_parts){0};
}

void cli_json_part(const char *topic, int32_t partition) {
    printf("{\"topic\":");
    cli_json_text(stdout, topic, strlen(topic));
    printf(",\"partition\":%d", (int)partition);
}
