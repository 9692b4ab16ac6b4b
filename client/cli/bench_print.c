/* bench_print.c - what kc bench scenario says to people: a table beside the published figures, and whether the conclusions hold. 80 columns. */
#include "bench.h"

#include <string.h>

static void print_figure(double n) {
    char text[32];
    if (n > 0) printf("  %10s", bench_thousands(n, text));
    else printf("  %10s", "-");
}

static void print_ratio(double n, double base) {
    if (n > 0 && base > 0) printf(n < 100 * base ? " %5.2f" : " %5.0f", n / base);
    else printf(" %5s", "-");
}

static void print_heading(const struct bench_run *r) {
    printf("Scenario %d: %s\n", r->scenario->number, r->scenario->title);
    printf("one producer, records of %lld bytes, %s; ", (long long)r->size, r->scenario->number == 5 ? "numbered" : "retries 0");
    char text[32];
    if (r->records > 0) printf("%s records a cell\n", bench_thousands((double)r->records, text));
    else printf("%lld s a cell\n", (long long)r->seconds);
    if (r->rounds > 1) printf("median of %lld rounds; ", (long long)r->rounds);
    printf("%d broker%s%s, a machine with %d CPU%s\n", r->brokers, r->brokers == 1 ? "" : "s", r->own ? " of kbroker" : "", r->cpus, r->cpus == 1 ? "" : "s");
    if (r->scenario->published_note) printf("(%s)\n", r->scenario->published_note);
    printf("\n");
}

static void print_table(const struct bench_run *r) {
    const struct bench_scenario *s = r->scenario;
    char text[BENCH_TEXT_MAX];
    printf("%-26s  %16s", "records a second; ratio", "published");
    for (int m = 0; m < BENCH_MODES; m++)
        if (r->modes[m]) printf("  %16s", bench_mode_names[m]);
    printf("\n");
    for (size_t i = 0; i < s->cell_count; i++) {
        printf("%-26s", bench_cell_text(s, i, text));
        print_figure(s->cells[i].published);
        print_ratio(s->cells[i].published, s->cells[0].published);
        for (int m = 0; m < BENCH_MODES; m++) {
            if (!r->modes[m]) continue;
            print_figure(r->results[m][i].median);
            print_ratio(r->results[m][i].median, r->results[m][0].median);
        }
        printf("%s\n", s->cells[i].rf > r->brokers ? "  too few brokers" : "");
    }
}

/* What differs, and what does not: "acks 0 : 1, rf 2, min.isr 1". */
static void name_pair(const struct bench_scenario *s, const struct bench_pair *p, char *text, size_t size) {
    const struct bench_cell *a = &s->cells[p->a], *b = &s->cells[p->b];
    const struct {
        const char *name;
        int32_t a, b;
    } v[] = {{"acks", a->acks, b->acks}, {"rf", a->rf, b->rf}, {"min.isr", a->min_isr, b->min_isr}, {"partitions", a->partitions, b->partitions}};
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < 4; i++)
        if (v[i].a != v[i].b) at += (size_t)snprintf(text + at, size - at, "%s %d : %d", v[i].name, (int)v[i].a, (int)v[i].b);
    for (size_t i = 0; i < 3 && s->number != 4; i++)
        if (v[i].a == v[i].b) at += (size_t)snprintf(text + at, size - at, ", %s %d", v[i].name, (int)v[i].a);
}

static void print_pair(const struct bench_scenario *s, const struct bench_result *v, const struct bench_pair *p) {
    char name[BENCH_TEXT_MAX], x[32], y[32], published[32] = "";
    if (p->verdict == BENCH_UNKNOWN) return;
    name_pair(s, p, name, sizeof name);
    if (p->published_ratio > 0) snprintf(published, sizeof published, "(%.2f)", p->published_ratio);
    printf("    %-28s %9s : %-9s", name, bench_thousands(v[p->a].median, x), bench_thousands(v[p->b].median, y));
    printf(p->ratio < 100 ? " %5.2f %-6s" : " %5.0f %-6s", p->ratio, published);
    if (p->verdict == BENCH_NOISE) printf(" noise %.0f %%\n", p->noise * 100);
    else printf(" %s\n", p->verdict == BENCH_HOLDS ? "yes" : "no");
}

void bench_print(const struct bench_run *r) {
    struct bench_claim claims[BENCH_CLAIMS_MAX];
    print_heading(r);
    print_table(r);
    printf("\nDo the conclusions hold here? (in brackets: published; noise: it may be chance)\n");
    for (int m = 0; m < BENCH_MODES; m++) {
        size_t n = r->modes[m] ? bench_claims(r->scenario, (enum bench_mode)m, r->results[m], claims) : 0;
        for (size_t i = 0; i < n; i++) {
            const struct bench_claim *c = &claims[i];
            printf("  %s: %s: %s", bench_mode_names[m], c->text, bench_verdict_names[c->verdict]);
            if (c->count[BENCH_HOLDS] < c->pair_count) printf(" (%zu of %zu)", c->count[c->verdict], c->pair_count);
            printf("\n");
            for (size_t k = 0; k < c->pair_count; k++) print_pair(r->scenario, r->results[m], &c->pairs[k]);
        }
    }
    if (r->rounds == 1) printf("(one round: nothing is known of the noise, 10 %% is taken for it; --rounds 3 measures it)\n");
}

/* ---- Scenario 5 ---- */

static void print_count(const char *name, uint64_t n, const char *after) {
    char text[32];
    printf("%s %s%s", name, bench_thousands((double)n, text), after);
}

static void print_errors(const struct bench_errors *e) {
    for (size_t i = 0; i < e->count; i++) {
        char met[32], ended[32];
        printf("      %s%s: %s record%s met it, %s ended so\n", kc_err_name(e->v[i].code), e->v[i].code == KC_TRANSPORT ? " (Kafka's NETWORK_EXCEPTION)" : "",
               bench_thousands((double)e->v[i].met, met), e->v[i].met == 1 ? "" : "s", bench_thousands((double)e->v[i].ended, ended));
    }
    if (e->count == 0) printf("      no errors\n");
}

static void print_case(const struct bench_kill_case *c, const struct bench_kill_result *o, enum bench_mode mode) {
    char rate[32], published[32];
    printf("%s, %s: %s acked/s\n", c->name, bench_mode_names[mode],
           bench_thousands(o->seconds > 0 ? (double)o->acked / o->seconds : 0, rate));
    if (c->published_note) {
        char said[200];
        bench_thousands(c->published, published);
        snprintf(said, sizeof said, "%s%s%s", c->published > 0 ? published : "", c->published > 0 ? "; " : "", c->published_note);
        cli_print_wrapped(stdout, said, (size_t)printf("    published: "), 4);
    }
    print_count("   ", o->sent, " sent,");
    print_count("", o->acked, " acked,");
    print_count("", o->failed, " failed");
    if (o->failed) print_count(" (of them", o->failed_stored, " stored all the same)");
    print_count("\n   ", o->stored, " stored,");
    print_count("", o->lost, " lost,");
    print_count("", o->doubled, " doubled");
    if (o->extra > o->doubled) print_count(" (copies too many:", o->extra, ")");
    print_count("; batches sent again:", o->retries, "\n    what the client saw:\n");
    print_errors(&o->errors);
}

/* What was concluded of them, as far as these cases show it. */
static void print_conclusions(const struct bench_kill_result *k, enum bench_mode mode) {
    uint64_t lost = 0, with = 0, without = 0;
    for (size_t i = 0; i < BENCH_CASES; i++) {
        lost += k[i].lost;
        *(bench_kill_cases[i].idempotent ? &with : &without) += k[i].doubled;
    }
    printf("\n  %s:\n", bench_mode_names[mode]);
    printf("    without retries records fail: %s (%llu)\n", k[0].failed ? "yes" : "not this time", (unsigned long long)k[0].failed);
    printf("    retries alone store some twice: %s (%llu)\n", without ? "yes" : "not this time", (unsigned long long)without);
    printf("    with idempotence none is: %s (%llu)\n", with ? "NO" : "yes", (unsigned long long)with);
    printf("    nothing acknowledged is lost: %s (%llu)\n", lost ? "NO" : "yes", (unsigned long long)lost);
}

void bench_print_kills(const struct bench_run *r) {
    print_heading(r);
    for (int m = 0; m < BENCH_MODES; m++)
        for (size_t i = 0; i < BENCH_CASES; i++)
            if (r->kills[m][i].ran) print_case(&bench_kill_cases[i], &r->kills[m][i], (enum bench_mode)m);
    printf("\nDo the conclusions hold here?");
    for (int m = 0; m < BENCH_MODES; m++)
        if (r->modes[m]) print_conclusions(r->kills[m], (enum bench_mode)m);
}
