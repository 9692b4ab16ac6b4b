/* config_priv.h - what config.c, config_file.c and config_net.c share. */
#ifndef KB_CONFIG_PRIV_H
#define KB_CONFIG_PRIV_H

#include "base/map.h"
#include "config.h"

struct kb_config {
    char **values;                          /* as set, one per entry of the table; NULL: not set */
    struct kw_map brokers, topics;          /* name -> entry of the table */
    struct kb_config_synonym *synonyms;     /* of topic entries, one after the other; each list ends with a NULL def */
    struct kb_config_synonym **synonyms_of; /* per entry of the table; NULL: none */
    bool reliable;                          /* --profile reliable */
};

void kb_config_text(char *text, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Takes the next comma-separated item, trimmed, off *list; false after the last. */
bool kb_config_item(const char **list, const char **item, size_t *len);
kw_err kb_config_store(struct kb_config *c, const struct kb_config_def *d, const char *value) KW_CHECK; /* already checked */

#endif
