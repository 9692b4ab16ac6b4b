/* bench_chart_kills.c - the chart of scenario 5: what became of the records of each case, as shares of all that were sent. Called by bench_scenario. */
#include "bench_chart.h"

static const struct kind {
    const char *name, *colour;
} kinds[] = {
    {"acked, stored once", "#3a8f5c"},      {"acked, stored more than once", "#e0a11a"}, {"failed, stored all the same", "#6aa7d8"},
    {"failed, not stored", "#9aa0a6"},      {"acked, lost", "#c62828"},
};
enum { KINDS = sizeof kinds / sizeof *kinds, BAR = 26, EACH = 58, BELOW = 44, LABELS = 290 };

/* Of those that failed and are stored twice none is told apart: the client knows of none of both. */
static void shares(const struct bench_kill_result *o, uint64_t n[KINDS]) {
    uint64_t there = o->acked - o->lost, doubled = o->doubled < there ? o->doubled : there;
    n[0] = there - doubled;
    n[1] = doubled;
    n[2] = o->failed_stored;
    n[3] = o->failed - o->failed_stored;
    n[4] = o->lost;
}

static void bar(FILE *f, const struct bench_kill_case *c, const struct bench_kill_result *o, enum bench_mode mode, double y) {
    uint64_t n[KINDS];
    char text[200], figure[32];
    double x = LABELS, width = CHART_WIDTH - CHART_RIGHT - LABELS;
    shares(o, n);
    chart_text(f, LABELS - 10, y + 11, "end", 12, "#222222", false, c->name);
    snprintf(text, sizeof text, "%s, %s acked/s", bench_mode_names[mode], bench_thousands(o->seconds > 0 ? (double)o->acked / o->seconds : 0, figure));
    chart_text(f, LABELS - 10, y + 25, "end", 11, "#555555", false, text);
    for (int i = 0; i < KINDS && o->sent > 0; i++) {
        double share = (double)n[i] / (double)o->sent * width;
        if (n[i] == 0) continue;
        chart_rect(f, x, y, share < 2 ? 2 : share, BAR, kinds[i].colour); /* a few records are to be seen, too */
        x += share;
    }
    snprintf(text, sizeof text, "%llu sent: %llu once, %llu more than once; failed: %llu stored, %llu not; lost: %llu", (unsigned long long)o->sent,
             (unsigned long long)n[0], (unsigned long long)n[1], (unsigned long long)n[2], (unsigned long long)n[3], (unsigned long long)n[4]);
    chart_text(f, LABELS, y + BAR + 14, "start", 11, "#222222", false, text);
}

void bench_chart_kills(FILE *f, const struct bench_run *r) {
    int shown = 0, at = 0;
    char title[160];
    for (int m = 0; m < BENCH_MODES; m++)
        for (size_t i = 0; i < BENCH_CASES; i++) shown += r->kills[m][i].ran;
    snprintf(title, sizeof title, "Scenario 5: %s", r->scenario->title);
    int height = CHART_TOP + shown * EACH + BELOW;
    chart_begin(f, height, title, "what became of the records that were sent, a bar a case");
    double x = CHART_LEFT;
    for (int i = 0; i < KINDS; i++) x = chart_legend(f, x, kinds[i].colour, kinds[i].name);
    for (int m = 0; m < BENCH_MODES; m++)
        for (size_t i = 0; i < BENCH_CASES; i++)
            if (r->kills[m][i].ran) bar(f, &bench_kill_cases[i], &r->kills[m][i], (enum bench_mode)m, CHART_TOP + EACH * at++);
    for (int i = 0; i <= 4; i++) {
        double place = LABELS + (CHART_WIDTH - CHART_RIGHT - LABELS) * i / 4.0;
        snprintf(title, sizeof title, "%d %%", i * 25);
        chart_line(f, place, height - 38, place, height - 32, "#222222");
        chart_text(f, place, height - 18, i == 4 ? "end" : "middle", 12, "#222222", false, title);
    }
    chart_line(f, LABELS, height - 38, CHART_WIDTH - CHART_RIGHT, height - 38, "#222222");
    chart_end(f);
}
