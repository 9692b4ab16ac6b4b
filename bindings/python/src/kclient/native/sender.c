/* sender.c - Sender, the base of producers: records in, reports out. Called by Python (producer.py, aio). Calls fields.c, report.c, send_many.c.
 *
 * A send first tries with the GIL and without waiting, which is all that most sends do. Where the queue is full, Python's side (_make_room) takes
 * reports, then the send waits without the GIL.
 */
#include "aio.h"

#include <structmember.h>

/* ---- Life ---- */

static int sender_traverse(PyObject *o, visitproc visit, void *arg) {
    Sender *s = (Sender *)o;
    /* owner is not visited: see Keeper in module.c */
    Py_VISIT(s->topics);
    Py_VISIT(s->names);
    Py_VISIT(s->callbacks);
    Py_VISIT(s->inbox);
    Py_VISIT(s->last_topic);
    Py_VISIT(s->make_future);
    return sender_visit_ranges(s, visit, arg);
}
static int sender_clear(PyObject *o) {
    Sender *s = (Sender *)o;
    s->producer = NULL;
    Py_CLEAR(s->topics);
    Py_CLEAR(s->names);
    Py_CLEAR(s->callbacks);
    Py_CLEAR(s->inbox);
    Py_CLEAR(s->last_topic);
    Py_CLEAR(s->make_future);
    sender_clear_ranges(s);
    Py_CLEAR(s->owner);
    return 0;
}
static void sender_dealloc(PyObject *o) {
    PyObject_GC_UnTrack(o);
    sender_clear(o);
    Py_TYPE(o)->tp_free(o);
}

static PyObject *sender_attach(PyObject *o, PyObject *args) {
    Sender *s = (Sender *)o;
    unsigned long long client, producer;
    long long enqueue_us;
    PyObject *owner, *topics, *names, *callbacks, *inbox;
    if (!PyArg_ParseTuple(args, "KKOO!O!O!O!L", &client, &producer, &owner, &PyDict_Type, &topics, &PyDict_Type, &names, &PyDict_Type, &callbacks,
                          &PyList_Type, &inbox, &enqueue_us))
        return NULL;
    sender_clear(o);
    s->client = (kc_client *)(uintptr_t)client;
    s->producer = (kc_producer *)(uintptr_t)producer;
    s->enqueue_us = enqueue_us;
    PyObject **slots[] = {&s->owner, &s->topics, &s->names, &s->callbacks, &s->inbox}, *values[] = {owner, topics, names, callbacks, inbox};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        Py_INCREF(values[i]);
        *slots[i] = values[i];
    }
    Py_RETURN_NONE;
}

int sender_ready(Sender *s) {
    if (s->producer) return 0;
    raise_code(KC_CLOSED, "producer");
    return -1;
}

int sender_topic(Sender *s, PyObject *topic, int32_t *number) {
    if (topic == s->last_topic) { /* the very same object as before */
        *number = s->last_number;
        return 0;
    }
    if (!PyUnicode_Check(topic)) {
        PyErr_Format(PyExc_TypeError, "a topic is a str, not %.100s", Py_TYPE(topic)->tp_name);
        return -1;
    }
    PyObject *known = PyDict_GetItemWithError(s->topics, topic);
    if (known) *number = (int32_t)PyLong_AsLong(known);
    else if (PyErr_Occurred()) return -1;
    else {
        PyObject *made = PyObject_CallMethod((PyObject *)s, "_topic_number", "O", topic);
        if (!made) return -1;
        *number = (int32_t)PyLong_AsLong(made);
        Py_DECREF(made);
    }
    Py_INCREF(topic);
    Py_XSETREF(s->last_topic, topic);
    s->last_number = *number;
    return 0;
}

int sender_no(Sender *s, kc_err err, PyObject *topic, size_t accepted) {
    PyObject *e = PyObject_CallMethod((PyObject *)s, "_send_error", "iOn", (int)err, topic, (Py_ssize_t)accepted);
    if (!e) return -1;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    return -1;
}

int sender_expect(Sender *s, uint64_t number, PyObject *callback) {
    PyObject *key = PyLong_FromUnsignedLongLong(number);
    int result = key ? PyDict_SetItem(s->callbacks, key, callback) : -1;
    Py_XDECREF(key);
    return result;
}
void sender_forget(Sender *s, uint64_t number) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *key = PyLong_FromUnsignedLongLong(number);
    if (!key || PyDict_DelItem(s->callbacks, key) < 0) PyErr_Clear();
    Py_XDECREF(key);
    PyErr_Restore(type, value, trace);
}

int sender_make_room(Sender *s) {
    PyObject *made = PyObject_CallMethod((PyObject *)s, "_make_room", NULL);
    Py_XDECREF(made);
    return made ? 0 : -1;
}

/* Where reports hold places, what ends the wait is that they are taken: the next look is soon. */
int64_t sender_piece(const Sender *s, int64_t left_us) {
    int64_t piece = s->track || PyDict_GET_SIZE(s->callbacks) > 0 ? 1000 : SLICE_US;
    return left_us < 0 || left_us > piece ? piece : left_us;
}

/* ---- One ---- */

/* Waits for room: reports are taken between the pieces, which may be what holds it. */
static int send_waiting(Sender *s, const kc_record *record, int64_t limit_us, kc_err *err) {
    int64_t left = limit_us;
    do {
        if (sender_make_room(s) < 0) return -1;
        int64_t piece = sender_piece(s, left);
        Py_BEGIN_ALLOW_THREADS
        *err = kc_producer_send(s->producer, record, piece);
        Py_END_ALLOW_THREADS
        if (*err != KC_QUEUE_FULL && *err != KC_TIMED_OUT) return 0;
        if (PyErr_CheckSignals() < 0) return -1;
        if (left > 0) left -= piece;
    } while (left != 0);
    return 0;
}

static int send_fields(Sender *s, PyObject *const *slot, struct fields *f, kc_record *record) {
    if (any_bytes(slot[SEND_VALUE], &f->value, &record->value, "a value") < 0) return -1;
    if (slot[SEND_KEY] && any_bytes(slot[SEND_KEY], &f->key, &record->key, "a key") < 0) return -1;
    if (slot[SEND_HEADERS] && fields_headers(f, slot[SEND_HEADERS], record) < 0) return -1;
    if (slot[SEND_PARTITION] && fields_partition(slot[SEND_PARTITION], record) < 0) return -1;
    if (slot[SEND_TIMESTAMP] && fields_timestamp(slot[SEND_TIMESTAMP], record) < 0) return -1;
    if (slot[SEND_GUID] && fields_guid(f, slot[SEND_GUID], record) < 0) return -1;
    return sender_topic(s, slot[SEND_TOPIC], &record->topic);
}

/* Positional and keyword arguments into slots, by their names. */
int take_arguments(const char *what, const char *const *names, int count, int required, PyObject *const *args, Py_ssize_t n, PyObject *kwnames,
                   PyObject **slot) {
    if (n > count) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)", what, count, n);
        return -1;
    }
    for (int i = 0; i < count; i++) slot[i] = i < n ? args[i] : NULL;
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        int i = 0;
        while (i < count && PyUnicode_CompareWithASCIIString(name, names[i]) != 0) i++;
        if (i == count || slot[i]) {
            PyErr_Format(PyExc_TypeError, i == count ? "%s() got an unexpected keyword argument '%U'" : "%s() got two values for '%U'", what, name);
            return -1;
        }
        slot[i] = args[n + k];
    }
    for (int i = 0; i < required; i++) {
        if (slot[i]) continue;
        PyErr_Format(PyExc_TypeError, "%s() needs '%s'", what, names[i]);
        return -1;
    }
    for (int i = required; i < count; i++)
        if (slot[i] == Py_None) slot[i] = NULL;
    return 0;
}

PyObject *sender_send_slots(Sender *s, PyObject **slot, uint32_t flags) {
    struct fields f;
    fields_init(&f);
    kc_record record = {.opaque = s->next++, .flags = flags | (slot[SEND_ON_REPORT] || s->track ? 0U : KC_NO_REPORT)};
    bool expected = false;
    int result = send_fields(s, slot, &f, &record);
    if (result == 0 && slot[SEND_ON_REPORT]) {
        result = sender_expect(s, record.opaque, slot[SEND_ON_REPORT]);
        expected = result == 0;
    }
    if (result == 0) {
        kc_err err = kc_producer_send(s->producer, &record, 0);
        bool waits = err == KC_QUEUE_FULL ? s->enqueue_us != 0 : err == KC_TIMED_OUT && !s->make_future;
        if (waits) result = send_waiting(s, &record, s->enqueue_us, &err);
        if (result == 0 && err) result = sender_no(s, err, slot[SEND_TOPIC], 0);
    }
    if (result < 0 && expected) sender_forget(s, record.opaque);
    fields_release(&f);
    return result < 0 ? NULL : PyLong_FromUnsignedLongLong(record.opaque);
}

static PyObject *send_with(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, uint32_t flags) {
    static const char *const names[] = {"topic", "value", "key", "headers", "partition", "timestamp", "guid", "on_report"};
    PyObject *slot[SEND_SLOTS];
    if (sender_ready((Sender *)o) < 0 || take_arguments("send", names, SEND_SLOTS, 2, args, n, kwnames, slot) < 0) return NULL;
    return sender_send_slots((Sender *)o, slot, flags);
}

static PyObject *sender_send(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) { return send_with(o, args, n, kwnames, 0); }
/* The same, for a record that somebody waits for. */
static PyObject *sender_send_now(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    return send_with(o, args, n, kwnames, KC_SEND_NOW);
}

/* _try_send(topic number, value, key, headers, partition, timestamp, guid, opaque, flags, timeout_us) -> kc_err: what other APIs are built of. */
static PyObject *sender_try_send(PyObject *o, PyObject *const *args, Py_ssize_t n) {
    Sender *s = (Sender *)o;
    if (n != 10) return PyErr_Format(PyExc_TypeError, "_try_send() takes 10 arguments (%zd given)", n);
    if (!s->producer) return PyLong_FromLong(KC_CLOSED);
    struct fields f;
    fields_init(&f);
    kc_record record = {.topic = (int32_t)PyLong_AsLong(args[0]), .opaque = PyLong_AsUnsignedLongLong(args[7]),
                        .flags = (uint32_t)PyLong_AsUnsignedLong(args[8])};
    int64_t timeout_us = PyLong_AsLongLong(args[9]);
    int result = PyErr_Occurred() ? -1 : 0;
    if (result == 0) result = any_bytes(args[1], &f.value, &record.value, "a value");
    if (result == 0) result = any_bytes(args[2], &f.key, &record.key, "a key");
    if (result == 0) result = fields_headers(&f, args[3], &record);
    if (result == 0) result = fields_partition(args[4], &record);
    if (result == 0) result = fields_timestamp(args[5], &record);
    if (result == 0) result = fields_guid(&f, args[6], &record);
    kc_err err = KC_OK;
    if (result == 0 && timeout_us == 0) err = kc_producer_send(s->producer, &record, 0);
    else if (result == 0) {
        Py_BEGIN_ALLOW_THREADS
        err = kc_producer_send(s->producer, &record, timeout_us);
        Py_END_ALLOW_THREADS
    }
    fields_release(&f);
    return result < 0 ? NULL : PyLong_FromLong(err);
}

/* ---- Reports ---- */

/* Waits for a container of reports; *out NULL: none within the limit. 0, -1: an exception, or the code. */
static int await_reports(Sender *s, int64_t timeout_us, kc_reports **out) {
    int64_t left = timeout_us;
    kc_err err;
    *out = NULL;
    do {
        int64_t piece = wait_piece(&left);
        if (piece == 0) err = kc_producer_reports(s->producer, out, 0);
        else {
            Py_BEGIN_ALLOW_THREADS
            err = kc_producer_reports(s->producer, out, piece);
            Py_END_ALLOW_THREADS
        }
        if (err != KC_TIMED_OUT) return err;
        if (timeout_us != 0 && PyErr_CheckSignals() < 0) return -1;
    } while (left != 0);
    return KC_TIMED_OUT;
}

/* The report at which a container stands. What a signal's handler raises meanwhile (Ctrl-C) is kept for later: *interrupted, and the report is made all
 * the same. NULL: an exception. */
PyObject *sender_report(Sender *s, const kc_reports *container, const kc_report *r, struct raised *interrupted) {
    for (int tries = 0;; tries++) {
        PyObject *topic = topic_name(s->client, s->names, r->topic);
        PyObject *report = topic ? report_of(container, r, topic) : NULL;
        if (report || tries == 9 || PyErr_ExceptionMatches(PyExc_MemoryError)) return report;
        raised_keep(interrupted, (PyObject *)s);
    }
}

void raised_keep(struct raised *first, PyObject *where) {
    if (first->type) PyErr_WriteUnraisable(where);
    else PyErr_Fetch(&first->type, &first->value, &first->trace);
}

/* Hands on each report of a container, whatever goes wrong with one. 0, or -1: the first exception. */
static int take_all(Sender *s, kc_reports *container, int (*take)(Sender *, PyObject *, void *), void *ctx) {
    kc_report r;
    struct raised first = {NULL, NULL, NULL};
    while (kc_reports_next(container, &r)) {
        PyObject *report = sender_report(s, container, &r, &first);
        if (!report || take(s, report, ctx) < 0) raised_keep(&first, (PyObject *)s);
        Py_XDECREF(report);
    }
    kc_reports_free(container);
    if (!first.type) return 0;
    PyErr_Restore(first.type, first.value, first.trace);
    return -1;
}

static int into_list(Sender *s, PyObject *report, void *list) {
    (void)s;
    return PyList_Append(list, report);
}

/* _take_reports(timeout_us) -> list of Report, or the kc_err (KC_TIMED_OUT, KC_CLOSED, …) */
static PyObject *sender_take_reports(PyObject *o, PyObject *timeout) {
    Sender *s = (Sender *)o;
    int64_t timeout_us = PyLong_AsLongLong(timeout);
    if (timeout_us == -1 && PyErr_Occurred()) return NULL;
    if (!s->producer) return PyLong_FromLong(KC_CLOSED);
    kc_reports *container;
    int err = await_reports(s, timeout_us, &container);
    if (err) return err == -1 ? NULL : PyLong_FromLong(err);
    PyObject *list = PyList_New(0);
    if (!list || take_all(s, container, into_list, list) < 0) Py_CLEAR(list);
    return list;
}

/* Calls the report's callback; the first exception is kept, others are told as unraisable, and all callbacks are called. */
static int dispatch(Sender *s, PyObject *report, void *ctx) {
    struct raised *first = ctx;
    PyObject *key = PyLong_FromLongLong(((Report *)report)->number);
    PyObject *callback = key ? PyDict_GetItemWithError(s->callbacks, key) : NULL;
    int result = -1;
    if (callback) {
        Py_INCREF(callback);
        PyDict_DelItem(s->callbacks, key);
        PyObject *answer = PyObject_CallFunctionObjArgs(callback, report, NULL);
        if (!answer) raised_keep(first, callback);
        Py_XDECREF(answer);
        Py_DECREF(callback);
        result = 0;
    } else if (key && !PyErr_Occurred()) result = PyList_Append(s->inbox, report);
    Py_XDECREF(key);
    return result;
}

/* _drain(timeout_us) -> kc_err: takes reports that wait, or come within the limit; calls on_report, and puts the others into the inbox. */
static PyObject *sender_drain(PyObject *o, PyObject *timeout) {
    Sender *s = (Sender *)o;
    int64_t timeout_us = PyLong_AsLongLong(timeout);
    if (timeout_us == -1 && PyErr_Occurred()) return NULL;
    if (!s->producer) return PyLong_FromLong(KC_CLOSED);
    kc_reports *container;
    int err = await_reports(s, timeout_us, &container), taken = err;
    struct raised first = {NULL, NULL, NULL};
    while (err == KC_OK) {
        if (take_all(s, container, dispatch, &first) < 0) break;
        err = await_reports(s, 0, &container);
    }
    if (PyErr_Occurred()) { /* of the machinery, or a signal */
        Py_XDECREF(first.type);
        Py_XDECREF(first.value);
        Py_XDECREF(first.trace);
        return NULL;
    }
    if (first.type) {
        PyErr_Restore(first.type, first.value, first.trace);
        return NULL;
    }
    return PyLong_FromLong(taken);
}

static PyMemberDef members[] = {
    {"_track", T_INT, offsetof(Sender, track), 0, "1: every record has a report"},
    {"_next", T_ULONGLONG, offsetof(Sender, next), READONLY, "number of the next record"},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef methods[] = {
    {"send", (PyCFunction)(void (*)(void))sender_send, METH_FASTCALL | METH_KEYWORDS,
     "send($self, topic, value, key=None, headers=None, partition=None, timestamp=None, guid=None, on_report=None)\n--\n\n"
     "Takes a record; returns its number. It is sent in the background; what became of it is told to on_report(report), called inside a later\n"
     "flush(), poll_reports(), close(), or a send that finds the queue full; without one, a failure is raised by flush() or close().\n"
     "value, key, values of headers: bytes, str (as UTF-8) or None (Kafka's null). headers: a dict, or pairs. timestamp: ms since 1970.\n"
     "guid: its id (UUID, 16 bytes or text). Raises QueueFull, TooLarge, Closed, …: then it was not taken."},
    {"send_many", (PyCFunction)(void (*)(void))sender_send_many, METH_FASTCALL | METH_KEYWORDS,
     "send_many($self, topic, values, keys=None, partition=None, timestamps=None, guids=None, headers=None, on_report=None, sizes=None,\n"
     "          key_sizes=None)\n--\n\n"
     "Takes a record for each of values, in one crossing into C; returns the range of their numbers. keys, timestamps, guids, headers: one for\n"
     "each. With sizes, values is one buffer with the values one behind the other, and sizes their sizes (-1: null); so are keys with key_sizes.\n"
     "An error says in `accepted` how many, from the first on, were taken."},
    {"_send_now", (PyCFunction)(void (*)(void))sender_send_now, METH_FASTCALL | METH_KEYWORDS, "send, without linger"},
    {"_attach", sender_attach, METH_VARARGS, "_attach(client, producer, owner, topics, names, callbacks, inbox, enqueue_us)"},
    {"_try_send", (PyCFunction)(void (*)(void))sender_try_send, METH_FASTCALL, "see sender.c"},
    {"_take_reports", sender_take_reports, METH_O, "see sender.c"},
    {"_drain", sender_drain, METH_O, "see sender.c"},
    {"_send_future", (PyCFunction)(void (*)(void))sender_send_future, METH_FASTCALL | METH_KEYWORDS, "see aio.c"},
    {"_send_awaited", (PyCFunction)(void (*)(void))sender_send_awaited, METH_FASTCALL | METH_KEYWORDS, "see aio.c"},
    {"_in_loop", sender_in_loop, METH_O, "see aio.c"},
    {"_has_outstanding", sender_has_outstanding, METH_NOARGS, "see aio.c"},
    {"_settle", sender_settle, METH_NOARGS, "see aio.c"},
    {NULL, NULL, 0, NULL},
};
PyTypeObject Sender_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient._fast.Sender", .tp_basicsize = sizeof(Sender),
                            .tp_dealloc = sender_dealloc, .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                            .tp_traverse = sender_traverse, .tp_clear = sender_clear, .tp_methods = methods, .tp_members = members,
                            .tp_new = PyType_GenericNew, .tp_doc = "What producers share: records in, reports out."};
