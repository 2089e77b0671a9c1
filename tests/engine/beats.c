/* The heartbeat: jobs of processes that end well, fail, die, stop and fork, without Python. */
#include "driver.h"
#include "engine/core/heartbeat.h"
#include "engine/core/link.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, LONG_MS = 120000, SHORT_MS = 2000 };
static const char token[] = "sixteen letters.", local[] = "127.0.0.1";

/* What a rank tells the driver at its end; a write of it is atomic. */
typedef struct { int rank, status, culprit, states[RANKS], told[RANKS]; char text[512]; } report;
typedef struct { pid_t pids[RANKS]; int to[RANKS], from, answers; } job;

static atomic_int told[RANKS];                /* by rank, the state that the watcher was told */

static void watcher(int rank, int state, const char *text)
{
    CHECK(rank >= 0 && rank < RANKS && state > PL_RANK_ALIVE && state < PL_RANK_COUNT && text);
    CHECK(atomic_exchange(&told[rank], state) == PL_RANK_ALIVE);
}

static int first_told = -1;

static void first_watcher(int rank, int state, const char *text)
{
    (void)state;
    if (first_told < 0 && strstr(text, "its process ended"))
        first_told = rank;
    else if (first_told < 0)
        first_told = RANKS;
}

static void put(int fd, const void *bytes, size_t n) { CHECK(write(fd, bytes, n) == (ssize_t)n); }

static void get(int fd, void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, (char *)bytes + done, n - done);
        CHECK(got > 0);
        done += (size_t)got;
    }
}

/* The child of a rank has no heartbeat, and keeps no connection of it open. */
static void live_on(int from)
{
    char letter;
    CHECK(pl_heartbeat_wait(0) == PL_OK && pl_heartbeat_culprit() == -1 && pl_heartbeat_state(0) == PL_RANK_ALIVE);
    pl_heartbeat_fail("nobody hears it", 0);
    pl_heartbeat_stop(0);
    get(from, &letter, 1);
    exit(0);
}

/* Does what the driver's letter says, then reports how the job ended. */
static void take_part(int rank, char letter, int from, int to, int answers)
{
    report r = {.rank = rank};
    if (letter == 'f') {
        pl_heartbeat_fail("the data is bad\n  at: train.py:41", LONG_MS);
        pl_heartbeat_finish("too late", 0);
    }
    if (letter == 'g')
        pl_heartbeat_finish("", LONG_MS);
    if (letter == 'p') {                      /* a parent: the child waits for the driver's next letter */
        if (fork() == 0)
            live_on(from);
        put(answers, "p", 1);
    }
    while (letter == 'p' || letter == 'h')    /* hangs */
        pause();
    while ((r.status = pl_heartbeat_wait(LONG_MS)) == PL_AGAIN) {}
    if (r.status == PL_FAILED)
        snprintf(r.text, sizeof r.text, "%s", pl_error_message());
    r.culprit = pl_heartbeat_culprit();
    CHECK(r.status == PL_FAILED || pl_heartbeat_alive(LONG_MS) == 0);
    for (int i = 0; i < RANKS; i++)
        r.states[i] = pl_heartbeat_state(i);
    pl_heartbeat_watch(NULL);                 /* it was told all that is known; once more: the same */
    for (int i = 0; i < RANKS; i++)
        r.told[i] = atomic_exchange(&told[i], PL_RANK_ALIVE);
    pl_heartbeat_watch(watcher);
    for (int i = 0; i < RANKS; i++)
        CHECK(r.states[i] == PL_RANK_ALIVE || atomic_load(&told[i]) == r.states[i]);
    put(to, &r, sizeof r);
    get(from, &letter, 1);                    /* all have reported: the connections may close */
    pl_heartbeat_stop(LONG_MS);
    pl_heartbeat_stop(LONG_MS);               /* does nothing */
    CHECK(pl_heartbeat_wait(0) == PL_OK);
    exit(0);
}

static job begin(int limit_ms, int grace_ms)
{
    job j;
    int results[2], answers[2], port = 0;
    CHECK(pipe(results) == 0 && pipe(answers) == 0);
    for (int rank = 0; rank < RANKS; rank++) {
        int letters[2];
        char letter;
        CHECK(pipe(letters) == 0);
        fflush(NULL);
        j.pids[rank] = fork();
        CHECK(j.pids[rank] >= 0);
        if (j.pids[rank] == 0) {
            close(letters[1]);
            CHECK(pl_heartbeat_start(rank, RANKS, local, port, token, limit_ms, grace_ms) == PL_OK);
            CHECK(pl_heartbeat_start(rank, RANKS, local, port, token, limit_ms, grace_ms) == PL_FAILED);
            port = pl_heartbeat_port();
            put(answers[1], &port, sizeof port);
            CHECK(rank > 0 || pl_heartbeat_absent(LONG_MS) == -1);
            pl_heartbeat_watch(watcher);
            get(letters[0], &letter, 1);
            take_part(rank, letter, letters[0], results[1], answers[1]);
        }
        int said;
        get(answers[0], &said, sizeof said);
        port = rank == 0 ? said : port;
        close(letters[0]);
        j.to[rank] = letters[1];
    }
    close(results[1]);
    close(answers[1]);
    j.from = results[0];
    j.answers = answers[0];
    return j;
}

/* letters: what each rank does. */
static void tell(const job *j, const char *letters)
{
    for (int rank = 0; rank < RANKS; rank++)
        put(j->to[rank], &letters[rank], 1);
}

static report result(const job *j)
{
    report r;
    get(j->from, &r, sizeof r);
    return r;
}

/* ended: these ranks do not wait for a letter. */
static void end(const job *j, unsigned ended)
{
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 0;
        if (!(ended >> rank & 1))
            put(j->to[rank], "e", 1);
        CHECK(waitpid(j->pids[rank], &status, 0) == j->pids[rank]);
        CHECK((ended >> rank & 1) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        close(j->to[rank]);
    }
    close(j->from);
    close(j->answers);
}

/* n ranks report that the job was given up for `culprit`. */
static void given_up(const job *j, int n, int culprit, int state, const char *text)
{
    for (int i = 0; i < n; i++) {
        report r = result(j);
        if (r.status != PL_FAILED || r.culprit != culprit || r.states[culprit] != state || !strstr(r.text, text))
            fprintf(stderr, "rank %d: status %d, culprit %d in state %d: %s\n", r.rank, r.status, r.culprit,
                    r.culprit < 0 ? -1 : r.states[r.culprit], r.text);
        CHECK(r.status == PL_FAILED && r.culprit == culprit && r.states[culprit] == state && strstr(r.text, text));
        CHECK(r.told[culprit] == state || r.told[culprit] == PL_RANK_ALIVE);      /* ALIVE: a moment later */
    }
}

static void all_finish(void)
{
    job j = begin(LONG_MS, LONG_MS);
    tell(&j, "gggg");
    for (int i = 0; i < RANKS; i++) {
        report r = result(&j);
        CHECK(r.status == PL_OK && r.culprit == -1);
        for (int k = 0; k < RANKS; k++)
            CHECK(r.states[k] == PL_RANK_FINISHED);
    }
    end(&j, 0);
}

static void one_fails(int rank)
{
    char letters[] = "gggg", text[64];
    job j = begin(LONG_MS, LONG_MS);
    letters[rank] = 'f';
    snprintf(text, sizeof text, "rank %d of 4 failed: the data is bad\n  at: train.py:41", rank);
    tell(&j, letters);
    given_up(&j, RANKS, rank, PL_RANK_FAILED, text);
    end(&j, 0);
}

static void one_is_killed(int rank, bool has_child)
{
    char letters[] = "wwww", answer;
    job j = begin(LONG_MS, 0);
    letters[rank] = has_child ? 'p' : 'h';
    tell(&j, letters);
    if (has_child)
        get(j.answers, &answer, 1);
    CHECK(kill(j.pids[rank], SIGKILL) == 0);
    given_up(&j, RANKS - 1, rank, PL_RANK_ENDED, "it was killed, or it crashed");
    if (has_child)
        put(j.to[rank], "e", 1);              /* its child ends */
    end(&j, 1u << rank);
}

/* After it is continued it learns that it was given up. */
static void one_stops(int rank)
{
    job j = begin(SHORT_MS, 0);
    CHECK(kill(j.pids[rank], SIGSTOP) == 0);
    tell(&j, "wwww");
    given_up(&j, RANKS - 1, rank, PL_RANK_STOPPED, "its process is stopped: its machine acknowledges messages");
    CHECK(kill(j.pids[rank], SIGCONT) == 0);
    given_up(&j, 1, rank, PL_RANK_STOPPED, "its process is stopped");
    end(&j, 0);
}

static void one_hangs(void)
{
    job j = begin(LONG_MS, 100);
    int status;
    tell(&j, "hhfh");
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK(waitpid(j.pids[rank], &status, 0) == j.pids[rank] && WIFEXITED(status) && WEXITSTATUS(status) == 1);
        close(j.to[rank]);
    }
    close(j.from);
    close(j.answers);
}

/* Connections of other programs, and ranks of another job. */
static void strangers(void)
{
    struct { char token[16]; uint8_t rank[4]; } wrong[] = {{"another job's...", {0, 0, 0, 1}},
                                                           {"sixteen letters.", {0, 0, 0, 9}},
                                                           {"sixteen letters.", {0, 0, 0, 0}}};
    CHECK(pl_heartbeat_start(0, 2, NULL, 0, token, LONG_MS, 0) == PL_OK);
    int port = pl_heartbeat_port();
    for (int i = 0; i < 3; i++) {
        memcpy(wrong[i].token, i ? token : "another job's...", 16);
        CHECK(pl_link_connect(local, port, &wrong[i], sizeof wrong[i], LONG_MS) == -1);
    }
    CHECK(pl_link_connect("nonsense", port, "", 0, LONG_MS) == -1 && pl_link_connect("", port, "", 0, LONG_MS) == -1);
    CHECK(pl_heartbeat_absent(0) == 1 && pl_heartbeat_wait(0) == PL_AGAIN && pl_heartbeat_state(7) == PL_RANK_ALIVE);
    int idle[200];                            /* more than it listens to at once */
    for (int i = 0; i < 200; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        idle[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(idle[i] >= 0 && connect(idle[i], (struct sockaddr *)&to, sizeof to) == 0);
    }
    for (int i = 0; i < 200; i++)
        close(idle[i]);
    memcpy(wrong[0].token, token, 16);
    int fd = pl_link_connect(local, port, wrong, sizeof *wrong, LONG_MS);      /* rank 1, which then says nonsense */
    CHECK(fd >= 0 && pl_heartbeat_absent(LONG_MS) == -1);
    const uint8_t nonsense[] = {1, 77, 0, 0, 0, 0, 0, 1, 200, 2, 255, 255, 127, 0, 0, 0, 0};
    put(fd, nonsense, sizeof nonsense);
    close(fd);
    while (pl_heartbeat_wait(LONG_MS) == PL_AGAIN) {}
    CHECK(pl_heartbeat_culprit() == 1 && pl_heartbeat_state(1) == PL_RANK_ENDED);
    pl_heartbeat_fail("later", LONG_MS);      /* the first failure is the reason */
    CHECK(pl_heartbeat_culprit() == 1 && pl_heartbeat_state(0) == PL_RANK_FAILED && pl_heartbeat_alive(0) == 0);
    CHECK(pl_heartbeat_wait(0) == PL_FAILED && strstr(pl_error_message(), "rank 1 of 2: its process ended"));
    pl_heartbeat_watch(NULL);
    pl_heartbeat_watch(first_watcher);        /* is told both at once: the reason first */
    CHECK(first_told == 1);
    pl_heartbeat_stop(LONG_MS);
    CHECK(pl_heartbeat_start(1, 2, local, port, token, LONG_MS, 0) == PL_FAILED);      /* nobody listens */
    CHECK(strstr(pl_error_message(), "cannot reach rank 0") && strstr(pl_error_message(), "fix:"));
    CHECK(pl_heartbeat_start(2, 2, local, port, token, LONG_MS, 0) == PL_EINVAL);
}

void beats(void)
{
    char addresses[4096];
    CHECK(pl_heartbeat_addresses(addresses, sizeof addresses) == PL_OK && strstr(addresses, "127.0.0.1"));
    CHECK(pl_heartbeat_addresses(addresses, 4) == PL_ENOMEM);
    strangers();
    all_finish();
    for (int rank = 0; rank < RANKS; rank += 2) {
        one_fails(rank);
        one_is_killed(rank, false);
        one_stops(rank);
    }
    one_is_killed(1, true);
    one_is_killed(0, true);
    one_hangs();
}
