/* nearest.c - edit distance with transpositions (optimal string alignment) over short words, case-insensitive. */
#include "nearest.h"

#define WORD_MAX 64

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static size_t distance(const char *a, size_t n, const char *b, size_t m) {
    size_t row[3][WORD_MAX + 1]; /* the last two rows and the one in work */
    size_t *before = row[0], *last = row[1], *now = row[2];
    for (size_t j = 0; j <= m; j++) last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = last[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));
            size_t best = KW_MIN(KW_MIN(last[j], now[j - 1]) + 1, change);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) best = KW_MIN(best, before[j - 2] + 1);
            now[j] = best;
        }
        size_t *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[m];
}

void kw_nearest_init(struct kw_nearest *n, const char *word) {
    n->word = word;
    n->best = NULL;
    n->distance = strlen(word) / 3 + 2; /* further away is another word */
}

void kw_nearest_offer(struct kw_nearest *n, const char *candidate) {
    size_t a = strlen(n->word), b = strlen(candidate);
    if (a == 0 || a > WORD_MAX || b > WORD_MAX) return;
    size_t d = distance(n->word, a, candidate, b);
    if (d < n->distance && d < b) {
        n->distance = d;
        n->best = candidate;
    }
}
