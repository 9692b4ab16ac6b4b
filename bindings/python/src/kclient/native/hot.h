/* hot.h - what the files of the hot calls share: the types of the module kclient._fast, which lies in the same shared object as cffi's kclient._native.
 *
 * cffi calls what is called now and then; what is called for each record or batch stands here, in CPython's own API, since a call through cffi costs
 * more than the work. All of it runs with the GIL, except the waits.
 */
#ifndef KCLIENT_PY_HOT_H
#define KCLIENT_PY_HOT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include <kclient/admin.h>
#include <kclient/consumer.h>
#include <kclient/producer.h>

enum { SLICE_US = 25000 }; /* of a wait in the main thread: as long as Ctrl-C may take */

/* ---- What comes in (batch.c, record.c) ---- */

/* An event that poll gave, or a part of the records of one. */
typedef struct {
    PyObject_HEAD
    kc_event *event; /* a hold of its own */
    PyObject *topic; /* str; None for an event of no partition */
    const kc_view *views;
    const uint8_t *span;
    size_t span_size;
    Py_ssize_t count;
    int32_t partition, kind;
} Batch;

typedef struct {
    PyObject_HEAD
    Batch *batch;
    Py_ssize_t index;
} Record;

extern PyTypeObject Batch_type, Event_type, Record_type, Column_type, Report_type, Sender_type, Source_type;

/** The object of an event, which it takes over, on failure too: a RecordBatch or an Event. topic: borrowed. */
PyObject *batch_of(kc_event *event, PyObject *topic);
/** records first … first + count of a batch, under a hold of its own. */
PyObject *batch_part(const Batch *whole, Py_ssize_t first, Py_ssize_t count);
PyObject *record_of(Batch *batch, Py_ssize_t index);
/** The bytes of a record's key or value; None for null. */
PyObject *piece_of(const Batch *batch, uint32_t at, int32_t size);

/* ---- What goes out (fields.c, report.c) ---- */

enum { HEADERS_INLINE = 16 };
/* What a record's Python objects are held by while C reads them. Zero-filled is empty. The objects themselves are the caller's, and stay. */
struct fields {
    Py_buffer key, value;
    PyObject *headers, *guid; /* of headers_plain; its bytes */
    kc_header *header, header_inline[HEADERS_INLINE];
    Py_buffer *header_value, header_value_inline[HEADERS_INLINE];
    Py_ssize_t header_values;
    void *block; /* of PyMem, where there are more headers than that */
};
static inline void fields_init(struct fields *f) {
    f->key.obj = f->value.obj = NULL;
    f->headers = f->guid = NULL;
    f->header = f->header_inline;
    f->header_value = f->header_value_inline;
    f->header_values = 0;
    f->block = NULL;
}
void fields_release(struct fields *f);
/** A bytes, str (as UTF-8) or None as bytes, without a hold: 0, 1: it is another kind of object, -1: an exception. */
int plain_bytes(PyObject *value, kc_bytes *out);
/** The same, or any object with a buffer, which is held in *hold. 0, or -1: an exception. what: for its message. */
int any_bytes(PyObject *value, Py_buffer *hold, kc_bytes *out, const char *what);
/** Headers (a dict, or pairs of any kind) as a list of tuples that is nobody else's: what C reads of it lives as long, and nobody changes it. New, or
 * NULL. What is in the pairs is not looked at yet. */
PyObject *headers_plain(PyObject *headers);
/** The same as fields_headers, of such a list or None. */
int fields_plain_headers(struct fields *f, PyObject *plain, kc_record *out);
/* Each sets what it means in *out; NULL and None: nothing. 0, or -1: an exception. */
int fields_headers(struct fields *f, PyObject *headers, kc_record *out);
int fields_guid(struct fields *f, PyObject *guid, kc_record *out);
int fields_partition(PyObject *partition, kc_record *out);
int fields_timestamp(PyObject *timestamp, kc_record *out);

/* The outcome of a record, for Python. */
typedef struct {
    PyObject_HEAD
    PyObject *topic, *error;
    PyObject *attempts; /* a tuple; NULL: none */
    long long number, offset, timestamp;
    int partition, outcome;
    unsigned int flags, size;
} Report;
/** The report at which a container stands. topic: borrowed. */
PyObject *report_of(const kc_reports *container, const kc_report *r, PyObject *topic);

/* ---- Shared (module.c) ---- */

/** Gives a borrowed function of a Python module of the package, imported once. */
PyObject *helper(PyObject **cache, const char *module, const char *name);
/** Sets the exception of a code; what: what was called. Returns NULL. */
PyObject *raise_code(kc_err code, const char *what);
/** A topic's name by its number, from the client's dict, which is filled. Borrowed. */
PyObject *topic_name(kc_client *client, PyObject *names, int32_t topic);
/** The next piece of a wait: at most *left_us, in the main thread in slices. -1: no limit. */
int64_t wait_piece(int64_t *left_us);
/** 1: this is the thread that runs Python's signal handlers. */
int is_main_thread(void);
PyObject *set_main_thread(PyObject *module, PyObject *ident);
/** Seconds (None: no limit) as microseconds; -2: an exception is set. */
int64_t micros_of(PyObject *seconds);

#endif
