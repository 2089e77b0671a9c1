/* A link: messages over one non-blocking TCP connection, and what tells that its peer is silent. */
#ifndef PLAIT_LINK_H
#define PLAIT_LINK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PL_LINK_TEXT_BYTES = 4096, PL_LINK_HEAD_BYTES = 8 };

typedef struct {
    int fd;                     /* -1: none */
    int silent_ms;              /* since the last byte came */
    size_t n_in, n_out, out_bytes;
    uint8_t *out;               /* what the kernel has not taken yet */
    uint8_t in[PL_LINK_HEAD_BYTES + PL_LINK_TEXT_BYTES];
} pl_link;

typedef struct { uint8_t kind, state; int32_t rank; char text[PL_LINK_TEXT_BYTES]; } pl_message;
enum { PL_MESSAGE_BEAT = 0, PL_MESSAGE_STATE = 1 };    /* a beat is one byte */
enum { PL_LINK_IDLE = 0, PL_LINK_MESSAGE = 1, PL_LINK_ENDED = 2, PL_LINK_LOST = 3 };

int pl_link_listen(int *port);                /* on all addresses; a file descriptor, or -1 */
/* Connects to the first of the addresses (numeric, separated by spaces) that answers `hello` with one byte.  Returns
 * the file descriptor, or -1 with errno. */
int pl_link_connect(const char *addresses, int port, const void *hello, size_t n_bytes, int timeout_ms);
void pl_link_open(pl_link *link, int fd);     /* fd: given */
void pl_link_close(pl_link *link);
void pl_link_beat(pl_link *link);
void pl_link_send(pl_link *link, int rank, int state, const char *text);       /* a state; a long text is cut */
void pl_link_flush(pl_link *link);            /* sends what the kernel did not take before */
/* The next message, PL_LINK_IDLE: none is there now; ENDED: the peer's process closed the connection; LOST: the
 * connection failed.  Beats are not returned. */
int pl_link_receive(pl_link *link, pl_message *message);
int pl_link_undelivered(const pl_link *link); /* bytes that the peer's machine has not acknowledged */
int pl_link_addresses(char *text, int max_bytes);     /* of this machine; PL_OK, PL_ENOMEM */
#endif
