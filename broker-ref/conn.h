/* conn.h - a client's connection inside the core: frames in, requests under way, replies out. Private to node, conn, dispatch, request,
 * fault.
 *
 * Small frames are parsed where they were received, in a block that the requests then share; a frame that does not fit gets a block of its
 * own size, so that a produced batch is received, checked and written in the same memory.
 */
#ifndef KB_CONN_H
#define KB_CONN_H

#include "pool.h"
#include "request.h"

struct kb_net {             /* all connections of a node, and the memory that their frames live in */
    struct kw_list conns;   /* in order of last activity: the head is the next to be idle for too long */
    struct kw_list ready;   /* have something for the shell to do */
    struct kw_list stalled; /* wait for memory or disk to read on, in order */
    struct kw_list later;   /* to be pumped once the event's own code is over */
    struct kw_list orphans; /* requests whose connection has gone and that are not yet answered */
    struct kw_list spare;   /* a few requests with their arenas, for reuse */
    size_t conn_count, spare_count;
    int64_t last_id;
    struct kw_timer idle_timer, trim_timer;
    struct kb_pool pool;
    size_t frame_size_max, memory_max;
    int64_t idle_max_us;
    struct kw_map hosts; /* peer address -> number of its connections */
    int64_t said_us;     /* lines about peers are rate-limited: start of the current second */
    uint32_t said_count, unsaid_count;
};

struct kb_conn {
    struct kb_node *node;
    void *shell;
    int64_t id; /* the node's count of connections */
    char *local_host, *peer;
    uint16_t local_port;
    struct kw_list link, ready_link, stalled_link, later_link;
    int64_t active_us;
    /* receiving */
    struct kw_blk *blk; /* shared small block: [pos, end) is not parsed yet */
    size_t pos, end;
    struct kw_blk *big; /* the block of the one large frame being received */
    size_t big_fill, big_size;
    bool hot;      /* filled its small block: gets a larger one */
    bool produces; /* stops first when memory or disk is short */
    bool stalled;  /* in net.stalled */
    bool of_broker; /* registrations or heartbeats came by it: the controller hears of its close */
    bool deaf;     /* nothing is read any more: closes once its requests are answered */
    /* requests, in order of arrival */
    struct kw_list requests;
    struct kb_request *next; /* the first that has not been started */
    size_t request_count, request_bytes;
    size_t open, open_produce; /* started, not answered */
    bool pumping;
    /* sending */
    struct kw_list replies; /* struct kb_reply, for the shell to take */
    size_t out_bytes;       /* queued and taken, not yet sent */
    bool closing;           /* the shell closes once the replies are out */
    bool reading_told;      /* what wants_read was when the shell last asked */
};

void kb_net_init(struct kb_node *n);
kw_err kb_net_configure(struct kb_node *n) KW_CHECK;
void kb_net_deinit(struct kb_node *n);
void kb_net_end_of_turn(struct kb_node *n); /* lets stalled connections read again, arms the trim of the pool */
void kb_net_stop(struct kb_node *n);        /* nothing more is read; each connection closes once its requests are answered */
void kb_conn_ready(struct kb_conn *c);      /* the shell should look at it */
void kb_conn_deafen(struct kb_conn *c);     /* reads no more, closes when all before is answered */
void kb_conn_pump(struct kb_conn *c);       /* moves answered requests to replies, starts what may start */
void kb_conn_pump_later(struct kb_conn *c); /* in this turn still: for answers from amidst something that the next request might change */
bool kb_net_pump_all(struct kb_node *n);    /* those that were to be pumped later; false: there were none */
/* A line about what a peer sent or did; at most a few a second of them. */
void kb_conn_say(struct kb_conn *c, enum kb_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* What a connection is sent for this request, before the first byte of it goes to the shell. */
void kb_conn_record_reply(struct kb_conn *c, const struct kb_request *rq, const struct kb_reply *reply);

/* dispatch.c */
void kb_dispatch_start(struct kb_request *rq);
void kb_dispatch_run(struct kb_request *rq); /* after a fault rule held it */
/* request.c */
struct kb_request *kb_request_new(struct kb_conn *c, struct kw_blk *blk, const uint8_t *frame,
                                  size_t size); /* refs blk; NULL: out of memory */
struct kb_request *kb_request_new_inner(struct kb_node *n, struct kb_inner *in, struct kw_blk *blk, const uint8_t *frame,
                                        size_t size); /* the same without a connection; lies with the node's orphans */
void kb_request_free(struct kb_request *rq);
void kb_request_done(struct kb_request *rq); /* answered: with rq->reply, or rq->closes, or nothing */
struct kb_reply *kb_reply_encode(struct kb_request *rq, int16_t version, const void *msg); /* NULL: logged */

#endif
