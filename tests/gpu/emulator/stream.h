/* Emulated streams and events: a stream is a thread that works off a queue. */
#ifndef EMU_STREAM_H
#define EMU_STREAM_H
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

struct emu_mark { /* one recording of an event */
    std::mutex lock;
    std::condition_variable changed;
    bool done = false;
    int64_t ns = 0;
    void set();
    void wait();
    bool is_done();
};

struct emu_node { /* an operation of a graph */
    std::function<int()> run;
    struct emu_kernel_work *kernel = nullptr; /* where it is a launch */
    std::vector<emu_node *> after;
    struct emu_event *record = nullptr; /* where each launch records an event */
};

struct emu_graph {
    std::vector<std::unique_ptr<emu_node>> nodes; /* in an order in which they can run */
};

struct emu_capture {
    std::shared_ptr<emu_graph> graph;
    int mode;
    uint64_t id;
    std::thread::id by;
    struct emu_stream *origin;
    int status = 0; /* what made it invalid */
};

struct emu_device;

struct emu_stream {
    emu_device *device;
    bool blocking; /* waits for the default stream */
    std::mutex lock;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    uint64_t n_pushed = 0, n_done = 0;
    bool started = false, closed = false;
    std::shared_ptr<emu_capture> capture;
    std::vector<emu_node *> last; /* of the capture */

    void push(std::function<void()> work); /* as it is: no failures, no capture */
    void sync();
    bool idle();
    void run();
};

struct emu_event {
    std::mutex lock;
    std::shared_ptr<emu_mark> mark; /* of the last recording */
    bool timed = true;
    std::shared_ptr<emu_capture> capture; /* where it was recorded while capturing */
    std::vector<emu_node *> nodes;
};

int64_t emu_now_ns();
#endif
