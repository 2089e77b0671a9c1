/* Links: messages over non-blocking TCP connections. */
#include "link.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* linux/sockios.h */
#ifndef SIOCOUTQ
#define SIOCOUTQ TIOCOUTQ
#endif

enum { MAX_ADDRESSES = 32 };

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000 + t.tv_nsec / 1000000;
}

int pl_link_listen(int *port)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    const struct sockaddr *any[] = {(struct sockaddr *)&any6, (struct sockaddr *)&any4};
    const socklen_t bytes[] = {sizeof any6, sizeof any4};
    int off = 0;
    for (int i = 0; i < 2; i++) {             /* one socket for both families; IPv4 alone without IPv6 */
        int fd = socket(any[i]->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            continue;
        if (i == 0)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        struct sockaddr_storage bound;
        socklen_t n = sizeof bound;
        if (bind(fd, any[i], bytes[i]) == 0 && listen(fd, SOMAXCONN) == 0 &&
            getsockname(fd, (struct sockaddr *)&bound, &n) == 0) {
            *port = ntohs(((struct sockaddr_in *)&bound)->sin_port);       /* at the same offset in both families */
            return fd;
        }
        close(fd);
    }
    return -1;
}

/* A socket that connects to a numeric address; -1 with errno. */
static int begin_connect(const char *address, int port)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
    if (!is_v4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1) {
        errno = EINVAL;
        return -1;
    }
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    const struct sockaddr *to = is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
    int status = connect(fd, to, is_v4 ? sizeof v4 : sizeof v6);
    if (status == 0 || errno == EINPROGRESS)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* The handshake of a connecting socket: 1: rank 0 answered; 0: it goes on; -1, with errno: it failed.  asked: hello
 * was sent. */
static int greeted(const struct pollfd *p, bool *asked, const void *hello, size_t n_bytes)
{
    int error = 0;
    socklen_t n = sizeof error;
    getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    errno = error;
    if (error)
        return -1;
    if (!*asked) {                            /* a new connection takes so few bytes in one call */
        *asked = true;
        return send(p->fd, hello, n_bytes, MSG_NOSIGNAL) == (ssize_t)n_bytes ? 0 : -1;
    }
    uint8_t answer;
    ssize_t got = recv(p->fd, &answer, 1, 0);
    if (got == 0)
        errno = ECONNREFUSED;                 /* closed by the peer: another program, or another job */
    return got == 1 ? 1 : got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

int pl_link_connect(const char *addresses, int port, const void *hello, size_t n_bytes, int timeout_ms)
{
    struct pollfd tried[MAX_ADDRESSES];
    bool asked[MAX_ADDRESSES] = {false};
    char list[4096], *rest = NULL;
    int n = 0, n_open = 0, found = -1, error = EINVAL;
    snprintf(list, sizeof list, "%s", addresses);
    for (char *one = strtok_r(list, " ", &rest); one && n < MAX_ADDRESSES; one = strtok_r(NULL, " ", &rest)) {
        tried[n] = (struct pollfd){.fd = begin_connect(one, port), .events = POLLOUT};
        if (tried[n].fd < 0)
            error = errno;
        n_open += tried[n++].fd >= 0;
    }
    int64_t until_ms = now_ms() + timeout_ms;
    while (found < 0 && n_open > 0) {
        int64_t left_ms = until_ms - now_ms();
        if (left_ms <= 0) {
            error = ETIMEDOUT;
            break;
        }
        poll(tried, (nfds_t)n, (int)left_ms);
        for (int i = 0; i < n && found < 0; i++) {
            if (tried[i].fd < 0 || !tried[i].revents)
                continue;
            int answer = greeted(&tried[i], &asked[i], hello, n_bytes);
            tried[i].events = POLLIN;
            if (answer > 0) {
                found = tried[i].fd;
                tried[i].fd = -1;
            } else if (answer < 0) {
                error = errno;
                close(tried[i].fd);
                tried[i].fd = -1;
                n_open--;
            }
        }
    }
    for (int i = 0; i < n; i++)
        if (tried[i].fd >= 0)
            close(tried[i].fd);
    errno = error;
    return found;
}

void pl_link_open(pl_link *link, int fd)
{
    int on = 1;
    *link = (pl_link){.fd = fd};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void pl_link_close(pl_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    free(link->out);
    link->fd = -1;
    link->out = NULL;
    link->n_out = link->out_bytes = 0;
}

void pl_link_flush(pl_link *link)
{
    while (link->fd >= 0 && link->n_out > 0) {
        ssize_t sent = send(link->fd, link->out, link->n_out, MSG_NOSIGNAL);
        if (sent <= 0) {
            if (sent < 0 && errno == EINTR)
                continue;
            if (sent < 0 && errno != EAGAIN)
                link->n_out = 0;              /* the peer reads no more; pl_link_receive returns why */
            return;
        }
        link->n_out -= (size_t)sent;
        memmove(link->out, link->out + sent, link->n_out);
    }
}

static void put(pl_link *link, const void *bytes, size_t n)
{
    if (link->fd < 0)
        return;
    if (link->n_out + n > link->out_bytes) {
        size_t size = (link->n_out + n) * 2;
        uint8_t *larger = realloc(link->out, size);
        if (!larger)
            return;                           /* out of memory: the peer will only see this process end */
        link->out = larger;
        link->out_bytes = size;
    }
    memcpy(link->out + link->n_out, bytes, n);
    link->n_out += n;
    pl_link_flush(link);
}

void pl_link_beat(pl_link *link)
{
    const uint8_t beat = PL_MESSAGE_BEAT;
    if (link->n_out == 0)                     /* bytes that wait show as well that we are alive */
        put(link, &beat, 1);
}

void pl_link_send(pl_link *link, int rank, int state, const char *text)
{
    uint8_t bytes[PL_LINK_HEAD_BYTES + PL_LINK_TEXT_BYTES];
    size_t n = strnlen(text, PL_LINK_TEXT_BYTES - 1);
    while (n > 0 && text[n] && ((uint8_t)text[n] & 0xC0) == 0x80)
        n--;                                  /* not in the middle of a character */
    bytes[0] = PL_MESSAGE_STATE;
    bytes[1] = (uint8_t)state;
    bytes[2] = (uint8_t)(n >> 8);
    bytes[3] = (uint8_t)n;
    uint32_t number = htonl((uint32_t)rank);
    memcpy(bytes + 4, &number, 4);
    memcpy(bytes + PL_LINK_HEAD_BYTES, text, n);
    put(link, bytes, PL_LINK_HEAD_BYTES + n);
}

/* Takes the first message out of the buffer. */
static bool take(pl_link *link, pl_message *message)
{
    size_t at = 0;
    while (at < link->n_in && link->in[at] == PL_MESSAGE_BEAT)
        at++;
    link->n_in -= at;
    memmove(link->in, link->in + at, link->n_in);
    if (link->n_in < PL_LINK_HEAD_BYTES)
        return false;
    size_t n_text = (size_t)link->in[2] << 8 | link->in[3];
    if (n_text >= PL_LINK_TEXT_BYTES)
        n_text = PL_LINK_TEXT_BYTES - 1;      /* no correct peer sends it */
    size_t n = PL_LINK_HEAD_BYTES + n_text;
    if (link->n_in < n)
        return false;
    uint32_t number;
    memcpy(&number, link->in + 4, 4);
    message->kind = link->in[0];
    message->state = link->in[1];
    message->rank = (int32_t)ntohl(number);
    memcpy(message->text, link->in + PL_LINK_HEAD_BYTES, n_text);
    message->text[n_text] = 0;
    link->n_in -= n;
    memmove(link->in, link->in + n, link->n_in);
    return true;
}

int pl_link_receive(pl_link *link, pl_message *message)
{
    for (;;) {
        if (take(link, message))
            return PL_LINK_MESSAGE;
        ssize_t got = recv(link->fd, link->in + link->n_in, sizeof link->in - link->n_in, 0);
        if (got > 0) {
            link->n_in += (size_t)got;
            link->silent_ms = 0;
        } else if (got == 0 || errno == ECONNRESET || errno == EPIPE) {
            return PL_LINK_ENDED;
        } else if (errno == EAGAIN) {
            return PL_LINK_IDLE;
        } else if (errno != EINTR) {
            return PL_LINK_LOST;
        }
    }
}

int pl_link_undelivered(const pl_link *link)
{
    int waiting = 0;
    if (link->fd < 0 || ioctl(link->fd, SIOCOUTQ, &waiting) != 0)
        return 0;
    return (int)link->n_out + waiting;
}

int pl_link_addresses(char *text, int max_bytes)
{
    struct ifaddrs *all = NULL;
    char one[INET6_ADDRSTRLEN];
    int at = 0;
    text[0] = 0;
    if (getifaddrs(&all) != 0)
        return pl_fail(PL_FAILED, "heartbeat: the addresses of this machine are unknown: getifaddrs failed");
    /* loopback last: from another machine it leads elsewhere */
    for (int loop = 0; loop < 2; loop++)
        for (struct ifaddrs *i = all; i; i = i->ifa_next) {
            int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
            if ((family != AF_INET && family != AF_INET6) || !(i->ifa_flags & IFF_UP) ||
                !(i->ifa_flags & IFF_LOOPBACK) == (loop == 1))
                continue;
            const struct in6_addr *v6 = &((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
            if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(v6))
                continue;                     /* it needs the interface's name */
            const struct in_addr *v4 = &((struct sockaddr_in *)i->ifa_addr)->sin_addr;
            const void *number = family == AF_INET6 ? (const void *)v6 : v4;
            inet_ntop(family, number, one, sizeof one);
            if (at + (int)strlen(one) + 2 > max_bytes) {
                freeifaddrs(all);
                return pl_fail(PL_ENOMEM, "heartbeat: this machine has too many addresses");
            }
            at += sprintf(text + at, "%s%s", at ? " " : "", one);
        }
    freeifaddrs(all);
    return PL_OK;
}
