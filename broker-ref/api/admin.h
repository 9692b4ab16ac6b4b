/* admin.h - what the administration APIs share: waiting for a controller's change with a deadline, views of topics, authorized operations.
 */
#ifndef KB_ADMIN_H
#define KB_ADMIN_H

#include "kw_messages.h"
#include "node_parts.h"
#include "quorum/controller.h"
#include "quorum/effective.h"
#include "quorum/image.h"
#include "quorum/store.h"
#include "request.h"

/* A request that waits for a change. Lives in the request's arena; answers once: when the change is done, or when its time is up (the
 * change may still happen then). When the connection goes, change and timer are let go. */
struct kb_admin_wait {
    struct kb_change change;
    struct kw_timer timer;
    struct kb_request *rq;
    void *items;
    bool timed_out;
    void (*answer)(struct kb_admin_wait *w);
};
struct kb_admin_wait *kb_admin_wait_new(struct kb_request *rq, void *items,
                                        void (*answer)(struct kb_admin_wait *w)); /* NULL: out of memory */
/* The same for a request of its own items: `size` zeroed bytes, of which the first are the message, decoded. NULL: the request is dealt with. */
struct kb_admin_wait *kb_admin_open(struct kb_request *rq, size_t size, void (*answer)(struct kb_admin_wait *w));
/* Right after the change was submitted (err: what the controller said). Closes the connection when it could not be. */
void kb_admin_wait_begin(struct kb_admin_wait *w, kw_err err, int32_t timeout_ms);
/* The result of an item as the answer has it: REQUEST_TIMED_OUT when the time was up. Text null when ok. */
int16_t kb_admin_code(const struct kb_admin_wait *w, const struct kb_result *r);
struct kw_str kb_admin_text(const struct kb_admin_wait *w, const struct kb_result *r);

void kb_admin_no_memory(struct kb_request *rq); /* closes: nothing can be answered */

/* AlterConfigs and IncrementalAlterConfigs: the same but for the form of the messages. alters: count of them in the request's arena, whose
 * results `answer` puts into its response. */
struct kb_alter {
    struct kb_config_alter *alters;
    int32_t count;
    kw_err (*answer)(struct kb_request *rq, const struct kb_admin_wait *w, const struct kb_alter *a); /* replies; KW_ENOMEM: nothing was */
};
struct kb_alter *kb_alter_new(struct kb_request *rq, int32_t count,
                              kw_err (*answer)(struct kb_request *rq, const struct kb_admin_wait *w, const struct kb_alter *a)); /* NULL: no memory */
struct kb_config_kv *kb_alter_resource(struct kb_request *rq, struct kb_config_alter *out, int8_t type, struct kw_str name,
                                       int32_t kv_count); /* room for its entries; NULL: no memory */
void kb_alter_run(struct kb_request *rq, struct kb_alter *a, bool validate_only);

/* Bits of what anyone may do without an authorizer (KIP-430). */
enum { KB_TOPIC_OPERATIONS = 0xdf8, KB_CLUSTER_OPERATIONS = 0x1fa0, KB_OPERATIONS_NOT_ASKED = INT32_MIN };

/* A partition as clients should see it now. */
struct kb_partition_view {
    int16_t code; /* LEADER_NOT_AVAILABLE when nobody leads */
    int32_t leader, leader_epoch;
    int32_t *offline, offline_count; /* in the request's arena */
};
kw_err kb_admin_view(struct kb_request *rq, const struct kb_image_partition *p, struct kb_partition_view *v) KW_CHECK;
/* Where clients reach a broker: this node through the connection's own view. false: not reachable. */
bool kb_admin_address(struct kb_request *rq, const struct kb_image_broker *b, struct kw_str *host, int32_t *port);
int32_t kb_admin_self(const struct kb_parts *p);
/* Who clients are told is the controller: it, where it is a broker that they can reach, else this node, which relays. */
int32_t kb_admin_controller(const struct kb_parts *p);

#endif
