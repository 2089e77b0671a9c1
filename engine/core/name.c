/* Names: a hash table of texts; entries are never freed. */
#include "name.h"
#include "object.h"

#include <stdlib.h>
#include <string.h>

enum { N_BUCKETS = 1024 };

typedef struct entry { struct entry *next; char text[]; } entry;

static entry *buckets[N_BUCKETS];

const char *pl_name(const char *text)
{
    uint32_t hash = 2166136261u;              /* FNV-1a */
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    entry **bucket = &buckets[hash % N_BUCKETS], *e;
    pl_enter();
    for (e = *bucket; e && strcmp(e->text, text) != 0; e = e->next) {}
    if (!e && (e = malloc(sizeof *e + strlen(text) + 1))) {
        strcpy(e->text, text);
        e->next = *bucket;
        *bucket = e;
    }
    pl_leave();
    return e ? e->text : NULL;
}
