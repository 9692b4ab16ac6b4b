/* world.h - the simulated world: virtual time, the queue of what happens next, hosts with their own clocks, trace, counters, failures.
 *
 * One thread, one seed. Events run by (time, order of being asked for). A host is a process on a machine: whatever reaches it (bytes, a
 * timer, a finished disk request) only wakes it, and its turn then looks at everything there is, as a real loop does after epoll. While a
 * host is paused its turns wait.
 *
 * Called by every other file of the simulator. Calls base/rng.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "base/base.h"
#include "base/rng.h"

#define SIM_NEVER INT64_MAX
#define SIM_MS INT64_C(1000)
#define SIM_S INT64_C(1000000)

/* What is broken in a seed. The disk's own kinds are in sim_disk.h; all are counted, and a kind that never fires fails the gate. */
#define SIM_FAULTS(F) \
    F(REFUSED, "connect refused") F(SYN_LOST, "connect lost") F(RESET, "reset") F(HALF_OPEN, "half-open peer") F(ONE_BYTE, "one-byte read") \
    F(SHORT_SEND, "short write to a socket") F(SLOW_READER, "slow reader") F(CLOG, "clog then burst") F(PARTITION, "partition") \
    F(ONE_WAY, "one-way partition") F(RESOLVE, "name lookup failed") F(TAIL_DELAY, "tail delay") F(LATE, "bytes of an abandoned connection") \
    F(KILL, "kill -9") F(KILL_STARTING, "kill -9 in recovery") F(POWER, "power loss") F(STOP, "clean stop") F(PAUSE_BROKER, "broker paused") \
    F(PAUSE_CLIENT, "client paused") F(CLOCK_JUMP, "wall clock jump") F(DRIFT, "clock drift") F(CLIENT_KILL, "client killed") \
    F(CLIENT_CLOSE, "client closed") F(NODE_FAILED, "node gave up") F(HUNG, "hung disk") F(FULL, "disk full") \
    F(INDEX_GONE, "index missing") F(INDEX_CUT, "index cut") F(INDEX_ZERO, "index zeroed") F(CHECKPOINT_GONE, "checkpoint missing") \
    F(CHECKPOINT_CUT, "checkpoint cut") F(CHECKPOINT_ZERO, "checkpoint zeroed") F(SNAPSHOT_GONE, "snapshot missing") \
    F(SNAPSHOT_CUT, "snapshot cut") F(SNAPSHOT_ZERO, "snapshot zeroed") F(CONFIG, "config change") F(GROWTH, "partition growth") \
    F(RECREATE, "delete and recreate") F(PURGE, "purge") F(DELETE_RECORDS, "delete records") \
    F(ALLOC_BROKER, "no memory, broker") F(ALLOC_CLIENT, "no memory, client") F(WRONG_ADDRESS, "name with a wrong address") \
    F(MOVED, "broker at another address") F(META_ROT, "rot of metadata") F(META_REFUSED, "start refused for rot") \
    F(OLD_IMAGE, "restart on an old image") F(BAD_BYTES, "hostile: random bytes") F(BAD_LENGTH, "hostile: impossible length") \
    F(BAD_CUT, "hostile: request cut short") F(BAD_CHANGED, "hostile: request changed") F(BAD_BODY, "hostile: random body") \
    F(ANSWER_CUT, "answer cut short") F(ANSWER_LENGTH, "answer of impossible length") F(ANSWER_ID, "answer to another request") \
    F(ANSWER_UNASKED, "answer unasked for") F(OLD_PRODUCE, "produce of message sets") F(OLD_FETCH, "fetch of message sets") \
    F(OLD_LIST, "old offset lookup") \
    F(KILL_LEADER, "kill -9 of a leader") F(KILL_CONTROLLER, "kill -9 of the controller") F(KILL_ALL, "kill -9 of all nodes") \
    F(POWER_SEVERAL, "power loss of several nodes") F(MESH, "mesh with holes") F(ISOLATED, "node cut off from the others") F(WIPED, "disk wiped") \
    F(LEFT_OUT, "node left out of the core") F(SLOW_DISK, "slow disk") \
    F(REASSIGN, "reassignment") F(CANCEL, "reassignment cancelled") F(ELECT, "election asked for") F(UNREGISTER, "broker unregistered") \
    F(FORGED, "hostile: forged by the name of a node") \
    F(OLD_VOTER, "voter on an old image") F(STATE, "quorum-state damaged") F(JOINED, "node joined late") F(LEFT, "node left for ever") \
    F(SPIKE, "delay spike") F(UNCLEAN, "unclean election") F(ROTTEN_TAIL, "rotten end of a log, all brokers dead") \
    F(COMPACTED, "log compacted") \
    F(GUID_GONE, "index of ids missing") F(GUID_CUT, "index of ids cut") F(GUID_ZERO, "index of ids zeroed") F(GUID_ROT, "index of ids rotten") \
    F(GUID_RETENTION, "ids gone with their records") F(GUID_TWIN, "id sent again") F(GUID_OTHER, "id sent again with another payload") \
    F(GUID_BAD, "records with a wrong id") F(GUID_LOOKUP, "lookup of ids") \
    F(GUID_OFF, "dedup switched off and on") F(GUID_WINDOW, "window of ids changed")
enum sim_fault {
#define F(name, text) SIM_F_##name,
    SIM_FAULTS(F)
#undef F
    SIM_F_COUNT
};
const char *sim_fault_name(enum sim_fault f);

struct sim_world;
struct sim_host;
typedef void sim_fn(void *ctx, uint64_t arg);

struct sim_event {
    int64_t at_us;
    uint64_t order, arg;
    sim_fn *fn;
    void *ctx;
};

#define SIM_TRACE_LINES 400
#define SIM_TRACE_SIZE 240
struct sim_world {
    uint64_t seed;
    struct kw_rng rng;
    int64_t now_us;
    struct sim_event *heap;
    size_t heap_count, heap_cap;
    uint64_t next_order, events;
    uint64_t hash;
    const char *replay; /* further arguments that replay this seed */
    bool loud; /* --trace */
    char trace[SIM_TRACE_LINES][SIM_TRACE_SIZE];
    uint64_t trace_count;
    uint64_t fired[SIM_F_COUNT];
    bool healed; /* second phase: nothing breaks any more */
};

void sim_world_init(struct sim_world *w, uint64_t seed);
void sim_world_deinit(struct sim_world *w);
void sim_at(struct sim_world *w, int64_t at_us, sim_fn *fn, void *ctx, uint64_t arg);
bool sim_step(struct sim_world *w); /* the next event; false: none is left */
void sim_run_until(struct sim_world *w, int64_t at_us);

/* One line of the trace, and into the hash: everything that happens is told by it. */
void sim_trace(struct sim_world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What a core says: in the trace's text alone. */
void sim_say(struct sim_world *w, const char *who, const char *text);
void sim_hash(struct sim_world *w, const void *p, size_t n);
void sim_fire(struct sim_world *w, enum sim_fault f);
/* An invariant does not hold: says which, what was expected and seen, the end of the trace, how to replay; ends the process. */
_Noreturn void sim_fail(struct sim_world *w, int invariant, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
extern struct sim_world *sim_the_world; /* for assertions that fail inside a core */

static inline uint64_t sim_below(struct sim_world *w, uint64_t n) { return kw_rng_below(&w->rng, n); }
static inline int64_t sim_range(struct sim_world *w, int64_t lo, int64_t hi) { return lo + (int64_t)kw_rng_below(&w->rng, (uint64_t)(hi - lo + 1)); }
static inline bool sim_chance(struct sim_world *w, uint32_t ppm) { return ppm && kw_rng_chance(&w->rng, ppm); }
void *sim_need(void *p); /* the simulator's own memory never runs out */
void *sim_grow(void *v, size_t count, size_t *cap, size_t size);

struct sim_clock { /* what both cores call now */
    int64_t mono_us, wall_ms;
};
#define SIM_HOST_NODE 100 /* a host's id: 0 or above it a node's, else a client's */
struct sim_host {
    struct sim_world *w;
    char name[16];
    int id;
    void (*turn)(struct sim_host *h);
    /* clocks */
    int64_t base_us, mono_base_us, wall_base_ms; /* mono and wall when the world's time was base_us */
    int64_t drift_ppm;
    int64_t jumped_ms, jumped_at_boot_ms; /* how far the wall clock has jumped forward, all in all; by the process's start */
    /* turns */
    int64_t wake_us, paused_until_us, paused_total_us;
    uint64_t wake_count;
    /* memory: so many calls are served, then so many refused (alloc.h) */
    uint64_t alloc_after;
    uint32_t alloc_refusals;
    /* busy loops */
    int64_t second;
    uint64_t turns_in_second, turns, turns_in_second_max;
};
void sim_host_init(struct sim_host *h, struct sim_world *w, const char *name, int id, void (*turn)(struct sim_host *h));
struct sim_clock sim_host_now(const struct sim_host *h);
void sim_host_boot(struct sim_host *h, bool machine); /* a new process; machine: the monotonic clock begins anew, too */
void sim_host_jump(struct sim_host *h, int64_t wall_ms);
void sim_host_drift(struct sim_host *h, int64_t ppm);
void sim_host_wake(struct sim_host *h, int64_t at_us);         /* the world's time */
void sim_host_wake_mono(struct sim_host *h, int64_t mono_us);  /* the host's; SIM_NEVER: not */
void sim_host_pause(struct sim_host *h, int64_t for_us);

#endif
