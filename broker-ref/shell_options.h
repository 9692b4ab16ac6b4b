/* shell_options.h - kbroker's command line. Called by main; calls config. */
#ifndef KB_SHELL_OPTIONS_H
#define KB_SHELL_OPTIONS_H

#include "config.h"
#include "event.h"

struct kb_options {
    struct kb_config *config;
    char *faults_json; /* of --faults FILE; NULL */
    const char *record; /* of --record FILE; NULL */
    char *temporary;   /* the folder of --ephemeral, removed at the end */
    bool ephemeral, no_sync;  /* ephemeral: no_sync, too */
    int64_t inline_write_max; /* -1: the shell's own */
};
/* -1: go on and run; else the exit code (help and version 0, usage errors 2, files that cannot be read 1), everything said. */
int kb_options_parse(struct kb_options *o, int argc, char **argv, struct kb_logger *logger);
/* The folder of --ephemeral, unless there is one (of the run before). */
bool kb_options_make_temporary(struct kb_options *o, const struct kb_logger *logger);
void kb_options_deinit(struct kb_options *o);

#endif
