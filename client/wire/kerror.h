/* kerror.h - the one table of errors: Kafka's protocol codes and our own, with name, retriable and a text that says what it means. */
#ifndef KW_KERROR_H
#define KW_KERROR_H

#include "../base/base.h"

/* KW_KERRORS(X): X(code, NAME, retriable, refresh_metadata, "text"). Kafka 4.4's whole table lives in kerror_table.h; base.h's own
 * results follow it as KE_OUT_OF_MEMORY (= KW_ENOMEM), KE_MALFORMED and so on, so that every result has a name and a text. */
#include "kerror_table.h"
enum kw_kerror {
#define KW_KERROR_ENUM(code, name, retriable, refresh, text) KE_##name = (code),
    KW_KERRORS(KW_KERROR_ENUM)
#undef KW_KERROR_ENUM
};

struct kw_kerror_info {
    int32_t code;
    const char *name; /* "NOT_LEADER_OR_FOLLOWER" */
    const char *text;
    bool retriable;
    bool refresh_metadata; /* retrying makes sense only with fresh metadata */
};
const struct kw_kerror_info *kw_kerror_info(int32_t code); /* never NULL: an unknown code gives an entry with code -1, name "UNKNOWN" */
const struct kw_kerror_info *kw_kerror_by_name(const char *name); /* NULL: no such */
const char *kw_kerror_name(int32_t code);

#endif
