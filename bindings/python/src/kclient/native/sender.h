/* sender.h - what sender.c and send_many.c share. */
#ifndef KCLIENT_PY_SENDER_H
#define KCLIENT_PY_SENDER_H

#include "hot.h"

typedef struct {
    PyObject_HEAD
    kc_client *client;     /* both are held by owner */
    kc_producer *producer; /* NULL: not attached */
    PyObject *owner;
    PyObject *topics, *names;    /* the client's: number by name, name by number */
    PyObject *callbacks, *inbox; /* on_report by number; reports that have none */
    PyObject *last_topic;
    int64_t enqueue_us;          /* how long a full queue is waited for; -1: no limit */
    unsigned long long next;     /* the number of the next record */
    int32_t last_number;         /* of last_topic */
    int track;                   /* 1: records without on_report have a report, too, when they succeed */
    /* Of the asyncio API (aio.c): */
    PyObject *make_future;       /* the loop's create_future */
    struct range *ranges;        /* numbers of send_many's, ascending */
    size_t range_count, range_room, range_last;
} Sender;
struct Group;
struct range {
    uint64_t first, end, left; /* left: without a report */
    Py_ssize_t at;             /* the first one's place in the group */
    struct Group *group;
};

enum send_slot { SEND_TOPIC, SEND_VALUE, SEND_KEY, SEND_HEADERS, SEND_PARTITION, SEND_TIMESTAMP, SEND_GUID, SEND_ON_REPORT, SEND_SLOTS };

/* Each gives 0, or -1 with an exception. */
int take_arguments(const char *what, const char *const *names, int count, int required, PyObject *const *args, Py_ssize_t n, PyObject *kwnames,
                   PyObject **slot);
int sender_ready(Sender *s);
int sender_topic(Sender *s, PyObject *topic, int32_t *number);
/** Raises the exception of a refused record, or the one that a partitioner raised. */
int sender_no(Sender *s, kc_err err, PyObject *topic, size_t accepted);
int sender_expect(Sender *s, uint64_t number, PyObject *callback);
void sender_forget(Sender *s, uint64_t number);
/** How long to wait for room at a time. */
int64_t sender_piece(const Sender *s, int64_t left_us);
/* An exception that is kept while others have their turn. Zero-filled: none. */
struct raised {
    PyObject *type, *value, *trace;
};
/** Keeps the exception that is set, if it is the first one; others are told as unraisable, of `where`. */
void raised_keep(struct raised *first, PyObject *where);
PyObject *sender_report(Sender *s, const kc_reports *container, const kc_report *r, struct raised *interrupted);
/** Takes reports, which hold their places in the queue. */
int sender_make_room(Sender *s);
/** Sender.send with its arguments taken, and more flags (enum kc_record_flag): the record's number; NULL: an exception. */
PyObject *sender_send_slots(Sender *s, PyObject **slot, uint32_t flags);
PyObject *sender_send_many(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

#endif
