/* fault_priv.h - what fault.c, fault_rules.c and fault_answer.c share. Private to them. */
#ifndef KB_FAULT_PRIV_H
#define KB_FAULT_PRIV_H

#include "fault.h"
#include "node_priv.h"

struct kb_fault_rule { /* reference-counted: the set holds one, each request that it struck another */
    struct kw_list link;
    uint32_t refs;
    int32_t number;  /* of the set, from 1; none is given twice */
    char *text;      /* as it was given, JSON */
    int16_t api_key; /* -1: any */
    enum { KB_FAULT_NO_DISK, KB_FAULT_READ, KB_FAULT_WRITE, KB_FAULT_SYNC } disk; /* it strikes no request, but logs' files */
    enum kb_disk_err disk_error;
    int16_t version_min, version_max;
    int32_t broker, partition;         /* -1: any */
    char *client_id, *topic, *group;   /* NULL: any */
    enum { KB_FAULT_ANYBODY, KB_FAULT_CLIENTS, KB_FAULT_NODES } from;
    uint64_t after, nth, every, times; /* 0: not given */
    uint32_t per_million;
    bool after_effect;
    bool has_error, close, stall, corrupts;
    int16_t error;
    int32_t throttle_ms;
    int64_t delay_us, drip_bytes_per_s, corrupt_at;
    uint64_t seen, hits;
};
struct kb_faults {
    struct kw_list rules;
    struct kw_list stalled; /* struct kb_fault_hit */
    size_t count;
    int32_t last_number;
    uint64_t gone_hits; /* of rules that were taken away */
};
void kb_fault_rule_unref(struct kb_fault_rule *r);
struct kb_fault_hit { /* in the request's arena */
    struct kb_fault_rule *rule;
    struct kw_list stall_link;
    struct kb_request *rq;
    bool in_answer; /* the error is in the answer already */
    bool forced;    /* the API ran although the error was to come before its effect: it has none, or no answer without it */
    struct kb_reply *held;
    size_t dripped, loading;
    struct kb_disk_req read;
    struct kw_blk *blk;
};

/* fault_answer.c: messages by their descriptors. */
bool kb_fault_names(struct kb_request *rq, const char *topic,
                    int32_t partition);                    /* the request concerns this topic (NULL: any), this partition (-1: any) */
bool kb_fault_is_of_group(struct kb_request *rq, const char *group); /* the request names this group */
bool kb_fault_has_no_answer(struct kb_request *rq);        /* a produce with acks=0 */
void kb_fault_refuse(struct kb_request *rq, int16_t code); /* answers the error for all that was asked, without any effect */
void kb_fault_set_error(struct kb_request *rq, void *msg, int16_t code); /* in the errorCodes of an answer; records go */
void kb_fault_set_throttle(const struct kw_desc *d, void *msg, int32_t ms);

#endif
