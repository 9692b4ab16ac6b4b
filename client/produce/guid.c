/* guid.c - UUIDv7 with a monotonic counter in its random bits (RFC 9562 section 6.2, method 2); UUIDs as text. See guid.h. */
#include "guid.h"

#include <kclient/kclient.h>

#define HIGH_BITS 12
#define LOW_BITS 62
#define MS_MAX (((int64_t)1 << 48) - 1)

void kc_guid_next(struct kc_guid *g, struct kw_rng *rng, int64_t wall_ms, uint8_t id[16]) {
    if (wall_ms < 0) wall_ms = 0;
    if (wall_ms > MS_MAX) wall_ms = MS_MAX;
    if (wall_ms > g->ms) {
        g->ms = wall_ms;
        g->high = kw_rng_next(rng) >> (64 - HIGH_BITS + 1); /* the top bit stays 0: room to count up within the millisecond */
        g->low = kw_rng_next(rng) >> (64 - LOW_BITS);
    } else { /* by a random step, so that the next id cannot be guessed from this one */
        g->low += 1 + (kw_rng_next(rng) >> 32);
        g->high += g->low >> LOW_BITS;
        g->low &= ((uint64_t)1 << LOW_BITS) - 1;
        if (g->high >> HIGH_BITS) {
            g->high = 0;
            if (g->ms < MS_MAX) g->ms++;
        }
    }
    kc_guid_put(id, g->ms, g->high, g->low);
}

void kc_guid_put(uint8_t id[KC_GUID_SIZE], int64_t wall_ms, uint64_t high, uint64_t low) {
    uint64_t ms = (uint64_t)KW_MIN(KW_MAX(wall_ms, (int64_t)0), MS_MAX);
    kw_store64(id, ms << 16 | (uint64_t)7 << 12 | (high & (((uint64_t)1 << HIGH_BITS) - 1)));
    kw_store64(id + 8, (uint64_t)2 << 62 | (low & (((uint64_t)1 << LOW_BITS) - 1)));
}

size_t kc_guid_headers(const struct kw_header_view *headers, size_t count, const uint8_t **id) {
    size_t named = 0;
    *id = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct kw_header_view *h = &headers[i];
        if (h->key.len != (int32_t)sizeof KC_GUID_HEADER - 1 || memcmp(h->key.p, KC_GUID_HEADER, sizeof KC_GUID_HEADER - 1) != 0) continue;
        *id = ++named == 1 && h->value.len == KC_GUID_SIZE ? h->value.p : NULL;
    }
    return named;
}

/* ---- As text ---- */

static int32_t digit_of(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool is_dash_at(size_t byte) { return byte == 4 || byte == 6 || byte == 8 || byte == 10; }

kc_err kc_guid_from_text(const char *text, size_t size, uint8_t guid[16]) {
    uint8_t id[KC_GUID_SIZE];
    if (!text || !guid) return KC_INVALID;
    if (size == 0) size = strnlen(text, KC_GUID_TEXT_SIZE);
    bool dashes = size == KC_GUID_TEXT_SIZE - 1;
    if (!dashes && size != 2 * (size_t)KC_GUID_SIZE) return KC_BAD_GUID;
    for (size_t i = 0; i < KC_GUID_SIZE; i++) {
        if (dashes && is_dash_at(i) && *text++ != '-') return KC_BAD_GUID;
        int32_t high = digit_of(text[0]), low = digit_of(text[1]);
        if (high < 0 || low < 0) return KC_BAD_GUID;
        id[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    memcpy(guid, id, sizeof id);
    return KC_OK;
}

const char *kc_guid_to_text(const uint8_t guid[16], char text[KC_GUID_TEXT_SIZE]) {
    static const char digits[] = "0123456789abcdef";
    char *at = text;
    for (size_t i = 0; i < KC_GUID_SIZE; i++) {
        if (is_dash_at(i)) *at++ = '-';
        *at++ = digits[guid[i] >> 4];
        *at++ = digits[guid[i] & 15];
    }
    *at = 0;
    return text;
}
