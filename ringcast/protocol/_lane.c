/* Send and receive predicted messages through rings in shared memory: `ringcast/protocol/lane.py`, compiled.
 *
 * Each function does what the one of the same name in lane.py does, with the rings of `transports/memory/ring.py`, the
 * words of `transports/memory/segment.py`, and the header of `wire/header.py`; tests/protocol/test_lane.py holds all of
 * them to the same bytes and words. What is not understood stays where it is, and the function returns None or False.
 * Words of shared memory are read once, by atomic loads: another process may write anything there at any time.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RING ((uint64_t)4 << 20)
#define MASK (RING - 1)
#define SKIP UINT64_MAX
#define FRAMES 40 /* the first bit of a message's number of frames … */
#define LENT ((uint64_t)1 << 39) /* … and the mark of lent memory */
#define RETURNS 512
#define AFRESH ((uint64_t)5 << 18)
#define HEADER 64
#define SIZED 4 /* bytes before the frames that are joined in a payload, for each of them */
#define OFFERS 64 /* offers of a program that are not confirmed yet */
#define PIECES 64 /* pieces of memory of a message that is lent */
#define PARTS 2   /* frames of an offer between two ranks: a record and its data … */
#define RECORD 1024 /* … and bytes of the record, at most */
#define FEWEST 64 /* looks before a wait, each of which lets others run … */
#define MOST 512  /* … and most, where waits were short lately */
#define SHORT 500000 /* nanoseconds of such a wait */
/* Nanoseconds of a look after which another program has this processor, for all of its slice: ranks that share a
 * processor take turns in less. The next waits then have no looks, as the kernel interrupts that program for a rank that
 * sleeps. */
#define TAKEN 2000000
#define CROWDED 256
enum { AWAKE, AT_FUTEX, AT_PIPE };
enum kind { NOTHING, WHOLE, LOAN }; /* of a message that `lane_look` has found */

typedef _Atomic uint64_t Word;
typedef _Atomic uint32_t Half;

typedef struct {
    Word *tail, *head, *left, *returns; /* of this rank's ring in the peer's segment, and of the peer */
    Half *state, *bell;
    unsigned char *ring;
    int pipe, process; /* a descriptor by which the end of the peer's process shows; -1: there is none */
    pid_t pid;
} Link;

typedef struct {
    uint64_t peer, ordinal, transfer, total, room;
    Py_ssize_t move;
} Offer;

typedef struct {
    uint64_t head;     /* where it was found, in its ring */
    uint64_t sizes[3]; /* of the frames */
    int count, lent;
    const unsigned char *payload; /* behind the header, and in an eager message behind the sizes of joined frames */
    uint64_t header[8], next;     /* `next`: the head behind the message */
    uint64_t length, cost;        /* of an eager message: bytes of its frames, and of credit */
} Message;

typedef struct {
    PyObject_HEAD
    uint64_t rank, size, nonce;
    uint64_t eager, offer, done; /* the first four bytes of such a header */
    uint64_t each, most_owed, most_asked, request; /* `request`: bytes that a request counts for, beside its payload */
    uint64_t *sent, *seen, *posted, *matched, *spent, *held, *owed, *asked, *transfers, *payload;
    Word *injected, *handled; /* messages of this process to itself: put in, taken out */
    Word *tails, *heads, *wanting, *returns;
    Half *state, *bell;
    unsigned char *rings;
    Link *links;
    Offer offers[OFFERS];
    int offered, handed; /* `handed`: whether offers were handed over since a program has begun */
    Message found; /* by the last `lane_look`, which has returned it … */
    uint64_t source, loan[2 + 2 * PARTS]; /* … from this rank, and with this loan */
    enum kind kind;
    uint32_t rung;
    int looks, crowded; /* looks before the next wait; waits that are to come without any */
    atomic_int waits, closed; /* whether a thread is in `rest`; it leaves when this is closed by another one */
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
    unsigned long long rank, size, nonce, marks[3], limits[4];
    PyObject *words[10];
    static char *names[] = {"rank", "size", "nonce", "marks", "limits", "sent", "seen", "posted",
                            "matched", "spent", "held", "owed", "asked", "transfers", "payload", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, named, "KKK(KKK)(KKKK)OOOOOOOOOO", names, &rank, &size, &nonce, &marks[0],
                                     &marks[1], &marks[2], &limits[0], &limits[1], &limits[2], &limits[3], &words[0],
                                     &words[1], &words[2], &words[3], &words[4], &words[5], &words[6], &words[7],
                                     &words[8], &words[9]))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Lane *self = (Lane *)alloc(type, 0);
    if (!self)
        return NULL;
    self->rank = self->rung = rank, self->size = size, self->nonce = nonce, self->looks = FEWEST;
    self->eager = marks[0], self->offer = marks[1], self->done = marks[2];
    self->each = limits[0], self->most_owed = limits[1], self->most_asked = limits[2], self->request = limits[3];
    self->links = PyMem_Calloc(size, sizeof(Link));
    uint64_t **places[] = {&self->sent, &self->seen, &self->posted, &self->matched,   &self->spent,
                           &self->held, &self->owed, &self->asked,  &self->transfers, &self->payload};
    for (int i = 0; i < 10; i++)
        if (!self->links || !(*places[i] = keep(self, words[i], 8 * (Py_ssize_t)(i < 8 ? size : i < 9 ? 1 : size + 2)))) {
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
    PyObject *tails, *heads, *wanting, *returns, *rings, *state, *bell, *injected, *handled;
    if (!PyArg_ParseTuple(args, "OOOOOOOOO", &tails, &heads, &wanting, &returns, &rings, &state, &bell, &injected,
                          &handled))
        return NULL;
    Py_ssize_t words = 8 * (Py_ssize_t)self->size;
    unsigned char *place;
    if (!(self->tails = keep(self, tails, words)) || !(self->heads = keep(self, heads, words)) ||
        !(self->wanting = keep(self, wanting, words)) || !(self->returns = keep(self, returns, 8 * RETURNS)) ||
        !(self->state = keep(self, state, 4)) || !(self->bell = keep(self, bell, 4)) || !(self->injected = keep(self, injected, 8)) ||
        !(self->handled = keep(self, handled, 8)) ||
        !(place = keep(self, rings, (Py_ssize_t)(self->size * RING))))
        return NULL;
    self->rings = place;
    Py_RETURN_NONE;
}

static PyObject *lane_link(Lane *self, PyObject *args)
{
    unsigned long long peer;
    PyObject *tail, *head, *ring, *left, *returns, *state, *bell;
    int pipe, process, pid;
    if (!PyArg_ParseTuple(args, "KOOOOOOOiii", &peer, &tail, &head, &ring, &left, &returns, &state, &bell, &pipe,
                          &process, &pid))
        return NULL;
    if (peer >= self->size)
        return PyErr_Format(PyExc_ValueError, "no rank %llu", peer);
    Link link = {.pipe = pipe, .process = process, .pid = pid};
    if (!(link.tail = keep(self, tail, 8)) || !(link.head = keep(self, head, 8)) ||
        !(link.left = keep(self, left, 8)) || !(link.returns = keep(self, returns, 8 * RETURNS)) ||
        !(link.state = keep(self, state, 4)) || !(link.bell = keep(self, bell, 4)) ||
        !(link.ring = keep(self, ring, RING)))
        return NULL;
    self->links[peer] = link;
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
    return atomic_load(self->injected) != atomic_load(self->handled) || atomic_load(&self->closed);
}

static void rest(Lane *self, uint64_t peer, int64_t end) /* Wait for news of `peer`, or of this process, until `end`. */
{
    for (;;) {
        int64_t began = now();
        for (int i = self->crowded ? self->looks : 0; i < self->looks; i++) {
            if (news(self, peer) || disturbed(self))
                return;
            sched_yield();
            int64_t before = began;
            began = now();
            if (began - before >= TAKEN)
                self->crowded = CROWDED;
        }
        if (self->crowded)
            self->crowded--;
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

static PyObject *lane_close(Lane *self, PyObject *Py_UNUSED(ignored))
{
    atomic_store(&self->closed, 1);
    if (atomic_load(&self->waits)) {
        Link own = {.state = self->state, .bell = self->bell};
        wake(self, &own);
        while (atomic_load(&self->waits))
            sched_yield();
    }
    forget(self);
    Py_RETURN_NONE;
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

typedef struct {
    uint64_t peer, context, number, ordinal, fingerprint;
    uint64_t joined; /* frames that are joined in the payload; 0: it is one, or none */
} Name;

typedef struct {
    uint64_t at, size;
} Piece;

typedef struct {
    unsigned char *data, *own; /* places before `split` are of the data, the others of the program's own memory */
    uint64_t split;
} Memory;

static unsigned char *place_in(const Memory *memory, uint64_t at)
{
    return at < memory->split ? memory->data + at : memory->own + (at - memory->split);
}

/* Return the place of a message in this rank's ring at a peer, and put the tail behind it into `tail`; NULL if there is
 * no room now. */
static unsigned char *reserve(const Link *link, uint64_t size, uint64_t *tail)
{
    uint64_t room = 8 + ((size + 7) & ~(uint64_t)7);
    uint64_t head = atomic_load_explicit(link->head, memory_order_acquire);
    *tail = atomic_load_explicit(link->tail, memory_order_relaxed);
    uint64_t at = *tail & MASK;
    if (size > RING / 2 - 8 || *tail & 7 || *tail - head > RING)
        return NULL;
    if (at + room > RING || (*tail == head && at >= AFRESH && at >= room)) {
        if (*tail + RING - at + room - head > RING)
            return NULL;
        store_word(link->ring + at, SKIP);
        *tail += RING - at, at = 0;
    } else if (*tail + room - head > RING)
        return NULL;
    *tail += room;
    return link->ring + at;
}

static unsigned char *add_words(unsigned char *place, const uint64_t *words, size_t count)
{
    memcpy(place, words, 8 * count);
    return place + 8 * count;
}

static unsigned char *add_header(Lane *self, unsigned char *place, uint64_t mark, const Name *name, uint64_t transfer,
                                 uint64_t length, uint64_t word)
{
    uint64_t words[] = {
        mark | self->rank << 32,
        self->nonce,
        name->context,
        halves(name->number, name->ordinal),
        halves(self->sent[name->peer], transfer),
        length,
        word,
        name->fingerprint,
    };
    return add_words(place, words, 8);
}

static void publish(Lane *self, uint64_t peer, uint64_t tail)
{
    const Link *link = &self->links[peer];
    atomic_store_explicit(link->tail, tail, memory_order_release);
    self->sent[peer]++;
    atomic_thread_fence(memory_order_seq_cst); /* a reader looks once more after it has said that it waits */
    wake(self, link);
}

static const Link *link_to(Lane *self, uint64_t peer)
{
    return peer < self->size && self->links[peer].ring && !atomic_load(self->links[peer].left) ? &self->links[peer] : NULL;
}

static int send_message(Lane *self, const Name *name, const Memory *memory, const Piece *pieces, Py_ssize_t count)
{
    uint64_t peer = name->peer, joined = name->joined, length = 0, tail;
    const Link *link = link_to(self, peer);
    for (Py_ssize_t i = 0; i < count; i++)
        length += pieces[i].size;
    uint64_t frames = length - joined * SIZED, spent = self->spent[peer] + HEADER + frames + joined * self->request;
    if (!link || length > RING || joined > length / SIZED || spent > self->each)
        return 0;
    unsigned char *place = reserve(link, HEADER + length, &tail);
    if (!place)
        return 0;
    store_word(place, (uint64_t)1 << FRAMES | (HEADER + length));
    place = add_header(self, place + 8, self->eager, name, joined ? joined : !length && count, frames, self->owed[peer]);
    for (Py_ssize_t i = 0; i < count; place += pieces[i++].size)
        memcpy(place, place_in(memory, pieces[i].at), pieces[i].size);
    self->spent[peer] = spent;
    self->owed[peer] = 0;
    self->posted[peer]++;
    self->payload[peer] += frames;
    self->payload[self->size] += frames;
    publish(self, peer, tail);
    return 1;
}

/* Offer a message, which lies in pieces of memory: `loans` are their addresses and sizes. */
static int send_loans(Lane *self, const Name *name, const uint64_t *loans, Py_ssize_t count, Py_ssize_t move)
{
    uint64_t peer = name->peer, tail, room = self->request + 8 * count, total = 0, index = 0, sizes[PIECES];
    const Link *link = link_to(self, peer);
    if (!link || self->offered == OFFERS || self->asked[peer] + room > self->most_asked)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        sizes[i] = loans[2 * i + 1];
        total += sizes[i], index += sizes[i] ? loans[2 * i] >> 4 : 0; /* as `_count_of` in transport.py */
    }
    uint64_t frames[] = {HEADER, 8 * count, total ? 16 * (count + 1) : 0}, all = total ? 3 : 2;
    uint64_t loan[] = {index % RETURNS, atomic_load(&self->returns[index % RETURNS])};
    uint64_t size = 8 * all + frames[0] + frames[1] + frames[2]; /* where nothing is to be read, nothing is lent */
    unsigned char *place = reserve(link, size, &tail);
    if (!place)
        return 0;
    uint64_t transfer = (*self->transfers + 1) & UINT32_MAX;
    *self->transfers = transfer = transfer ? transfer : 1;
    store_word(place, all << FRAMES | (total ? LENT : 0) | size);
    place = add_words(place + 8, frames, all);
    place = add_header(self, place, self->offer, name, transfer, total, self->owed[peer]);
    place = add_words(place, sizes, count);
    if (total)
        add_words(add_words(place, loan, 2), loans, 2 * count);
    self->offers[self->offered++] = (Offer){peer, name->ordinal, transfer, total, room, move};
    self->asked[peer] += room;
    self->owed[peer] = 0;
    self->posted[peer]++;
    publish(self, peer, tail);
    return 1;
}

static int send_offer(Lane *self, const Name *name, const Memory *memory, const Piece *pieces, Py_ssize_t count,
                      Py_ssize_t move)
{
    uint64_t loans[2 * PIECES];
    for (Py_ssize_t i = 0; i < count && i < PIECES; i++)
        loans[2 * i] = (uintptr_t)place_in(memory, pieces[i].at), loans[2 * i + 1] = pieces[i].size;
    return count <= PIECES && send_loans(self, name, loans, count, move);
}

static int parse(Message *message, const unsigned char *at, uint64_t size)
{
    uint64_t before = message->count == 1 ? 0 : 8 * message->count, all = before;
    message->sizes[0] = size;
    if (size < before)
        return 0;
    if (message->count > 1)
        memcpy(message->sizes, at, before);
    for (int i = 0; i < message->count; i++) {
        if (message->sizes[i] > size)
            return 0;
        all += message->sizes[i];
    }
    if (all != size || message->sizes[0] < HEADER || message->lent != (message->count == 3))
        return 0;
    memcpy(message->header, at + before, HEADER);
    message->payload = at + before + HEADER;
    return 1;
}

/* Look at the next message of a peer, and wait for it; 0 if none comes, if it is none of those that lanes send, or if
 * something else needs the engine. The message stays there until it is `consumed`. */
static int look(Lane *self, uint64_t peer, double patience, Message *message)
{
    if (peer >= self->size || !self->rings)
        return 0;
    if (!news(self, peer) && !disturbed(self)) {
        int64_t end = now() + (int64_t)(patience * 1e9);
        atomic_store(&self->waits, 1);
        Py_BEGIN_ALLOW_THREADS
        rest(self, peer, end);
        atomic_store(&self->waits, 0);
        Py_END_ALLOW_THREADS
        if (!self->rings) /* another thread has closed this */
            return 0;
    }
    uint64_t tail = atomic_load_explicit(&self->tails[peer], memory_order_acquire);
    uint64_t head = atomic_load_explicit(&self->heads[peer], memory_order_relaxed), at = head & MASK;
    if (tail == head || head & 7 || disturbed(self))
        return 0;
    message->head = head;
    const unsigned char *ring = self->rings + peer * RING;
    uint64_t word = atomic_load_explicit((Word *)(ring + at), memory_order_relaxed);
    if (word == SKIP) {
        head += RING - at, at = 0;
        word = atomic_load_explicit((Word *)ring, memory_order_relaxed);
    }
    uint64_t size = word & (LENT - 1), room = 8 + ((size + 7) & ~(uint64_t)7);
    message->lent = (word & LENT) != 0;
    message->count = word >> FRAMES <= 3 ? (int)(word >> FRAMES) : 0;
    message->next = head + room;
    if (!message->count || at + room > RING || tail - message->next > RING)
        return 0;
    return parse(message, ring + at + 8, size);
}

static void consumed(Lane *self, uint64_t peer, const Message *message)
{
    atomic_store_explicit(&self->heads[peer], message->next, memory_order_release);
    self->seen[peer]++;
    atomic_thread_fence(memory_order_seq_cst); /* a writer looks for room once more after it has said that it waits */
    if (atomic_load(&self->wanting[peer]) && self->links[peer].ring) {
        atomic_store(&self->wanting[peer], 0);
        wake(self, &self->links[peer]);
    }
}

static void matched(Lane *self, uint64_t peer, const Message *message)
{
    uint64_t credit = message->header[6], spent = self->spent[peer];
    self->spent[peer] = spent > credit ? spent - credit : 0;
    self->matched[peer]++;
    self->payload[self->size + 1] += message->header[5];
    consumed(self, peer, message);
}

/* Return whether a message has this header, but for its transfer and its last word. */
static int named(Lane *self, const Name *name, uint64_t mark, uint64_t length, const Message *message)
{
    const uint64_t *words = message->header;
    return words[0] == (mark | name->peer << 32) && words[1] == self->nonce && words[2] == name->context &&
           words[3] == halves(name->number, name->ordinal) &&
           (words[4] & UINT32_MAX) == (self->seen[name->peer] & UINT32_MAX) && words[5] == length &&
           words[7] == name->fingerprint;
}

/* Find the frames that are joined in the payload; 0 if there are none. */
static int divide(Message *message, uint64_t frames)
{
    uint32_t size;
    uint64_t rest = message->length;
    if (frames > rest / SIZED)
        return 0;
    rest -= frames * SIZED;
    message->length = rest;
    for (uint64_t i = 0; i < frames; i++, rest -= size) {
        memcpy(&size, message->payload + i * SIZED, SIZED);
        if (size > rest)
            return 0;
    }
    message->payload += frames * SIZED;
    return !rest;
}

/* Return whether the message is the predicted one, of `total` bytes or, if that is negative, of any in one frame. */
static int is_eager(Lane *self, const Name *name, int64_t total, Message *message)
{
    uint64_t peer = name->peer, frames = message->header[4] >> 32, joined = frames > 1 ? frames : 0;
    message->length = message->sizes[0] - HEADER;
    if (message->count != 1 || (joined && (total < 0 || !divide(message, joined))))
        return 0;
    message->cost = HEADER + message->length + joined * self->request;
    return (total < 0 || message->length == (uint64_t)total) &&
           named(self, name, self->eager, message->length, message) && (joined || frames <= (message->length == 0)) &&
           self->owed[peer] + message->cost < self->most_owed &&
           self->held[peer] + message->cost <= self->each + HEADER;
}

static void take_eager(Lane *self, uint64_t peer, const Message *message)
{
    self->owed[peer] += message->cost;
    matched(self, peer, message);
}

static int gone(const Link *link)
{
    struct pollfd process = {.fd = link->process, .events = POLLIN};
    return atomic_load(link->left) || (link->process >= 0 && poll(&process, 1, 0) != 0);
}

/* Put the pieces of `words`, pairs of address and size, into `found`; return how many bytes they are together. */
static uint64_t pieces_at(const uint64_t *words, Py_ssize_t count, uint64_t limit, struct iovec *found)
{
    uint64_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (words[2 * i + 1] > limit - total)
            return UINT64_MAX;
        total += words[2 * i + 1];
        found[i] = (struct iovec){(void *)(uintptr_t)words[2 * i], words[2 * i + 1]};
    }
    return total;
}

/* Return whether a loan, whose memory was just read, has not ended: a sender changes the count before the memory. */
static int is_lent(const Link *link, const uint64_t *loan)
{
    return !gone(link) && atomic_load(&link->returns[loan[0] % RETURNS]) == loan[1];
}

/* Copy `total` bytes that lie in the sender's memory into these pieces; 0 if they are not lent, or cannot be read. */
static int copied(const Link *link, const Message *message, const Memory *memory, const Piece *pieces, Py_ssize_t count,
                  uint64_t total)
{
    uint64_t words[2 + 2 * PIECES], mine[2 * PIECES], lent = message->sizes[2];
    struct iovec from[PIECES], into[PIECES];
    if (message->count != 3 || lent % 16 || lent < 32 || lent > sizeof words ||
        message->sizes[1] != 8 * (lent / 16 - 1) || count > PIECES)
        return 0;
    memcpy(words, message->payload + message->sizes[1], lent);
    for (Py_ssize_t i = 0; i < count; i++)
        mine[2 * i] = (uintptr_t)place_in(memory, pieces[i].at), mine[2 * i + 1] = pieces[i].size;
    return pieces_at(words + 2, lent / 16 - 1, total, from) == total && pieces_at(mine, count, total, into) == total &&
           process_vm_readv(link->pid, into, count, from, lent / 16 - 1, 0) == (ssize_t)total &&
           is_lent(link, words);
}

static int is_empty(const Message *message)
{
    uint64_t size;
    if (message->count != 2 || message->sizes[1] % 8)
        return 0;
    for (uint64_t i = 0; i < message->sizes[1]; i += 8) {
        memcpy(&size, message->payload + i, 8);
        if (size)
            return 0;
    }
    return 1;
}

/* Take a message that a peer offers, and that was copied; 0, and nothing has changed, if there is no room to say so. */
static int confirm(Lane *self, const Link *link, const Name *name, const Message *message)
{
    uint64_t after;
    unsigned char *place = reserve(link, HEADER, &after);
    if (!place)
        return 0;
    matched(self, name->peer, message);
    store_word(place, (uint64_t)1 << FRAMES | HEADER);
    add_header(self, place + 8, self->done, name, message->header[4] >> 32, 0, 0);
    publish(self, name->peer, after);
    return 1;
}

/* Copy a message that a peer offers into these pieces of memory, take it, and confirm that; 0, and nothing has changed
 * but that memory, if it is not the predicted one, or cannot be read. */
static int fetch(Lane *self, const Name *name, const Message *message, const Memory *memory, const Piece *pieces,
                 Py_ssize_t count, uint64_t total)
{
    const Link *link = link_to(self, name->peer);
    return link && message->header[4] >> 32 && named(self, name, self->offer, total, message) &&
           (total ? copied(link, message, memory, pieces, count, total) : is_empty(message)) &&
           confirm(self, link, name, message);
}

/* Take the message if it confirms an offer; return whether it does. */
static int confirms(Lane *self, const Name *name, const Message *message)
{
    for (int i = 0; i < self->offered; i++) {
        Offer *offer = &self->offers[i];
        Name its = *name;
        its.ordinal = offer->ordinal;
        if (offer->peer != name->peer || message->count != 1 || message->sizes[0] != HEADER ||
            message->header[4] >> 32 != offer->transfer || message->header[6] || !named(self, &its, self->done, 0, message))
            continue;
        self->payload[offer->peer] += offer->total;
        self->payload[self->size] += offer->total;
        self->asked[offer->peer] -= offer->room;
        *offer = self->offers[--self->offered];
        consumed(self, name->peer, message);
        return 1;
    }
    return 0;
}

/* Look at the next message of a peer that confirms no offer, as `look`. */
static int look_behind(Lane *self, const Name *name, double patience, Message *message)
{
    do
        if (!look(self, name->peer, patience, message))
            return 0;
    while (confirms(self, name, message));
    return 1;
}

/* Wait until all offers are confirmed; return whether they are. */
static int settle(Lane *self, const Name *name, double patience)
{
    Message message;
    while (self->offered) {
        Name its = *name;
        its.peer = self->offers[0].peer;
        if (!look(self, its.peer, patience, &message) || !confirms(self, &its, &message))
            return 0;
    }
    return 1;
}

/* put(peer, context, number, ordinal, fingerprint, payload, joined = 0) */
static PyObject *lane_put(Lane *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t n[5], joined = 0;
    Py_buffer payload = {.len = 0};
    if (count < 6 || count > 7)
        return PyErr_Format(PyExc_TypeError, "6 arguments or 7, not %zd", count);
    if (!numbers(args, n, 5) || !numbers(args + 6, &joined, count - 6))
        return NULL;
    Name name = {n[0], n[1], n[2], n[3], n[4], joined};
    if (args[5] == Py_None)
        return PyBool_FromLong(send_message(self, &name, NULL, NULL, 0));
    if (PyObject_GetBuffer(args[5], &payload, PyBUF_SIMPLE) < 0)
        return NULL;
    Piece whole = {0, payload.len};
    Memory memory = {.own = payload.buf};
    int sent = send_message(self, &name, &memory, &whole, 1);
    PyBuffer_Release(&payload);
    return PyBool_FromLong(sent);
}

/* take(peer, context, number, ordinal, fingerprint, total, patience): `total` -1 for any, `patience` in seconds */
static PyObject *lane_take(Lane *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t n[5];
    Message message;
    if (count != 7 || !numbers(args, n, 5))
        return count == 7 ? NULL : PyErr_Format(PyExc_TypeError, "7 arguments, not %zd", count);
    Name name = {n[0], n[1], n[2], n[3], n[4], 0};
    long long total = PyLong_AsLongLong(args[5]);
    double patience = PyFloat_AsDouble(args[6]);
    if (PyErr_Occurred())
        return NULL;
    if (!look(self, name.peer, patience, &message) || !is_eager(self, &name, total, &message))
        Py_RETURN_NONE;
    PyObject *data = PyBytes_FromStringAndSize((const char *)message.payload, message.length);
    if (data)
        take_eager(self, name.peer, &message);
    return data;
}

/* offer(peer, context, number, ordinal, fingerprint, frames) */
static PyObject *lane_offer(Lane *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t n[5], loans[2 * PIECES];
    Py_buffer frame;
    if (count != 6 || !numbers(args, n, 5))
        return count == 6 ? NULL : PyErr_Format(PyExc_TypeError, "6 arguments, not %zd", count);
    Name name = {n[0], n[1], n[2], n[3], n[4], 0};
    Py_ssize_t frames = PySequence_Size(args[5]);
    for (Py_ssize_t i = 0; i < frames && i < PIECES; i++) {
        PyObject *object = PySequence_GetItem(args[5], i);
        int failed = !object || PyObject_GetBuffer(object, &frame, PyBUF_SIMPLE) < 0;
        Py_XDECREF(object);
        if (failed)
            return NULL;
        loans[2 * i] = (uintptr_t)frame.buf, loans[2 * i + 1] = frame.len;
        PyBuffer_Release(&frame); /* the caller keeps it */
    }
    if (frames < 0)
        return NULL;
    return PyBool_FromLong(!self->offered && frames <= PIECES && send_loans(self, &name, loans, frames, 0));
}

/* settle(context, number, fingerprint, patience) */
static PyObject *lane_settle(Lane *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t n[3];
    if (count != 4 || !numbers(args, n, 3))
        return count == 4 ? NULL : PyErr_Format(PyExc_TypeError, "4 arguments, not %zd", count);
    Name name = {.context = n[0], .number = n[1], .fingerprint = n[2]};
    double patience = PyFloat_AsDouble(args[3]);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(settle(self, &name, patience));
}

static PyObject *look_at_eager(Lane *self, const Name *name)
{
    Message *found = &self->found;
    int64_t total = -1;
    const char *message = (const char *)found->payload - HEADER;
    uint64_t frames = found->header[4] >> 32, before = HEADER + name->joined * SIZED;
    if (name->joined ? frames != name->joined || found->sizes[0] < before : frames > 1)
        Py_RETURN_NONE;
    if (name->joined)
        total = found->sizes[0] - before;
    if (!is_eager(self, name, total, found))
        Py_RETURN_NONE;
    self->kind = WHOLE;
    return PyBytes_FromStringAndSize(message, found->sizes[0]);
}

/* Return header, sizes and record of a message whose frames, in this number, are lent as they are. */
static PyObject *look_at_offer(Lane *self, const Name *name)
{
    Message *found = &self->found;
    const Link *link = link_to(self, name->peer);
    uint64_t frames = name->joined ? name->joined : 1, sizes[PARTS], *loan = self->loan;
    struct iovec lent[PARTS];
    if (!link || frames > PARTS || found->count != 3 || found->sizes[1] != 8 * frames ||
        found->sizes[2] != 16 * (frames + 1) || !(found->header[4] >> 32))
        Py_RETURN_NONE;
    memcpy(sizes, found->payload, 8 * frames);
    memcpy(loan, found->payload + 8 * frames, 16 * (frames + 1));
    if (pieces_at(loan + 2, frames, INT64_MAX, lent) != found->header[5] || !found->header[5] ||
        !named(self, name, self->offer, found->header[5], found))
        Py_RETURN_NONE;
    for (uint64_t i = 0; i < frames; i++)
        if (lent[i].iov_len != sizes[i])
            Py_RETURN_NONE;
    uint64_t before = HEADER + 8 * frames, record = frames > 1 ? sizes[0] : 0;
    if (record > RECORD)
        Py_RETURN_NONE;
    char text[HEADER + 8 * PARTS + RECORD];
    memcpy(text, found->header, HEADER);
    memcpy(text + HEADER, sizes, 8 * frames);
    struct iovec into = {text + before, record};
    if (record && (process_vm_readv(link->pid, &into, 1, lent, 1, 0) != (ssize_t)record || !is_lent(link, loan)))
        Py_RETURN_NONE;
    self->kind = LOAN;
    return PyBytes_FromStringAndSize(text, before + record);
}

/* look(peer, context, tag, fingerprint, joined, patience): `tag` -1 for any */
static PyObject *lane_look(Lane *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t n[2], m[2];
    Message *found = &self->found;
    if (count != 6)
        return PyErr_Format(PyExc_TypeError, "6 arguments, not %zd", count);
    long long tag = PyLong_AsLongLong(args[2]);
    double patience = PyFloat_AsDouble(args[5]);
    if (PyErr_Occurred() || !numbers(args, n, 2) || !numbers(args + 3, m, 2))
        return NULL;
    Name name = {n[0], n[1], 0, tag, m[0], m[1]};
    self->kind = NOTHING, self->source = name.peer;
    if (!look_behind(self, &name, patience, found))
        Py_RETURN_NONE;
    if (tag < 0)
        name.ordinal = found->header[3] >> 32;
    return found->count > 1 ? look_at_offer(self, &name) : look_at_eager(self, &name);
}

/* Return whether the last `look` has returned a message of `peer` of this kind, which is not taken yet. */
static int is_found(Lane *self, uint64_t peer, enum kind kind)
{
    int found = self->kind == kind && self->source == peer && self->rings;
    self->kind = NOTHING;
    return found;
}

/* accept(peer) */
static PyObject *lane_accept(Lane *self, PyObject *number)
{
    uint64_t peer;
    if (!numbers(&number, &peer, 1))
        return NULL;
    if (!is_found(self, peer, WHOLE))
        return PyErr_Format(PyExc_ValueError, "no message of rank %llu was found last", (unsigned long long)peer);
    take_eager(self, peer, &self->found);
    Py_RETURN_NONE;
}

/* Copy the last frame of the message that was found, of `size` bytes, take the message, and confirm that. */
static int fetch_last(Lane *self, uint64_t peer, void *memory, uint64_t size)
{
    const Link *link = link_to(self, peer);
    const uint64_t *words = self->found.header, *last = self->loan + self->found.sizes[2] / 8 - 2;
    Name name = {peer, words[2], words[3] & UINT32_MAX, words[3] >> 32, words[7], 0};
    struct iovec from = {(void *)(uintptr_t)last[0], size}, into = {memory, size};
    return link && atomic_load(&self->heads[peer]) == self->found.head && size == last[1] &&
           process_vm_readv(link->pid, &into, 1, &from, 1, 0) == (ssize_t)size && is_lent(link, self->loan) &&
           confirm(self, link, &name, &self->found);
}

/* fetch(peer, memory) */
static PyObject *lane_fetch(Lane *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t peer;
    Py_buffer memory;
    if (count != 2 || !numbers(args, &peer, 1))
        return count == 2 ? NULL : PyErr_Format(PyExc_TypeError, "2 arguments, not %zd", count);
    if (PyObject_GetBuffer(args[1], &memory, PyBUF_WRITABLE) < 0)
        return NULL;
    int fetched = is_found(self, peer, LOAN) && fetch_last(self, peer, memory.buf, memory.len);
    PyBuffer_Release(&memory);
    return PyBool_FromLong(fetched);
}

/* Programs. */

typedef struct {
    int64_t send_to, recv_from;
    uint64_t send_ordinal, recv_ordinal, joined, total;
    Piece *send, *recv;
    Py_ssize_t sends, recvs;
    PyObject *before, *after; /* tuples of (function, arguments, arguments by name) */
    int offers, fetches, settles;
} Move;

typedef struct {
    Py_ssize_t count;
    Move *moves;
    PyObject *owner; /* the tuples */
    Py_buffer own;
    uint64_t split; /* places before it are of the data, which `run` gets; 0: they are in the program's own memory */
    uint64_t least; /* bytes of the data */
    int writes;     /* whether messages come into the data */
} Program;

#define PROGRAM "ringcast.protocol.Program"

static void program_free(PyObject *capsule)
{
    Program *program = PyCapsule_GetPointer(capsule, PROGRAM);
    for (Py_ssize_t i = 0; i < program->count; i++) {
        PyMem_Free(program->moves[i].send);
        PyMem_Free(program->moves[i].recv);
    }
    PyMem_Free(program->moves);
    PyBuffer_Release(&program->own);
    Py_XDECREF(program->owner);
    PyMem_Free(program);
}

static Piece *pieces_of(PyObject *tuple, Py_ssize_t *count, uint64_t *total, Program *program)
{
    uint64_t split = program->split, limit = split + program->own.len;
    *count = PyTuple_Size(tuple);
    Piece *pieces = *count < 0 ? NULL : PyMem_Calloc(*count + 1, sizeof(Piece));
    if (!pieces && !PyErr_Occurred())
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; pieces && i < *count; i++) {
        unsigned long long at, size;
        if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "KK", &at, &size) || at > limit || size > limit - at ||
            (at < split && size > split - at)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a piece beyond the memory");
            PyMem_Free(pieces);
            return NULL;
        }
        pieces[i] = (Piece){at, size};
        *total += size;
        if (at < split && at + size > program->least)
            program->least = at + size;
    }
    return pieces;
}

static int fill_move(Move *move, PyObject *tuple, Program *program)
{
    PyObject *send, *recv;
    uint64_t bytes = 0;
    unsigned long long out, joined, in;
    long long to, from;
    if (!PyArg_ParseTuple(tuple, "O!LKO!LKO!O!pppK", &PyTuple_Type, &move->before, &to, &out, &PyTuple_Type, &send,
                          &from, &in, &PyTuple_Type, &recv, &PyTuple_Type, &move->after, &move->offers,
                          &move->fetches, &move->settles, &joined))
        return 0;
    move->send_to = to, move->recv_from = from, move->send_ordinal = out, move->recv_ordinal = in, move->joined = joined;
    move->send = pieces_of(send, &move->sends, &bytes, program);
    move->recv = move->send ? pieces_of(recv, &move->recvs, &move->total, program) : NULL;
    for (Py_ssize_t i = 0; move->recv && i < move->recvs; i++)
        program->writes |= move->recv[i].at < program->split;
    if (move->recv && joined > bytes / SIZED)
        PyErr_SetString(PyExc_ValueError, "joined frames without room for their sizes");
    return move->recv && !PyErr_Occurred();
}

/* prepare(moves, memory, split = 0) */
static PyObject *lane_prepare(Lane *Py_UNUSED(self), PyObject *args)
{
    PyObject *moves, *memory;
    unsigned long long split = 0;
    if (!PyArg_ParseTuple(args, "OO|K", &moves, &memory, &split))
        return NULL;
    if (split > INT64_MAX)
        return PyErr_Format(PyExc_ValueError, "data of %llu bytes", split);
    Program *program = PyMem_Calloc(1, sizeof(Program));
    if (!program)
        return PyErr_NoMemory();
    program->split = split;
    if (PyObject_GetBuffer(memory, &program->own, PyBUF_WRITABLE) < 0) {
        PyMem_Free(program);
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(program, PROGRAM, program_free);
    if (!capsule) {
        PyBuffer_Release(&program->own);
        PyMem_Free(program);
        return NULL;
    }
    program->owner = PySequence_Tuple(moves);
    Py_ssize_t count = program->owner ? PyTuple_Size(program->owner) : -1;
    program->moves = count < 0 ? NULL : PyMem_Calloc(count + 1, sizeof(Move));
    for (; program->moves && program->count < count; program->count++)
        if (!fill_move(&program->moves[program->count], PyTuple_GetItem(program->owner, program->count), program)) {
            program->count++;
            break;
        }
    if (PyErr_Occurred() || !program->moves) {
        Py_DECREF(capsule);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return capsule;
}

static int make_calls(PyObject *calls)
{
    for (Py_ssize_t i = 0, count = PyTuple_Size(calls); i < count; i++) {
        PyObject *call = PyTuple_GetItem(calls, i);
        PyObject *result = PyObject_Call(PyTuple_GetItem(call, 0), PyTuple_GetItem(call, 1), PyTuple_GetItem(call, 2));
        if (!result)
            return 0;
        Py_DECREF(result);
    }
    return 1;
}

static int sent(Lane *self, const Move *move, const Memory *memory, const Name *call, Py_ssize_t number)
{
    Name name = {move->send_to, call->context, call->number, move->send_ordinal, call->fingerprint, move->joined};
    if (move->send_to < 0)
        return 1;
    if (move->offers)
        return send_offer(self, &name, memory, move->send, move->sends, number);
    return send_message(self, &name, memory, move->send, move->sends);
}

static int received(Lane *self, const Move *move, const Memory *memory, const Name *call, double patience)
{
    Name name = {move->recv_from, call->context, call->number, move->recv_ordinal, call->fingerprint, 0};
    Message message;
    if (move->recv_from < 0)
        return 1;
    if (!look_behind(self, &name, patience, &message))
        return 0;
    if (move->fetches)
        return fetch(self, &name, &message, memory, move->recv, move->recvs, move->total);
    if (!is_eager(self, &name, move->total, &message))
        return 0;
    const unsigned char *payload = message.payload;
    for (Py_ssize_t j = 0; j < move->recvs; payload += move->recv[j++].size)
        memcpy(place_in(memory, move->recv[j].at), payload, move->recv[j].size);
    take_eager(self, name.peer, &message);
    return 1;
}

/* Run the moves behind the first `passed` / 2, and of the next one all that is not over (see `run`); -1: all moves. */
static PyObject *play(Lane *self, const Program *program, const Memory *memory, const Name *call, PyObject *calls,
                      double patience, Py_ssize_t passed)
{
    self->offered = self->handed = 0;
    for (Py_ssize_t i = passed < 0 ? 0 : passed >> 1; i < program->count; i++, passed = -1) {
        const Move *move = &program->moves[i];
        if (passed < 0 && move->settles && !settle(self, call, patience))
            return PyLong_FromSsize_t(-1 - i);
        if (passed < 0 && !make_calls(calls ? PyTuple_GetItem(calls, 2 * i) : move->before))
            return NULL;
        if (self->handed || !((passed >= 0 && passed & 1) || sent(self, move, memory, call, i)))
            return PyLong_FromSsize_t(2 * i);
        if (!received(self, move, memory, call, patience))
            return PyLong_FromSsize_t(2 * i + 1);
        if (!make_calls(calls ? PyTuple_GetItem(calls, 2 * i + 1) : move->after))
            return NULL;
        if (self->handed)
            return PyLong_FromSsize_t(-2 - i);
    }
    return PyLong_FromSsize_t(settle(self, call, patience) ? 2 * program->count : -1 - program->count);
}

/* run(program, context, number, fingerprint, patience, data = None, calls = None, passed = -1) */
static PyObject *lane_run(Lane *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t n[3];
    if (count < 5 || count == 6 || count > 8 || !numbers(args + 1, n, 3))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "5, 7 or 8 arguments, not %zd", count);
    Program *program = PyCapsule_GetPointer(args[0], PROGRAM);
    double patience = PyFloat_AsDouble(args[4]);
    Py_ssize_t passed = count == 8 ? PyLong_AsSsize_t(args[7]) : -1;
    if (!program || PyErr_Occurred())
        return NULL;
    if (passed < -1 || passed > 2 * program->count)
        return PyErr_Format(PyExc_ValueError, "no place in a program of %zd moves", program->count);
    Py_buffer data = {.len = 0};
    Memory memory = {.own = program->own.buf, .split = program->split};
    PyObject *calls = count >= 7 && args[6] != Py_None ? args[6] : NULL;
    int given = count >= 7 && args[5] != Py_None;
    if (given && PyObject_GetBuffer(args[5], &data, program->writes ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
        return NULL;
    memory.data = data.buf;
    PyObject *result = NULL;
    Name call = {.context = n[0], .number = n[1], .fingerprint = n[2]};
    if ((uint64_t)data.len < program->least || (calls && PyTuple_Size(calls) != 2 * program->count))
        PyErr_SetString(PyExc_ValueError, "data or calls that are not those of the program");
    else
        result = play(self, program, &memory, &call, calls, patience, passed);
    if (given)
        PyBuffer_Release(&data);
    return result;
}

/* offered() */
static PyObject *lane_offered(Lane *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *found = PyList_New(0);
    self->handed |= self->offered;
    for (; found && self->offered; self->offered--) {
        Offer *offer = &self->offers[self->offered - 1];
        PyObject *entry = Py_BuildValue("nK", offer->move, (unsigned long long)offer->transfer);
        int failed = !entry || PyList_Append(found, entry) < 0;
        Py_XDECREF(entry);
        if (failed) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
}

static PyMethodDef methods[] = {
    {"map", (PyCFunction)lane_map, METH_VARARGS, "Use the tables and rings of this rank's segment."},
    {"link", (PyCFunction)lane_link, METH_VARARGS, "Use the words and the ring of this rank in a peer's segment."},
    {"put", (PyCFunction)(void (*)(void))lane_put, METH_FASTCALL, "Send a message; False if it cannot go now."},
    {"take", (PyCFunction)(void (*)(void))lane_take, METH_FASTCALL, "Receive a message; None if it has not come."},
    {"look", (PyCFunction)(void (*)(void))lane_look, METH_FASTCALL, "Return a message that stays there, or None."},
    {"accept", (PyCFunction)lane_accept, METH_O, "Receive the message that `look` has returned."},
    {"offer", (PyCFunction)(void (*)(void))lane_offer, METH_FASTCALL, "Offer a message; False if it cannot go now."},
    {"fetch", (PyCFunction)(void (*)(void))lane_fetch, METH_FASTCALL, "Copy what `look` has found; False if not."},
    {"settle", (PyCFunction)(void (*)(void))lane_settle, METH_FASTCALL, "Wait until all offers are confirmed."},
    {"prepare", (PyCFunction)lane_prepare, METH_VARARGS, "Return a program that `run` takes."},
    {"run", (PyCFunction)(void (*)(void))lane_run, METH_FASTCALL, "Run a program; return how far it came."},
    {"offered", (PyCFunction)lane_offered, METH_NOARGS, "Return the offers that are not confirmed."},
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
