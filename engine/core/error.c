/* Errors: this thread's last failure, and the shared record that poisoned vars point to. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char last_text[4096] = "";
static _Thread_local char last_name[128] = "";
static _Thread_local int32_t last_location = -1;

const char *pl_error_last(void) { return last_text; }
const char *pl_error_name(void) { return last_name; }
int32_t pl_error_location(void) { return last_location; }

int pl_fail(int status, const char *text)
{
    snprintf(last_text, sizeof last_text, "%s", text);
    last_name[0] = 0;
    last_location = -1;
    return status;
}

pl_error *pl_error_new(const char *text, const char *name, int32_t location)
{
    pl_error *error = calloc(1, sizeof *error);
    if (!error)
        return NULL;
    error->refs = 1;
    error->location = location;
    error->text = strdup(text);
    error->name = strdup(name ? name : "");
    return error;
}

void pl_error_unref(pl_error *error)
{
    if (error && --error->refs == 0) {
        free(error->text);
        free(error->name);
        free(error);
    }
}

int pl_error_report(pl_error *error)
{
    snprintf(last_text, sizeof last_text, "%s", error->text ? error->text : "out of memory");
    snprintf(last_name, sizeof last_name, "%s", error->name ? error->name : "");
    last_location = error->location;
    error->told = true;
    return PL_FAILED;
}
