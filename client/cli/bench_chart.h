/* bench_chart.h - what the two charts of kc bench scenario share: an SVG of one size, its title, axes and legend. */
#ifndef KC_BENCH_CHART_H
#define KC_BENCH_CHART_H

#include "bench.h"

enum { CHART_WIDTH = 1000, CHART_HEIGHT = 540, CHART_LEFT = 70, CHART_RIGHT = 20, CHART_TOP = 96, CHART_BOTTOM = 90 };

/* Opens the picture: a white ground, the title, a line under it. */
void chart_begin(FILE *f, int height, const char *title, const char *under);
void chart_end(FILE *f);
/* anchor: "start", "middle", "end". turned: from below upwards. */
void chart_text(FILE *f, double x, double y, const char *anchor, int size, const char *colour, bool turned, const char *text);
void chart_line(FILE *f, double x1, double y1, double x2, double y2, const char *colour);
void chart_rect(FILE *f, double x, double y, double width, double height, const char *colour);
/* A square and its name at x in the row above the plot; returns where the next one begins. */
double chart_legend(FILE *f, double x, const char *colour, const char *name);
/* The step between ticks that gives about six up to the most. */
double chart_step(double most);

#endif
