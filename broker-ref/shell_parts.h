/* shell_parts.h - the real shell's parts, as main.c puts them together: one libuv loop, the core, sockets, disk lanes. Not seen by the
 * core. */
#ifndef KB_SHELL_PARTS_H
#define KB_SHELL_PARTS_H

#include <uv.h>

#include "config.h"
#include "node.h"

struct kb_shell;
struct kb_shell_disk;
struct kb_shell_link;
struct kb_shell_net;

struct kb_shell { /* main.c */
    uv_loop_t *loop;
    struct kb_node *node;
    struct kb_shell_disk *disk;
    struct kb_shell_net *net;
    struct kb_shell_link *links;
    bool brought; /* by sockets, in this poll: the turn ends after it */
    const struct kb_logger *logger;
    struct kb_now now; /* of this step of the turn: a clock costs as much as a good part of a request */
};
/* shell_clock.c */
struct kb_now kb_shell_now(void); /* the clocks themselves; a virtual wall clock as far ahead as it was advanced */
bool kb_shell_clock_is_virtual(void);
int64_t kb_shell_clock_ahead_ms(void);
/* "real", "virtual", or "virtual+MS": one that has been advanced already. false: what else. */
bool kb_shell_clock_set(const char *text);
/* The wall clock jumps, and the node is told. KW_EINVAL: not virtual, negative, or too far (kb_node_advance). The caller ends the turn. */
kw_err kb_shell_clock_advance(struct kb_shell *s, int64_t ms) KW_CHECK;
/* Ends a turn: timers, disk, replies, until nothing is left to do; then arms the timer. Called by net and disk after what they brought. */
void kb_shell_turn(struct kb_shell *s);
/* A snapshot lies beside the data (kbroker snapshot restore): this run ends soon, as if it were killed, and the next one begins with that. */
void kb_shell_restart(struct kb_shell *s);

/* shell_disk.c */
struct kb_shell_disk_options {
    bool ephemeral;           /* nothing is synced */
    int64_t inline_write_max; /* appends up to so many bytes are written by the loop itself; -1: the default */
};
int kb_shell_disk_new(struct kb_shell *s, const struct kb_shell_disk_options *o, struct kb_shell_disk **d); /* 0, or an errno */
bool kb_shell_disk_bring(struct kb_shell_disk *d); /* what is done, to the core; true: something was */
bool kb_shell_disk_run(struct kb_shell_disk *d);   /* takes the core's requests; true: something is to be brought, or was taken */
void kb_shell_disk_free(struct kb_shell_disk *d); /* waits for the lanes */

static inline int kb_shell_fd(const struct kb_file *f) { return *(const int *)f->shell; } /* the disk shell's handle begins with its descriptor */

/* shell_record.c */
struct kb_shell_record;
/* For the node's options: appends what it is shown to the file. One that shows it to nobody, and *r NULL, where the file cannot be used, which was said. */
struct kb_recorder kb_shell_record_new(const char *path, int32_t node, const struct kb_logger *logger, struct kb_shell_record **r);
void kb_shell_record_free(struct kb_shell_record *r); /* NULL: nothing */

/* shell_listen.c */
/* A socket that listens there; host "": all addresses; port 0: any, *got is which. -1: why says it, errno as bind(2) has it, 0 where the name is wrong. */
int kb_shell_listen(const char *host, uint16_t port, int backlog, uint16_t *got, char *why, size_t size);

/* shell_net.c */
int kb_shell_net_new(struct kb_shell *s, struct kb_shell_net **n);
/* Binds one address. port 0: any; *port is what it got. On failure text says what and why. */
int kb_shell_net_listen(struct kb_shell_net *n, const char *host, uint16_t port, int backlog, uint16_t *got, char *text, size_t size);
void kb_shell_net_accept(struct kb_shell_net *n, int send_buffer,
                         int recv_buffer);               /* the node is ready: connections are taken from now on */
bool kb_shell_net_run(struct kb_shell_net *n);           /* carries out what connections have to do */
bool kb_shell_net_flushed(const struct kb_shell_net *n); /* nothing is left to be sent */
void kb_shell_net_free(struct kb_shell_net *n);          /* closes everything; the node hears of each */

/* shell_link.c */
int kb_shell_link_new(struct kb_shell *s, struct kb_shell_link **n);
bool kb_shell_link_run(struct kb_shell_link *n);  /* connects, sends, closes as the node's dials want it; true: something was done */
void kb_shell_link_free(struct kb_shell_link *n); /* closes everything, and tells the node nothing; what libuv has comes back in the loop */

#endif
