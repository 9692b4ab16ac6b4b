/* fuzz_text.c - what people write: server.properties, fault rules in JSON, the client's properties, kc's command lines and format strings,
 * escapes and base64. The first byte chooses which. Whatever is refused is refused with a text; memory stays within what the input's size
 * can justify. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "config.h"
#include "core/config.h"
#include "fault.h"
#include "kit/kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES_MAX = 200, WORDS_MAX = 60, SIZE_MAX_OF_INPUT = 20000 };

static void warned(void *ctx, const char *text) {
    (void)ctx;
    FUZZ_CHECK(text && *text, "a warning without a text");
}

static void properties(const char *z, size_t n) {
    struct kb_config *c;
    struct kb_listener l[4];
    char text[400] = "";
    if (kb_config_new(&c) != KW_OK) abort();
    kw_err err = kb_config_load(c, "server.properties", z, n, text, sizeof text, warned, NULL);
    if (!err) err = kb_config_finish(c, text, sizeof text);
    FUZZ_CHECK(!err || text[0], "server.properties is refused without a text");
    if (!err) {
        size_t count = kb_config_listeners(c, true, l, 4);
        for (size_t i = 0; i < count && i < 4; i++) FUZZ_CHECK(l[i].name.len > 0 && l[i].host.len >= 0, "a listener without a name");
        for (size_t i = 0; i < kb_config_def_count; i++)
            if (kb_config_defs[i].scope & KB_C_BROKER) (void)kb_config_get(c, kb_config_defs[i].name);
        (void)kb_config_log_dir(c);
    }
    kb_config_free(c);
}

static void rules(const char *z) {
    struct kb_faults *f = kb_faults_new();
    struct kb_fault_wrong wrong = {0};
    if (!f) return;
    kw_err err = kb_faults_add(f, z, NULL, &wrong);
    FUZZ_CHECK(!err || wrong.text[0] || err == KW_ENOMEM, "fault rules are refused without a text");
    char *list = kb_faults_list(f);
    FUZZ_CHECK(!list || strncmp(list, "{\"rules\":[", 10) == 0, "the list of rules is none");
    kw_free(list);
    kb_faults_free(f);
}

/* Lines of name=value. */
static void client_properties(char *z) {
    kc_config *c = kc_config_new();
    kc_error *e = NULL;
    struct kc_settings *s = NULL;
    if (!c) abort();
    for (char *line = z, *next; line; line = next) {
        const char *value;
        char name[200];
        if ((next = strchr(line, '\n'))) *next++ = 0;
        if (!cli_split_pair(line, name, sizeof name, &value)) continue;
        kc_err err = kc_config_set(c, name, value, &e);
        FUZZ_CHECK((err != KC_OK) == (e != NULL), "a property is refused without an error, or the other way round");
        if (e) FUZZ_CHECK(kc_error_message(e)[0], "an error without a text");
        kc_error_free(e);
        e = NULL;
    }
    kc_err err = kc_settings_new(c, NULL, &s, &e);
    FUZZ_CHECK((err != KC_OK) == (e != NULL), "settings are refused without an error");
    kc_error_free(e);
    if (err == KC_OK) kc_settings_free(s);
    kc_config_free(c);
}

static void command_line(char *z) {
    static bool flag;
    static const char *word;
    static int64_t numbers[3];
    static struct cli_many many;
    static const struct cli_option options[] = {{'f', "flag", NULL, "a flag", CLI_FLAG, &flag},
                                                {'t', "text", "TEXT", "a text", CLI_TEXT, &word},
                                                {'p', "partition", "N", "a number from 0", CLI_INDEX, &numbers[0]},
                                                {'n', "number", "N", "a number from 1", CLI_COUNT, &numbers[1]},
                                                {0, "total", "N", "any number from 1", CLI_TOTAL, &numbers[2]},
                                                {0, "set", "NAME=VALUE", "many", CLI_MANY, &many}};
    static const struct cli_command command = {.name = "topic create",
                                               .operands = "TOPIC",
                                               .summary = "makes a topic",
                                               .notes = "notes",
                                               .operands_min = 1,
                                               .operands_max = 3,
                                               .options = options,
                                               .option_count = KW_COUNTOF(options)};
    char *argv[WORDS_MAX + 1] = {"kc"};
    int argc = 1;
    many.count = 0;
    memset(numbers, 0, sizeof numbers);
    for (char *p = z, *next; p && argc < WORDS_MAX; p = next) {
        if ((next = strchr(p, '\n'))) *next++ = 0;
        argv[argc++] = p;
    }
    struct cli_operands operands;
    int rc = cli_parse(&command, argc, argv, &operands);
    FUZZ_CHECK(rc == -1 || rc == CLI_OK || rc == CLI_USAGE, "a command line gives %d", rc);
    if (rc == -1) FUZZ_CHECK(operands.count >= 1 && operands.count <= 3 && many.count <= CLI_MANY_MAX, "%d operands", operands.count);
    FUZZ_CHECK(numbers[0] >= 0 && numbers[0] <= INT32_MAX && numbers[1] <= INT32_MAX, "a number out of its range is taken");
}

/* A format without a letter prints its text, unescaped. */
static void format(char *z, size_t n) {
    char why[400] = "", *bytes = NULL;
    size_t size = 0;
    struct cli_format *f = cli_format_new(z, why, sizeof why);
    FUZZ_CHECK(f || why[0], "a format is refused without a text");
    if (!f) return;
    FILE *out = open_memstream(&bytes, &size);
    if (!out) abort();
    kc_message m = {.partition = 1, .offset = 2, .timestamp_ms = 3, .key = {"\1k", 2}, .value = {z, n}, .header_count = 2};
    kc_header headers[] = {{.name = "a", .name_size = 1, .value = {"b", 1}}, {.name = "c", .name_size = 1}};
    cli_format_print(f, out, "topic", &m, headers, KW_COUNTOF(headers));
    fclose(out);
    if (!strchr(z, '%')) {
        size_t len = cli_unescape(z);
        FUZZ_CHECK(len == size && memcmp(z, bytes, len) == 0, "a format without letters prints something else");
    }
    free(bytes);
    cli_format_free(f);
    if (!(out = open_memstream(&bytes, &size))) abort();
    cli_json_message(out, "topic", &m, headers, KW_COUNTOF(headers), false);
    cli_json_message(out, "topic", &m, headers, KW_COUNTOF(headers), true);
    fclose(out);
    free(bytes);
}

static void base64(const char *z, size_t n) {
    uint8_t *raw = malloc(n + 1);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!raw || !out) abort();
    int64_t got = cli_base64_decode(z, n, raw);
    FUZZ_CHECK(got >= -1 && got <= (int64_t)n, "base64 of %zu characters gives %lld bytes", n, (long long)got);
    cli_base64(out, z, n);
    fclose(out);
    uint8_t *again = malloc(size + 1);
    if (!again) abort();
    FUZZ_CHECK(cli_base64_decode(text, size, again) == (int64_t)n && memcmp(again, z, n) == 0, "base64 does not come back");
    free(raw);
    free(text);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static FILE *nowhere;
    if (!nowhere && !(nowhere = fopen("/dev/null", "w"))) abort();
    if (size < 1 || size > SIZE_MAX_OF_INPUT) return 0;
    size_t n = size - 1;
    char *z = malloc(n + 1);
    if (!z) abort();
    memcpy(z, data + 1, n);
    z[n] = 0;
    fuzz_memory_count();
    fuzz_memory = (struct fuzz_memory){.live_max = (size_t)64 * n + (1u << 20), .one_max = (size_t)32 * n + (512u << 10)};
    FILE *said = stderr, *told = stdout;
    stderr = stdout = nowhere; /* usage errors */
    switch (data[0] % 6) {
    case 0:
        properties(z, n);
        break;
    case 1:
        rules(z);
        break;
    case 2:
        client_properties(z);
        break;
    case 3:
        command_line(z);
        break;
    case 4:
        format(z, strlen(z));
        break;
    default:
        base64(z, n);
    }
    stderr = said;
    stdout = told;
    free(z);
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are never given back", fuzz_memory.live);
    return 0;
}
