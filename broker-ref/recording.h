/* recording.h - what a recording (kbroker run --record FILE) consists of: an entry a frame, each whole in itself, appended by several nodes to one file.
 *
 * An entry, all big-endian: magic 4, size 4 (of what follows the checksum), CRC-32C 4 (over that); kind 1 (0 request, 1 response), flags 1, length of the
 * peer's text 2, node 4, API key 2, version 2, correlation id 4, size of the frame 4, connection 8, time 8 (us since 1970), took 8 (us), length of the
 * client id 2 (0xffff: null), count of pieces 2; then peer, client id, the pieces' places in the frame (at 4, length 4 each), and their bytes. What of the
 * frame lies in no piece was not stored: all of it when it tells secrets (KB_RECORDING_MASKED), else what is beyond KB_RECORDING_STORED_MAX.
 *
 * Called by shell_record (writes), shell_print (reads), print. No I/O.
 */
#ifndef KB_RECORDING_H
#define KB_RECORDING_H

#include "event.h"

#define KB_RECORDING_MAGIC UINT32_C(0x4b425246) /* KBRF */
enum {
    KB_RECORDING_STORED_MAX = 8 << 20, /* bytes of a frame */
    KB_RECORDING_FRAME_MAX = 256 << 20, /* of one that is put together again */
    KB_RECORDING_PIECES_MAX = 64,
    KB_RECORDING_TEXT_MAX = 300,       /* of the peer; of the client id: what is longer is cut */
    KB_RECORDING_FIXED = 60,
    KB_RECORDING_HEAD_MAX = KB_RECORDING_FIXED + 2 * KB_RECORDING_TEXT_MAX + 8 * KB_RECORDING_PIECES_MAX,
    KB_RECORDING_ENTRY_MAX = KB_RECORDING_HEAD_MAX + KB_RECORDING_STORED_MAX,
};
enum { KB_RECORDING_MASKED = 1 };

struct kb_piece {
    uint32_t at, len; /* in the frame; ascending, apart */
};
struct kb_recording_entry {
    bool response;
    uint8_t flags;
    int32_t node;
    int64_t connection, at_us, took_us;
    int16_t api_key, version;
    int32_t correlation_id;
    uint32_t frame_size;
    struct kw_str peer, client_id;
    size_t piece_count;
    struct kb_piece pieces[KB_RECORDING_PIECES_MAX];
    const uint8_t *data; /* of the pieces, one behind the other; only of an entry that was read */
    size_t data_size;
};

/* A request or response of this API tells a password or a key: nothing of its body is stored. */
bool kb_recording_is_secret(int16_t api_key);
/* What of the frame is stored, as pieces; which bytes of its parts, in order: the sum of the pieces. */
void kb_recording_choose(const struct kb_recorded *r, struct kb_recording_entry *e);
/* Everything up to the pieces' bytes, which iov has. Returns its size. */
size_t kb_recording_head(const struct kb_recording_entry *e, const struct kb_iov *iov, size_t iov_count, uint8_t out[KB_RECORDING_HEAD_MAX]);

enum kb_recording_found { KB_RECORDING_ENTRY, KB_RECORDING_MORE /* bytes are needed to tell */, KB_RECORDING_UNSOUND };
/* What stands at p: an entry of *used bytes (a view); or *used bytes that are none, and *why (static). end: nothing follows the n bytes. */
enum kb_recording_found kb_recording_next(const uint8_t *p, size_t n, bool end, struct kb_recording_entry *e, size_t *used, const char **why);
/* The frame, of frame_size bytes, with zeros where it was not stored: a view, or *made of kw_malloc. NULL: no memory for it, or over KB_RECORDING_FRAME_MAX. */
const uint8_t *kb_recording_frame(const struct kb_recording_entry *e, uint8_t **made);
/* So many of the bytes from `at` on were stored, up to the first that was not. */
size_t kb_recording_stored(const struct kb_recording_entry *e, size_t at, size_t len);

#endif
