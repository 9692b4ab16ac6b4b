/* report.c - Report: what became of a record. Called by sender.c and Python. */
#include "hot.h"

#include <structmember.h>

static PyObject *error_of(const kc_reports *container, kc_err code) {
    static PyObject *make;
    if (!helper(&make, "kclient.errors", "at_address")) return NULL;
    return PyObject_CallFunction(make, "Ki", (unsigned long long)(uintptr_t)kc_reports_error(container), (int)code);
}

/* What went wrong before the record was stored, or failed for good; mostly nothing. 0: done, -1: an exception. */
static int attempts_of(const kc_reports *container, PyObject **out) {
    static PyObject *make;
    kc_attempt a;
    *out = NULL;
    if (kc_reports_attempt(container, 0, &a) != KC_OK) return 0;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && kc_reports_attempt(container, i, &a) == KC_OK; i++) {
        PyObject *one = helper(&make, "kclient.errors", "Attempt")
                            ? PyObject_CallFunction(make, "Liiss", (long long)a.at_ms, (int)a.broker, (int)a.cause, a.phase, a.detail) : NULL;
        if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    if (list) *out = PyList_AsTuple(list);
    Py_XDECREF(list);
    return *out ? 0 : -1;
}

PyObject *report_of(const kc_reports *container, const kc_report *r, PyObject *topic) {
    Report *out = PyObject_GC_New(Report, &Report_type);
    if (!out) return NULL;
    out->topic = topic;
    Py_INCREF(topic);
    out->number = (long long)r->opaque;
    out->offset = r->offset;
    out->timestamp = r->timestamp_ms;
    out->partition = r->partition;
    out->outcome = r->outcome;
    out->flags = r->flags;
    out->size = r->size;
    out->error = Py_None;
    Py_INCREF(Py_None);
    if (attempts_of(container, &out->attempts) < 0) Py_CLEAR(out);
    else if (r->err) {
        Py_DECREF(Py_None);
        out->error = error_of(container, r->err);
        if (!out->error) Py_CLEAR(out);
        else PyObject_GC_Track(out); /* an error that is raised holds frames, which may hold the report. Others are in no cycle, and cost nothing */
    }
    return (PyObject *)out;
}

static int report_traverse(PyObject *o, visitproc visit, void *arg) {
    Py_VISIT(((Report *)o)->error);
    return 0;
}
static int report_clear(PyObject *o) {
    Report *r = (Report *)o;
    PyObject *error = r->error;
    r->error = Py_None;
    Py_INCREF(Py_None);
    Py_XDECREF(error);
    return 0;
}
static void report_dealloc(PyObject *o) {
    PyObject_GC_UnTrack(o);
    Py_XDECREF(((Report *)o)->topic);
    Py_XDECREF(((Report *)o)->error);
    Py_XDECREF(((Report *)o)->attempts);
    PyObject_GC_Del(o);
}

static PyObject *report_repr(PyObject *o) {
    const Report *r = (Report *)o;
    if (r->error != Py_None) return PyUnicode_FromFormat("<Report %lld of %U[%d]: %R>", r->number, r->topic, r->partition, r->error);
    return PyUnicode_FromFormat("<Report %lld: %U[%d]@%lld%s>", r->number, r->topic, r->partition, r->offset,
                                r->flags & KC_REPORT_DUPLICATE ? " duplicate" : "");
}

#define FLAG(name, flag)                                                                                                                \
    static PyObject *get_##name(PyObject *o, void *unused) {                                                                            \
        (void)unused;                                                                                                                   \
        return PyBool_FromLong((((Report *)o)->flags & (flag)) != 0);                                                                   \
    }
FLAG(duplicate, KC_REPORT_DUPLICATE)
FLAG(other_payload, KC_REPORT_OTHER_PAYLOAD)
FLAG(offset_unknown, KC_REPORT_OFFSET_UNKNOWN)
FLAG(deduped, KC_REPORT_DEDUPED)
FLAG(perhaps_own, KC_REPORT_PERHAPS_OWN)
static PyObject *get_attempts(PyObject *o, void *unused) {
    (void)unused;
    PyObject *attempts = ((Report *)o)->attempts;
    if (!attempts) return PyTuple_New(0);
    Py_INCREF(attempts);
    return attempts;
}
static PyObject *get_ok(PyObject *o, void *unused) {
    (void)unused;
    return PyBool_FromLong(((Report *)o)->error == Py_None);
}
static PyObject *get_outcome(PyObject *o, void *unused) {
    static PyObject *make;
    (void)unused;
    return helper(&make, "kclient.errors", "Outcome") ? PyObject_CallFunction(make, "i", ((Report *)o)->outcome) : NULL;
}

/* raise_for_error() -> itself, or its error raised. */
static PyObject *report_raise(PyObject *o, PyObject *unused) {
    (void)unused;
    PyObject *error = ((Report *)o)->error;
    if (error != Py_None) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        return NULL;
    }
    Py_INCREF(o);
    return o;
}

static PyMemberDef members[] = {
    {"topic", T_OBJECT, offsetof(Report, topic), READONLY, "the topic's name"},
    {"error", T_OBJECT, offsetof(Report, error), READONLY, "a KafkaError; None: it is stored as acks asked"},
    {"number", T_LONGLONG, offsetof(Report, number), READONLY, "what send returned"},
    {"offset", T_LONGLONG, offsetof(Report, offset), READONLY, "-1: unknown (acks=0, failed)"},
    {"timestamp", T_LONGLONG, offsetof(Report, timestamp), READONLY, "as stored, ms since 1970"},
    {"partition", T_INT, offsetof(Report, partition), READONLY, "the partition"},
    {"size", T_UINT, offsetof(Report, size), READONLY, "bytes of key and value"},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"ok", get_ok, NULL, "True: no error", NULL},
    {"attempts", get_attempts, NULL, "tuple of Attempt: what went wrong on the way, also of a record that was stored in the end", NULL},
    {"outcome", get_outcome, NULL, "an Outcome", NULL},
    {"duplicate", get_duplicate, NULL, "the broker had it already, and stored nothing; offset is the first copy's", NULL},
    {"other_payload", get_other_payload, NULL, "a duplicate by its id whose first copy has another key or value", NULL},
    {"offset_unknown", get_offset_unknown, NULL, "stored, but where is not known (any more)", NULL},
    {"deduped", get_deduped, NULL, "the topic looks ids up: where the record has one, it is stored once", NULL},
    {"perhaps_own", get_perhaps_own, NULL, "a duplicate, perhaps of an earlier attempt of this very send", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef methods[] = {
    {"raise_for_error", report_raise, METH_NOARGS, "raise_for_error()\n--\n\nThe report itself, or its error, raised."},
    {NULL, NULL, 0, NULL},
};
PyTypeObject Report_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient.Report", .tp_basicsize = sizeof(Report), .tp_dealloc = report_dealloc,
                            .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_traverse = report_traverse, .tp_clear = report_clear,
                            .tp_members = members, .tp_getset = getset, .tp_methods = methods, .tp_repr = report_repr,
                            .tp_doc = "The outcome of one record."};
