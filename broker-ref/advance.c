/* advance.c - a virtual clock is advanced: which of a node's times jump with the wall clock, and which do not.
 *
 * Called by the shell and the simulator through node.h (kb_node_advance). Calls the parts that keep times of policies by the monotonic clock: their stamps
 * and deadlines are moved back, so that as much time has passed for them, and nothing else of the core knows. What compares wall clocks (retention,
 * compaction's lags, producers' ids, committed offsets) needs but to be looked at. Times of the machinery are left alone: README.md, "Virtual clock".
 */
#include "group/coordinator.h"
#include "node_priv.h"
#include "replica/guids.h"
#include "replica/partition.h"

kw_err kb_node_advance(struct kb_node *n, int64_t ms, struct kb_now now) {
    struct kb_log_env *env = &n->parts.log_env;
    if (ms < 0 || ms > KB_AHEAD_MS_MAX - env->ahead_ms) return KW_EINVAL;
    n->now = now;
    kb_log_env_advance(env, ms);
    if (n->partitions) kb_partitions_advance(n, ms);
    if (n->guids) kb_guids_node_advance(n, ms);
    kb_coordinator_advance(n, ms * 1000);
    KB_SAY(n, KB_INFO, "the clock was advanced by %lld ms, %lld ms in all", (long long)ms, (long long)env->ahead_ms);
    return KW_OK;
}

int64_t kb_node_ahead_ms(const struct kb_node *n) {
    return n->parts.log_env.ahead_ms;
}
