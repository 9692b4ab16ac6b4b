/* image_rig.h - records made by hand and applied to an image alone, for the image's tests. */
#ifndef IMAGE_RIG_H
#define IMAGE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kw_messages.h"
#include "quorum/image.h"

#define MSG(kind, name)                                                                                                                    \
    struct kw_##kind##_record name;                                                                                                        \
    kw_msg_init(&kw_##kind##_record_desc, &name)

static inline struct kw_uuid id_of(uint8_t n) {
    struct kw_uuid u = {{0}};
    u.b[0] = 7;
    u.b[15] = n;
    return u;
}

static inline kw_err apply(struct kb_image *im, int16_t type, const void *record) {
    return kb_image_apply(im, im->offset + 1, 1, type, record);
}

static inline kw_err add_topic(struct kb_image *im, const char *name, uint8_t id) {
    MSG(topic, t);
    t.name = kw_str_of(name);
    t.topic_id = id_of(id);
    return apply(im, KW_RECORD_TOPIC, &t);
}

#endif
