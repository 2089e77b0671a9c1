/* What the parts of the emulated cuDNN share: handles, tensors, numbers of any type, work on a stream. */
#ifndef EMU_CUDNN_H
#define EMU_CUDNN_H
#include <stddef.h>
#include <stdint.h>

#include <functional>

#define EXPORT extern "C" __attribute__((visibility("default")))

enum { OK = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { FLOAT = 0, DOUBLE = 1, HALF = 2, BFLOAT16 = 9 };

struct handle { void *stream; };
struct tensor { int type, n, size[5], step[5]; };

/* Runs f on the handle's stream, when its turn comes; in a recording each time that this runs. */
int emu_dnn_start(handle *h, std::function<void()> f);

/* Where the bytes are that a pointer to memory of the current device names. */
char *emu_dnn_memory(const void *p);

template <class T> int make(T **made) { return *made = new T(), OK; }
template <class T> int drop(T *made) { return delete made, OK; }
#endif
