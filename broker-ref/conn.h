/* conn.h - a client's connection inside the core: frames in, requests under way, replies out. Private to node, conn, dispatch and request.
 *
 * Small frames are parsed where they were received, in a block that the requests then share; a frame that does not fit gets a block of its
 * own size, so that a produced batch is received, checked and written in the same memory.
 */
#ifndef KB_CONN_H
#define KB_CONN_H

#include "request.h"

#define KB_POOL_CLASSES 5 /* 64 kB, 256 kB, 1 MB (and a little), 2 MB, 4 MB: what most producers send */

struct kb_pool_class {
    struct kw_blk *free[16];
    size_t free_count;
};
struct kb_net { /* all connections of a node, and the memory that their frames live in */
    struct kw_list conns;          /* in order of last activity: the head is the next to be idle for too long */
    struct kw_list ready;          /* have something for the shell to do */
    struct kw_list stalled;        /* want to read again once memory is free */
    struct kw_list orphans;        /* requests whose connection has gone and that are not yet answered */
    size_t conn_count;
    struct kw_timer idle_timer, pool_timer;
    struct kb_pool_class pool[KB_POOL_CLASSES];
    size_t pool_free_bytes, pool_used_bytes; /* blocks kept for reuse; blocks out in requests and appends */
    struct kw_list request_free;   /* a few requests with their arenas, for reuse */
    size_t request_free_count;
    size_t frame_size_max, memory_max;
    int64_t idle_max_us, conn_count_max, conn_count_per_ip_max;
    int64_t refused_said_us, bad_said_us; /* log lines about peers are rate-limited */
    uint32_t bad_unsaid;
};

struct kb_conn {
    struct kb_node *node;
    void *shell;
    char *local_host, *peer;
    uint16_t local_port;
    struct kw_list link, ready_link, stalled_link;
    int64_t active_us;
    /* receiving */
    struct kw_blk *blk;            /* shared small block: [pos, end) is not parsed yet */
    size_t pos, end;
    struct kw_blk *big;            /* the block of the one large frame being received */
    size_t big_fill, big_size;
    bool hot;                      /* fills its small block: gets a larger one */
    bool produces;                 /* stops first when memory or disk is short */
    /* requests, in order of arrival */
    struct kw_list requests;
    struct kb_request *next;       /* the first that has not been started */
    size_t request_count, request_bytes;
    size_t open, open_produce;     /* started, not answered */
    bool pumping;
    /* sending */
    struct kw_list replies;        /* struct kb_reply, for the shell to take */
    size_t out_bytes;              /* queued and taken, not yet sent */
    bool closing;                  /* no more is read or started; the shell closes once the replies are out */
    bool reading_told;             /* what wants_read was when the shell last saw the connection */
    int64_t slow_bytes_per_s;      /* fault rule: slow drip */
};

void kb_net_init(struct kb_node *n);
void kb_net_deinit(struct kb_node *n);
void kb_net_end_of_turn(struct kb_node *n);  /* lets stalled connections read again */
void kb_net_close_all(struct kb_node *n);    /* stopping: answers what is queued to be sent, then closes */
void kb_conn_ready(struct kb_conn *c);       /* the shell should look at it */
void kb_conn_close(struct kb_conn *c);       /* after the replies queued so far */
void kb_conn_pump(struct kb_conn *c);        /* moves answered requests to replies, starts what may start */
void kb_conn_say_bad(struct kb_conn *c, const char *what); /* a rate-limited line about what a peer sent */

/* dispatch.c */
void kb_dispatch_start(struct kb_request *rq);
/* request.c */
struct kb_request *kb_request_new(struct kb_conn *c, struct kw_blk *blk, const uint8_t *frame, size_t size); /* refs blk; NULL: out of memory */
void kb_request_free(struct kb_request *rq);

#endif
