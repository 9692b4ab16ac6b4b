/* group_api.h - what the APIs of groups share. */
#ifndef KB_GROUP_API_H
#define KB_GROUP_API_H

#include "api.h"
#include "group/coordinator.h"
#include "kw_messages.h"
#include "node_priv.h"
#include "wire/kerror.h"

/* Where a member's client is, as Apache Kafka writes it: "/127.0.0.1". */
static inline struct kw_str kb_group_host(struct kb_request *rq) {
    const char *peer = rq->conn ? rq->conn->peer : "", *colon = strrchr(peer, ':');
    size_t n = colon ? (size_t)(colon - peer) : strlen(peer);
    char *text = kw_arena_alloc(&rq->arena, n + 1);
    if (!text) return kw_str_of("/");
    text[0] = '/';
    memcpy(text + 1, peer, n);
    return (struct kw_str){text, (int32_t)n + 1};
}

#endif
