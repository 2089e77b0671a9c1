/* libnvrtc of the emulator: compiles device code with g++ into a library, its "cubin". Headers come from the folder of
 * this library first, so its intrinsics.cuh stands in for that of kernels/cuda/. */
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))
extern char **environ;

enum { OK = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6, NO_NAME = 10 };

struct program {
    std::string source, name, log, image;
    std::vector<std::pair<std::string, std::string>> headers;
    std::vector<std::string> names;
    std::map<std::string, std::string> lowered;
    bool compiled = false;
};
typedef program *nvrtcProgram;

EXPORT int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, OK; }
EXPORT const char *nvrtcGetErrorString(int code)
{
    return code == OK ? "NVRTC_SUCCESS" : code == COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_INVALID_INPUT";
}
EXPORT int nvrtcGetNumSupportedArchs(int *n) { return *n = 3, OK; }
EXPORT int nvrtcGetSupportedArchs(int *archs) { return archs[0] = 80, archs[1] = 90, archs[2] = 100, OK; }

EXPORT int nvrtcCreateProgram(nvrtcProgram *made, const char *source, const char *name, int n,
                              const char *const *headers, const char *const *names)
{
    *made = new program;
    (*made)->source = source;
    (*made)->name = name ? name : "default_program";
    for (int i = 0; i < n; i++)
        (*made)->headers.push_back({names[i], headers[i]});
    return OK;
}
EXPORT int nvrtcDestroyProgram(nvrtcProgram *p) { return delete *p, *p = nullptr, OK; }
EXPORT int nvrtcAddNameExpression(nvrtcProgram p, const char *name)
{
    if (p->compiled)
        return 8;
    return p->names.push_back(name), OK;
}
EXPORT int nvrtcGetLoweredName(nvrtcProgram p, const char *name, const char **lowered)
{
    auto found = p->lowered.find(name);
    if (found == p->lowered.end())
        return NO_NAME;
    return *lowered = found->second.c_str(), OK;
}

static std::string here()
{
    Dl_info info;
    dladdr(reinterpret_cast<void *>(nvrtcVersion), &info);
    std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}

static bool is_word(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/* The index after the parenthesis that closes the one at or after `at`. */
static size_t after_parentheses(const std::string &text, size_t at)
{
    size_t depth = 0, i = text.find('(', at);
    do {
        depth += text[i] == '(';
        depth -= text[i] == ')';
        i++;
    } while (depth && i < text.size());
    return i;
}

/* `__shared__ alignas(n) T name`: g++ wants the alignment first. */
static std::string with_alignment_first(std::string text)
{
    const std::string start = "__shared__ alignas";
    for (size_t at = 0; (at = text.find(start, at)) != std::string::npos;) {
        size_t end = after_parentheses(text, at);
        text.replace(at, end - at, text.substr(at + 11, end - at - 11) + " __shared__");
        at = end;
    }
    return text;
}

/* `extern __shared__ [alignment] T name[];` becomes a pointer to the launch's shared memory. */
static std::string with_dynamic_shared(std::string text)
{
    const std::string start = "extern __shared__";
    for (size_t at = 0; (at = text.find(start, at)) != std::string::npos;) {
        size_t end = text.find(';', at), open = text.rfind('[', end);
        if (end == std::string::npos || open == std::string::npos || open < at)
            break;
        size_t name_end = open;
        while (name_end > at && isspace(static_cast<unsigned char>(text[name_end - 1])))
            name_end--;
        size_t name = name_end;
        while (name > at && is_word(text[name - 1]))
            name--;
        std::string type = text.substr(at + start.size(), name - at - start.size());
        for (const char *word : {"__align__", "alignas"}) {
            size_t found = type.find(word);
            if (found != std::string::npos) {
                type.erase(found, after_parentheses(type, found) - found);
            }
        }
        std::string variable = text.substr(name, name_end - name);
        std::string now = type + " *const " + variable + " = (" + type + " *)emu_host_table->shared()";
        text.replace(at, end - at, now);
        at += now.size();
    }
    return with_alignment_first(text);
}

/* The names of functions that are `extern "C" __global__`: found without a name expression. */
static std::vector<std::string> plain_kernels(const std::string &text)
{
    std::vector<std::string> found;
    for (size_t at = 0; (at = text.find("__global__", at)) != std::string::npos; at += 10) {
        size_t line = text.rfind(';', at), brace = text.rfind('}', at);
        line = line == std::string::npos ? 0 : line;
        brace = brace == std::string::npos ? 0 : brace;
        std::string before = text.substr(std::max(line, brace), at - std::max(line, brace));
        size_t open = text.find('(', at);
        while (open != std::string::npos && text.compare(open - 17, 17, "__launch_bounds__") == 0)
            open = text.find('(', text.find(')', open));
        if (open == std::string::npos || before.find("template") != std::string::npos)
            continue;
        size_t end = open;
        while (end > at && isspace(static_cast<unsigned char>(text[end - 1])))
            end--;
        size_t start = end;
        while (start > at && is_word(text[start - 1]))
            start--;
        found.push_back(text.substr(start, end - start));
    }
    return found;
}

static void write_file(const std::string &path, const std::string &text) { std::ofstream(path) << text; }
static std::string read_file(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
}

static int run(const std::vector<std::string> &command, const std::string &log)
{
    std::vector<char *> args;
    for (auto &c : command)
        args.push_back(const_cast<char *>(c.c_str()));
    args.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t pid;
    int code = posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), environ), status = 0;
    posix_spawn_file_actions_destroy(&actions);
    if (code)
        return code;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

EXPORT int nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options)
{
    p->compiled = true;
    std::string folder = here();
    char work[] = "/tmp/emulated-XXXXXX";
    if (!mkdtemp(work))
        return 1;
    std::string dir = work;
    for (auto &h : p->headers) {
        if (h.first == "intrinsics.cuh")
            continue;
        for (size_t slash = h.first.find('/'); slash != std::string::npos; slash = h.first.find('/', slash + 1))
            run({"mkdir", "-p", dir + "/" + h.first.substr(0, slash)}, "/dev/null");
        write_file(dir + "/" + h.first, with_dynamic_shared(h.second));
    }
    std::vector<std::string> command = {"g++", "-x", "c++", "-shared"};
    std::ifstream flags(folder + "/flags"); /* those with which prelude.h was compiled */
    for (std::string flag; std::getline(flags, flag);)
        command.push_back(flag);
    command.insert(command.end(), {"-include", folder + "/prelude.h", "-I", folder, "-I", dir});
    int arch = 900;
    for (int i = 0; i < n; i++) {
        std::string o = options[i];
        size_t equals = o.find('=');
        std::string value = equals == std::string::npos ? "" : o.substr(equals + 1);
        if (!o.compare(0, 19, "--gpu-architecture=") || !o.compare(0, 6, "-arch="))
            arch = atoi(value.c_str() + value.find('_') + 1) * 10;
        else if (!o.compare(0, 15, "--define-macro="))
            command.push_back("-D" + value);
        else if (!o.compare(0, 2, "-D"))
            command.push_back(o == "-D" ? o + options[++i] : o);
        else if (!o.compare(0, 15, "--include-path="))
            command.push_back("-I" + value);
        else if (o[0] != '-') {
            p->log = "unrecognized option " + o;
            return INVALID_OPTION;
        }
    }
    command.push_back("-D__CUDA_ARCH__=" + std::to_string(arch));
    std::string text = with_dynamic_shared(p->source), file = dir + "/source.cu";
    std::vector<std::string> names = p->names.empty() ? plain_kernels(text) : p->names;
    std::string tail = "\nEMU_EXPORT const emu_kernel emu_kernels[] = {\n";
    for (size_t i = 0; i < names.size(); i++) {
        bool plain = true;
        for (char c : names[i])
            plain &= is_word(c);
        std::string lowered = plain ? names[i] : "instance_" + std::to_string(i);
        p->lowered[names[i]] = lowered;
        tail += "    EMU_KERNEL(\"" + lowered + "\", " + names[i] + "),\n";
    }
    write_file(file, "#line 1 \"" + p->name + "\"\n" + text + tail + "    {nullptr, nullptr, 0, nullptr}};\n");
    command.insert(command.end(), {file, "-o", dir + "/image.so"});
    int code = run(command, dir + "/log");
    p->log = read_file(dir + "/log");
    if (!code)
        p->image = read_file(dir + "/image.so");
    run({"rm", "-rf", dir}, "/dev/null");
    return code ? COMPILATION : OK;
}

EXPORT int nvrtcGetProgramLogSize(nvrtcProgram p, size_t *n) { return *n = p->log.size() + 1, OK; }
EXPORT int nvrtcGetProgramLog(nvrtcProgram p, char *log) { return memcpy(log, p->log.c_str(), p->log.size() + 1), OK; }
EXPORT int nvrtcGetCUBINSize(nvrtcProgram p, size_t *n)
{
    return *n = p->image.size(), p->image.empty() ? INVALID_PROGRAM : OK;
}
EXPORT int nvrtcGetCUBIN(nvrtcProgram p, char *to) { return memcpy(to, p->image.data(), p->image.size()), OK; }
EXPORT int nvrtcGetPTXSize(nvrtcProgram p, size_t *n) { return nvrtcGetCUBINSize(p, n); }
EXPORT int nvrtcGetPTX(nvrtcProgram p, char *to) { return nvrtcGetCUBIN(p, to); }
