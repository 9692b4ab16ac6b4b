/* send_many.c - Sender.send_many: many records in one crossing. Called by Python; calls fields.c, sender.c.
 *
 * Everything is looked at before the first record is taken, so that what is wrong with an object is told while nothing has been sent. Then records
 * are made in chunks that stay in the cache, pointing at the objects' own bytes (which their tuples keep), and the library copies them into its
 * batches without the GIL.
 */
#include "aio.h"

enum { CHUNK = 256 };
enum many_slot { M_TOPIC, M_VALUES, M_KEYS, M_PARTITION, M_TIMESTAMPS, M_GUIDS, M_HEADERS, M_ON_REPORT, M_SIZES, M_KEY_SIZES, M_SLOTS };

/* Keys or values: a tuple of objects, or one buffer and the sizes in it. */
struct column {
    PyObject *objects;
    Py_buffer arena;
    int32_t *sizes;
    const char *at; /* of the next one in the arena */
};
struct many {
    Sender *s;
    PyObject *topic, *on_report;
    Group *group; /* in the place of on_report; its range stands from many_init to the end of the call */
    Py_ssize_t n, expected; /* of how many on_report stands in the producer's callbacks */
    struct column values, keys;
    int64_t *timestamps;
    PyObject *guids, *headers; /* tuples; of headers: lists of headers_plain */
    kc_record common;          /* topic, partition, flags */
    uint64_t first;
};

/* ---- In ---- */

static PyObject *tuple_of(PyObject *sequence, Py_ssize_t n, const char *what) {
    if (PyUnicode_Check(sequence) || PyBytes_Check(sequence) || PyByteArray_Check(sequence))
        return PyErr_Format(PyExc_TypeError, "%s is a sequence of them, not one %.100s (a buffer needs sizes)", what, Py_TYPE(sequence)->tp_name);
    PyObject *t = PySequence_Tuple(sequence);
    if (t && n >= 0 && PyTuple_GET_SIZE(t) != n) {
        PyErr_Format(PyExc_ValueError, "%zd values, but %zd %s", n, PyTuple_GET_SIZE(t), what);
        Py_CLEAR(t);
    }
    return t;
}

/* What can stand for an item that is no bytes, str or None: a copy of its buffer. A str that is no UTF-8 is told here, too. New, or NULL. */
static PyObject *plain_item(PyObject *item, Py_ssize_t i, const char *what) {
    kc_bytes ignored;
    int kind = plain_bytes(item, &ignored);
    if (kind < 0) return NULL;
    if (kind == 1 && PyObject_CheckBuffer(item)) return PyBytes_FromObject(item);
    if (kind == 1) return PyErr_Format(PyExc_TypeError, "%s[%zd] is bytes, str or None, not %.100s", what, i, Py_TYPE(item)->tp_name);
    Py_INCREF(item);
    return item;
}

/* A tuple of bytes, str and None alone. */
static PyObject *plain_tuple(PyObject *sequence, Py_ssize_t n, const char *what) {
    PyObject *t = tuple_of(sequence, n, what), *list = NULL;
    for (Py_ssize_t i = 0; t && i < PyTuple_GET_SIZE(t); i++) {
        PyObject *item = PyTuple_GET_ITEM(t, i), *plain = plain_item(item, i, what);
        if (plain && plain != item && !list) list = PySequence_List(t);
        if (!plain || (plain != item && !list)) Py_CLEAR(t);
        if (t && list) PyList_SetItem(list, i, plain); /* takes plain */
        else Py_XDECREF(plain);
    }
    if (t && list) Py_SETREF(t, PyList_AsTuple(list));
    Py_XDECREF(list);
    return t;
}

/* int32 of a sequence of ints; their sum (-1: null, counts nothing) must be the size of the arena. */
static int32_t *sizes_of(PyObject *sequence, Py_ssize_t *n, Py_ssize_t total, const char *what) {
    PyObject *own = PySequence_Tuple(sequence);
    if (!own) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(own), sum = 0;
    int32_t *sizes = PyMem_New(int32_t, count + 1);
    if (!sizes) PyErr_NoMemory();
    for (Py_ssize_t i = 0; sizes && i < count; i++) {
        Py_ssize_t size = PyNumber_AsSsize_t(PyTuple_GET_ITEM(own, i), PyExc_OverflowError);
        if (size < -1 || size > INT32_MAX || sum > total) {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%s[%zd]: -1 (null) or a size within the buffer, not %zd", what, i, size);
            break;
        }
        if (size == -1 && PyErr_Occurred()) break;
        sizes[i] = (int32_t)size;
        sum += size > 0 ? size : 0;
    }
    if (!PyErr_Occurred() && sum != total) PyErr_Format(PyExc_ValueError, "%s add up to %zd, the buffer has %zd bytes", what, sum, total);
    if (!PyErr_Occurred() && *n >= 0 && count != *n) PyErr_Format(PyExc_ValueError, "%zd values, but %zd %s", *n, count, what);
    *n = count;
    Py_DECREF(own);
    if (PyErr_Occurred()) {
        PyMem_Free(sizes);
        return NULL;
    }
    return sizes;
}

static int column_init(struct column *c, PyObject *data, PyObject *sizes, Py_ssize_t *n, const char *what, const char *sizes_what) {
    if (!sizes) {
        c->objects = plain_tuple(data, *n, what);
        if (c->objects) *n = PyTuple_GET_SIZE(c->objects);
        return c->objects ? 0 : -1;
    }
    if (PyObject_GetBuffer(data, &c->arena, PyBUF_SIMPLE) < 0) return -1;
    c->at = c->arena.buf;
    c->sizes = sizes_of(sizes, n, c->arena.len, sizes_what);
    return c->sizes ? 0 : -1;
}
static void column_release(struct column *c) {
    Py_XDECREF(c->objects);
    if (c->arena.obj) PyBuffer_Release(&c->arena);
    PyMem_Free(c->sizes);
}
static inline void column_next(struct column *c, Py_ssize_t i, kc_bytes *out) {
    if (c->objects) {
        (void)plain_bytes(PyTuple_GET_ITEM(c->objects, i), out);
    } else if (c->sizes) {
        int32_t size = c->sizes[i];
        *out = (kc_bytes){size < 0 ? NULL : c->at ? c->at : "", (size_t)(size < 0 ? 0 : size)};
        c->at += size < 0 ? 0 : size;
    }
}

static int timestamps_init(struct many *m, PyObject *sequence) {
    PyObject *t = tuple_of(sequence, m->n, "timestamps");
    if (!t) return -1;
    m->timestamps = PyMem_New(int64_t, m->n + 1);
    if (!m->timestamps) PyErr_NoMemory();
    for (Py_ssize_t i = 0; m->timestamps && i < m->n && !PyErr_Occurred(); i++) m->timestamps[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(t, i));
    Py_DECREF(t);
    m->common.flags |= KC_HAS_TIMESTAMP;
    return PyErr_Occurred() ? -1 : 0;
}

static int guids_init(struct many *m, PyObject *sequence) {
    PyObject *t = tuple_of(sequence, m->n, "guids");
    if (!t) return -1;
    m->guids = PyTuple_New(m->n);
    for (Py_ssize_t i = 0; m->guids && i < m->n; i++) {
        struct fields f;
        fields_init(&f);
        kc_record ignored = {0};
        if (fields_guid(&f, PyTuple_GET_ITEM(t, i), &ignored) < 0) Py_CLEAR(m->guids);
        else {
            PyObject *guid = f.guid ? f.guid : Py_None;
            Py_INCREF(guid);
            PyTuple_SET_ITEM(m->guids, i, guid);
        }
        fields_release(&f);
    }
    Py_DECREF(t);
    return m->guids ? 0 : -1;
}

/* Looked at as a whole before the first record is taken; an iterable is gone through once. */
static int headers_init(struct many *m, PyObject *sequence) {
    PyObject *t = tuple_of(sequence, m->n, "headers");
    if (!t) return -1;
    m->headers = PyTuple_New(m->n);
    for (Py_ssize_t i = 0; m->headers && i < m->n; i++) {
        PyObject *item = PyTuple_GET_ITEM(t, i), *plain = Py_None;
        struct fields f;
        fields_init(&f);
        kc_record ignored = {0};
        if (item == Py_None) Py_INCREF(plain);
        else plain = headers_plain(item);
        if (plain) PyTuple_SET_ITEM(m->headers, i, plain);
        if (!plain || fields_plain_headers(&f, plain, &ignored) < 0) Py_CLEAR(m->headers);
        fields_release(&f);
    }
    Py_DECREF(t);
    return m->headers ? 0 : -1;
}

static int many_init(struct many *m, PyObject **slot) {
    m->topic = slot[M_TOPIC];
    m->on_report = slot[M_ON_REPORT];
    m->n = -1;
    if (column_init(&m->values, slot[M_VALUES], slot[M_SIZES], &m->n, "values", "sizes") < 0) return -1;
    if (slot[M_KEYS] && column_init(&m->keys, slot[M_KEYS], slot[M_KEY_SIZES], &m->n, "keys", "key_sizes") < 0) return -1;
    if (fields_partition(slot[M_PARTITION], &m->common) < 0) return -1;
    if (slot[M_TIMESTAMPS] && timestamps_init(m, slot[M_TIMESTAMPS]) < 0) return -1;
    if (slot[M_GUIDS] && guids_init(m, slot[M_GUIDS]) < 0) return -1;
    if (slot[M_HEADERS] && headers_init(m, slot[M_HEADERS]) < 0) return -1;
    if (sender_topic(m->s, m->topic, &m->common.topic) < 0) return -1;
    if (!m->on_report && !m->s->track) m->common.flags |= KC_NO_REPORT; /* a group stands in its place still */
    m->first = m->s->next;
    m->s->next += (uint64_t)m->n;
    if (m->on_report && Py_TYPE(m->on_report) == &Group_type) {
        m->group = (Group *)m->on_report;
        m->on_report = NULL;
        return sender_expect_range(m->s, m->first, (size_t)m->n, m->group);
    }
    for (; m->on_report && m->expected < m->n; m->expected++)
        if (sender_expect(m->s, m->first + (uint64_t)m->expected, m->on_report) < 0) return -1;
    return 0;
}
static void many_release(struct many *m) {
    column_release(&m->values);
    column_release(&m->keys);
    PyMem_Free(m->timestamps);
    Py_XDECREF(m->guids);
    Py_XDECREF(m->headers);
}

/* ---- Out ---- */

static void fill(struct many *m, Py_ssize_t i, kc_record *r) {
    *r = m->common;
    column_next(&m->values, i, &r->value);
    column_next(&m->keys, i, &r->key);
    if (m->timestamps) r->timestamp_ms = m->timestamps[i];
    if (m->guids && PyTuple_GET_ITEM(m->guids, i) != Py_None) r->guid = (const uint8_t *)PyBytes_AS_STRING(PyTuple_GET_ITEM(m->guids, i));
    r->opaque = m->first + (uint64_t)i;
}

/* Sends n records, waiting for room as send does. 0: *done says how many were taken, *err why no more; -1: an exception. */
static int put(Sender *s, const kc_record *records, size_t n, size_t *done, kc_err *err) {
    int64_t left = s->enqueue_us, piece = 0;
    for (;;) {
        Py_BEGIN_ALLOW_THREADS
        *done += kc_producer_send_many(s->producer, records + *done, 0, n - *done, piece, err);
        Py_END_ALLOW_THREADS
        if (*done == n || (*err != KC_QUEUE_FULL && *err != KC_TIMED_OUT)) return 0;
        if (PyErr_CheckSignals() < 0) return -1;
        if (left == 0) return 0;
        if (sender_make_room(s) < 0) return -1;
        piece = sender_piece(s, left);
        if (left > 0) left -= piece;
    }
}

/* With headers each record has arrays of its own: one by one, in the same crossing. */
static int put_with_headers(struct many *m, size_t *done, kc_err *err) {
    for (; *done < (size_t)m->n && !*err;) {
        kc_record r;
        struct fields f;
        fields_init(&f);
        fill(m, (Py_ssize_t)*done, &r);
        size_t one = 0;
        int result = fields_plain_headers(&f, PyTuple_GET_ITEM(m->headers, (Py_ssize_t)*done), &r);
        if (result == 0) result = put(m->s, &r, 1, &one, err);
        fields_release(&f);
        *done += one;
        if (result < 0) return -1;
    }
    return 0;
}

static int put_all(struct many *m, size_t *done, kc_err *err) {
    *err = KC_OK;
    if (m->headers) return put_with_headers(m, done, err);
    kc_record *records = PyMem_New(kc_record, CHUNK);
    if (!records) {
        PyErr_NoMemory();
        return -1;
    }
    int result = 0;
    while (*done < (size_t)m->n && result == 0 && !*err) {
        size_t k = 0, taken = 0;
        for (; k < CHUNK && *done + k < (size_t)m->n; k++) fill(m, (Py_ssize_t)(*done + k), &records[k]);
        result = put(m->s, records, k, &taken, err);
        *done += taken;
    }
    PyMem_Free(records);
    return result;
}

PyObject *sender_send_many(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    static const char *const names[] = {"topic", "values", "keys", "partition", "timestamps", "guids", "headers", "on_report", "sizes", "key_sizes"};
    Sender *s = (Sender *)o;
    PyObject *slot[M_SLOTS];
    if (sender_ready(s) < 0 || take_arguments("send_many", names, M_SLOTS, 2, args, n, kwnames, slot) < 0) return NULL;
    struct many m = {.s = s};
    size_t done = 0;
    kc_err err = KC_OK;
    int result = many_init(&m, slot);
    if (result == 0) result = put_all(&m, &done, &err);
    if (m.group) sender_end_range(s, m.first, done);
    if (result == 0 && err) result = sender_no(s, err, m.topic, done);
    for (size_t i = done; result < 0 && i < (size_t)m.expected; i++) sender_forget(s, m.first + i);
    PyObject *range = NULL;
    unsigned long long from = m.first;
    if (result == 0) range = PyObject_CallFunction((PyObject *)&PyRange_Type, "KK", from, from + (unsigned long long)m.n);
    many_release(&m);
    return range;
}
