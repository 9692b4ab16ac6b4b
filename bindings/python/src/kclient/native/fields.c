/* fields.c - from Python objects to the members of a kc_record. Called by sender.c. */
#include "hot.h"

void fields_release(struct fields *f) {
    if (f->key.obj) PyBuffer_Release(&f->key);
    if (f->value.obj) PyBuffer_Release(&f->value);
    for (Py_ssize_t i = 0; i < f->header_values; i++) PyBuffer_Release(&f->header_value[i]);
    PyMem_Free(f->block);
    Py_XDECREF(f->headers);
    Py_XDECREF(f->guid);
}

int plain_bytes(PyObject *value, kc_bytes *out) {
    if (PyBytes_CheckExact(value)) {
        *out = (kc_bytes){PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value)};
        return 0;
    }
    if (value == Py_None) {
        *out = (kc_bytes){NULL, 0};
        return 0;
    }
    if (!PyUnicode_Check(value)) return 1;
    Py_ssize_t size;
    out->p = PyUnicode_AsUTF8AndSize(value, &size); /* kept in the str */
    out->size = (size_t)size;
    return out->p ? 0 : -1;
}

int any_bytes(PyObject *value, Py_buffer *hold, kc_bytes *out, const char *what) {
    int kind = plain_bytes(value, out);
    if (kind <= 0) return kind;
    if (!PyObject_CheckBuffer(value)) {
        PyErr_Format(PyExc_TypeError, "%s is bytes, str or None, not %.100s", what, Py_TYPE(value)->tp_name);
        return -1;
    }
    if (PyObject_GetBuffer(value, hold, PyBUF_SIMPLE) < 0) return -1;
    *out = (kc_bytes){hold->buf ? hold->buf : "", (size_t)hold->len};
    return 0;
}

/* A pair as a tuple of its own. New, or NULL. */
static PyObject *own_pair(PyObject *pair) {
    PyObject *own = PyUnicode_Check(pair) ? NULL : PySequence_Tuple(pair);
    if (!own && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "a header is a pair of name (str) and value, not %R", pair);
    }
    return own;
}

PyObject *headers_plain(PyObject *headers) {
    PyObject *list = PyDict_Check(headers) ? PyDict_Items(headers) : PySequence_List(headers);
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        PyObject *pair = PyList_GET_ITEM(list, i);
        PyObject *own = PyTuple_CheckExact(pair) ? NULL : own_pair(pair);
        if (own) PyList_SetItem(list, i, own); /* takes own */
        else if (PyErr_Occurred()) Py_CLEAR(list);
    }
    return list;
}

static int one_header(struct fields *f, PyObject *pair, kc_header *out) {
    if (PyTuple_GET_SIZE(pair) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(pair, 0))) {
        PyErr_Format(PyExc_TypeError, "a header is a pair of name (str) and value, not %R", pair);
        return -1;
    }
    Py_ssize_t size;
    out->name = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(pair, 0), &size);
    if (!out->name) return -1;
    out->name_size = (size_t)size;
    Py_buffer *hold = &f->header_value[f->header_values];
    hold->obj = NULL;
    if (any_bytes(PyTuple_GET_ITEM(pair, 1), hold, &out->value, "a header's value") < 0) return -1;
    if (hold->obj) f->header_values++;
    return 0;
}

int fields_plain_headers(struct fields *f, PyObject *plain, kc_record *out) {
    if (plain == Py_None) return 0;
    Py_INCREF(plain);
    f->headers = plain;
    Py_ssize_t n = PyList_GET_SIZE(plain);
    if (n > HEADERS_INLINE) {
        f->block = PyMem_Calloc((size_t)n, sizeof(kc_header) + sizeof(Py_buffer));
        if (!f->block) {
            PyErr_NoMemory();
            return -1;
        }
        f->header_value = f->block;
        f->header = (kc_header *)(f->header_value + n);
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (one_header(f, PyList_GET_ITEM(plain, i), &f->header[i]) < 0) return -1;
    out->headers = f->header;
    out->header_count = (uint32_t)n;
    return 0;
}

int fields_headers(struct fields *f, PyObject *headers, kc_record *out) {
    if (!headers || headers == Py_None) return 0;
    PyObject *plain = headers_plain(headers);
    int result = plain ? fields_plain_headers(f, plain, out) : -1;
    Py_XDECREF(plain);
    return result;
}

int fields_guid(struct fields *f, PyObject *guid, kc_record *out) {
    static PyObject *convert;
    if (!guid || guid == Py_None) return 0;
    if (PyBytes_CheckExact(guid) && PyBytes_GET_SIZE(guid) == 16) {
        Py_INCREF(guid);
        f->guid = guid;
    } else {
        f->guid = helper(&convert, "kclient.guid", "guid_bytes") ? PyObject_CallFunctionObjArgs(convert, guid, NULL) : NULL;
        if (!f->guid) return -1;
    }
    out->guid = (const uint8_t *)PyBytes_AS_STRING(f->guid);
    return 0;
}

int fields_partition(PyObject *partition, kc_record *out) {
    if (!partition || partition == Py_None) return 0;
    long n = PyLong_AsLong(partition);
    if (n == -1 && PyErr_Occurred()) return -1;
    if (n < 0 || n > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "a partition is 0 or more, not %ld", n);
        return -1;
    }
    out->partition = (int32_t)n;
    out->flags |= KC_HAS_PARTITION;
    return 0;
}

int fields_timestamp(PyObject *timestamp, kc_record *out) {
    if (!timestamp || timestamp == Py_None) return 0;
    long long ms = PyLong_AsLongLong(timestamp);
    if (ms == -1 && PyErr_Occurred()) return -1;
    out->timestamp_ms = ms;
    out->flags |= KC_HAS_TIMESTAMP;
    return 0;
}
