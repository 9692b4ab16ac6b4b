/* partitioner.h - which partition a record goes to: the hashes of the Java client and of librdkafka, result for result, and the uniform
 * sticky choice for records without a key (KIP-480, KIP-794).
 *
 * Called by accum.c (hash outside of its lock, remainder and choice inside) and by core/config.c (names). Calls base/crc32c, base/rng.
 */
#ifndef KC_PARTITIONER_H
#define KC_PARTITIONER_H

#include "base/base.h"
#include "base/rng.h"

/* kc_settings.partitioner. `_random`: records without a key are spread by the sticky choice. Without it they all hash to one partition. */
enum kc_partitioner {
    KC_PARTITIONER_MURMUR2_RANDOM = 0, /* Java's default, and ours */
    KC_PARTITIONER_MURMUR2,
    KC_PARTITIONER_CONSISTENT_RANDOM,  /* librdkafka's default: CRC-32; an empty key counts as none */
    KC_PARTITIONER_CONSISTENT,
    KC_PARTITIONER_FNV1A_RANDOM,       /* as Sarama */
    KC_PARTITIONER_FNV1A,
    KC_PARTITIONER_RANDOM,             /* each record by itself, keys ignored */
    KC_PARTITIONER_STICKY,             /* keys ignored: KIP-480/794 */
    KC_PARTITIONER_ROUND_ROBIN,        /* keys ignored */
    KC_PARTITIONER_COUNT
};
#define KC_PARTITIONER_NAMES \
    "murmur2_random,murmur2,consistent_random,consistent,fnv1a_random,fnv1a,random,sticky,round_robin"
const char *kc_partitioner_name(int kind); /* NULL: unknown */
int kc_partitioner_by_name(const char *name); /* also Java's class names, with or without their package, and "default"; -1: unknown */

uint32_t kc_murmur2(const void *key, size_t size); /* with Java's seed; the sign bit is the caller's to mask */
uint32_t kc_fnv1a(const void *key, size_t size);   /* the absolute value of the signed hash, as Sarama and librdkafka have it */

/* true: the key decides, and *hash % partition count is the partition. false: the choice is free. key NULL: no key (null); size 0 with a
 * key: empty. */
bool kc_partitioner_hash(int kind, const void *key, size_t size, uint32_t *hash);
/* The hash of a record's id, where no key decides: the same whatever the partitioner is, so that all producers agree. */
uint32_t kc_partitioner_hash_id(const uint8_t id[16]);

/* The sticky choice of one topic. A partition is kept until batch.size bytes went to it, or sticky.partitioning.linger.ms passed: neither
 * depends on how fast its broker is, so a slow broker does not draw more than its share (KAFKA-10888). */
struct kc_sticky {
    int32_t partition;  /* -1: none yet */
    int64_t bytes;      /* that went to it */
    int64_t until_us;
    int32_t round;      /* of round robin; -1 at first */
};
void kc_sticky_init(struct kc_sticky *s);
/* What the choice is made among. */
struct kc_choice {
    int32_t count;              /* of partitions, > 0 */
    const int32_t *available;   /* those that have a leader; NULL or none: all */
    int32_t available_count;
    const uint32_t *queued;     /* adaptive: bytes waiting, one for each of `available` (or of all); NULL: evenly */
};
int32_t kc_choose_random(const struct kc_choice *c, struct kw_rng *rng);
int32_t kc_choose_next(struct kc_sticky *s, const struct kc_choice *c, struct kw_rng *rng); /* round robin, from a random start */

#endif
