/* Errors: each thread's last failure, the error that poisoned vars share, and the list of errors not yet reported. */
#include "error.h"
#include "object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 1024 };     /* kept in static TLS, of which a loaded module gets little */

struct pl_error {
    pl_object object;
    bool unreported;            /* in the list of errors not yet reported */
    bool shared;                /* an op has failed with it: see pl_error_share */
    int32_t location, status;
    const char *name;
    char *message;
    pl_free_fn release;         /* or NULL: called with owner at the end */
    void *owner;
    struct pl_error *next;
};

_Thread_local bool pl_failed;
static _Thread_local char last_message[MESSAGE_BYTES];
static _Thread_local const char *last_name = "";
static _Thread_local int32_t last_location = -1;
static _Thread_local int last_status;
static _Thread_local void *last_owner;
static _Thread_local pl_error *last_reported;       /* holds last_owner */
static _Thread_local struct { pl_free_fn release; void *owner; } fresh;    /* of a failure without a pl_error yet */

static pl_error *first_unreported, *last_unreported;
static pl_error out_of_memory = {.object.refs = 1, .location = -1, .status = PL_ENOMEM, .name = "", .message = NULL};

const char *pl_error_message(void) { return last_message; }
int pl_error_status(void) { return last_status; }
const char *pl_error_name(void) { return last_name; }
int32_t pl_error_location(void) { return last_location; }
void *pl_error_owner(void) { return last_owner; }

/* A message that does not fit loses its middle: the rule is at its start, the cause in a traceback at its end. */
static void keep_message(const char *message)
{
    static const char cut[] = "\n  ...\n";
    size_t n = strlen(message), max = MESSAGE_BYTES - 1;
    if (n <= max) {
        memmove(last_message, message, n + 1);
        return;
    }
    size_t head = max / 2, tail = max - head - (sizeof cut - 1);
    memcpy(last_message, message, head);
    memcpy(last_message + head, cut, sizeof cut - 1);
    memcpy(last_message + head + sizeof cut - 1, message + n - tail, tail + 1);
}

int pl_fail(int status, const char *message)
{
    pl_failed = true;
    last_status = status;
    keep_message(message);
    last_name = "";
    last_location = -1;
    last_owner = NULL;
    return status;
}

int pl_fail_with(int status, const char *message, pl_free_fn release, void *owner)
{
    pl_fail(status, message);
    if (fresh.release)
        fresh.release(fresh.owner);
    fresh.release = release;
    fresh.owner = owner;
    return status;
}

void pl_fail_forget(void)
{
    pl_failed = false;
    last_message[0] = 0;
    if (fresh.release) {
        fresh.release(fresh.owner);
        fresh.release = NULL;
        fresh.owner = NULL;
    }
}

static void error_destroy(pl_object *object)
{
    pl_error *error = (pl_error *)object;
    if (error->release)
        error->release(error->owner);
    free(error->message);
    free(error);
}

pl_error *pl_error_new(int status, const char *name, int32_t location)
{
    char unnamed[64];
    pl_error *error = calloc(1, sizeof *error);
    if (!last_message[0])
        snprintf(unnamed, sizeof unnamed, "the operation returned status %d without a message", status);
    if (!error || !(error->message = strdup(last_message[0] ? last_message : unnamed))) {
        free(error);
        pl_enter();
        out_of_memory.object.refs++;          /* never 0: it is not destroyed */
        pl_leave();
        return &out_of_memory;
    }
    error->object = (pl_object){.refs = 1, .destroy = error_destroy};
    error->name = name ? name : "";
    error->location = location;
    error->status = status;
    error->release = fresh.release;
    error->owner = fresh.owner;
    fresh.release = NULL;
    fresh.owner = NULL;                       /* the next failure of this thread may have none */
    return error;
}

void pl_error_ref(pl_error *error) { error->object.refs++; }
void pl_error_unref(pl_error *error) { pl_object_unref(&error->object); }

int pl_error_report(pl_error *error)
{
    pl_fail(error->status, error->message ? error->message : "out of memory");
    last_name = error->name;
    last_location = error->location;
    last_owner = error->owner;
    pl_error *previous = last_reported;
    last_reported = error;
    error->object.refs++;
    if (previous)
        pl_error_unref(previous);
    if (!error->unreported)
        return PL_FAILED;
    error->unreported = false;
    pl_error **at = &first_unreported, *before = NULL;
    for (; *at != error; at = &before->next)
        before = *at;
    *at = error->next;
    if (last_unreported == error)
        last_unreported = before;
    pl_error_unref(error);
    return PL_FAILED;
}

void pl_error_forget(void)
{
    pl_enter();
    if (last_reported)
        pl_error_unref(last_reported);
    last_reported = NULL;
    last_owner = NULL;
    pl_leave();
}

void pl_error_remember(pl_error *error)
{
    if (error->unreported)
        return;
    error->unreported = true;
    error->object.refs++;
    error->next = NULL;
    if (last_unreported)
        last_unreported->next = error;
    else
        first_unreported = error;
    last_unreported = error;
}

void pl_error_share(pl_error *error, const char *name, int32_t location)
{
    if (error->shared)
        return;
    if (error != &out_of_memory) {
        error->shared = true;
        error->name = name ? name : "";
        error->location = location;
    }
    pl_error_remember(error);
}

pl_error *pl_error_oldest_unreported(void) { return first_unreported; }

/* They are not freed: their owners are Python objects, and Python cannot run in the middle of a fork. */
void pl_error_forget_all(void)
{
    for (pl_error *error = first_unreported; error; error = error->next)
        error->unreported = false;
    first_unreported = last_unreported = NULL;
}

