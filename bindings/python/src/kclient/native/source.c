/* source.c - Source, the base of consumers: events out, as batches or record by record. Called by Python (consumer.py, aio). Calls batch.c, record.c.
 *
 * What poll has given and the application has not is kept here (`pending`, `batch` and `next`): a signal that ends a wait, or an exception in a
 * callback, loses no record.
 */
#include "aio.h"

#include <structmember.h>
#include <time.h>

typedef struct {
    PyObject_HEAD
    kc_client *client; /* both are held by owner */
    kc_consumer *consumer;
    PyObject *owner, *names;
    Batch *batch;      /* that is given out: all of it, or up to before next */
    Py_ssize_t next;
} Source;

static int source_traverse(PyObject *o, visitproc visit, void *arg) {
    Source *s = (Source *)o;
    /* owner is not visited: see Keeper in module.c */
    Py_VISIT(s->names);
    return 0;
}
static int source_clear(PyObject *o) {
    Source *s = (Source *)o;
    s->consumer = NULL;
    Py_CLEAR(s->batch);
    Py_CLEAR(s->names);
    Py_CLEAR(s->owner);
    return 0;
}
static void source_dealloc(PyObject *o) {
    PyObject_GC_UnTrack(o);
    source_clear(o);
    Py_TYPE(o)->tp_free(o);
}

static PyObject *source_attach(PyObject *o, PyObject *args) {
    Source *s = (Source *)o;
    unsigned long long client, consumer;
    PyObject *owner, *names;
    if (!PyArg_ParseTuple(args, "KKOO!", &client, &consumer, &owner, &PyDict_Type, &names)) return NULL;
    source_clear(o);
    s->client = (kc_client *)(uintptr_t)client;
    s->consumer = (kc_consumer *)(uintptr_t)consumer;
    Py_INCREF(owner);
    s->owner = owner;
    Py_INCREF(names);
    s->names = names;
    Py_RETURN_NONE;
}

/* The next event as an object; NULL with *err: none, or with *err 0: an exception. */
static PyObject *take(Source *s, int64_t timeout_us, kc_err *err) {
    int64_t left = timeout_us;
    kc_event *event = NULL;
    *err = s->consumer ? KC_OK : KC_CLOSED;
    while (!*err) {
        int64_t piece = wait_piece(&left);
        Py_BEGIN_ALLOW_THREADS
        *err = kc_consumer_poll(s->consumer, &event, piece);
        Py_END_ALLOW_THREADS
        if (*err != KC_TIMED_OUT) break;
        if (PyErr_CheckSignals() < 0) {
            *err = KC_OK;
            return NULL;
        }
        if (left == 0) break;
        *err = KC_OK;
    }
    if (*err) return NULL;
    int32_t topic = kc_event_topic(event);
    PyObject *name = topic > 0 ? topic_name(s->client, s->names, topic) : Py_None;
    if (!name) {
        kc_event_free(event);
        return NULL;
    }
    return batch_of(event, name);
}

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void give_out(Source *s, Batch *batch, Py_ssize_t next) {
    Batch *before = s->batch;
    Py_INCREF(batch);
    s->batch = batch;
    s->next = next;
    Py_XDECREF(before);
}

/* _poll(timeout_us) -> RecordBatch, Event or kc_err (KC_TIMED_OUT, KC_WOKEN, …): what other APIs are built of. A batch is given out as a
 * whole. */
static PyObject *source_poll(PyObject *o, PyObject *timeout) {
    int64_t timeout_us = PyLong_AsLongLong(timeout);
    if (timeout_us == -1 && PyErr_Occurred()) return NULL;
    Source *s = (Source *)o;
    kc_err err;
    PyObject *event = take(s, timeout_us, &err);
    if (event && Py_TYPE(event) == &Batch_type) give_out(s, (Batch *)event, ((Batch *)event)->count);
    return event || !err ? event : PyLong_FromLong(err);
}

/* Makes the next batch the one that is given out, and deals with other events (_on_event in Python, which calls the application). 1: there is one, 0:
 * none within the limit, or woken; -1: an exception. */
static int next_batch(Source *s, int64_t timeout_us) {
    int64_t end = timeout_us > 0 ? now_us() + timeout_us : 0, left = timeout_us;
    for (;;) {
        kc_err err;
        PyObject *event = take(s, left, &err);
        if (!event && (err == KC_TIMED_OUT || err == KC_WOKEN)) return 0;
        if (!event && err) raise_code(err, "poll");
        if (!event) return -1;
        if (Py_TYPE(event) == &Batch_type) {
            give_out(s, (Batch *)event, 0);
            Py_DECREF(event);
            return 1;
        }
        PyObject *more = PyObject_CallMethod((PyObject *)s, "_on_event", "O", event);
        Py_DECREF(event);
        int go_on = more ? PyObject_IsTrue(more) : -1;
        Py_XDECREF(more);
        if (go_on <= 0) return go_on;
        if (timeout_us > 0) left = end - now_us(); /* the limit is the poll's, not the event's */
        if (timeout_us > 0 && left < 0) left = 0;
    }
}

static int has_rest(const Source *s) { return s->batch && s->next < s->batch->count; }

static PyObject *source_poll_batch(PyObject *o, PyObject *args, PyObject *kw) {
    static char *names[] = {"timeout", NULL};
    Source *s = (Source *)o;
    PyObject *timeout = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|O:poll_batch", names, &timeout)) return NULL;
    int64_t timeout_us = micros_of(timeout);
    if (timeout_us == -2) return NULL;
    if (!has_rest(s)) {
        int got = next_batch(s, timeout_us);
        if (got < 0) return NULL;
        if (got == 0) Py_RETURN_NONE;
    }
    PyObject *batch = (PyObject *)s->batch;
    if (s->next == 0) Py_INCREF(batch);
    else batch = batch_part(s->batch, s->next, s->batch->count - s->next);
    if (batch) s->next = s->batch->count;
    return batch;
}

static PyObject *give_record(Source *s) {
    PyObject *record = record_of(s->batch, s->next);
    if (record) s->next++;
    return record;
}

int source_has_rest(PyObject *source) { return has_rest((Source *)source); }
PyObject *source_give_record(PyObject *source) { return give_record((Source *)source); }

static PyObject *source_poll_record(PyObject *o, PyObject *args, PyObject *kw) {
    static char *names[] = {"timeout", NULL};
    Source *s = (Source *)o;
    PyObject *timeout = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|O:poll_record", names, &timeout)) return NULL;
    int64_t timeout_us = micros_of(timeout);
    if (timeout_us == -2) return NULL;
    while (!has_rest(s)) {
        int got = next_batch(s, timeout_us);
        if (got < 0) return NULL;
        if (got == 0) Py_RETURN_NONE;
    }
    return give_record(s);
}

/* for record in consumer: ends when _on_event says so (stop_at_end), or after wake(). */
static PyObject *source_iternext(PyObject *o) {
    Source *s = (Source *)o;
    while (!has_rest(s)) {
        int got = next_batch(s, KC_FOREVER);
        if (got <= 0) return NULL;
    }
    return give_record(s);
}

/* (topic, partition, offset) of what was given out: the position behind the last of it; None. */
static PyObject *get_given(PyObject *o, void *unused) {
    (void)unused;
    Source *s = (Source *)o;
    if (!s->batch || s->next == 0) Py_RETURN_NONE;
    int64_t offset = s->next < s->batch->count ? s->batch->views[s->next - 1].offset + 1 : kc_event_offset(s->batch->event);
    return Py_BuildValue("OiL", s->batch->topic, (int)s->batch->partition, (long long)offset);
}

/* _forget(): what is left of the batch is not given out any more (seek, revoked, close). */
static PyObject *source_forget(PyObject *o, PyObject *unused) {
    (void)unused;
    Py_CLEAR(((Source *)o)->batch);
    ((Source *)o)->next = 0;
    Py_RETURN_NONE;
}

static PyObject *get_batch(PyObject *o, void *unused) {
    (void)unused;
    PyObject *batch = ((Source *)o)->batch ? (PyObject *)((Source *)o)->batch : Py_None;
    Py_INCREF(batch);
    return batch;
}

static PyGetSetDef getset[] = {
    {"_given", get_given, NULL, "(topic, partition, offset) behind what was given out last; None", NULL},
    {"_batch", get_batch, NULL, "the batch that is given out; None", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef methods[] = {
    {"poll_batch", (PyCFunction)(void (*)(void))source_poll_batch, METH_VARARGS | METH_KEYWORDS,
     "poll_batch($self, timeout=None)\n--\n\n"
     "The next records of one partition, as many as the library has at hand; None: none within the timeout (seconds; None: no limit), or wake().\n"
     "Rebalances are dealt with meanwhile: on_assigned and on_revoked are called in here. By default the next poll counts these records as processed."},
    {"poll_record", (PyCFunction)(void (*)(void))source_poll_record, METH_VARARGS | METH_KEYWORDS,
     "poll_record($self, timeout=None)\n--\n\nThe next record; None: none within the timeout, or wake(). `for record in consumer` waits without limit."},
    {"_attach", source_attach, METH_VARARGS, "_attach(client, consumer, owner, names)"},
    {"_poll", source_poll, METH_O, "see source.c"},
    {"_forget", source_forget, METH_NOARGS, "see source.c"},
    {NULL, NULL, 0, NULL},
};
PyTypeObject Source_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient._fast.Source", .tp_basicsize = sizeof(Source),
                            .tp_dealloc = source_dealloc, .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                            .tp_traverse = source_traverse, .tp_clear = source_clear, .tp_methods = methods, .tp_getset = getset,
                            .tp_iter = PyObject_SelfIter, .tp_iternext = source_iternext, .tp_new = PyType_GenericNew,
                            .tp_doc = "What consumers share: batches and records out."};
