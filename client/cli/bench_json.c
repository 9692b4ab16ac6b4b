/* bench_json.c - the result of kc bench scenario as one JSON object; its form is told by --help. */
#include "bench.h"

#include <string.h>

const char bench_json_schema[] =
    "The JSON object, of every scenario:\n"
    "scenario, title, version; brokers, own (started by kc), cpus, load (of the machine, before); size; records or seconds (a cell); rounds\n"
    "1 to 4: cells [{partitions, rf, min_isr, acks, published, published_ratio (to the first cell; null: no figure), pipelined, one_by_one}], each of "
    "the two null (not measured) or {records_per_s (median), ratio, low, high, rounds [records_per_s], records, failed, stored, records_per_batch, "
    "cpu_ns_per_record, errors {NAME: records}}; conclusions [{claim, mode, verdict (\"holds\", \"within noise\", \"does not hold\", \"not measured\"), pairs "
    "[{a, b (cells, from 0), ratio, noise, published_ratio, verdict}]}]\n"
    "5: cases [{name, mode, retries, idempotence, killed, restarted, published, published_note, records_per_s (acked), seconds, sent, acked, failed, "
    "stored (different records), lost (acked, not there), doubled, extra_copies, failed_but_stored, told_wrong (reported as not stored, and there), "
    "batches_sent_again, errors {NAME: {met, ended}} (records one of whose attempts, or whose end, it was)}]";

static void text(FILE *f, const char *name, const char *value) {
    fprintf(f, "\"%s\":", name);
    if (value) cli_json_text(f, value, strlen(value));
    else fputs("null", f);
}

static void figure(FILE *f, const char *name, double n, int digits) { /* none: null */
    if (n > 0) fprintf(f, ",\"%s\":%.*f", name, digits, n);
    else fprintf(f, ",\"%s\":null", name);
}

static void head(FILE *f, const struct bench_run *r) {
    fprintf(f, "{\"scenario\":%d,", r->scenario->number);
    text(f, "title", r->scenario->title);
    fputc(',', f);
    text(f, "version", kc_version());
    fprintf(f, ",\"brokers\":%d,\"own\":%s,\"cpus\":%d,\"load\":%.2f,\"size\":%lld,", r->brokers, r->own ? "true" : "false", r->cpus, r->load,
            (long long)r->size);
    if (r->records > 0) fprintf(f, "\"records\":%lld", (long long)r->records);
    else fprintf(f, "\"seconds\":%lld", (long long)r->seconds);
    fprintf(f, ",\"rounds\":%lld", (long long)r->rounds);
}

static void result(FILE *f, const struct bench_result *o, const struct bench_result *base) {
    if (o->rounds == 0) {
        fputs("null", f);
        return;
    }
    fprintf(f, "{\"records_per_s\":%.0f", o->median);
    figure(f, "ratio", base->median > 0 ? o->median / base->median : 0, 3);
    fprintf(f, ",\"low\":%.0f,\"high\":%.0f,\"rounds\":[", o->low, o->high);
    for (int i = 0; i < o->rounds; i++) fprintf(f, "%s%.0f", i ? "," : "", o->rate[i]);
    fprintf(f, "],\"records\":%llu,\"failed\":%llu,\"stored\":%llu,\"records_per_batch\":%.1f,\"cpu_ns_per_record\":%.0f,\"errors\":{",
            (unsigned long long)o->records, (unsigned long long)o->failed, (unsigned long long)o->stored,
            o->batches ? (double)o->records / (double)o->batches : 0, o->records ? (double)o->cpu_ns / (double)o->records : 0);
    for (size_t i = 0; i < o->errors.count; i++)
        fprintf(f, "%s\"%s\":%llu", i ? "," : "", kc_err_name(o->errors.v[i].code), (unsigned long long)o->errors.v[i].ended);
    fputs("}}", f);
}

static void cells(FILE *f, const struct bench_run *r) {
    const struct bench_scenario *s = r->scenario;
    fputs(",\"cells\":[", f);
    for (size_t i = 0; i < s->cell_count; i++) {
        const struct bench_cell *c = &s->cells[i];
        fprintf(f, "%s{\"partitions\":%d,\"rf\":%d,\"min_isr\":%d,\"acks\":%d", i ? "," : "", (int)c->partitions, (int)c->rf, (int)c->min_isr, (int)c->acks);
        figure(f, "published", c->published, 0);
        figure(f, "published_ratio", c->published / s->cells[0].published, 3);
        fputs(",\"pipelined\":", f);
        result(f, &r->results[BENCH_PIPELINED][i], &r->results[BENCH_PIPELINED][0]);
        fputs(",\"one_by_one\":", f);
        result(f, &r->results[BENCH_ONE_BY_ONE][i], &r->results[BENCH_ONE_BY_ONE][0]);
        fputc('}', f);
    }
    fputc(']', f);
}

static void claim(FILE *f, const struct bench_claim *c) {
    fputc('{', f);
    text(f, "claim", c->text);
    fprintf(f, ",\"mode\":\"%s\",\"verdict\":\"%s\",\"pairs\":[", bench_mode_names[c->mode], bench_verdict_names[c->verdict]);
    for (size_t k = 0; k < c->pair_count; k++) {
        const struct bench_pair *p = &c->pairs[k];
        fprintf(f, "%s{\"a\":%zu,\"b\":%zu", k ? "," : "", p->a, p->b);
        figure(f, "ratio", p->ratio, 3);
        figure(f, "noise", p->noise, 3);
        figure(f, "published_ratio", p->published_ratio, 3);
        fprintf(f, ",\"verdict\":\"%s\"}", bench_verdict_names[p->verdict]);
    }
    fputs("]}", f);
}

static void conclusions(FILE *f, const struct bench_run *r) {
    struct bench_claim claims[BENCH_CLAIMS_MAX];
    bool first = true;
    fputs(",\"conclusions\":[", f);
    for (int m = 0; m < BENCH_MODES; m++) {
        size_t n = r->modes[m] ? bench_claims(r->scenario, (enum bench_mode)m, r->results[m], claims) : 0;
        for (size_t i = 0; i < n; i++) {
            if (!first) fputc(',', f);
            first = false;
            claim(f, &claims[i]);
        }
    }
    fputc(']', f);
}

static void kill_case(FILE *f, const struct bench_kill_case *c, const struct bench_kill_result *o, enum bench_mode mode) {
    fputc('{', f);
    text(f, "name", c->name);
    fprintf(f, ",\"mode\":\"%s\",\"retries\":%s,\"idempotence\":%s,\"killed\":%d,\"restarted\":%s", bench_mode_names[mode], c->retries,
            c->idempotent ? "true" : "false", c->kills, c->restart ? "true" : "false");
    figure(f, "published", c->published, 0);
    fputc(',', f);
    text(f, "published_note", c->published_note);
    fprintf(f, ",\"records_per_s\":%.0f,\"seconds\":%.3f,\"sent\":%llu,\"acked\":%llu,\"failed\":%llu,\"stored\":%llu,\"lost\":%llu,\"doubled\":%llu",
            o->seconds > 0 ? (double)o->acked / o->seconds : 0, o->seconds, (unsigned long long)o->sent, (unsigned long long)o->acked,
            (unsigned long long)o->failed, (unsigned long long)o->stored, (unsigned long long)o->lost, (unsigned long long)o->doubled);
    fprintf(f, ",\"extra_copies\":%llu,\"failed_but_stored\":%llu,\"told_wrong\":%llu,\"batches_sent_again\":%llu,\"errors\":{", (unsigned long long)o->extra,
            (unsigned long long)o->failed_stored, (unsigned long long)o->told_wrong, (unsigned long long)o->retries);
    for (size_t i = 0; i < o->errors.count; i++)
        fprintf(f, "%s\"%s\":{\"met\":%llu,\"ended\":%llu}", i ? "," : "", kc_err_name(o->errors.v[i].code), (unsigned long long)o->errors.v[i].met,
                (unsigned long long)o->errors.v[i].ended);
    fputs("}}", f);
}

void bench_json(FILE *f, const struct bench_run *r) {
    head(f, r);
    if (r->scenario->number == 5) {
        bool first = true;
        fputs(",\"cases\":[", f);
        for (int m = 0; m < BENCH_MODES; m++)
            for (size_t i = 0; i < BENCH_CASES; i++) {
                if (!r->kills[m][i].ran) continue;
                if (!first) fputc(',', f);
                first = false;
                kill_case(f, &bench_kill_cases[i], &r->kills[m][i], (enum bench_mode)m);
            }
        fputc(']', f);
    } else {
        cells(f, r);
        conclusions(f, r);
    }
    fputs("}\n", f);
}
