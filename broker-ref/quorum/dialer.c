/* dialer.c - contract: dialer.h. */
#include "dialer.h"

#include "node_priv.h"

struct kb_dialer {
    struct kb_node *node;
    struct kw_map dials; /* broker id -> struct dial */
};
struct dial {
    struct kb_dialer *dialer;
    int32_t broker;
    struct kb_link *link;
};

kw_err kb_dialer_new(struct kb_node *n, struct kb_dialer **out) {
    struct kb_dialer *d = kw_calloc(1, sizeof(*d));
    if (!d) return KW_ENOMEM;
    d->node = n;
    kw_map_init(&d->dials);
    *out = d;
    return KW_OK;
}

void kb_dialer_free(struct kb_dialer *d) {
    if (!d) return;
    struct dial *t;
    for (size_t it = 0; (t = kw_map_next(&d->dials, &it));) {
        kb_link_free(t->link);
        kw_free(t);
    }
    kw_map_deinit(&d->dials);
    kw_free(d);
}

static void tell(struct dial *t, bool refused, struct kb_now now) {
    struct kb_dialer *d = t->dialer;
    int32_t broker = t->broker;
    kw_map_remove_u64(&d->dials, (uint32_t)broker);
    kb_link_free(t->link);
    kw_free(t);
    kb_controller_dialed(d->node->parts.controller, broker, refused, now);
}

static void opened(void *ctx, struct kb_link *l, struct kb_now now) {
    (void)l;
    kb_link_close(((struct dial *)ctx)->link, now); /* freeing it here is not for `opened`: `ended` follows */
}

static void ended(void *ctx, struct kb_link *l, enum kb_link_end how, struct kb_now now) {
    (void)l;
    tell(ctx, how == KB_LINK_REFUSED, now);
}

kw_err kb_dialer_dial(void *ctx, int32_t broker, const char *host, uint16_t port, struct kb_now now) {
    struct kb_dialer *d = ctx;
    if (kw_map_get_u64(&d->dials, (uint32_t)broker)) return KW_EBUSY;
    struct dial *t = kw_calloc(1, sizeof(*t));
    if (!t) return KW_ENOMEM;
    t->dialer = d;
    t->broker = broker;
    struct kb_link_options o = {.node = d->node, .host = host, .port = port, .opened = opened, .ended = ended, .ctx = t};
    kw_err err = kb_link_new(&o, &t->link);
    if (!err) err = kw_map_put_u64(&d->dials, (uint32_t)broker, t);
    if (!err) {
        err = kb_link_dial(t->link, now);
        if (err) kw_map_remove_u64(&d->dials, (uint32_t)broker);
    }
    if (!err) return KW_OK;
    kb_link_free(t->link);
    kw_free(t);
    return err;
}
