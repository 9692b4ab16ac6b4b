/* test_testkit_http.c - the test kit against an admin port that answers what it should not, or not at all: each is an error that says so. Answers here are
 * canned; the real port's are in the other tests.
 */
#include "testkit_rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

struct server {
    int listening;
    char where[60];
    const char *answer; /* NULL: none, ever */
    size_t step;        /* so many bytes at a time; 0: all */
    char request[2000]; /* what was asked last */
    pthread_t thread;
};

static void give(int fd, const char *p, size_t n, size_t step) {
    for (size_t sent = 0; sent < n;) {
        size_t part = step && step < n - sent ? step : n - sent;
        if (send(fd, p + sent, part, MSG_NOSIGNAL) != (ssize_t)part) return;
        sent += part;
        if (step) usleep(1000);
    }
}

/* The whole of it: with bytes that were not read a close would reset the connection. */
static void take_request(int fd, char *text, size_t size) {
    size_t n = 0, wanted = 0;
    const char *body = NULL, *length;
    do {
        ssize_t got = recv(fd, text + n, size - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
        text[n] = 0;
        if (got <= 0) return;
        body = strstr(text, "\r\n\r\n");
        length = strstr(text, "Content-Length: ");
        if (body && length) wanted = (size_t)(body + 4 - text) + (size_t)atol(length + 16);
    } while (!body || n < wanted);
}

static void *serve(void *arg) {
    struct server *s = arg;
    int fd, kept = -1;
    while ((fd = accept(s->listening, NULL, NULL)) >= 0) {
        take_request(fd, s->request, sizeof s->request);
        if (!s->answer) { /* it stays open */
            if (kept >= 0) close(kept);
            kept = fd;
            continue;
        }
        give(fd, s->answer, strlen(s->answer), s->step);
        close(fd);
    }
    if (kept >= 0) close(kept);
    return NULL;
}

static void server_start(struct server *s) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    s->listening = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s->listening, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listening, 8), 0);
    assert_int_equal(getsockname(s->listening, (struct sockaddr *)&at, &n), 0);
    snprintf(s->where, sizeof s->where, "http://127.0.0.1:%d/", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}
static void server_stop(struct server *s) {
    shutdown(s->listening, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listening);
}

#define CLUSTER "{\"version\":\"0.1.0\",\"bootstrap\":\"127.0.0.1:1\",\"data\":\"/tmp/x\",\"ephemeral\":true,\"clock\":\"real\",\"nodes\":[]}"
#define HEAD(status) "HTTP/1.1 " status "\r\nContent-Type: application/json\r\n\r\n"

static void test_wrong_answers(void **state) {
    (void)state;
    static const struct {
        const char *answer;
        kc_err err;
        const char *part;
    } cases[] = {
        {"", KC_TRANSPORT, "without an answer"},
        {"SSH-2.0-OpenSSH\r\n", KC_BAD_MESSAGE, "no HTTP"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", KC_BAD_MESSAGE, "no HTTP"}, /* half a head */
        {"HTTP/1.1 999 ?\r\n\r\n{}", KC_BAD_MESSAGE, "no HTTP"},
        {"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length:  20\r\n\r\n{\"version\":", KC_TRANSPORT, "after 11 bytes of an answer of 20"},
        {HEAD("200 OK") "[1, 2]", KC_BAD_MESSAGE, "no JSON object"},
        {HEAD("200 OK") "<html>", KC_BAD_MESSAGE, "<html>"},
        {HEAD("200 OK") "{}", KC_BAD_MESSAGE, "data and bootstrap"},
        {HEAD("200 OK") "{\"data\": 7, \"bootstrap\": \"x\"}", KC_BAD_MESSAGE, "data and bootstrap"},
        {HEAD("400 Bad Request") "{\"error\":\"so not\"}", KC_INVALID, "so not"},
        {HEAD("404 Not Found") "there is nothing", KC_INVALID, "there is nothing"},
        {HEAD("409 Conflict") "{\"error\":\"not now\"}", KC_UNSUPPORTED, "not now"},
        {HEAD("500 Oh") "{\"error\":\"on fire\"}", KC_TRANSPORT, "on fire"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct server s = {.answer = cases[i].answer, .step = i % 2 ? 7 : 0};
        kc_test_cluster *c = NULL;
        server_start(&s);
        BAD(kc_test_cluster_attach(s.where, SECONDS(60), &c, &error), cases[i].err, cases[i].part);
        assert_null(c);
        server_stop(&s);
    }
}

static void test_answers_that_are_lacking(void **state) {
    (void)state;
    struct server s = {.answer = HEAD("200 OK") CLUSTER, .step = 40};
    kc_test_cluster *c = NULL;
    kc_test_info *info = NULL;
    kc_test_rule *rule = NULL;
    int64_t n;
    server_start(&s);
    GOOD(kc_test_cluster_attach(s.where, SECONDS(3), &c, &error));
    assert_string_equal(kc_test_cluster_bootstrap(c), "127.0.0.1:1");
    GOOD(kc_test_describe(c, &info, &error));
    assert_int_equal(kc_test_info_node_count(info), 0);
    kc_test_info_free(info);
    BAD(kc_test_clock(c, &n, NULL, &error), KC_BAD_MESSAGE, "wall_ms");
    BAD(kc_test_count(c, "truncations", &n, &error), KC_INVALID, "truncations");
    s.answer = HEAD("200 OK") "{\"version\":\"0\",\"nodes\":[{\"id\":0,\"state\":\"asleep\",\"address\":\"x\"}]}";
    BAD(kc_test_describe(c, &info, &error), KC_BAD_MESSAGE, "nodes that can be read");
    s.answer = HEAD("200 OK") "{\"nodes\":7}";
    BAD(kc_test_describe(c, &info, &error), KC_BAD_MESSAGE, "list of nodes");
    BAD(kc_test_fault_add_json(c, "[]", NULL, 0, &rule, &error), KC_BAD_MESSAGE, "list of nodes");
    s.answer = NULL; /* it does not answer at all */
    BAD(kc_test_describe(c, &info, &error), KC_TIMED_OUT, "no answer came");
    server_stop(&s);
    BAD(kc_test_describe(c, &info, &error), KC_TRANSPORT, "refused");
    kc_test_cluster_free(c);
}

static void test_requests(void **state) {
    (void)state;
    struct server s = {.answer = HEAD("200 OK") CLUSTER};
    kc_test_cluster *c = NULL;
    const int32_t nodes[] = {0, 12};
    server_start(&s);
    GOOD(kc_test_cluster_attach(s.where, SECONDS(60), &c, &error));
    static const struct {
        const char *head, *body;
    } wanted[] = {{"DELETE /snapshots?name=a%20b%2Fc%25 HTTP/1.1\r\n", ""},
                  {"DELETE /faults?node=0,12 HTTP/1.1\r\n", ""},
                  {"POST /nodes HTTP/1.1\r\n", "\r\n\r\n{\"do\":\"kill\",\"ids\":[0,12]}"},
                  {"POST /clock HTTP/1.1\r\n", "\r\n\r\n{\"advance_ms\":3600000}"},
                  {"POST /snapshots HTTP/1.1\r\n", "\r\n\r\n{\"save\":\"n\",\"replace\":true}"},
                  {"PUT /x?y HTTP/1.1\r\n", "\r\n\r\nz"}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (i == 0) GOOD(kc_test_snapshot_delete(c, "a b/c%", &error));
        if (i == 1) GOOD(kc_test_faults_clear(c, nodes, 2, &error));
        if (i == 2) GOOD(kc_test_nodes(c, KC_TEST_KILL, nodes, 2, &error));
        if (i == 3) GOOD(kc_test_advance(c, 3600000, &error));
        if (i == 4) GOOD(kc_test_snapshot_save(c, "n", 1, NULL, &error));
        if (i == 5) GOOD(kc_test_request(c, "PUT", "/x?y", "z", NULL, NULL, &error));
        assert_int_equal(strncmp(s.request, wanted[i].head, strlen(wanted[i].head)), 0);
        if (!strstr(s.request, wanted[i].body)) fail_msg("%s is not in %s", wanted[i].body, s.request);
        assert_non_null(strstr(s.request, "Connection: close\r\n"));
    }
    kc_test_cluster_free(c);
    server_stop(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrong_answers), cmocka_unit_test(test_answers_that_are_lacking), cmocka_unit_test(test_requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
