/* shell_command.h - what kbroker's commands (run, cluster, fault) share: options, lists of ids, folders, sockets in them.
 *
 * Called by main, shell_options, cluster, admin_http. Calls nearest.
 */
#ifndef KB_SHELL_COMMAND_H
#define KB_SHELL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef KB_VERSION
#define KB_VERSION "0.0.0"
#endif

/* Says what is wrong with a command line, the word that may be meant (NULL: none), and which help to read. 2, the exit code. */
int kb_command_wrong(const char *command, const char *near, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *kb_command_nearest(const char *word, const char *const *words, size_t n); /* NULL: none is near */
bool kb_command_asks_help(int argc, char **argv);                                     /* --help or -h, behind the command */
/* The value of an option at argv[*i], "--name VALUE" (moves *i over it) or "--name=VALUE"; "": it has none. NULL: argv[*i] is another word. */
const char *kb_command_value(const char *name, int argc, char **argv, int *i);
/* "0,2,1": how many, all of them in ids. 0: that is not what it is, or there are more than max. */
size_t kb_command_ids(const char *list, int32_t *ids, size_t max);

int kb_print_main(int argc, char **argv);   /* kbroker print: shell_print.c; the exit code */
int kb_explain_main(int argc, char **argv); /* kbroker explain: shell_explain.c; the exit code */

int kb_command_make_folder(const char *dir); /* and those that it lies in; 0, or an errno */
int kb_command_remove_tree(const char *dir); /* as nftw(3) */
/* A Unix socket's address however long its folder's name is: through a descriptor of the folder, which the caller closes. -1: errno. */
struct sockaddr_un;
int kb_command_socket_address(const char *dir, const char *name, struct sockaddr_un *a);

/* ---- shell_temporary.c ---- */

#define KB_EPHEMERAL_MARK ".ephemeral" /* a file in such a folder: it may be removed once nobody holds its lock */
/* A new folder for what does not outlive the process, in $TMPDIR or /tmp, locked until the process ends; those that killed processes left there go. The
 * caller removes it at the end. free() the name; NULL: text says why, and what to do. */
char *kb_command_make_temporary(char *text, size_t size);

/* ---- shell_holder.c ---- */

/* Who listens where the address (IPv4 or IPv6) wants to: "process 17 (its command line) listens at 0.0.0.0 port 9092". false: /proc does not tell. */
struct sockaddr;
bool kb_command_port_holder(const struct sockaddr *wanted, uint16_t port, char *text, size_t size);

#endif
