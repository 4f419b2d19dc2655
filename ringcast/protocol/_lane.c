/* Send and receive predicted messages through rings in shared memory: `ringcast/protocol/lane.py`, compiled.
 *
 * Each function does what the one of the same name in lane.py does, with the rings of `transports/memory/ring.py`, the
 * words of `transports/memory/segment.py`, and the header of `wire/header.py`; tests/protocol/test_lane.py holds all of
 * them to the same bytes and words. What is not understood stays where it is, and the function returns None or False.
 * Words of shared memory are read once, by atomic loads: another process may write anything there at any time.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING ((uint64_t)4 << 20)
#define MASK (RING - 1)
#define SKIP UINT64_MAX
#define ONE_FRAME ((uint64_t)1 << 40)
#define AFRESH ((uint64_t)5 << 18)
#define HEADER 64
#define FEWEST 64 /* looks before a wait, each of which lets others run … */
#define MOST 512  /* … and most, where waits were short lately */
#define SHORT 500000 /* nanoseconds of such a wait */
enum { AWAKE, AT_FUTEX, AT_PIPE };

typedef _Atomic uint64_t Word;
typedef _Atomic uint32_t Half;

typedef struct {
    Word *tail, *head, *left, *wanting; /* of this rank's ring in the peer's segment */
    Half *state, *bell;
    unsigned char *ring;
    int pipe;
} Link;

typedef struct {
    PyObject_HEAD
    uint64_t rank, size, nonce, eager, each, most_owed; /* `eager`: the first four bytes of a header */
    uint64_t *sent, *seen, *posted, *matched, *spent, *held, *owed, *payload;
    Word *injected, *handled; /* messages of this process to itself: put in, taken out */
    Word *tails, *heads, *wanting;
    Half *state, *bell;
    unsigned char *rings;
    Link *links;
    uint32_t rung;
    int looks;
    Py_buffer *buffers;
    Py_ssize_t count, room;
} Lane;

/* Memory of Python objects, kept until `close`. */

static void *keep(Lane *self, PyObject *object, Py_ssize_t least)
{
    if (self->count == self->room) {
        Py_ssize_t room = self->room ? 2 * self->room : 64;
        Py_buffer *more = PyMem_Realloc(self->buffers, room * sizeof(Py_buffer));
        if (!more)
            return PyErr_NoMemory();
        self->buffers = more, self->room = room;
    }
    Py_buffer *buffer = &self->buffers[self->count];
    if (PyObject_GetBuffer(object, buffer, PyBUF_WRITABLE) < 0)
        return NULL;
    self->count++;
    if (buffer->len < least || (uintptr_t)buffer->buf % 4) {
        PyErr_SetString(PyExc_ValueError, "memory that is too small, or not aligned");
        return NULL;
    }
    return buffer->buf;
}

static void forget(Lane *self)
{
    while (self->count)
        PyBuffer_Release(&self->buffers[--self->count]);
    if (self->links)
        memset(self->links, 0, self->size * sizeof(Link));
    self->rings = NULL;
}

static PyObject *lane_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    unsigned long long rank, size, nonce, eager, each, most_owed;
    PyObject *words[8];
    static char *names[] = {"rank", "size", "nonce", "eager", "each", "most_owed", "sent", "seen",
                            "posted", "matched", "spent", "held", "owed", "payload", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, named, "KKKKKKOOOOOOOO", names, &rank, &size, &nonce, &eager, &each,
                                     &most_owed, &words[0], &words[1], &words[2], &words[3], &words[4], &words[5],
                                     &words[6], &words[7]))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Lane *self = (Lane *)alloc(type, 0);
    if (!self)
        return NULL;
    self->rank = self->rung = rank, self->size = size, self->nonce = nonce, self->eager = eager;
    self->each = each, self->most_owed = most_owed, self->looks = FEWEST;
    self->links = PyMem_Calloc(size, sizeof(Link));
    uint64_t **places[] = {&self->sent, &self->seen, &self->posted, &self->matched,
                           &self->spent, &self->held, &self->owed, &self->payload};
    for (int i = 0; i < 8; i++)
        if (!self->links || !(*places[i] = keep(self, words[i], i < 7 ? 8 * (Py_ssize_t)size : 8))) {
            Py_DECREF(self);
            return self->links ? NULL : PyErr_NoMemory();
        }
    return (PyObject *)self;
}

static void lane_dealloc(Lane *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    forget(self);
    PyMem_Free(self->buffers);
    PyMem_Free(self->links);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *lane_map(Lane *self, PyObject *args)
{
    PyObject *tails, *heads, *wanting, *rings, *state, *bell, *injected, *handled;
    if (!PyArg_ParseTuple(args, "OOOOOOOO", &tails, &heads, &wanting, &rings, &state, &bell, &injected, &handled))
        return NULL;
    Py_ssize_t words = 8 * (Py_ssize_t)self->size;
    unsigned char *place;
    if (!(self->tails = keep(self, tails, words)) || !(self->heads = keep(self, heads, words)) ||
        !(self->wanting = keep(self, wanting, words)) || !(self->state = keep(self, state, 4)) ||
        !(self->bell = keep(self, bell, 4)) || !(self->injected = keep(self, injected, 8)) ||
        !(self->handled = keep(self, handled, 8)) ||
        !(place = keep(self, rings, (Py_ssize_t)(self->size * RING))))
        return NULL;
    self->rings = place;
    Py_RETURN_NONE;
}

static PyObject *lane_link(Lane *self, PyObject *args)
{
    unsigned long long peer;
    PyObject *tail, *head, *ring, *left, *state, *bell;
    int pipe;
    if (!PyArg_ParseTuple(args, "KOOOOOOi", &peer, &tail, &head, &ring, &left, &state, &bell, &pipe))
        return NULL;
    if (peer >= self->size)
        return PyErr_Format(PyExc_ValueError, "no rank %llu", peer);
    Link link = {.pipe = pipe};
    if (!(link.tail = keep(self, tail, 8)) || !(link.head = keep(self, head, 8)) ||
        !(link.left = keep(self, left, 8)) || !(link.state = keep(self, state, 4)) ||
        !(link.bell = keep(self, bell, 4)) || !(link.ring = keep(self, ring, RING)))
        return NULL;
    self->links[peer] = link;
    Py_RETURN_NONE;
}

static PyObject *lane_close(Lane *self, PyObject *Py_UNUSED(ignored))
{
    forget(self);
    Py_RETURN_NONE;
}

/* Waking, and waiting. */

static void wake(Lane *self, const Link *link)
{
    uint32_t state = atomic_load(link->state);
    if (state == AT_FUTEX) {
        self->rung += (uint32_t)self->size;
        atomic_store(link->bell, 0x80000000u | self->rung); /* numbers that no other rank, and no Python, rings with */
        syscall(SYS_futex, link->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    } else if (state == AT_PIPE) {
        ssize_t ignored = write(link->pipe, "", 1); /* full: the reader wakes anyway */
        (void)ignored;
    }
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int news(Lane *self, uint64_t peer)
{
    return atomic_load_explicit(&self->tails[peer], memory_order_acquire) !=
           atomic_load_explicit(&self->heads[peer], memory_order_relaxed);
}

static int disturbed(Lane *self)
{
    return atomic_load(self->injected) != atomic_load(self->handled);
}

static void rest(Lane *self, uint64_t peer, int64_t end) /* Wait for news of `peer`, or of this process, until `end`. */
{
    for (;;) {
        for (int i = 0; i < self->looks; i++) {
            if (news(self, peer) || disturbed(self))
                return;
            sched_yield();
        }
        int64_t began = now();
        if (began >= end)
            break;
        atomic_store(self->state, AT_FUTEX);
        atomic_thread_fence(memory_order_seq_cst); /* a writer looks at the state after it has written */
        uint32_t bell = atomic_load(self->bell);
        if (!news(self, peer) && !disturbed(self)) {
            struct timespec left = {(end - began) / 1000000000, (end - began) % 1000000000};
            syscall(SYS_futex, self->bell, FUTEX_WAIT, bell, &left, NULL, 0);
        }
        atomic_store(self->state, AWAKE);
        if (now() - began < SHORT && self->looks < MOST)
            self->looks *= 2;
    }
    if (self->looks > FEWEST)
        self->looks /= 2;
}

/* Messages. */

static uint64_t halves(uint64_t low, uint64_t high)
{
    return (low & UINT32_MAX) | high << 32;
}

static void store_word(unsigned char *place, uint64_t word)
{
    atomic_store_explicit((Word *)place, word, memory_order_relaxed);
}

static int numbers(PyObject *const *args, uint64_t *found, int count)
{
    for (int i = 0; i < count; i++) {
        found[i] = PyLong_AsUnsignedLongLong(args[i]);
        if (found[i] == UINT64_MAX && PyErr_Occurred())
            return 0;
    }
    return 1;
}

/* put(peer, context, number, ordinal, fingerprint, payload) */
static PyObject *lane_put(Lane *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t n[5];
    Py_buffer payload = {.len = 0};
    if (count != 6 || !numbers(args, n, 5))
        return count == 6 ? NULL : PyErr_Format(PyExc_TypeError, "6 arguments, not %zd", count);
    uint64_t peer = n[0];
    if (peer >= self->size || !self->links[peer].ring || atomic_load(self->links[peer].left))
        Py_RETURN_FALSE;
    int empty = args[5] == Py_None;
    if (!empty && PyObject_GetBuffer(args[5], &payload, PyBUF_SIMPLE) < 0)
        return NULL;
    const Link *link = &self->links[peer];
    uint64_t length = payload.len, size = HEADER + length, room = 8 + ((size + 7) & ~(uint64_t)7);
    uint64_t head = atomic_load_explicit(link->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(link->tail, memory_order_relaxed);
    uint64_t at = tail & MASK, spent = self->spent[peer] + length + HEADER;
    int fits = size <= RING / 2 - 8 && spent <= self->each && !(tail & 7) && tail - head <= RING;
    if (fits && (at + room > RING || (tail == head && at >= AFRESH && at >= room))) {
        if ((fits = tail + RING - at + room - head <= RING)) {
            store_word(link->ring + at, SKIP);
            tail += RING - at, at = 0;
        }
    } else if (fits)
        fits = tail + room - head <= RING;
    if (fits) {
        unsigned char *place = link->ring + at;
        uint64_t words[] = {
            self->eager | self->rank << 32, self->nonce, n[1], halves(n[2], n[3]),
            halves(self->sent[peer], length || empty ? 0 : 1), length, self->owed[peer], n[4],
        };
        store_word(place, ONE_FRAME | size);
        memcpy(place + 8, words, HEADER);
        if (length)
            memcpy(place + 8 + HEADER, payload.buf, length);
        atomic_store_explicit(link->tail, tail + room, memory_order_release);
        self->spent[peer] = spent;
        self->owed[peer] = 0;
        self->sent[peer]++;
        self->posted[peer]++;
        *self->payload += length;
        atomic_thread_fence(memory_order_seq_cst); /* a reader looks once more after it has said that it waits */
        wake(self, link);
    }
    if (!empty)
        PyBuffer_Release(&payload);
    return PyBool_FromLong(fits);
}

/* take(peer, context, number, ordinal, fingerprint, total, patience): `total` -1 for any, `patience` in seconds */
static PyObject *lane_take(Lane *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t n[5];
    if (count != 7 || !numbers(args, n, 5))
        return count == 7 ? NULL : PyErr_Format(PyExc_TypeError, "7 arguments, not %zd", count);
    long long total = PyLong_AsLongLong(args[5]);
    uint64_t peer = n[0];
    if (total == -1 && PyErr_Occurred())
        return NULL;
    if (peer >= self->size || !self->rings)
        Py_RETURN_NONE;
    if (!news(self, peer) && !disturbed(self)) {
        double patience = PyFloat_AsDouble(args[6]);
        if (patience < 0)
            Py_RETURN_NONE;
        int64_t end = now() + (int64_t)(patience * 1e9);
        Py_BEGIN_ALLOW_THREADS
        rest(self, peer, end);
        Py_END_ALLOW_THREADS
        if (!self->rings) /* another thread has closed this */
            Py_RETURN_NONE;
    }
    uint64_t tail = atomic_load_explicit(&self->tails[peer], memory_order_acquire);
    uint64_t head = atomic_load_explicit(&self->heads[peer], memory_order_relaxed), at = head & MASK;
    if (tail == head || head & 7 || disturbed(self))
        Py_RETURN_NONE;
    const unsigned char *ring = self->rings + peer * RING;
    uint64_t word = atomic_load_explicit((Word *)(ring + at), memory_order_relaxed);
    if (word == SKIP) {
        head += RING - at, at = 0;
        word = atomic_load_explicit((Word *)ring, memory_order_relaxed);
    }
    uint64_t size = word - ONE_FRAME, room = 8 + ((size + 7) & ~(uint64_t)7);
    if (size < HEADER || size > RING / 2 || at + room > RING || tail - (head + room) > RING)
        Py_RETURN_NONE;
    uint64_t words[8], length = size - HEADER, spent = self->spent[peer];
    memcpy(words, ring + at + 8, HEADER);
    uint64_t owed = self->owed[peer] + size, joined = words[4] >> 32;
    if (words[0] != (self->eager | peer << 32) || words[1] != self->nonce || words[2] != n[1] ||
        words[3] != halves(n[2], n[3]) || (words[4] & UINT32_MAX) != (self->seen[peer] & UINT32_MAX) ||
        joined > (length == 0) || words[5] != length || (total >= 0 && length != (uint64_t)total) || words[7] != n[4] ||
        owed >= self->most_owed || self->held[peer] + size > self->each + HEADER)
        Py_RETURN_NONE;
    PyObject *data = PyBytes_FromStringAndSize((const char *)ring + at + 8 + HEADER, length);
    if (!data)
        return NULL;
    atomic_store_explicit(&self->heads[peer], head + room, memory_order_release);
    self->owed[peer] = owed;
    self->spent[peer] = spent > words[6] ? spent - words[6] : 0;
    self->seen[peer]++;
    self->matched[peer]++;
    atomic_thread_fence(memory_order_seq_cst); /* a writer looks for room once more after it has said that it waits */
    if (atomic_load(&self->wanting[peer]) && self->links[peer].ring) {
        atomic_store(&self->wanting[peer], 0);
        wake(self, &self->links[peer]);
    }
    return data;
}

static PyMethodDef methods[] = {
    {"map", (PyCFunction)lane_map, METH_VARARGS, "Use the tables and rings of this rank's segment."},
    {"link", (PyCFunction)lane_link, METH_VARARGS, "Use the words and the ring of this rank in a peer's segment."},
    {"put", (PyCFunction)(void (*)(void))lane_put, METH_FASTCALL, "Send a message; False if it cannot go now."},
    {"take", (PyCFunction)(void (*)(void))lane_take, METH_FASTCALL, "Receive a message; None if it has not come."},
    {"close", (PyCFunction)lane_close, METH_NOARGS, "Release all memory; idempotent."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, lane_new},
    {Py_tp_dealloc, lane_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "The compiled `ringcast.protocol.lane.Lane`."},
    {0, NULL},
};

static PyType_Spec spec = {"ringcast.protocol._lane.Lane", sizeof(Lane), 0, Py_TPFLAGS_DEFAULT, slots};

static int fill(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "Lane", type) < 0 ||
                 PyModule_AddIntConstant(module, "SOURCE", SOURCE) < 0; /* this text's CRC, by hatch_build.py */
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_lane", "Predicted messages, compiled.", 0, NULL, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__lane(void)
{
    return PyModuleDef_Init(&definition);
}
