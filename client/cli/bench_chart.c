/* bench_chart.c - the chart of scenarios 1 to 4: ratios to the first cell, published and measured side by side; scenario 4 as curves. A small SVG writer.
 *
 * Called by bench_scenario. Ratios, since the published machines were others; the records a second stand at the bars.
 */
#include "bench_chart.h"

#include <math.h>
#include <string.h>

static const char *const ink = "#222222", *const pale = "#dddddd";
static const char *const colours[] = {"#8a8f98", "#1f6fb4", "#e07b1a"}; /* published, and ours in each mode */

/* ---- SVG ---- */

static void escaped(FILE *f, const char *text) {
    for (; *text; text++) {
        if (*text == '<') fputs("&lt;", f);
        else if (*text == '>') fputs("&gt;", f);
        else if (*text == '&') fputs("&amp;", f);
        else fputc(*text, f);
    }
}

void chart_text(FILE *f, double x, double y, const char *anchor, int size, const char *colour, bool turned, const char *text) {
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\"", x, y, anchor, size, colour);
    if (turned) fprintf(f, " transform=\"rotate(-90 %.1f %.1f)\"", x, y);
    fputc('>', f);
    escaped(f, text);
    fputs("</text>\n", f);
}

void chart_line(FILE *f, double x1, double y1, double x2, double y2, const char *colour) {
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, colour);
}

void chart_rect(FILE *f, double x, double y, double width, double height, const char *colour) {
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width, height, colour);
}

void chart_begin(FILE *f, int height, const char *title, const char *under) {
    fprintf(f,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\">\n<title>",
            CHART_WIDTH, height, CHART_WIDTH, height);
    escaped(f, title);
    fputs("</title>\n", f);
    chart_rect(f, 0, 0, CHART_WIDTH, height, "#ffffff");
    chart_text(f, CHART_LEFT, 28, "start", 18, ink, false, title);
    chart_text(f, CHART_LEFT, 48, "start", 12, "#555555", false, under);
}

void chart_end(FILE *f) {
    fputs("</svg>\n", f);
}

double chart_legend(FILE *f, double x, const char *colour, const char *name) {
    chart_rect(f, x, 62, 12, 12, colour);
    chart_text(f, x + 18, 72, "start", 12, ink, false, name);
    return x + 18 + 7.2 * (double)strlen(name) + 18;
}

double chart_step(double most) {
    double step = pow(10, floor(log10(most / 6)));
    while (most / step > 7) step *= most / step > 14 ? 2.5 : 2;
    return step;
}

/* ---- Series: what was published, then each mode ---- */

enum { SERIES = 1 + BENCH_MODES };

static bool is_shown(const struct bench_run *r, int series) {
    return series == 0 || r->modes[series - 1];
}

static double rate(const struct bench_run *r, int series, size_t cell) { /* 0: none */
    return series == 0 ? r->scenario->cells[cell].published : r->results[series - 1][cell].median;
}

static double ratio(const struct bench_run *r, int series, size_t cell) {
    double base = rate(r, series, 0);
    return base > 0 ? rate(r, series, cell) / base : 0;
}

struct plot {
    double most, step; /* of the ratios */
    int shown;
};

static double height_of(const struct plot *p, double value) {
    return CHART_HEIGHT - CHART_BOTTOM - value / p->most * (CHART_HEIGHT - CHART_TOP - CHART_BOTTOM);
}

static struct plot frame(FILE *f, const struct bench_run *r) {
    struct plot p = {.most = 1};
    char title[160], text[32];
    for (int s = 0; s < SERIES; s++) {
        p.shown += is_shown(r, s);
        for (size_t i = 0; i < r->scenario->cell_count; i++)
            if (is_shown(r, s) && ratio(r, s, i) > p.most) p.most = ratio(r, s, i);
    }
    p.step = chart_step(p.most * 1.16); /* room for the figures at the bars */
    p.most = ceil(p.most * 1.16 / p.step) * p.step;
    snprintf(title, sizeof title, "Scenario %d: %s", r->scenario->number, r->scenario->title);
    chart_begin(f, CHART_HEIGHT, title, "records a second, as a ratio to the first cell of the same series; the figures are records a second");
    double x = CHART_LEFT;
    for (int s = 0; s < SERIES; s++)
        if (is_shown(r, s)) x = chart_legend(f, x, colours[s], s == 0 ? "published (Kafka 0.10.1, four machines)" : bench_mode_names[s - 1]);
    for (int i = 0; i * p.step < p.most + p.step / 2; i++) {
        double y = height_of(&p, i * p.step);
        chart_line(f, CHART_LEFT, y, CHART_WIDTH - CHART_RIGHT, y, i ? pale : ink);
        snprintf(text, sizeof text, "%g", i * p.step);
        chart_text(f, CHART_LEFT - 8, y + 4, "end", 12, ink, false, text);
    }
    chart_line(f, CHART_LEFT, CHART_TOP, CHART_LEFT, CHART_HEIGHT - CHART_BOTTOM, ink);
    chart_text(f, 20, (CHART_TOP + CHART_HEIGHT - CHART_BOTTOM) / 2.0, "middle", 12, ink, true, "ratio to the first cell");
    return p;
}

/* ---- Bars ---- */

static void group_labels(FILE *f, const struct bench_cell *c, double x) {
    const char *const names[] = {"rf", "min.isr", "acks"};
    const int32_t values[] = {c->rf, c->min_isr, c->acks};
    char text[32];
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "%s %d", names[i], (int)values[i]);
        chart_text(f, x, CHART_HEIGHT - CHART_BOTTOM + 18 + 15 * i, "middle", 12, ink, false, text);
    }
}

static void bars(FILE *f, const struct bench_run *r, const struct plot *p) {
    size_t n = r->scenario->cell_count;
    double group = (double)(CHART_WIDTH - CHART_LEFT - CHART_RIGHT) / (double)n, bar = group * 0.8 / p->shown;
    char text[32];
    for (size_t i = 0; i < n; i++) {
        double x = CHART_LEFT + group * (double)i + group * 0.1;
        group_labels(f, &r->scenario->cells[i], CHART_LEFT + group * ((double)i + 0.5));
        for (int s = 0; s < SERIES; s++) {
            if (!is_shown(r, s)) continue;
            double y = height_of(p, ratio(r, s, i));
            if (rate(r, s, i) > 0) {
                chart_rect(f, x, y, bar - 1.5, CHART_HEIGHT - CHART_BOTTOM - y, colours[s]);
                chart_text(f, x + bar / 2 + 3, y - 5, "start", 10, ink, true, bench_thousands(rate(r, s, i), text));
            }
            x += bar;
        }
    }
}

/* ---- Curves: scenario 4 ---- */

static double place_of(const struct bench_run *r, size_t cell) {
    const struct bench_scenario *s = r->scenario;
    double last = s->cells[s->cell_count - 1].partitions, width = CHART_WIDTH - CHART_LEFT - CHART_RIGHT - 120;
    return CHART_LEFT + 40 + width * (s->cells[cell].partitions - 1) / (last - 1);
}

static void curve(FILE *f, const struct bench_run *r, const struct plot *p, int s) {
    char text[32];
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"", colours[s], s == 0 ? " stroke-dasharray=\"6 5\"" : "");
    for (size_t i = 0; i < r->scenario->cell_count; i++)
        if (rate(r, s, i) > 0) fprintf(f, "%.1f,%.1f ", place_of(r, i), height_of(p, ratio(r, s, i)));
    fputs("\"/>\n", f);
    for (size_t i = 0; i < r->scenario->cell_count; i++) {
        if (rate(r, s, i) <= 0) continue;
        double x = place_of(r, i), y = height_of(p, ratio(r, s, i));
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x, y, colours[s]);
        bool lower = s > 0 && is_shown(r, SERIES - s) && ratio(r, s, i) < ratio(r, SERIES - s, i);
        bool below = lower || (s == 2 && i == 0);
        double away = below ? 16 : s == 0 && i == 0 ? -21 : -7; /* all begin at 1 */
        chart_text(f, x + 7, y + away, "start", 11, colours[s], false, bench_thousands(rate(r, s, i), text));
    }
}

static void curves(FILE *f, const struct bench_run *r, const struct plot *p) {
    char text[32];
    for (size_t i = 0; i < r->scenario->cell_count; i++) {
        snprintf(text, sizeof text, "%d", (int)r->scenario->cells[i].partitions);
        chart_line(f, place_of(r, i), CHART_HEIGHT - CHART_BOTTOM, place_of(r, i), CHART_HEIGHT - CHART_BOTTOM + 5, ink);
        chart_text(f, place_of(r, i), CHART_HEIGHT - CHART_BOTTOM + 20, "middle", 12, ink, false, text);
    }
    chart_text(f, (CHART_LEFT + CHART_WIDTH - CHART_RIGHT) / 2.0, CHART_HEIGHT - CHART_BOTTOM + 44, "middle", 12, ink, false,
               "partitions (of the published curve only the ends are known as figures)");
    for (int s = 0; s < SERIES; s++)
        if (is_shown(r, s)) curve(f, r, p, s);
}

void bench_chart(FILE *f, const struct bench_run *r) {
    struct plot p = frame(f, r);
    if (r->scenario->number == 4) curves(f, r, &p);
    else bars(f, r, &p);
    chart_end(f);
}
