/* record.c - Record: one record of a batch, whose parts are made when they are asked for. Called by batch.c, source.c and Python. */
#include "hot.h"

PyObject *record_of(Batch *batch, Py_ssize_t index) {
    Record *r = PyObject_New(Record, &Record_type);
    if (!r) return NULL;
    Py_INCREF(batch);
    r->batch = batch;
    r->index = index;
    return (PyObject *)r;
}

static void record_dealloc(PyObject *o) {
    Py_DECREF(((Record *)o)->batch);
    PyObject_Free(o);
}

static const kc_view *view_of(PyObject *o) { return &((Record *)o)->batch->views[((Record *)o)->index]; }
/* Its index in the event, of which the batch may be a part. */
static size_t event_index(PyObject *o) { return (size_t)(view_of(o) - kc_event_views(((Record *)o)->batch->event)); }

#define GETTER(name, expression)                                                                                                        \
    static PyObject *get_##name(PyObject *o, void *unused) {                                                                            \
        (void)unused;                                                                                                                   \
        const kc_view *v = view_of(o);                                                                                                  \
        const Batch *b = ((Record *)o)->batch;                                                                                          \
        (void)v;                                                                                                                        \
        (void)b;                                                                                                                        \
        return expression;                                                                                                              \
    }
GETTER(value, piece_of(b, v->value_at, v->value_size))
GETTER(key, piece_of(b, v->key_at, v->key_size))
GETTER(offset, PyLong_FromLongLong(v->offset))
GETTER(timestamp, PyLong_FromLongLong(v->timestamp_ms))
GETTER(partition, PyLong_FromLong(b->partition))

static PyObject *get_topic(PyObject *o, void *unused) {
    (void)unused;
    PyObject *topic = ((Record *)o)->batch->topic;
    Py_INCREF(topic);
    return topic;
}

static int message_of(PyObject *o, kc_message *m) {
    kc_err err = kc_event_message(((Record *)o)->batch->event, event_index(o), m);
    if (err) raise_code(err, "record");
    return err ? -1 : 0;
}
static PyObject *get_timestamp_type(PyObject *o, void *unused) {
    (void)unused;
    kc_message m;
    return message_of(o, &m) ? NULL : PyLong_FromLong(m.timestamp_type);
}
static PyObject *get_leader_epoch(PyObject *o, void *unused) {
    (void)unused;
    kc_message m;
    return message_of(o, &m) ? NULL : PyLong_FromLong(m.leader_epoch);
}

static PyObject *header_pair(const kc_header *h) {
    PyObject *name = PyUnicode_DecodeUTF8(h->name, (Py_ssize_t)h->name_size, "surrogateescape");
    PyObject *value = Py_None;
    if (h->value.p) value = PyBytes_FromStringAndSize(h->value.p, (Py_ssize_t)h->value.size);
    else Py_INCREF(value);
    PyObject *pair = name && value ? PyTuple_Pack(2, name, value) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(value);
    return pair;
}

/* All headers, of PyMem_Free; *n of them. NULL with *n 0: none; with an exception: no memory. */
static kc_header *headers_of(PyObject *o, size_t *n) {
    const kc_view *v = view_of(o);
    *n = v->header_count;
    if (*n == 0) return NULL;
    kc_header *all = PyMem_New(kc_header, *n);
    if (!all) {
        PyErr_NoMemory();
        return NULL;
    }
    size_t got = kc_event_headers(((Record *)o)->batch->event, event_index(o), all, sizeof *all, *n);
    if (got < *n) *n = got;
    return all;
}

static PyObject *get_headers(PyObject *o, void *unused) {
    (void)unused;
    size_t n;
    kc_header *all = headers_of(o, &n);
    if (!all && PyErr_Occurred()) return NULL;
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *pair = header_pair(&all[i]);
        if (pair) PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
        else Py_CLEAR(list);
    }
    PyMem_Free(all);
    return list;
}

/* The last header of a name, as Kafka's clients take it. */
static PyObject *record_header(PyObject *o, PyObject *args) {
    const char *name;
    Py_ssize_t size;
    PyObject *found = Py_None;
    if (!PyArg_ParseTuple(args, "s#|O:header", &name, &size, &found)) return NULL;
    Py_INCREF(found);
    size_t n;
    kc_header *all = headers_of(o, &n);
    if (!all && PyErr_Occurred()) Py_CLEAR(found);
    for (size_t i = n; found && all && i-- > 0;) {
        if (all[i].name_size != (size_t)size || memcmp(all[i].name, name, (size_t)size) != 0) continue;
        Py_DECREF(found);
        found = Py_None;
        if (all[i].value.p) found = PyBytes_FromStringAndSize(all[i].value.p, (Py_ssize_t)all[i].value.size);
        else Py_INCREF(found);
        break;
    }
    PyMem_Free(all);
    return found;
}

static PyObject *get_guid(PyObject *o, void *unused) {
    (void)unused;
    static PyObject *make;
    size_t n;
    kc_header *all = headers_of(o, &n);
    PyObject *guid = all || !PyErr_Occurred() ? Py_None : NULL;
    Py_XINCREF(guid);
    for (size_t i = 0; guid && i < n; i++) {
        if (all[i].name_size != 4 || memcmp(all[i].name, "guid", 4) != 0 || all[i].value.size != 16) continue;
        Py_DECREF(guid);
        guid = helper(&make, "kclient.guid", "_uuid") ? PyObject_CallFunction(make, "y#", (const char *)all[i].value.p, (Py_ssize_t)16) : NULL;
        break;
    }
    PyMem_Free(all);
    return guid;
}

static PyObject *record_repr(PyObject *o) {
    const Record *r = (Record *)o;
    PyObject *key = get_key(o, NULL), *value = get_value(o, NULL), *text = NULL;
    if (key && value)
        text = PyUnicode_FromFormat("<Record %U[%d]@%lld key=%.60R value=%.100R>", r->batch->topic, (int)r->batch->partition,
                                    (long long)view_of(o)->offset, key, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    return text;
}

static PyObject *record_compare(PyObject *a, PyObject *b, int op) {
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(b) != &Record_type) Py_RETURN_NOTIMPLEMENTED;
    bool same = view_of(a) == view_of(b);
    return PyBool_FromLong(same == (op == Py_EQ));
}
static Py_hash_t record_hash(PyObject *o) { return (Py_hash_t)((uintptr_t)view_of(o) >> 3); }

static PyGetSetDef record_getset[] = {
    {"topic", get_topic, NULL, "the topic's name", NULL},
    {"partition", get_partition, NULL, "the partition", NULL},
    {"offset", get_offset, NULL, "the offset", NULL},
    {"timestamp", get_timestamp, NULL, "ms since 1970; -1 none", NULL},
    {"timestamp_type", get_timestamp_type, NULL, "0 create time, 1 log append time, -1 none", NULL},
    {"leader_epoch", get_leader_epoch, NULL, "of its batch; -1 unknown", NULL},
    {"key", get_key, NULL, "bytes; None: null", NULL},
    {"value", get_value, NULL, "bytes; None: null", NULL},
    {"headers", get_headers, NULL, "list of (name, bytes or None)", NULL},
    {"guid", get_guid, NULL, "its id, a uuid.UUID; None: it has none", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef record_methods[] = {
    {"header", record_header, METH_VARARGS, "header(name, default=None, /)\n--\n\nThe value of the last header of a name."},
    {NULL, NULL, 0, NULL},
};
PyTypeObject Record_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient.Record", .tp_basicsize = sizeof(Record), .tp_dealloc = record_dealloc,
                            .tp_flags = Py_TPFLAGS_DEFAULT, .tp_getset = record_getset, .tp_methods = record_methods, .tp_repr = record_repr,
                            .tp_richcompare = record_compare, .tp_hash = record_hash, .tp_doc = "A record, readable for as long as it is kept."};
