/* image_priv.h - what the files of the image share: its configuration entries. */
#ifndef KB_IMAGE_PRIV_H
#define KB_IMAGE_PRIV_H

#include "image.h"
#include "kw_messages.h"

struct kb_image_value {
    char *key, *value;
};
struct kb_image_config { /* one resource's */
    int8_t type;
    char *name;
    struct kw_map values; /* key -> struct kb_image_value, in order of arrival */
};

char *kb_image_strdup(struct kw_str s); /* null gives NULL; NULL also without memory: ask s.len */
kw_err kb_image_config_apply(struct kb_image *im, const struct kw_config_record *r) KW_CHECK;
void kb_image_config_drop(struct kb_image *im, int8_t type, struct kw_str resource);
void kb_image_config_deinit(struct kb_image *im);

#endif
