/* format.c - how a consumed record is printed: kcat's format letters, or a JSON line. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

struct cli_format {
    char *text; /* unescaped; a format letter stands as \1 letter, a byte of 1 as \1 \1 */
    size_t size;
};

#define LETTERS "sSRkKTtpohn%"

/* n characters between letters; `out` has room for twice as many. */
static char *put_text(char *out, const char *p, size_t n) {
    char *piece = out + n; /* behind what is written: unescaping only shortens */
    memmove(piece, p, n);
    piece[n] = 0;
    size_t m = cli_unescape(piece);
    for (size_t i = 0; i < m; i++) {
        if (piece[i] == 1) *out++ = 1;
        *out++ = piece[i];
    }
    return out;
}

struct cli_format *cli_format_new(const char *text, char *why, size_t size) {
    struct cli_format *f = calloc(1, sizeof *f);
    char *marked = f ? malloc(strlen(text) * 2 + 1) : NULL;
    if (!marked) {
        free(f);
        snprintf(why, size, "out of memory");
        return NULL;
    }
    char *out = marked;
    for (const char *p = text; *p; p++) {
        if (*p != '%') {
            size_t n = strcspn(p, "%");
            out = put_text(out, p, n);
            p += n - 1;
            continue;
        }
        p++;
        if (!*p || !strchr(LETTERS, *p)) {
            snprintf(why, size,
                     "'%%%c' is no format letter; known: %%s %%S %%R value, its size, its size as 4 bytes; %%k %%K key; %%h headers; "
                     "%%t topic; %%p partition; %%o offset; %%T timestamp; %%%%",
                     *p ? *p : ' ');
            free(marked);
            free(f);
            return NULL;
        }
        *out++ = 1;
        *out++ = *p;
    }
    f->text = marked;
    f->size = (size_t)(out - marked);
    return f;
}

void cli_format_free(struct cli_format *f) {
    if (f) free(f->text);
    free(f);
}

static long long size_of(kc_bytes b) {
    return b.p ? (long long)b.size : -1;
}

static void print_headers(FILE *out, const kc_header *h, size_t count) {
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s%.*s=", i ? "," : "", (int)h[i].name_size, h[i].name);
        if (h[i].value.p)
            fwrite(h[i].value.p, 1, h[i].value.size, out);
        else
            fputs("NULL", out);
    }
}

void cli_format_print(const struct cli_format *f, FILE *out, const char *topic, const kc_message *m, const kc_header *headers,
                      size_t header_count) {
    for (size_t i = 0; i < f->size; i++) {
        if (f->text[i] != 1 || i + 1 == f->size) {
            fputc(f->text[i], out);
            continue;
        }
        uint8_t be[4];
        switch (f->text[++i]) {
        case 's':
            fwrite(m->value.p ? m->value.p : "", 1, m->value.size, out);
            break;
        case 'S':
            fprintf(out, "%lld", size_of(m->value));
            break;
        case 'R':
            for (int k = 0; k < 4; k++) be[k] = (uint8_t)(size_of(m->value) >> (24 - 8 * k));
            fwrite(be, 1, 4, out);
            break;
        case 'k':
            fwrite(m->key.p ? m->key.p : "", 1, m->key.size, out);
            break;
        case 'K':
            fprintf(out, "%lld", size_of(m->key));
            break;
        case 'T':
            fprintf(out, "%lld", (long long)m->timestamp_ms);
            break;
        case 't':
            fputs(topic, out);
            break;
        case 'p':
            fprintf(out, "%d", (int)m->partition);
            break;
        case 'o':
            fprintf(out, "%lld", (long long)m->offset);
            break;
        case 'h':
            print_headers(out, headers, header_count);
            break;
        case 'n':
            fputc('\n', out);
            break;
        case 1:
            fputc(1, out);
            break;
        default:
            fputc('%', out);
        }
    }
}

static void json_bytes(FILE *out, kc_bytes b, bool base64) {
    if (!b.p) {
        fputs("null", out);
    } else if (base64) {
        fputc('"', out);
        cli_base64(out, b.p, b.size);
        fputc('"', out);
    } else {
        cli_json_text(out, b.p, b.size);
    }
}

/* The id that the headers carry; NULL: none. */
static const uint8_t *id_of(const kc_header *headers, size_t count) {
    const kc_header *found = NULL;
    for (size_t i = 0; i < count; i++) {
        if (headers[i].name_size != 4 || memcmp(headers[i].name, "guid", 4) != 0) continue;
        if (found) return NULL;
        found = &headers[i];
    }
    return found && found->value.size == 16 ? found->value.p : NULL;
}

void cli_json_record(FILE *out, const char *topic, const kc_message *m, const kc_header *headers, size_t header_count, bool base64) {
    static const char *const types[] = {"none", "create", "append"};
    fputs("{\"topic\":", out);
    cli_json_text(out, topic, strlen(topic));
    fprintf(out, ",\"partition\":%d,\"offset\":%lld,\"timestamp\":%lld,\"timestamp_type\":\"%s\",\"key\":", (int)m->partition,
            (long long)m->offset, (long long)m->timestamp_ms,
            types[m->timestamp_type >= -1 && m->timestamp_type <= 1 ? m->timestamp_type + 1 : 0]);
    json_bytes(out, m->key, base64);
    fputs(",\"value\":", out);
    json_bytes(out, m->value, base64);
    const uint8_t *id = header_count > 0 ? id_of(headers, header_count) : NULL;
    char text[KC_GUID_TEXT_SIZE];
    if (id) fprintf(out, ",\"guid\":\"%s\"", kc_guid_to_text(id, text));
    fputs(",\"headers\":[", out);
    for (size_t i = 0; i < header_count; i++) {
        fputs(i ? ",[" : "[", out);
        cli_json_text(out, headers[i].name, headers[i].name_size);
        fputc(',', out);
        json_bytes(out, headers[i].value, base64);
        fputc(']', out);
    }
    fputs("]}", out);
}

void cli_json_message(FILE *out, const char *topic, const kc_message *m, const kc_header *headers, size_t header_count, bool base64) {
    cli_json_record(out, topic, m, headers, header_count, base64);
    fputc('\n', out);
}
