/* The heartbeat: a star of links around rank 0, and one thread that reads them.
 *
 *   rank 0   listens; judges each link; relays what it learns to all
 *   others   one link to rank 0, which they judge likewise
 *
 * A rank's state changes once, from ALIVE to another. Silence is counted in ticks of this thread, not by the clock:
 * otherwise a process that was itself stopped would find all others silent. It first reads what they sent meanwhile. */
#include "heartbeat.h"
#include "error.h"
#include "link.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CALLERS = 64, CALLER_MS = 5000, BEATS = 10 /* within the limit */, MAX_BEAT_MS = 1000, CONNECT_LIMITS = 3,
       SENT_POLL_MS = 1, SPARE_FILES = 256 };
enum { LISTENER = -1, WAKE = -2, CALLERS = -100 /* and below: one for each slot */ };      /* what an event is of */
static const uint8_t WELCOME = 'W';
_Static_assert((int)PL_HEARTBEAT_TEXT_BYTES == (int)PL_LINK_TEXT_BYTES, "a link carries every text");

typedef struct { uint8_t token[PL_HEARTBEAT_TOKEN_BYTES], rank[4]; } hello;
typedef struct { int fd, age_ms; size_t n; uint8_t bytes[sizeof(hello)]; } caller;         /* not identified yet */
typedef struct { uint8_t state; bool reported; char *text; } member;      /* reported: to the watcher; text: or NULL */

static struct {
    int rank, size, limit_ms, beat_ms, grace_ms, port;
    int listener, wake, events;               /* file descriptors, or -1 */
    hello own;
    pthread_t thread;
    bool running, stop, gone, reason_printed; /* gone: the thread uses nothing of this any more */
    int n_links, n_unreported, n_alive;
    pl_link *links;                           /* on rank 0 by rank, where links[0] is none; elsewhere links[0] alone */
    member *members;                          /* by rank */
    caller callers[MAX_CALLERS];
    int64_t given_up_ms;                      /* when; 0: it was not */
} hb = {.listener = -1, .wake = -1, .events = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;             /* guards hb */
static pthread_mutex_t call_lock = PTHREAD_MUTEX_INITIALIZER;        /* held while `watcher` runs; taken before lock */
static pthread_cond_t changed;
static pl_heartbeat_fn watcher;               /* guarded by call_lock */
static atomic_int culprit = -1;
static const char *const state_names[] = {"alive", "finished", "failed", "ended", "stopped", "cut"};
_Static_assert(sizeof state_names / sizeof *state_names == PL_RANK_COUNT, "a word for each state");

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000 + t.tv_nsec / 1000000;
}

static void wake_thread(void)
{
    const uint64_t one = 1;
    ssize_t n = write(hb.wake, &one, sizeof one);
    (void)n;                                  /* a full counter: the thread is awake already */
}

/* With the lock: waits for `changed`, at most until that time. */
static void wait_until(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    pthread_cond_timedwait(&changed, &lock, &t);
}

/* ---- states, with the lock ---------------------------------------------------------------------------------- */

/* Sends a rank's state to the peers, without the one it came from: rank 0 sends to all ranks, the others to rank 0. */
static void relay(int rank, int state, const char *text, int source)
{
    for (int i = 0; i < hb.n_links; i++)
        if (hb.links[i].fd >= 0 && i != source)
            pl_link_send(&hb.links[i], rank, state, text);
}

/* STATE: alive -> another.  source: the link that reported it, or -1.  Only the first failure's text is relayed: it is
 * why the job ends, and with all of them N ranks would send N * N texts. */
static void set_state(int rank, int state, const char *text, int source)
{
    if (rank < 0 || rank >= hb.size || state <= PL_RANK_ALIVE || state >= PL_RANK_COUNT)
        return;
    member *m = &hb.members[rank];
    if (m->state != PL_RANK_ALIVE)
        return;
    bool first = state != PL_RANK_FINISHED && hb.given_up_ms == 0;
    m->state = (uint8_t)state;
    m->text = strdup(text);
    hb.n_unreported++;
    hb.n_alive--;
    if (first) {
        hb.given_up_ms = now_ms();
        atomic_store(&culprit, rank);
    }
    /* ranks other than 0 send only their own state, and what they observed of rank 0 */
    if (hb.rank == 0 || source < 0)
        relay(rank, state, first || state == PL_RANK_FINISHED ? text : "", source);
    pthread_cond_broadcast(&changed);
    wake_thread();
}

static void set_observed_state(int rank, int state)
{
    char text[512];
    const char *what =
        state == PL_RANK_ENDED ? "its process ended without a message: it was killed, or it crashed\n"
                                 "  fix: its own output, or its machine's log, says why: a signal, out of memory" :
        state == PL_RANK_STOPPED ? "its process is stopped: its machine acknowledges messages, but it sent nothing"
                                 : "its link is cut, or its machine is off: it acknowledges no messages";
    char within[64] = "";
    if (state != PL_RANK_ENDED)
        snprintf(within, sizeof within, " for %g s", hb.limit_ms / 1000.0);
    snprintf(text, sizeof text, "rank %d of %d: %s%s", rank, hb.size, what, within);
    set_state(rank, state, text, -1);
}

/* ---- the thread --------------------------------------------------------------------------------------------- */

static void observe(int fd, int number)
{
    /* edge-triggered: each event must read and write until EAGAIN */
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = number};
    epoll_ctl(hb.events, EPOLL_CTL_ADD, fd, &event);
}

static int rank_of(int link) { return hb.rank == 0 ? link : 0; }

static void read_link(int i)
{
    pl_link *link = &hb.links[i];
    pl_message message;
    int got = PL_LINK_IDLE;
    if (link->fd < 0)
        return;
    pl_link_flush(link);
    while ((got = pl_link_receive(link, &message)) == PL_LINK_MESSAGE)
        set_state(message.rank, message.state, message.text, i);
    if (got == PL_LINK_IDLE)
        return;
    set_observed_state(rank_of(i), got == PL_LINK_ENDED ? PL_RANK_ENDED : PL_RANK_CUT);
    pl_link_close(link);
}

/* Accepts as many as there are slots. Also called when a slot becomes free: the listener is edge-triggered. */
static void accept_callers(void)
{
    for (int i = 0; i < MAX_CALLERS; i++) {
        caller *c = &hb.callers[i];
        if (c->fd >= 0)
            continue;
        int fd = accept4(hb.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        *c = (caller){.fd = fd};
        observe(fd, CALLERS - i);
    }
}

static void drop_caller(caller *c)
{
    close(c->fd);
    *c = (caller){.fd = -1};
    accept_callers();
}

static void read_caller(int slot)
{
    caller *c = &hb.callers[slot];
    if (c->fd < 0)
        return;
    while (c->n < sizeof c->bytes) {
        ssize_t got = recv(c->fd, c->bytes + c->n, sizeof c->bytes - c->n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            drop_caller(c);
            return;
        }
        c->n += (size_t)got;
    }
    hello said;
    memcpy(&said, c->bytes, sizeof said);
    uint32_t rank = (uint32_t)said.rank[0] << 24 | (uint32_t)said.rank[1] << 16 | (uint32_t)said.rank[2] << 8 |
                    said.rank[3];
    bool known = memcmp(said.token, hb.own.token, sizeof said.token) == 0 && rank > 0 && rank < (uint32_t)hb.size &&
                 hb.links[rank].fd < 0 && hb.members[rank].state == PL_RANK_ALIVE;
    if (!known || send(c->fd, &WELCOME, 1, MSG_NOSIGNAL) != 1) {
        drop_caller(c);
        return;
    }
    int fd = c->fd;
    *c = (caller){.fd = -1};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = (int)rank};
    epoll_ctl(hb.events, EPOLL_CTL_MOD, fd, &event);      /* reports again what arrived before */
    pl_link_open(&hb.links[rank], fd);
    for (int i = 0; i < hb.size; i++)         /* states that changed before it connected */
        if (hb.members[i].state != PL_RANK_ALIVE)
            pl_link_send(&hb.links[rank], i, hb.members[i].state, hb.members[i].text ? hb.members[i].text : "");
    pthread_cond_broadcast(&changed);
    accept_callers();
}

static void tick(int elapsed_ms)
{
    for (int i = 0; i < hb.n_links; i++) {
        pl_link *link = &hb.links[i];
        if (link->fd < 0)
            continue;
        link->silent_ms += elapsed_ms;
        if (link->silent_ms >= hb.limit_ms && hb.members[rank_of(i)].state == PL_RANK_ALIVE)
            set_observed_state(rank_of(i), pl_link_undelivered(link) < BEATS / 2 ? PL_RANK_STOPPED : PL_RANK_CUT);
        pl_link_beat(link);
    }
    for (int i = 0; i < MAX_CALLERS; i++)
        if (hb.callers[i].fd >= 0 && (hb.callers[i].age_ms += elapsed_ms) >= CALLER_MS)
            drop_caller(&hb.callers[i]);
    if (hb.listener >= 0)
        accept_callers();                     /* again, if file descriptors had run out */
}

/* With the lock: a rank whose state is not yet reported, or -1. The first failure comes first: it is the reason, and
 * only its text is relayed. */
static int next_unreported(void)
{
    int i = atomic_load(&culprit);
    if (i < 0 || hb.members[i].reported)
        for (i = 0; i < hb.size && (hb.members[i].reported || hb.members[i].state == PL_RANK_ALIVE); i++) {}
    return i < hb.size ? i : -1;
}

/* Calls the watcher for each state not yet reported. Without the lock, with call_lock. */
static void report_states(void)
{
    char text[PL_HEARTBEAT_TEXT_BYTES];
    pthread_mutex_lock(&lock);
    for (int i; watcher && hb.running && hb.n_unreported > 0 && (i = next_unreported()) >= 0;) {
        member *m = &hb.members[i];
        m->reported = true;
        hb.n_unreported--;
        int state = m->state;
        snprintf(text, sizeof text, "%s", m->text ? m->text : "");
        pthread_mutex_unlock(&lock);
        watcher(i, state, text);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
}

static const char *reason(void)
{
    const member *m = &hb.members[atomic_load(&culprit)];
    return m->text ? m->text : "";
}

/* A line on stderr. Not by stdio, whose locks may be held by a thread that hangs. */
static void print(const char *head, const char *text)
{
    char line[PL_HEARTBEAT_TEXT_BYTES + 256];
    int n = snprintf(line, sizeof line, "plait: %s%s\n", head, text);
    ssize_t written = write(2, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
    (void)written;
}

/* Prints why the job ends, once: on rank 0, or on rank 1 if rank 0 cannot any more. Several ranks that fail at the same
 * moment each take themselves for the cause; so rank 0 also says so of itself. Releases the lock meanwhile. */
static void print_reason(void)
{
    char text[PL_HEARTBEAT_TEXT_BYTES];
    hb.reason_printed = true;
    int cause = atomic_load(&culprit);
    if (hb.rank != (cause == 0 && hb.members[cause].state != PL_RANK_FAILED))
        return;
    snprintf(text, sizeof text, "%s", reason());
    pthread_mutex_unlock(&lock);
    print("", text);
    pthread_mutex_lock(&lock);
}

/* Nothing is freed or flushed: any lock may be held by a thread that hangs. */
_Noreturn static void end_process(void)
{
    char head[256];
    snprintf(head, sizeof head,
             "rank %d of %d is ended: the job was given up %g s ago, and this process still runs\n  cause: ",
             hb.rank, hb.size, hb.grace_ms / 1000.0);
    print(head, reason());
    _exit(1);
}

static void handle(const struct epoll_event *event)
{
    int number = event->data.fd;
    uint64_t count;
    if (number == WAKE) {
        ssize_t n = read(hb.wake, &count, sizeof count);
        (void)n;
    } else if (number == LISTENER) {
        accept_callers();
    } else if (number <= CALLERS) {
        read_caller(CALLERS - number);
    } else {
        read_link(number);
    }
}

static void *thread_main(void *arg)
{
    struct epoll_event events[64];
    (void)arg;
    pthread_mutex_lock(&lock);
    for (int64_t last_ms = now_ms(); !hb.stop;) {
        int64_t next_ms = last_ms + hb.beat_ms - now_ms();
        pthread_mutex_unlock(&lock);
        int n = epoll_wait(hb.events, events, 64, next_ms > 0 ? (int)next_ms : 0);
        pthread_mutex_lock(&lock);
        for (int i = 0; i < n; i++)
            handle(&events[i]);
        int64_t elapsed_ms = now_ms() - last_ms;
        if (elapsed_ms >= hb.beat_ms && n < 64) {      /* only when all events have been handled */
            tick(elapsed_ms < 2 * hb.beat_ms ? (int)elapsed_ms : 2 * hb.beat_ms);
            last_ms += elapsed_ms;
        }
        if (hb.given_up_ms && !hb.reason_printed)
            print_reason();
        if (hb.grace_ms && hb.given_up_ms && now_ms() - hb.given_up_ms >= hb.grace_ms)
            end_process();
        if (hb.n_unreported > 0) {
            pthread_mutex_unlock(&lock);
            pthread_mutex_lock(&call_lock);
            report_states();
            pthread_mutex_unlock(&call_lock);
            pthread_mutex_lock(&lock);
        }
    }
    hb.gone = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* ---- start and stop ----------------------------------------------------------------------------------------- */

/* With the lock, without a thread. Also in a forked child, where the connections are its parent's. */
static void release(void)
{
    for (int i = 0; i < hb.n_links; i++)
        pl_link_close(&hb.links[i]);
    for (int i = 0; hb.running && i < MAX_CALLERS; i++)
        if (hb.callers[i].fd >= 0)
            close(hb.callers[i].fd);
    for (int i = 0; hb.members && i < hb.size; i++)
        free(hb.members[i].text);
    const int fds[] = {hb.listener, hb.wake, hb.events};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(hb.links);
    free(hb.members);
    memset(&hb, 0, sizeof hb);
    hb.listener = hb.wake = hb.events = -1;
    atomic_store(&culprit, -1);
}

static int fail_started(int status, const char *what, const char *fix)
{
    char text[1024];
    snprintf(text, sizeof text, "heartbeat: rank %d of %d %s: %s%s%s", hb.rank, hb.size, what, strerror(errno),
             fix ? "\n  fix: " : "", fix ? fix : "");
    release();
    pthread_mutex_unlock(&lock);
    return pl_fail(status, text);
}

/* Raises the limit of open files: a descriptor for each rank, and spare ones for the program. */
static void allow_files(int n)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < (rlim_t)n + SPARE_FILES) {
        files.rlim_cur = (rlim_t)n + SPARE_FILES < files.rlim_max ? (rlim_t)n + SPARE_FILES : files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static bool start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);      /* the program's own threads handle signals */
    int error = pthread_create(&hb.thread, NULL, thread_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return error == 0;
}

int pl_heartbeat_start(int rank, int size, const char *addresses, int port, const char *token, int limit_ms,
                       int grace_ms)
{
    if (size < 1 || rank < 0 || rank >= size || limit_ms < BEATS || grace_ms < 0)
        return pl_fail(PL_EINVAL, "heartbeat: needs 0 <= rank < size, limit_ms >= 10 and grace_ms >= 0");
    pthread_mutex_lock(&lock);
    if (hb.running) {
        pthread_mutex_unlock(&lock);
        return pl_fail(PL_FAILED, "heartbeat: it runs already");
    }
    hb.rank = rank;
    hb.size = hb.n_alive = size;
    hb.limit_ms = limit_ms;
    hb.beat_ms = limit_ms / BEATS < MAX_BEAT_MS ? limit_ms / BEATS : MAX_BEAT_MS;
    hb.grace_ms = grace_ms;
    hb.running = true;
    for (int i = 0; i < MAX_CALLERS; i++)
        hb.callers[i].fd = -1;
    memcpy(hb.own.token, token, sizeof hb.own.token);
    for (int i = 0; i < 4; i++)
        hb.own.rank[i] = (uint8_t)((uint32_t)rank >> (24 - 8 * i));
    hb.n_links = rank == 0 ? size : 1;
    hb.links = calloc((size_t)hb.n_links, sizeof *hb.links);
    hb.members = calloc((size_t)size, sizeof *hb.members);
    for (int i = 0; hb.links && i < hb.n_links; i++)
        hb.links[i].fd = -1;
    hb.n_links = hb.links ? hb.n_links : 0;
    if (!hb.links || !hb.members)
        return fail_started(PL_ENOMEM, "cannot start", NULL);
    hb.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    hb.events = epoll_create1(EPOLL_CLOEXEC);
    if (hb.wake < 0 || hb.events < 0)
        return fail_started(PL_FAILED, "cannot start", NULL);
    struct epoll_event wakes = {.events = EPOLLIN, .data.fd = WAKE};
    struct epoll_event calls = {.events = EPOLLIN | EPOLLET, .data.fd = LISTENER};
    epoll_ctl(hb.events, EPOLL_CTL_ADD, hb.wake, &wakes);
    if (rank == 0) {
        allow_files(size);
        hb.listener = pl_link_listen(&hb.port);
        if (hb.listener < 0)
            return fail_started(PL_FAILED, "cannot listen", NULL);
        epoll_ctl(hb.events, EPOLL_CTL_ADD, hb.listener, &calls);
    } else {
        char what[512];
        int fd = pl_link_connect(addresses, port, &hb.own, sizeof hb.own, limit_ms * CONNECT_LIMITS);
        snprintf(what, sizeof what, "cannot reach rank 0 at port %d of %.400s", port, addresses);
        if (fd < 0)
            return fail_started(PL_FAILED, what, "allow TCP connections between the machines of the job");
        pl_link_open(&hb.links[0], fd);
        observe(fd, 0);
    }
    if (!start_thread())
        return fail_started(PL_ENOMEM, "cannot start its thread", NULL);
    pthread_mutex_unlock(&lock);
    return PL_OK;
}

/* With the lock: have the peers' machines acknowledged all that we sent? */
static bool delivered(void)
{
    for (int i = 0; i < hb.n_links; i++)
        if (hb.links[i].fd >= 0 && hb.members[rank_of(i)].state != PL_RANK_CUT && pl_link_undelivered(&hb.links[i]) > 0)
            return false;
    return true;
}

static void announce(int state, const char *text, int timeout_ms)
{
    pthread_mutex_lock(&lock);
    if (hb.running && !hb.stop) {
        set_state(hb.rank, state, text, -1);
        int64_t until_ms = now_ms() + timeout_ms;
        while (hb.running && !delivered() && now_ms() < until_ms)
            wait_until(now_ms() + SENT_POLL_MS);
    }
    pthread_mutex_unlock(&lock);
}

void pl_heartbeat_fail(const char *text, int timeout_ms)
{
    char whole[PL_HEARTBEAT_TEXT_BYTES];
    pthread_mutex_lock(&lock);
    snprintf(whole, sizeof whole, "rank %d of %d failed: %s", hb.rank, hb.size, text);
    pthread_mutex_unlock(&lock);
    announce(PL_RANK_FAILED, whole, timeout_ms);
}

void pl_heartbeat_finish(const char *text, int timeout_ms) { announce(PL_RANK_FINISHED, text, timeout_ms); }

void pl_heartbeat_stop(int timeout_ms)
{
    int64_t until_ms = now_ms() + timeout_ms;
    pl_heartbeat_finish("", timeout_ms);
    pthread_mutex_lock(&lock);
    if (!hb.running || hb.stop || pthread_equal(pthread_self(), hb.thread)) {
        pthread_mutex_unlock(&lock);
        return;
    }
    hb.stop = true;
    wake_thread();
    while (!hb.gone && now_ms() < until_ms)
        wait_until(until_ms);
    if (hb.gone) {
        pthread_t thread = hb.thread;
        pthread_mutex_unlock(&lock);
        pthread_join(thread, NULL);
        pthread_mutex_lock(&lock);
        release();
        pthread_cond_broadcast(&changed);
    }                                         /* otherwise a watcher has not returned: what the thread uses is kept */
    pthread_mutex_unlock(&lock);
}

/* ---- questions ---------------------------------------------------------------------------------------------- */

int pl_heartbeat_port(void)
{
    pthread_mutex_lock(&lock);
    int port = hb.port;
    pthread_mutex_unlock(&lock);
    return port;
}

int pl_heartbeat_addresses(char *text, int max_bytes) { return pl_link_addresses(text, max_bytes); }

int pl_heartbeat_absent(int timeout_ms)
{
    int absent;
    int64_t until_ms = now_ms() + timeout_ms;
    pthread_mutex_lock(&lock);
    do {
        absent = -1;
        for (int i = 1; hb.running && hb.rank == 0 && i < hb.size && absent < 0; i++)
            if (hb.links[i].fd < 0 && hb.members[i].state == PL_RANK_ALIVE)
                absent = i;
        if (absent >= 0 && now_ms() < until_ms)
            wait_until(until_ms);
    } while (absent >= 0 && now_ms() < until_ms);
    pthread_mutex_unlock(&lock);
    return absent;
}

int pl_heartbeat_wait(int timeout_ms)
{
    char text[PL_HEARTBEAT_TEXT_BYTES];
    int64_t until_ms = now_ms() + timeout_ms;
    pthread_mutex_lock(&lock);
    while (hb.running && hb.given_up_ms == 0 && hb.n_alive > 0 && now_ms() < until_ms)
        wait_until(until_ms);
    int status = hb.given_up_ms ? PL_FAILED : hb.n_alive == 0 ? PL_OK : PL_AGAIN;      /* not running: both are 0 */
    snprintf(text, sizeof text, "%s", status == PL_FAILED ? reason() : "");
    pthread_mutex_unlock(&lock);
    return status == PL_FAILED ? pl_fail(PL_FAILED, text) : status;
}

int pl_heartbeat_alive(int timeout_ms)
{
    int64_t until_ms = now_ms() + timeout_ms;
    pthread_mutex_lock(&lock);
    while (hb.n_alive > 0 && now_ms() < until_ms)
        wait_until(until_ms);
    int n = hb.n_alive;
    pthread_mutex_unlock(&lock);
    return n;
}

int pl_heartbeat_culprit(void) { return atomic_load(&culprit); }

int pl_heartbeat_text(int rank, char *text, int max_bytes)
{
    int state = PL_RANK_ALIVE;
    pthread_mutex_lock(&lock);
    if (max_bytes > 0)
        text[0] = 0;
    if (hb.running && rank >= 0 && rank < hb.size) {
        state = hb.members[rank].state;
        snprintf(text, (size_t)max_bytes, "%s", hb.members[rank].text ? hb.members[rank].text : state_names[state]);
    }
    pthread_mutex_unlock(&lock);
    return state;
}

int pl_heartbeat_state(int rank) { return pl_heartbeat_text(rank, NULL, 0); }

void pl_heartbeat_watch(pl_heartbeat_fn fn)
{
    pthread_mutex_lock(&call_lock);
    watcher = fn;
    pthread_mutex_lock(&lock);
    hb.n_unreported = 0;
    for (int i = 0; hb.running && i < hb.size; i++) {
        hb.members[i].reported = false;
        hb.n_unreported += hb.members[i].state != PL_RANK_ALIVE;
    }
    pthread_mutex_unlock(&lock);
    report_states();
    pthread_mutex_unlock(&call_lock);
}

/* ---- fork --------------------------------------------------------------------------------------------------- */

void pl_heartbeat_fork_prepare(void) { pthread_mutex_lock(&lock); }
void pl_heartbeat_fork_parent(void) { pthread_mutex_unlock(&lock); }

void pl_heartbeat_fork_child(void)
{
    release();
    watcher = NULL;
    pthread_mutex_init(&call_lock, NULL);     /* a thread that the child does not have may hold it */
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void heartbeat_init(void)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attr);
    pthread_condattr_destroy(&attr);
}
