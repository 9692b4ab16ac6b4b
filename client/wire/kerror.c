/* kerror.c - looks errors up by code or name. Called wherever an error is shown or judged; calls nothing. */
#include "kerror.h"

static const struct kw_kerror_info table[] = {
#define ROW(code, name, retriable, refresh, text) {(code), #name, text, retriable, refresh},
    KW_KERRORS(ROW)
#undef ROW
};

static const struct kw_kerror_info unknown = {
    -1, "UNKNOWN", "an error code that this version of the software does not know", false, false};

const struct kw_kerror_info *kw_kerror_info(int32_t code) {
    /* Kafka's codes have no gap and start at -1; the table is in their order (the unit test checks it). */
    size_t i = (size_t)((int64_t)code + 1);
    if (code >= -1 && i < KW_COUNTOF(table) && table[i].code == code) return &table[i];
    for (i = 0; i < KW_COUNTOF(table); i++)
        if (table[i].code == code) return &table[i];
    return &unknown;
}

const struct kw_kerror_info *kw_kerror_by_name(const char *name) {
    for (size_t i = 0; i < KW_COUNTOF(table); i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

const char *kw_kerror_name(int32_t code) { return kw_kerror_info(code)->name; }
