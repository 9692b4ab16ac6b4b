/* aio.c - what the asyncio API does for each record: futures and groups that reports resolve; records out of `async for` without a coroutine each.
 *
 * Called by Python (aio/) in the event loop's thread alone. A record's future stands in the producer's callbacks, in the place of an on_report; those
 * of one send_many share a Group, and one entry for the range of their numbers.
 */
#include "aio.h"

#include <structmember.h>

/* ---- Names and small calls ---- */

static PyObject *name_of(PyObject **cache, const char *text) {
    if (!*cache) *cache = PyUnicode_InternFromString(text);
    return *cache;
}

/* future.set_result(value) or set_exception(value). One that is done (cancelled) stays as it is: 0; -1: an exception. */
static int settle(PyObject *future, PyObject *value, bool failed) {
    static PyObject *set_result, *set_exception, *done;
    if (!name_of(&set_result, "set_result") || !name_of(&set_exception, "set_exception") || !name_of(&done, "done")) return -1;
    PyObject *answer = PyObject_CallMethodObjArgs(future, failed ? set_exception : set_result, value, NULL);
    if (!answer) {
        PyObject *type, *error, *trace;
        PyErr_Fetch(&type, &error, &trace);
        PyObject *is_done = PyObject_CallMethodObjArgs(future, done, NULL);
        bool late = is_done == Py_True;
        Py_XDECREF(is_done);
        if (!late) { /* not that it was cancelled: a loop that is closed, no memory */
            PyErr_Restore(type, error, trace);
            return -1;
        }
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        return 0;
    }
    Py_DECREF(answer);
    return 0;
}

/* ---- Group: the records of one send_many ---- */

static int group_traverse(PyObject *o, visitproc visit, void *arg) {
    Py_VISIT(((Group *)o)->future);
    Py_VISIT(((Group *)o)->reports);
    return 0;
}
static int group_clear(PyObject *o) {
    Py_CLEAR(((Group *)o)->future);
    Py_CLEAR(((Group *)o)->reports);
    return 0;
}
static void group_dealloc(PyObject *o) {
    PyObject_GC_UnTrack(o);
    group_clear(o);
    Py_TYPE(o)->tp_free(o);
}

/* Group(future, count): the future gets the list of their reports once all have one. */
static PyObject *group_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    PyObject *future;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "On", &future, &count)) return NULL;
    (void)kw;
    Group *g = (Group *)type->tp_alloc(type, 0);
    if (!g) return NULL;
    Py_INCREF(future);
    g->future = future;
    g->left = count;
    g->reports = PyList_New(count);
    for (Py_ssize_t i = 0; g->reports && i < count; i++) {
        Py_INCREF(Py_None);
        PyList_SET_ITEM(g->reports, i, Py_None);
    }
    if (!g->reports) Py_CLEAR(g);
    return (PyObject *)g;
}

static int group_finish(Group *g) {
    return g->left == 0 && g->future ? settle(g->future, g->reports, false) : 0;
}

/* shrink(count): no more than so many, of those that were to be sent, were taken; the rest never will be. */
static PyObject *group_shrink(PyObject *o, PyObject *count) {
    Group *g = (Group *)o;
    Py_ssize_t taken = PyLong_AsSsize_t(count);
    if (taken < 0 || taken > PyList_GET_SIZE(g->reports)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "shrink: not more than there are");
        return NULL;
    }
    g->left -= PyList_GET_SIZE(g->reports) - taken;
    if (PyList_SetSlice(g->reports, taken, PyList_GET_SIZE(g->reports), NULL) < 0 || group_finish(g) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyMemberDef group_members[] = {
    {"accepted", T_PYSSIZET, offsetof(Group, accepted), READONLY, "how many were taken"},
    {"failed", T_PYSSIZET, offsetof(Group, failed), READONLY, "how many of those that have a report failed"},
    {"left", T_PYSSIZET, offsetof(Group, left), READONLY, "how many have no report yet"},
    {"future", T_OBJECT, offsetof(Group, future), READONLY, "of the list of reports"},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef group_methods[] = {
    {"shrink", group_shrink, METH_O, "see aio.c"},
    {NULL, NULL, 0, NULL},
};
PyTypeObject Group_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient._fast.Group", .tp_basicsize = sizeof(Group), .tp_dealloc = group_dealloc,
                           .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_traverse = group_traverse, .tp_clear = group_clear,
                           .tp_members = group_members, .tp_methods = group_methods, .tp_new = group_new, .tp_doc = "The records of one send_many."};

/* ---- Ranges of numbers that are a group's ---- */

int sender_expect_range(Sender *s, uint64_t first, size_t count, Group *group) {
    if (s->range_count == s->range_room) {
        size_t room = s->range_room ? s->range_room * 2 : 8;
        struct range *more = PyMem_Resize(s->ranges, struct range, room);
        if (!more) {
            PyErr_NoMemory();
            return -1;
        }
        s->ranges = more;
        s->range_room = room;
    }
    s->ranges[s->range_count++] = (struct range){.first = first, .end = first + count, .left = count, .at = group->accepted, .group = group};
    Py_INCREF(group);
    return 0;
}

static void range_drop(Sender *s, size_t i) {
    Group *group = s->ranges[i].group;
    memmove(s->ranges + i, s->ranges + i + 1, (s->range_count - i - 1) * sizeof *s->ranges);
    s->range_count--;
    Py_DECREF(group);
}

void sender_end_range(Sender *s, uint64_t first, size_t taken) {
    for (size_t i = s->range_count; i-- > 0;) {
        struct range *r = &s->ranges[i];
        if (r->first != first) continue;
        r->group->accepted += (Py_ssize_t)taken;
        r->left -= (r->end - first) - taken; /* none of its reports was taken yet: that is done by this thread, later */
        r->end = first + taken;
        if (r->left == 0) range_drop(s, i);
        return;
    }
}

/* Numbers grow, so the ranges are in their order: halved until found. */
static struct range *range_of(Sender *s, uint64_t number) {
    size_t low = 0, high = s->range_count;
    if (s->range_last < high && number >= s->ranges[s->range_last].first && number < s->ranges[s->range_last].end) return &s->ranges[s->range_last];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (number >= s->ranges[middle].end) low = middle + 1;
        else high = middle;
    }
    if (low == s->range_count || number < s->ranges[low].first) return NULL;
    s->range_last = low;
    return &s->ranges[low];
}

void sender_clear_ranges(Sender *s) {
    while (s->range_count > 0) range_drop(s, s->range_count - 1);
    PyMem_Free(s->ranges);
    s->ranges = NULL;
    s->range_room = 0;
}

int sender_visit_ranges(Sender *s, visitproc visit, void *arg) {
    for (size_t i = 0; i < s->range_count; i++) Py_VISIT(s->ranges[i].group);
    return 0;
}

/* A report of a group's record: into its place. */
static int into_group(Sender *s, struct range *range, PyObject *report) {
    Group *g = range->group;
    Py_ssize_t i = range->at + (Py_ssize_t)((uint64_t)((Report *)report)->number - range->first);
    int result = 0;
    Py_INCREF(g);
    Py_INCREF(report);
    if (PyList_SetItem(g->reports, i, report) < 0) result = -1;
    g->failed += ((Report *)report)->error != Py_None;
    g->left--;
    if (--range->left == 0) range_drop(s, (size_t)(range - s->ranges));
    if (result == 0) result = group_finish(g);
    Py_DECREF(g);
    return result;
}

/* ---- Sending with a future ---- */

/* Something is outstanding, or nothing any more: the driver keeps the producer alive meanwhile. */
static int tell_busy(Sender *s, int on) {
    PyObject *answer = PyObject_CallMethod((PyObject *)s, "_set_busy", "i", on);
    Py_XDECREF(answer);
    return answer ? 0 : -1;
}
int sender_is_busy(const Sender *s) {
    return PyDict_GET_SIZE(s->callbacks) > 0 || s->range_count > 0;
}

static PyObject *send_future(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, bool awaited) {
    static const char *const names[] = {"topic", "value", "key", "headers", "partition", "timestamp", "guid"};
    Sender *s = (Sender *)o;
    PyObject *slot[SEND_SLOTS] = {NULL};
    if (sender_ready(s) < 0 || take_arguments("send", names, SEND_ON_REPORT, 2, args, n, kwnames, slot) < 0) return NULL;
    if (!s->make_future) return PyErr_Format(PyExc_RuntimeError, "this producer is in no event loop");
    int was_busy = sender_is_busy(s);
    PyObject *future = PyObject_CallObject(s->make_future, NULL);
    if (!future) return NULL;
    slot[SEND_ON_REPORT] = future;
    PyObject *number = sender_send_slots(s, slot, awaited && !was_busy ? KC_SEND_NOW : 0);
    if (!number) Py_CLEAR(future);
    Py_XDECREF(number);
    if (future && !was_busy && tell_busy(s, 1) < 0) Py_CLEAR(future);
    return future;
}

/* _send_future(topic, value, key, …) -> future of its report. */
PyObject *sender_send_future(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    return send_future(o, args, n, kwnames, false);
}
/* _send_awaited(topic, value, key, …) -> the same, of a record whose sender waits: with none of the others on its way, it does not linger. */
PyObject *sender_send_awaited(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    return send_future(o, args, n, kwnames, true);
}

PyObject *sender_has_outstanding(PyObject *o, PyObject *unused) {
    (void)unused;
    return PyBool_FromLong(sender_is_busy((Sender *)o));
}

/* _in_loop(create_future): sends make futures with it from now on. */
PyObject *sender_in_loop(PyObject *o, PyObject *make_future) {
    Py_INCREF(make_future);
    Py_XSETREF(((Sender *)o)->make_future, make_future);
    Py_RETURN_NONE;
}

static int resolve(Sender *s, PyObject *report) {
    struct range *range = range_of(s, (uint64_t)((Report *)report)->number);
    if (range) return into_group(s, range, report);
    PyObject *key = PyLong_FromLongLong(((Report *)report)->number);
    PyObject *future = key ? PyDict_GetItemWithError(s->callbacks, key) : NULL;
    int result = PyErr_Occurred() ? -1 : 0;
    if (future) {
        Py_INCREF(future);
        PyObject *error = ((Report *)report)->error;
        result = PyDict_DelItem(s->callbacks, key);
        if (result == 0) result = settle(future, error != Py_None ? error : report, error != Py_None);
        Py_DECREF(future);
    }
    Py_XDECREF(key);
    return result;
}

/* _settle() -> kc_err: takes one container of reports (some thousand at most), and resolves its futures and groups. KC_OK: there may be more. What
 * goes wrong with one future does not keep the others from their outcome: the first exception is raised in the end. */
PyObject *sender_settle(PyObject *o, PyObject *unused) {
    Sender *s = (Sender *)o;
    kc_reports *container;
    kc_report r;
    struct raised first = {NULL, NULL, NULL};
    (void)unused;
    if (!s->producer) return PyLong_FromLong(KC_CLOSED);
    kc_err err = kc_producer_reports(s->producer, &container, 0);
    if (err) return PyLong_FromLong(err);
    while (kc_reports_next(container, &r)) {
        PyObject *report = sender_report(s, container, &r, &first);
        if (!report || resolve(s, report) < 0) raised_keep(&first, o);
        Py_XDECREF(report);
    }
    kc_reports_free(container);
    if (!sender_is_busy(s) && tell_busy(s, 0) < 0) raised_keep(&first, o);
    if (first.type) {
        PyErr_Restore(first.type, first.value, first.trace);
        return NULL;
    }
    return PyLong_FromLong(KC_OK);
}

/* ---- async for ---- */

/* An awaitable that is done: it gives its value at once. */
typedef struct {
    PyObject_HEAD
    PyObject *value;
} Ready;

static void ready_dealloc(PyObject *o) {
    Py_XDECREF(((Ready *)o)->value);
    PyObject_Free(o);
}
static PyObject *ready_next(PyObject *o) {
    PyObject *value = ((Ready *)o)->value;
    ((Ready *)o)->value = NULL;
    if (!value) PyErr_SetString(PyExc_RuntimeError, "this record was awaited already");
    else PyErr_SetObject(PyExc_StopIteration, value);
    Py_XDECREF(value);
    return NULL;
}
#if PY_VERSION_HEX >= 0x030A0000
static PySendResult ready_send(PyObject *o, PyObject *unused, PyObject **result) {
    (void)unused;
    *result = ((Ready *)o)->value;
    ((Ready *)o)->value = NULL;
    if (*result) return PYGEN_RETURN;
    PyErr_SetString(PyExc_RuntimeError, "this record was awaited already");
    return PYGEN_ERROR;
}
#endif
static PyAsyncMethods ready_async = {
    .am_await = PyObject_SelfIter,
#if PY_VERSION_HEX >= 0x030A0000
    .am_send = ready_send,
#endif
};
PyTypeObject Ready_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient._fast.Ready", .tp_basicsize = sizeof(Ready), .tp_dealloc = ready_dealloc,
                           .tp_flags = Py_TPFLAGS_DEFAULT, .tp_iter = PyObject_SelfIter, .tp_iternext = ready_next, .tp_as_async = &ready_async,
                           .tp_doc = "An awaitable that is done."};

/* The next record of the batch at hand; where that is at its end, the coroutine that awaits another one (_next_record in Python). */
static PyObject *source_anext(PyObject *o) {
    if (!source_has_rest(o)) return PyObject_CallMethod(o, "_next_record", NULL);
    Ready *ready = PyObject_New(Ready, &Ready_type);
    if (!ready) return NULL;
    ready->value = source_give_record(o);
    if (!ready->value) Py_CLEAR(ready);
    return (PyObject *)ready;
}
static PyAsyncMethods source_async = {.am_aiter = PyObject_SelfIter, .am_anext = source_anext};

/* _rest() -> the next record of the batch at hand; None: it is at its end. */
static PyObject *source_rest(PyObject *o, PyObject *unused) {
    (void)unused;
    if (source_has_rest(o)) return source_give_record(o);
    Py_RETURN_NONE;
}
static PyMethodDef async_source_methods[] = {
    {"_rest", source_rest, METH_NOARGS, "see aio.c"},
    {NULL, NULL, 0, NULL},
};
PyTypeObject AsyncSource_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient._fast.AsyncSource", .tp_base = &Source_type,
                                 .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .tp_as_async = &source_async,
                                 .tp_methods = async_source_methods,
                                 .tp_new = PyType_GenericNew, .tp_doc = "A Source for asynchronous consumers."};
