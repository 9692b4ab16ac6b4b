/* fetch_session.h - incremental fetch sessions (KIP-227): what a consumer asked for last time, so that it need not say it again.
 *
 * Called by api/fetch; node makes and frees the cache. The cache is bounded; a full one gives up a session by Kafka's rules.
 */
#ifndef KB_FETCH_SESSION_H
#define KB_FETCH_SESSION_H

#include "base/map.h"
#include "kw_messages.h"
#include "node.h"

struct kb_session_partition {
    struct kw_list link; /* in the session, in the order in which they are served */
    char *topic;         /* NULL where topics go by id */
    struct kw_uuid topic_id;
    int32_t index;
    int32_t leader_epoch; /* as the client knows it: checked on every fetch (PR-12) */
    int32_t last_fetched_epoch, max_bytes;
    int64_t fetch_offset, log_start; /* log_start: a replica's */
    int64_t hw_told, start_told; /* by the last answer; -1: nothing, or an error */
    int64_t read_from; /* of a replica that reads ahead: it has all below; less than fetch_offset: that says it */
    int64_t sent_from; /* to the same: from there records were sent, once; -1: none yet */
};
struct kb_session {
    uint32_t refs;       /* the cache, and each request that is under way */
    struct kw_list link; /* in the cache, least recently used first; unlinked once evicted */
    int32_t id, epoch;   /* epoch: what the next request must say */
    bool by_id;          /* topic ids (v13+) */
    bool privileged;     /* a replica's */
    bool reads_ahead;    /* that says so: the next request may come before this one's records are written there, or before this one is answered */
    int64_t created_us, used_us;
    struct kw_list partitions;
    struct kw_map by_key;
    size_t count;
    struct kw_blk *memory; /* for the next fetch; may be NULL */
    uint32_t drops; /* grows when a partition goes: pointers to partitions hold only while it stands */
};

kw_err kb_fetch_cache_new(struct kb_node *n) KW_CHECK;
void kb_fetch_cache_free(struct kb_node *n);
size_t kb_fetch_cache_count(const struct kb_node *n);
size_t kb_session_bytes_max(const struct kb_node *n); /* of any fetch's answer */

enum kb_session_kind {
    KB_SESSION_NONE,        /* the answer stands alone: session id 0, every partition is told */
    KB_SESSION_FULL,        /* a new session, when the cache has a place (*s): every partition is told */
    KB_SESSION_INCREMENTAL, /* only what is news is told */
};
/* Takes the request into its session: creates, updates, or closes it. Returns the answer's error (FETCH_SESSION_ID_NOT_FOUND,
 * INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR), 0 when ok. *s gets a reference, NULL when no session lives on. */
int16_t kb_session_take(struct kb_node *n, const struct kw_fetch_request *req, int16_t version, enum kb_session_kind *kind,
                        struct kb_session **s);
void kb_session_unref(struct kb_session *s); /* NULL is fine */
/* Notes what is told about a partition; true when it is news, and has to be in an incremental answer. bytes: records that go out; with them
 * the partition goes to the end, so that the others have their turn. */
bool kb_session_tell(struct kb_session *s, struct kb_session_partition *p, int16_t code, int64_t hw, int64_t start, size_t bytes,
                     bool diverging);
/* A block of so many bytes for a fetch that is under way, which gives it back. NULL: out of memory. */
struct kw_blk *kb_session_memory(struct kb_session *s, size_t size);
void kb_session_memory_back(struct kb_session *s, struct kw_blk *b);
/* NULL: the session has none. */
struct kb_session_partition *kb_session_partition_find(const struct kb_session *s, struct kw_str topic, struct kw_uuid id, int32_t index);

#endif
