/* uuid.c - contract: uuid.h. Called by the store and the controller (new ids), replica/ (partition.metadata), api/. */
#include "uuid.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void kb_uuid_text(struct kw_uuid id, char text[23]) {
    for (size_t i = 0, o = 0; i < 16; i += 3) {
        uint32_t v = (uint32_t)id.b[i] << 16 | (i + 1 < 16 ? (uint32_t)id.b[i + 1] << 8 : 0) | (i + 2 < 16 ? id.b[i + 2] : 0);
        for (int shift = 18; shift >= 0 && o < 22; shift -= 6) text[o++] = alphabet[(v >> shift) & 63];
    }
    text[22] = 0;
}

bool kb_uuid_parse(const char *text, size_t n, struct kw_uuid *id) {
    if (n != 22) return false;
    struct kw_uuid u;
    uint32_t bits = 0, held = 0;
    size_t o = 0;
    for (size_t i = 0; i < n; i++) {
        const char *at = text[i] ? strchr(alphabet, text[i]) : NULL;
        if (!at) return false;
        bits = bits << 6 | (uint32_t)(at - alphabet);
        held += 6;
        if (held < 8) continue;
        held -= 8;
        u.b[o++] = (uint8_t)(bits >> held);
        bits &= (1u << held) - 1;
    }
    if (bits) return false;
    *id = u;
    return true;
}

struct kw_uuid kb_uuid_random(struct kw_rng *rng) {
    struct kw_uuid id;
    do {
        kw_store64(id.b, kw_rng_next(rng));
        kw_store64(id.b + 8, kw_rng_next(rng));
        id.b[6] = (uint8_t)((id.b[6] & 0x0f) | 0x40); /* version 4 and the variant keep it apart from Kafka's reserved small numbers */
        id.b[8] = (uint8_t)((id.b[8] & 0x3f) | 0x80);
    } while (id.b[0] >> 2 == 62); /* '-' */
    return id;
}
