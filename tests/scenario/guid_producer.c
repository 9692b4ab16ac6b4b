/* guid_producer.c - a producer for test_guid_kills.py: records 1, 2, … under ids that follow from their numbers, as an application has them that kept them
 * with what it sends. Killed and started again it sends the rest under the same ids, and some of what it had sent already.
 *
 * STATE is a file that it writes through memory, so that it says, once the program was killed, what was going on then: see struct state.
 *
 * Usage: guid_producer HOST:PORT TOPIC STATE FROM TO [--no-ids] [--reports FILE]
 *   --no-ids   the control: without ids
 *   --reports  a line a record: number, partition, offset, 1 if it was a duplicate
 */
#include <fcntl.h>
#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK = 50, PAUSE_US = 1000, WINDOW = 8192 /* numbers between the first without a report and the last sent */ };

struct state {
    int64_t mark;     /* all up to it are stored, for all that their reports say */
    int64_t sent;     /* the largest number that was accepted, ever */
    int64_t waiting;  /* of this run: accepted, without a report */
    int64_t requests; /* of this run: on their way when it last looked */
};

static struct state *state;
static bool done[WINDOW];
static bool ids = true;
static FILE *reports_file;

static int fail(const char *what, const kc_error *error) {
    fprintf(stderr, "%s: %s\n", what, error ? kc_error_message(error) : "failed");
    return 1;
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static void id_of(int64_t n, uint8_t id[16]) {
    uint64_t v[2] = {mix((uint64_t)n * 2 + 1), mix((uint64_t)n * 2 + 0x9e3779b97f4a7c15)};
    memcpy(id, v, sizeof v);
}

static struct state *map_state(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *state) != 0) return NULL;
    void *p = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static int take_report(const kc_report *r, const kc_error *error) {
    int64_t n = (int64_t)r->opaque;
    if (r->err != KC_OK) return fail("a record was not stored", error);
    if (ids && !(r->flags & KC_REPORT_DEDUPED)) return fail("this topic does not look ids up", NULL);
    if (r->flags & KC_REPORT_OTHER_PAYLOAD) return fail("a duplicate of another record", NULL);
    if (reports_file) fprintf(reports_file, "%lld %d %lld %d\n", (long long)n, (int)r->partition, (long long)r->offset, (r->flags & KC_REPORT_DUPLICATE) != 0);
    done[n % WINDOW] = true;
    state->waiting--;
    return 0;
}

/* What has come; waits up to `timeout_us` for the first of it. */
static int take_reports(kc_producer *producer, int64_t timeout_us) {
    kc_reports *reports = NULL;
    kc_report r;
    int rc = 0;
    kc_err err = kc_producer_reports(producer, &reports, timeout_us);
    if (err == KC_TIMED_OUT) return 0;
    if (err != KC_OK) return fail(kc_err_text(err), NULL);
    while (rc == 0 && kc_reports_next(reports, &r)) rc = take_report(&r, kc_reports_error(reports));
    kc_reports_free(reports);
    return rc;
}

static int send_one(kc_producer *producer, int32_t topic, int64_t n) {
    uint8_t id[16];
    char text[32];
    id_of(n, id);
    size_t size = (size_t)snprintf(text, sizeof text, "%lld", (long long)n);
    kc_record record = {.topic = topic, .value = {text, size}, .guid = ids ? id : NULL, .opaque = (uint64_t)n};
    kc_err err;
    while ((err = kc_producer_send(producer, &record, 0)) == KC_QUEUE_FULL)
        if (take_reports(producer, 100000) != 0) return 1;
    if (err != KC_OK) return fail(kc_err_text(err), NULL);
    if (n > state->sent) state->sent = n;
    state->waiting++;
    return 0;
}

static int send_all(kc_producer *producer, int32_t topic, int64_t from, int64_t to) {
    int64_t next = from, first = from; /* first: without a report */
    kc_producer_stats stats;
    bool told = false;
    state->waiting = state->requests = 0;
    while (first <= to) {
        if (kc_producer_stats_get(producer, &stats, sizeof stats) == KC_OK) state->requests = (int64_t)stats.in_flight_requests;
        for (int i = 0; i < CHUNK && next <= to && next < first + WINDOW; i++)
            if (send_one(producer, topic, next++) != 0) return 1;
        bool stuck = next > to || next == first + WINDOW;
        if (take_reports(producer, stuck ? 100000 : 0) != 0) return 1;
        for (; first < next && done[first % WINDOW]; first++) done[first % WINDOW] = false;
        if (first - 1 > state->mark) state->mark = first - 1;
        if (!told && first > from) {
            puts("working"); /* whoever kills it waits for the word, so that there is something to disturb */
            fflush(stdout);
            told = true;
        }
        if (!reports_file) usleep(PAUSE_US);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    for (int i = 6; i < argc; i++) {
        if (!strcmp(argv[i], "--no-ids")) ids = false;
        else if (!strcmp(argv[i], "--reports") && i + 1 < argc) reports_file = fopen(argv[++i], "w");
        else return 2;
    }
    kc_client *client = NULL;
    kc_producer *producer = NULL;
    kc_error *error = NULL;
    kc_config *config = kc_config_new();
    int rc = 1;
    state = map_state(argv[3]);
    if (!state) fail(argv[3], NULL);
    else if (kc_config_set(config, "bootstrap.servers", argv[1], &error) != KC_OK || kc_client_new(config, &client, &error) != KC_OK ||
             kc_config_set(config, "linger.ms", "0", &error) != KC_OK || kc_producer_new(client, NULL, &producer, &error) != KC_OK)
        fail("producer", error);
    else rc = send_all(producer, kc_client_topic(client, argv[2]), atoll(argv[4]), atoll(argv[5]));
    if (reports_file && fclose(reports_file) != 0) rc = 1;
    kc_producer_free(producer);
    kc_client_free(client);
    kc_config_free(config);
    kc_error_free(error);
    return rc;
}
