/* Stream capture and graphs of the emulated driver. Of the nodes that wait for nothing the newest runs next in one
 * launch, the oldest in the next one, so that a dependency that is missing is seen. */
#include <algorithm>

#include "state.h"

struct emu_graph_handle { std::shared_ptr<emu_graph> graph; };

struct emu_exec {
    std::shared_ptr<emu_graph> graph;
    std::map<emu_node *, std::shared_ptr<emu_kernel_work>> kernels; /* as they run now */
};

void emu_capture_node(emu_stream *stream, std::function<int()> work, emu_kernel_work *kernel)
{
    auto node = std::make_unique<emu_node>();
    node->run = std::move(work);
    node->kernel = kernel;
    node->after = stream->last;
    stream->last = {node.get()};
    stream->capture->graph->nodes.push_back(std::move(node));
}

bool emu_is_capturing(const emu_capture *capture)
{
    std::lock_guard<std::mutex> hold(state().lock);
    for (auto &c : state().captures)
        if (c.get() == capture)
            return true;
    return false;
}

int emu_capture_join(emu_stream *stream, emu_event *event)
{
    if (!stream->capture)
        stream->capture = event->capture;
    for (emu_node *n : event->nodes)
        if (std::find(stream->last.begin(), stream->last.end(), n) == stream->last.end())
            stream->last.push_back(n);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    CHECK_CONTEXT();
    emu_stream *s = emu_stream_of(stream);
    if (s == &emu_current->null_stream || s->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    static std::atomic<uint64_t> ids{1};
    auto c = std::make_shared<emu_capture>();
    c->graph = std::make_shared<emu_graph>();
    c->mode = mode, c->id = ids++, c->by = std::this_thread::get_id(), c->origin = s;
    s->capture = c;
    s->last.clear();
    std::lock_guard<std::mutex> hold(state().lock);
    state().captures.push_back(c);
    return emu_current->error;
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    *graph = nullptr;
    emu_stream *s = emu_stream_of(stream);
    auto c = s->capture;
    if (!c || c->origin != s)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    std::lock_guard<std::mutex> hold(state().lock);
    auto &all = state().captures;
    all.erase(std::find(all.begin(), all.end(), c));
    std::set<emu_node *> joined; /* every node must lead to the last one of the stream that began */
    std::vector<emu_node *> open = s->last;
    while (!open.empty()) {
        emu_node *n = open.back();
        open.pop_back();
        if (joined.insert(n).second)
            open.insert(open.end(), n->after.begin(), n->after.end());
    }
    for (emu_stream *other : s->device->streams)
        if (other->capture == c)
            other->capture = nullptr, other->last.clear();
    if (c->status)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (joined.size() != c->graph->nodes.size())
        return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = new emu_graph_handle{c->graph};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    auto c = emu_stream_of(stream)->capture;
    return *status = !c ? 0 : c->status ? 2 : 1, CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                          CUgraphNode const **last, size_t *n_last)
{
    emu_stream *s = emu_stream_of(stream);
    *status = !s->capture ? 0 : s->capture->status ? 2 : 1;
    if (s->capture && id)
        *id = s->capture->id;
    if (graph)
        *graph = nullptr;
    if (last)
        *last = s->last.data();
    if (n_last)
        *n_last = s->last.size();
    return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                          CUgraphNode const **last, const void **edges, size_t *n_last)
{
    if (edges)
        *edges = nullptr;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, last, n_last);
}
EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *) { return CUDA_SUCCESS; }

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    auto &all = graph->graph->nodes;
    if (nodes)
        for (size_t i = 0; i < *n && i < all.size(); i++)
            nodes[i] = all[i].get();
    return *n = all.size(), CUDA_SUCCESS;
}
EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
    return *type = node->kernel ? 0 : 1, CUDA_SUCCESS; /* kernel; anything else is called a copy */
}
EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p)
{
    emu_kernel_work *k = node->kernel;
    if (!k)
        return CUDA_ERROR_INVALID_VALUE;
    *p = {k->function, k->grid.x, k->grid.y, k->grid.z, k->block.x, k->block.y, k->block.z, k->shared_bytes,
          k->args.data(), nullptr};
    return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p)
{
    return cuGraphKernelNodeGetParams_v2(node, p);
}
EXPORT CUresult cuGraphDestroy(CUgraph graph) { return delete graph, CUDA_SUCCESS; }

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long)
{
    auto *e = new emu_exec{graph->graph, {}};
    for (auto &node : e->graph->nodes)
        if (node->kernel)
            e->kernels[node.get()] = std::make_shared<emu_kernel_work>(*node->kernel);
    return *exec = e, CUDA_SUCCESS;
}
EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *, char *, size_t)
{
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}
EXPORT CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    return delete exec, CUDA_SUCCESS; /* a launch on its way keeps what it needs */
}

EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
    auto found = exec->kernels.find(node);
    if (found == exec->kernels.end())
        return CUDA_ERROR_INVALID_VALUE;
    auto work = std::make_shared<emu_kernel_work>(); /* launches on their way keep the old one */
    const unsigned sizes[] = {p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ};
    if (int code = work->set(p->func, sizes, p->sharedMemBytes, p->kernelParams))
        return code;
    work->cooperative = found->second->cooperative;
    found->second = work;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
    return cuGraphExecKernelNodeSetParams(exec, node, p);
}

static std::vector<emu_node *> order_of(const emu_graph &graph, bool newest_first)
{
    std::vector<emu_node *> order;
    std::deque<emu_node *> ready;
    std::map<emu_node *, size_t> missing;
    std::map<emu_node *, std::vector<emu_node *>> behind;
    for (auto &node : graph.nodes) {
        missing[node.get()] = node->after.size();
        for (emu_node *before : node->after)
            behind[before].push_back(node.get());
        if (node->after.empty())
            ready.push_back(node.get());
    }
    while (!ready.empty()) {
        order.push_back(newest_first ? ready.back() : ready.front());
        newest_first ? ready.pop_back() : ready.pop_front();
        for (emu_node *node : behind[order.back()])
            if (--missing[node] == 0)
                ready.push_back(node);
    }
    return order;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    CHECK_CONTEXT();
    if (int code = emu_asked_failure(0))
        return code;
    emu_stream *s = emu_stream_of(stream);
    emu_device *device = s->device;
    bool newest_first = state().counts[1]++ % 2 == 0;
    auto graph = exec->graph;
    auto kernels = exec->kernels;
    int asked = emu_asked_failure(1);
    std::map<emu_node *, std::shared_ptr<emu_mark>> marks; /* of the events that this launch records */
    for (auto &node : graph->nodes)
        if (node->record) {
            std::lock_guard<std::mutex> hold(node->record->lock);
            node->record->capture = nullptr;
            marks[node.get()] = node->record->mark = std::make_shared<emu_mark>();
        }
    int code = emu_enqueue(s, [=] {
        bool held = false;
        if (asked)
            emu_device_failed(device, asked, "a failure that was asked for");
        for (emu_node *node : order_of(*graph, newest_first)) {
            if (device->error)
                break;
            auto mark = marks.find(node);
            if (mark != marks.end()) {
                mark->second->set();
                std::unique_lock<std::mutex> lock(state().hold_lock);
                state().hold_changed.wait(lock, [&] { return held || !state().hold; });
                held = true;
            }
            auto k = kernels.find(node);
            if (int code = k == kernels.end() ? node->run() : k->second->run(device))
                return code;
        }
        return static_cast<int>(CUDA_SUCCESS);
    });
    s->push([=] {
        for (auto &m : marks) /* of a failed device too: nobody waits for ever */
            m.second->set();
    });
    return code;
}
