/* batch.c - Event, RecordBatch and Column: what poll gives. Called by source.c and Python; calls record.c.
 *
 * A batch holds its kc_event: its bytes stay where the library put them, and what shows them (memoryviews of the batch, columns, records) holds the
 * batch. So an event is freed when the last of these is collected, in whatever thread.
 */
#include "hot.h"

#include <structmember.h>

static void batch_dealloc(PyObject *o) {
    Batch *b = (Batch *)o;
    kc_event_free(b->event);
    Py_XDECREF(b->topic);
    Py_TYPE(o)->tp_free(o);
}

PyObject *batch_of(kc_event *event, PyObject *topic) {
    int32_t kind = kc_event_kind(event);
    PyTypeObject *type = kind == KC_EVENT_RECORDS ? &Batch_type : &Event_type;
    Batch *b = (Batch *)type->tp_alloc(type, 0);
    if (!b) {
        kc_event_free(event);
        return NULL;
    }
    b->event = event;
    b->kind = kind;
    b->partition = kc_event_partition(event);
    b->topic = topic;
    Py_INCREF(topic);
    if (kind == KC_EVENT_RECORDS) {
        b->views = kc_event_views(event);
        b->span = kc_event_span(event, &b->span_size);
        b->count = (Py_ssize_t)kc_event_count(event);
    }
    return (PyObject *)b;
}

PyObject *batch_part(const Batch *whole, Py_ssize_t first, Py_ssize_t count) {
    Batch *b = (Batch *)Batch_type.tp_alloc(&Batch_type, 0);
    if (!b) return NULL;
    b->event = kc_event_ref(whole->event);
    b->topic = whole->topic;
    Py_INCREF(b->topic);
    b->views = whole->views + first;
    b->span = whole->span;
    b->span_size = whole->span_size;
    b->count = count;
    b->partition = whole->partition;
    b->kind = whole->kind;
    return (PyObject *)b;
}

PyObject *piece_of(const Batch *b, uint32_t at, int32_t size) {
    if (size < 0) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)b->span + at, size);
}

static PyObject *batch_values(PyObject *o, PyObject *unused) {
    (void)unused;
    Batch *b = (Batch *)o;
    PyObject *list = PyList_New(b->count);
    for (Py_ssize_t i = 0; list && i < b->count; i++) {
        PyObject *v = piece_of(b, b->views[i].value_at, b->views[i].value_size);
        if (v) PyList_SET_ITEM(list, i, v);
        else Py_CLEAR(list);
    }
    return list;
}

static PyObject *batch_keys(PyObject *o, PyObject *unused) {
    (void)unused;
    Batch *b = (Batch *)o;
    PyObject *list = PyList_New(b->count);
    for (Py_ssize_t i = 0; list && i < b->count; i++) {
        PyObject *v = piece_of(b, b->views[i].key_at, b->views[i].key_size);
        if (v) PyList_SET_ITEM(list, i, v);
        else Py_CLEAR(list);
    }
    return list;
}

/* ---- Columns: one member of all views, as a strided buffer ---- */

typedef struct {
    PyObject_HEAD
    Batch *batch;
    const char *format;
    size_t at;
    Py_ssize_t item, shape, stride;
} Column;

static void column_dealloc(PyObject *o) {
    Py_XDECREF(((Column *)o)->batch);
    Py_TYPE(o)->tp_free(o);
}

static int column_buffer(PyObject *o, Py_buffer *view, int flags) {
    Column *c = (Column *)o;
    if ((flags & PyBUF_WRITABLE) || (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
        PyErr_SetString(PyExc_BufferError, "a column of a batch is read-only and strided");
        return -1;
    }
    *view = (Py_buffer){.buf = (char *)c->batch->views + c->at, .obj = o, .len = c->shape * c->item, .itemsize = c->item, .readonly = 1, .ndim = 1,
                        .format = flags & PyBUF_FORMAT ? (char *)c->format : NULL, .shape = &c->shape, .strides = &c->stride};
    Py_INCREF(o);
    return 0;
}

static PyBufferProcs column_procs = {.bf_getbuffer = column_buffer};
PyTypeObject Column_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient._fast.Column", .tp_basicsize = sizeof(Column),
                            .tp_dealloc = column_dealloc, .tp_flags = Py_TPFLAGS_DEFAULT, .tp_as_buffer = &column_procs,
                            .tp_doc = "Exporter of one column of a batch."};

static PyObject *column(PyObject *o, size_t at, const char *format, Py_ssize_t item) {
    Column *c = (Column *)Column_type.tp_alloc(&Column_type, 0);
    if (!c) return NULL;
    Py_INCREF(o);
    c->batch = (Batch *)o;
    c->format = format;
    c->at = at;
    c->item = item;
    c->shape = c->batch->count;
    c->stride = sizeof(kc_view);
    PyObject *view = PyMemoryView_FromObject((PyObject *)c);
    Py_DECREF(c);
    return view;
}

#define COLUMN(name, member, format)                                                                                                    \
    static PyObject *batch_##name(PyObject *o, void *unused) {                                                                          \
        (void)unused;                                                                                                                   \
        return column(o, offsetof(kc_view, member), format, sizeof((kc_view){0}.member));                                               \
    }
COLUMN(offsets, offset, "q")
COLUMN(timestamps, timestamp_ms, "q")
COLUMN(key_starts, key_at, "I")
COLUMN(key_sizes, key_size, "i")
COLUMN(value_starts, value_at, "I")
COLUMN(value_sizes, value_size, "i")

/* ---- A sequence of records, and of bytes ---- */

static Py_ssize_t batch_length(PyObject *o) { return ((Batch *)o)->count; }

static PyObject *batch_item(PyObject *o, Py_ssize_t i) {
    Batch *b = (Batch *)o;
    if (i < 0 || i >= b->count) {
        PyErr_SetString(PyExc_IndexError, "record index out of range");
        return NULL;
    }
    return record_of(b, i);
}

static PyObject *batch_subscript(PyObject *o, PyObject *key) {
    Batch *b = (Batch *)o;
    if (PyIndex_Check(key)) {
        Py_ssize_t i = PyNumber_AsSsize_t(key, PyExc_IndexError);
        if (i == -1 && PyErr_Occurred()) return NULL;
        return batch_item(o, i < 0 ? i + b->count : i);
    }
    if (!PySlice_Check(key)) return PyErr_Format(PyExc_TypeError, "a batch is indexed by integers and slices, not %.100s", Py_TYPE(key)->tp_name);
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(key, &start, &stop, &step) < 0) return NULL;
    Py_ssize_t count = PySlice_AdjustIndices(b->count, &start, &stop, step);
    if (step != 1) return PyErr_Format(PyExc_ValueError, "a part of a batch is contiguous: step 1, not %zd", step);
    return batch_part(b, start, count);
}

static int batch_buffer(PyObject *o, Py_buffer *view, int flags) {
    Batch *b = (Batch *)o;
    return PyBuffer_FillInfo(view, o, (void *)b->span, (Py_ssize_t)b->span_size, 1, flags);
}

static PyObject *batch_repr(PyObject *o) {
    Batch *b = (Batch *)o;
    if (b->count == 0) return PyUnicode_FromFormat("<RecordBatch %U[%d] empty>", b->topic, (int)b->partition);
    return PyUnicode_FromFormat("<RecordBatch %U[%d] offsets %lld to %lld, %zd records>", b->topic, (int)b->partition, (long long)b->views[0].offset,
                                (long long)b->views[b->count - 1].offset, b->count);
}

static PyObject *get_address(PyObject *o, void *unused) {
    (void)unused;
    return PyLong_FromVoidPtr(((Batch *)o)->event);
}
static PyObject *get_offset(PyObject *o, void *unused) {
    (void)unused;
    return PyLong_FromLongLong(kc_event_offset(((Batch *)o)->event));
}
/* Of a part that ends before its event does: behind its last record. */
static PyObject *get_next_offset(PyObject *o, void *unused) {
    (void)unused;
    const Batch *b = (Batch *)o;
    const kc_view *all = kc_event_views(b->event);
    size_t end = (size_t)(b->views - all) + (size_t)b->count;
    if (end == kc_event_count(b->event)) return PyLong_FromLongLong(kc_event_offset(b->event));
    return PyLong_FromLongLong(b->count ? b->views[b->count - 1].offset + 1 : b->views[0].offset);
}
static PyObject *get_high_watermark(PyObject *o, void *unused) {
    (void)unused;
    return PyLong_FromLongLong(kc_event_high_watermark(((Batch *)o)->event));
}

static PyMemberDef event_members[] = {
    {"topic", T_OBJECT, offsetof(Batch, topic), READONLY, "the topic's name; None for an event of no partition"},
    {"partition", T_INT, offsetof(Batch, partition), READONLY, "the partition"},
    {"kind", T_INT, offsetof(Batch, kind), READONLY, "enum kc_event_kind"},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef event_getset[] = {
    {"address", get_address, NULL, "of the kc_event", NULL},
    {"offset", get_offset, NULL, "as kc_event_offset tells it", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
PyTypeObject Event_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient._fast.Event", .tp_basicsize = sizeof(Batch), .tp_dealloc = batch_dealloc,
                           .tp_flags = Py_TPFLAGS_DEFAULT, .tp_members = event_members, .tp_getset = event_getset,
                           .tp_doc = "An event that is not records."};

static PyGetSetDef batch_getset[] = {
    {"address", get_address, NULL, "of the kc_event", NULL},
    {"next_offset", get_next_offset, NULL, "the position behind its last record: what to commit once all are processed", NULL},
    {"high_watermark", get_high_watermark, NULL, "the end of what consumers may read, as of the fetch; -1 unknown", NULL},
    {"offsets", batch_offsets, NULL, "memoryview of the offsets (int64)", NULL},
    {"timestamps", batch_timestamps, NULL, "memoryview of the timestamps, ms since 1970 (int64)", NULL},
    {"key_starts", batch_key_starts, NULL, "memoryview: where each key begins in memoryview(batch) (uint32)", NULL},
    {"key_sizes", batch_key_sizes, NULL, "memoryview of the keys' sizes, -1 null (int32)", NULL},
    {"value_starts", batch_value_starts, NULL, "memoryview: where each value begins in memoryview(batch) (uint32)", NULL},
    {"value_sizes", batch_value_sizes, NULL, "memoryview of the values' sizes, -1 null (int32)", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef batch_methods[] = {
    {"values", batch_values, METH_NOARGS, "values()\n--\n\nAll values, as a list of bytes (None: null)."},
    {"keys", batch_keys, METH_NOARGS, "keys()\n--\n\nAll keys, as a list of bytes (None: null)."},
    {NULL, NULL, 0, NULL},
};
static PySequenceMethods batch_sequence = {.sq_length = batch_length, .sq_item = batch_item};
static PyMappingMethods batch_mapping = {.mp_length = batch_length, .mp_subscript = batch_subscript};
static PyBufferProcs batch_procs = {.bf_getbuffer = batch_buffer};
PyTypeObject Batch_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient.RecordBatch", .tp_basicsize = sizeof(Batch), .tp_dealloc = batch_dealloc,
                           .tp_flags = Py_TPFLAGS_DEFAULT, .tp_members = event_members, .tp_getset = batch_getset, .tp_methods = batch_methods,
                           .tp_as_sequence = &batch_sequence, .tp_as_mapping = &batch_mapping, .tp_as_buffer = &batch_procs, .tp_repr = batch_repr,
                           .tp_doc = "Records of one partition, in order: a sequence of Record, with the bytes of all of them as memoryview(batch)."};
