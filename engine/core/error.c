/* Errors: this thread's last failure, the record that poisoned vars point to, and the errors not yet reported. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 1024, N_NAMES = 1024 };    /* the text lies in static TLS, of which a loaded module gets little */

_Thread_local bool pl_failed;
static _Thread_local char last_text[TEXT_BYTES];
static _Thread_local const char *last_name = "";
static _Thread_local int32_t last_location = -1;
static _Thread_local int last_status;
static _Thread_local void *last_owner;
static _Thread_local pl_error *last_reported;       /* holds last_owner */
static _Thread_local struct { pl_free_fn release; void *owner; } fresh;    /* of a failure no pl_error has taken yet */

static pl_error *first_untold, *last_untold;
static pl_error out_of_memory = {.object.refs = 1, .location = -1, .status = PL_ENOMEM, .name = "", .text = NULL};

const char *pl_error_last(void) { return last_text; }
int pl_error_status(void) { return last_status; }
const char *pl_error_name(void) { return last_name; }
int32_t pl_error_location(void) { return last_location; }
void *pl_error_owner(void) { return last_owner; }

/* A text that does not fit loses its middle: the rule stands at its head, a traceback's cause at its end. */
static void keep_text(const char *text)
{
    static const char cut[] = "\n  ...\n";
    size_t n = strlen(text), room = TEXT_BYTES - 1;
    if (n <= room) {
        memmove(last_text, text, n + 1);
        return;
    }
    size_t head = room / 2, tail = room - head - (sizeof cut - 1);
    memcpy(last_text, text, head);
    memcpy(last_text + head, cut, sizeof cut - 1);
    memcpy(last_text + head + sizeof cut - 1, text + n - tail, tail + 1);
}

int pl_fail(int status, const char *text)
{
    pl_failed = true;
    last_status = status;
    keep_text(text);
    last_name = "";
    last_location = -1;
    last_owner = NULL;
    return status;
}

int pl_fail_with(int status, const char *text, pl_free_fn release, void *owner)
{
    pl_fail(status, text);
    if (fresh.release)
        fresh.release(fresh.owner);
    fresh.release = release;
    fresh.owner = owner;
    return status;
}

void pl_fail_forget(void)
{
    pl_failed = false;
    last_text[0] = 0;
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
    free(error->text);
    free(error);
}

pl_error *pl_error_new(int status, const char *name, int32_t location)
{
    char unnamed[64];
    pl_error *error = calloc(1, sizeof *error);
    if (!last_text[0])
        snprintf(unnamed, sizeof unnamed, "the operation returned status %d and no text", status);
    if (!error || !(error->text = strdup(last_text[0] ? last_text : unnamed))) {
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
    fresh.owner = NULL;                       /* the next failure here may be C's, without one */
    return error;
}

int pl_error_report(pl_error *error)
{
    pl_fail(error->status, error->text ? error->text : "out of memory (and for the error's text, too)");
    last_name = error->name;
    last_location = error->location;
    last_owner = error->owner;
    pl_error *before_it = last_reported;
    last_reported = error;
    error->object.refs++;
    if (before_it)
        pl_object_unref(&before_it->object);
    if (!error->untold)
        return PL_FAILED;
    error->untold = false;
    pl_error **at = &first_untold, *before = NULL;
    for (; *at != error; at = &before->next)
        before = *at;
    *at = error->next;
    if (last_untold == error)
        last_untold = before;
    pl_object_unref(&error->object);
    return PL_FAILED;
}

void pl_error_forget(void)
{
    pl_enter();
    if (last_reported)
        pl_object_unref(&last_reported->object);
    last_reported = NULL;
    last_owner = NULL;
    pl_leave();
}

void pl_error_remember(pl_error *error)
{
    if (error->untold)
        return;
    error->untold = true;
    error->object.refs++;
    error->next = NULL;
    if (last_untold)
        last_untold->next = error;
    else
        first_untold = error;
    last_untold = error;
}

pl_error *pl_error_oldest_untold(void) { return first_untold; }

/* They are not freed: what they own belongs to Python, which is not ready in the middle of a fork. */
void pl_error_forget_all(void)
{
    for (pl_error *error = first_untold; error; error = error->next)
        error->untold = false;
    first_untold = last_untold = NULL;
}

/* ---- names ------------------------------------------------------------------------------------------------ */

typedef struct name_entry { struct name_entry *next; char text[]; } name_entry;

static name_entry *names[N_NAMES];            /* a hash table; entries stay for ever */

const char *pl_name(const char *text)
{
    uint32_t hash = 2166136261u;              /* FNV-1a */
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    name_entry **bucket = &names[hash % N_NAMES], *entry;
    pl_enter();
    for (entry = *bucket; entry && strcmp(entry->text, text) != 0; entry = entry->next) {}
    if (!entry && (entry = malloc(sizeof *entry + strlen(text) + 1))) {
        strcpy(entry->text, text);
        entry->next = *bucket;
        *bucket = entry;
    }
    pl_leave();
    return entry ? entry->text : NULL;
}
