/* aio.h - what aio.c and the files of the synchronous calls share. */
#ifndef KCLIENT_PY_AIO_H
#define KCLIENT_PY_AIO_H

#include "sender.h"

/* The records of one send_many of the asyncio API. */
typedef struct Group {
    PyObject_HEAD
    PyObject *future, *reports; /* the list that it will get */
    Py_ssize_t accepted, failed, left;
} Group;
extern PyTypeObject Group_type, Ready_type, AsyncSource_type;

/** Numbers first … first + count of a call of send_many are the group's, behind those that it has accepted. 0, -1: an exception. */
int sender_expect_range(Sender *s, uint64_t first, size_t count, Group *group);
/** The call is over, and took so many of them. */
void sender_end_range(Sender *s, uint64_t first, size_t taken);
void sender_clear_ranges(Sender *s);
int sender_visit_ranges(Sender *s, visitproc visit, void *arg);
/** Whether a future or a group waits for a report. */
int sender_is_busy(const Sender *s);

/* Methods of Sender. */
PyObject *sender_send_future(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *sender_send_awaited(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *sender_in_loop(PyObject *o, PyObject *make_future);
PyObject *sender_has_outstanding(PyObject *o, PyObject *unused);
PyObject *sender_settle(PyObject *o, PyObject *unused);

/* source.c */
int source_has_rest(PyObject *source);
PyObject *source_give_record(PyObject *source);

#endif
