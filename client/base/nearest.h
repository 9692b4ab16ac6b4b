/* nearest.h - "did you mean …": the word of a list that is nearest to what was written, for configuration names and command lines. */
#ifndef KW_NEAREST_H
#define KW_NEAREST_H

#include "base.h"

/* A running search: offer candidates one by one; best stays NULL when none is near enough to be meant. */
struct kw_nearest {
    const char *word, *best;
    size_t distance;
};
void kw_nearest_init(struct kw_nearest *n, const char *word);
void kw_nearest_offer(struct kw_nearest *n, const char *candidate); /* the candidate must outlive the search */

#endif
