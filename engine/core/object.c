/* The engine's lock. Objects without references are collected under it and destroyed when it is released. */
#include "object.h"

#include <assert.h>

#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
pthread_mutex_t pl_lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
#else
pthread_mutex_t pl_lock = PTHREAD_MUTEX_INITIALIZER;
#endif
static pl_object *dead;

void pl_enter(void) { pthread_mutex_lock(&pl_lock); }

void pl_leave(void)
{
    pl_object *gone = dead;
    dead = NULL;
    pthread_mutex_unlock(&pl_lock);
    while (gone) {
        pl_object *next = gone->next_dead;
        gone->destroy(gone);
        gone = next;
    }
}

bool pl_flush(void)
{
    if (!dead)
        return false;
    pl_leave();
    pl_enter();
    return true;
}

void pl_object_unref(pl_object *object)
{
    assert(object->refs > 0);
    if (--object->refs == 0) {
        object->next_dead = dead;
        dead = object;
    }
}
