/* crc32c.h - CRC-32C (record batch v2) by the processor's instruction where it has one, chosen at run time, else by tables;
 * CRC-32 (message sets v0/v1, gzip) by zlib's polynomial. Both are incremental: pass the previous result, 0 at first. */
#ifndef KW_CRC32C_H
#define KW_CRC32C_H

#include "base.h"

uint32_t kw_crc32c(uint32_t crc, const void *p, size_t n);
uint32_t kw_crc32c_portable(uint32_t crc, const void *p, size_t n);
/* The CRC of two pieces behind each other, from theirs; n: bytes of the second. */
uint32_t kw_crc32c_join(uint32_t first, uint32_t second, size_t n);
bool kw_crc32c_is_hardware(void);
uint32_t kw_crc32(uint32_t crc, const void *p, size_t n);

#endif
