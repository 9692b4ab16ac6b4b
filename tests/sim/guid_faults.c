/* guid_faults.c - files of a GUID index that are missing, cut, zeroed or rotten when a node starts: it is a cache of the log, and is built anew. In a
 * cluster, that for a while all copies must be in sync for acks=-1. Called by faults_disk.c, cluster_disks.c, workload.c, cluster.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "guid.h"

static size_t collect(struct sim_disk *d, char (*paths)[160], size_t max) {
    char **dirs;
    size_t count = 0, n = sim_disk_names(d, SIM_DATA, &dirs);
    for (size_t i = 0; i < n; i++) {
        char dir[120], **names = NULL;
        snprintf(dir, sizeof dir, SIM_DATA "/%.80s/guid", dirs[i]);
        size_t k = strncmp(dirs[i], "topic-", 6) == 0 ? sim_disk_names(d, dir, &names) : 0;
        for (size_t j = 0; j < k; j++) {
            if (count < max) snprintf(paths[count++], sizeof *paths, "%.100s/%.40s", dir, names[j]);
            free(names[j]);
        }
        free(names); /* an empty folder's, too */
        free(dirs[i]);
    }
    free(dirs);
    return count;
}

void sim_guids_before_start(struct sim_run *r, struct sim_broker *b) {
    static char paths[400][160];
    static const char *const texts[] = {"gone", "cut", "all zeros", "rotten"};
    struct sim_world *w = &r->w;
    if (!r->guids || !sim_chance(w, r->guids->damage_ppm)) return;
    size_t n = collect(b->disk, paths, KW_COUNTOF(paths));
    int times = (int)sim_range(w, 1, 3);
    for (int i = 0; i < times && n; i++) {
        const char *path = paths[sim_below(w, n)];
        size_t size;
        int how = (int)sim_below(w, 4);
        if (!sim_disk_peek(b->disk, path, &size) || size == 0) continue;
        if (how == 0) {
            sim_disk_remove(b->disk, path);
        } else if (how == 1) {
            sim_disk_cut(b->disk, path, sim_below(w, size));
        } else if (how == 2) {
            void *zeros = sim_need(calloc(1, size));
            sim_disk_poke(b->disk, path, zeros, size);
            free(zeros);
        } else {
            sim_disk_rot(b->disk, path, sim_below(w, size), (uint8_t)(1 << sim_below(w, 8)));
        }
        sim_fire(w, (enum sim_fault)((int)SIM_F_GUID_GONE + how));
        sim_trace(w, "%s: %s is %s", b->host.name, path, texts[how]);
    }
}

/* ---- More in sync than there may be ---- */

static void strict(void *ctx, uint64_t arg);

static void lenient(void *ctx, uint64_t topic) {
    struct sim_run *r = ctx;
    sim_admin_config(r->admin, (int)topic, "min.insync.replicas", "1");
    sim_at(&r->w, r->w.now_us + sim_range(&r->w, 3 * SIM_S, 15 * SIM_S), strict, r, topic);
}

static void strict(void *ctx, uint64_t topic) {
    struct sim_run *r = ctx;
    static const char *const all[] = {"1", "1", "2", "3"};
    if (r->w.healed) return;
    sim_admin_config(r->admin, (int)topic, "min.insync.replicas", all[r->model.topics[topic].rf]);
    sim_at(&r->w, r->w.now_us + sim_range(&r->w, 2 * SIM_S, 8 * SIM_S), lenient, r, topic);
}

void sim_guids_faults_start(struct sim_run *r) {
    if (r->guids)
        sim_trace(&r->w, "ids: known for %s ms, %s %s, memory %s", r->guids->window,
                  r->guids->retention == SIM_KEEP_ALL ? "records kept" : r->guids->retention == SIM_KEEP_WINDOW ? "records kept for" : "records kept up to",
                  r->guids->keep, r->guids->memory);
    /* Records that are kept by time for as long as their ids are known: by clients whose clocks are behind they are old as soon as they come. */
    for (int i = 0; r->guids && r->guids->retention == SIM_KEEP_WINDOW && r->guids->damage_ppm % 4 < 3 && i <= r->plan.clients; i++)
        sim_host_jump(&r->clients[i].host, -atoll(r->guids->keep));
    for (int t = 0; r->guids && r->cluster && t < r->model.topic_count; t++)
        if (r->model.topics[t].guid && r->model.topics[t].rf > 1 && sim_below(&r->w, 2)) strict(r, (uint64_t)t);
    sim_guids_changes_start(r);
}
