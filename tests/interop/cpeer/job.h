/* job - what the C peers share: jobs and answers as JSON lines, records as JSON with base64, the load test's values.
 *
 * Used by rdk_peer.c (librdkafka) and kc_peer.c (libkclient), called by judge/peers.py as `PEER BOOTSTRAP`: one JSON job a
 * line on stdin, one JSON answer a line on stdout.
 *   {"op":"produce","topic","file","codec","acks","idempotence","out","conf":{}}   file: a JSON line a record; out: a line a report
 *   {"op":"consume","topics":{name: partitions},"out","conf":{}}   reads all partitions, from the beginning to the end of each
 *   {"op":"follow","topics","out","conf":{}}   libkclient alone: as consume, past the ends and errors (a line each), until the next line comes
 *   {"op":"load","topic","partitions","acks","idempotence","rate","log","conf":{}}   numbered records until the next line comes
 */
#ifndef JOB_H
#define JOB_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#define RECORD_SIZE_MAX "11534336" /* a 10 MB value fits */
#define WAIT_US_MAX 60000000u      /* a peer that hears nothing for so long has failed */

struct bytes {
    unsigned char *data; /* NULL is a null key or value; an empty one has a pointer */
    size_t size;
};

struct job_op {
    const char *name;
    long (*run)(const json_t *job); /* how many records, or -1 after job_fail */
};

extern const char *job_bootstrap;
extern long job_load_acked, job_load_failed;

/* Notes why the job failed; the first reason stays. Returns -1. */
int job_fail(const char *what, const char *why);
int job_failed(void);
void *job_need(void *p); /* ends the process when out of memory */
uint64_t job_now_us(void);
const char *job_text(const json_t *job, const char *name, const char *otherwise);
long job_number(const json_t *job, const char *name, long otherwise);
int job_is(const json_t *job, const char *name);

struct bytes job_unbase64(const json_t *s);
void job_put_base64(FILE *f, const void *data, size_t size);
/* The start of a consumed record's line, and one header of it. */
void job_put_record(FILE *f, const char *topic, int partition, int64_t offset, int64_t timestamp_ms, const void *key,
                    size_t key_size, const void *value, size_t value_size);
void job_put_header(FILE *f, size_t index, const char *name, size_t name_size, const void *value, size_t value_size);

/* Calls send for each record of the job's file, with its index; stops at the first -1. Returns how many, or -1. */
long job_each(const json_t *job, int (*send)(void *ctx, const json_t *record, long index), void *ctx);

/* The value of a load record tells its own id; the rest follows from the id, so that a checker can rebuild it. */
size_t job_load_value(char *buf, size_t capacity, uint64_t id);
int job_stop_asked(void);

int job_main(int argc, char **argv, const char *version, const struct job_op *ops);

#endif
