/* tutti/tutti.h: the C API. Names and meanings are those of the field's collective libraries.
 *
 * Ranks. A communicator is one rank's handle on a group of `nranks` ranks. Ranks are processes, or threads of one process.
 * All ranks call the same collectives in the same order on one communicator; there is no order between communicators: any
 * number may be used, from different threads, in different orders.
 *
 * Streams. A collective returns when it is enqueued on a stream; operations of one stream run in order. NULL is the
 * communicator's own stream. A call waits only when 128 operations of its communicator are pending. tuttiStreamSynchronize()
 * and the other waiting calls drive progress themselves; without them a progress thread does. Buffers belong to the library
 * from the call until the operation has completed.
 *
 * Threads. Different communicators may be used from different threads at the same time. Calls on one communicator come from
 * one thread at a time, but for tuttiCommAbort, tuttiCommRevoke, tuttiCommGetAsyncError and tuttiCommGetLastError, which any
 * thread may call.
 *
 * Errors. A function returns a tuttiResult_t. Any error but tuttiInvalidArgument and tuttiInvalidUsage ends the communicator:
 * all further calls on it return the same error, all ranks learn of it, and only Abort, Destroy, Shrink and the queries are
 * left. Every wait has a deadline (options core.*_timeout), and what expires names the rank that is missing. */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H
#include <stddef.h>
#include <stdint.h>

#define TUTTI_MAJOR 0
#define TUTTI_MINOR 1
#define TUTTI_PATCH 0
#define TUTTI_VERSION(major, minor, patch) (10000 * (major) + 100 * (minor) + (patch))
#define TUTTI_VERSION_CODE TUTTI_VERSION(TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH)

#define TUTTI_API __attribute__((visibility("default")))
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tuttiComm *tuttiComm_t;
typedef struct tuttiStream *tuttiStream_t;
typedef struct tuttiEvent *tuttiEvent_t;
typedef struct tuttiWork *tuttiWork_t;

#define TUTTI_UNIQUE_ID_BYTES 128
/* Address of the root and the job's secret: whoever has it can join, so hand it only to the job's own processes. */
typedef struct tuttiUniqueId {
  char internal[TUTTI_UNIQUE_ID_BYTES];
} tuttiUniqueId;

typedef enum tuttiResult_t {
  tuttiSuccess = 0,
  tuttiUnhandledDeviceError = 1,
  tuttiSystemError = 2,     /* an operating system call failed */
  tuttiInternalError = 3,   /* a bug of the library or of a plugin */
  tuttiInvalidArgument = 4, /* a value out of range */
  tuttiInvalidUsage = 5,    /* a call that does not fit the state, or ranks that disagree */
  tuttiRemoteError = 6,     /* another rank failed or went away */
  tuttiInProgress = 7,      /* not an error: not finished yet */
  tuttiTimeout = 8,         /* a deadline passed */
  tuttiNumResults = 9
} tuttiResult_t;

/* clang-format off */
typedef enum tuttiDataType_t {
  tuttiInt8 = 0, tuttiChar = 0,
  tuttiUint8 = 1,
  tuttiInt32 = 2, tuttiInt = 2,
  tuttiUint32 = 3,
  tuttiInt64 = 4,
  tuttiUint64 = 5,
  tuttiFloat16 = 6, tuttiHalf = 6,
  tuttiFloat32 = 7, tuttiFloat = 7,
  tuttiFloat64 = 8, tuttiDouble = 8,
  tuttiBfloat16 = 9,
  tuttiFloat8e4m3 = 10, /* OCP: no infinities, up to 448 */
  tuttiFloat8e5m2 = 11, /* OCP: the upper byte of a float16, up to 57344. Reductions of both saturate, infinities too */
  tuttiNumTypes = 12
} tuttiDataType_t;
/* clang-format on */

typedef enum tuttiRedOp_t {
  tuttiSum = 0,
  tuttiProd = 1,
  tuttiMax = 2,
  tuttiMin = 3,
  tuttiAvg = 4, /* the sum divided by nranks, once; integers are cut off toward zero */
  tuttiNumOps = 5,
  tuttiMaxRedOp = 0x7fffffff /* values from tuttiNumOps up are made by tuttiRedOpCreatePreMulSum */
} tuttiRedOp_t;

/* Settings of one communicator. Initialise with TUTTI_CONFIG_INITIALIZER; fields are only ever appended. What is left undefined
 * comes from configuration (environment, file, default), and the environment wins over what is set here. */
typedef struct tuttiConfig_t {
  size_t size; /* head: not for users */
  unsigned magic;
  unsigned version;
  int blocking; /* 0: set-up, split and finalize return tuttiInProgress; see tuttiCommGetAsyncError. Default 1 */
  int minCTAs;  /* fewest and most channels; the names are the field's */
  int maxCTAs;
  const char *netName;       /* network plugin by name ("socket"), case-insensitive */
  const char *commName;      /* for log lines */
  int trafficClass;          /* handed to the network plugin */
  int splitShare;            /* accepted and without effect in this version */
  const char *algo;          /* as option coll.algo, for this communicator */
  const char *proto;         /* as option coll.proto */
  const char *tuner;         /* tuner plugin by name */
  int64_t timeoutMs;         /* as option core.timeout */
  uint64_t memoryCapBytes;   /* as option memory.cap */
  const char *deterministic; /* as option coll.deterministic: "off", "run", "size" */
  int64_t initTimeoutMs;     /* as option core.init_timeout; 0 = undefined, as in the next three */
  int64_t connectTimeoutMs;  /* as option core.connect_timeout */
  int64_t finalizeTimeoutMs; /* as option core.finalize_timeout */
  int64_t shrinkTimeoutMs;   /* as option core.shrink_timeout */
  int shrinkShare;           /* accepted and without effect in this version */
} tuttiConfig_t;

#define TUTTI_CONFIG_UNDEF_INT INT32_MIN
#define TUTTI_CONFIG_MAGIC 0x74757474u
#define TUTTI_CONFIG_INITIALIZER                                                                                               \
  {                                                                                                                            \
    sizeof(tuttiConfig_t), TUTTI_CONFIG_MAGIC, TUTTI_VERSION_CODE, TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT,             \
        TUTTI_CONFIG_UNDEF_INT, NULL, NULL, TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT, NULL, NULL, NULL, 0, 0, NULL, 0,   \
        0, 0, 0, TUTTI_CONFIG_UNDEF_INT                                                                                        \
  }

/* ---- version, errors ---------------------------------------------------------------------------------------------- */
TUTTI_API tuttiResult_t tuttiGetVersion(int *version);
/* A fixed text per code. */
TUTTI_API const char *tuttiGetErrorString(tuttiResult_t result);
/* One line on the last error of `comm`, or of this thread when comm is NULL; "" when there is none. Valid until the next call
 * of this function on this thread. */
TUTTI_API const char *tuttiGetLastError(tuttiComm_t comm);

/* The same, in parts. */
typedef struct tuttiErrorInfo {
  size_t size; /* set to sizeof(tuttiErrorInfo) by the caller */
  tuttiResult_t code;
  int rank;            /* who reports it */
  int peer;            /* the rank it is about, -1 = none */
  int sysErrno;        /* 0 = none */
  char phase[32];      /* "bootstrap", "connect", "operation", ... */
  char operation[128]; /* "allreduce #12 (262144 float32 sum)" or "" */
  char endpoint[128];  /* "10.0.0.1:4711 -> 10.0.0.2:9" or "" */
  char hint[256];      /* what to do, or "" */
  char message[1024];  /* the line of tuttiGetLastError */
} tuttiErrorInfo;
TUTTI_API tuttiResult_t tuttiCommGetLastError(tuttiComm_t comm, tuttiErrorInfo *info);

/* ---- communicators ------------------------------------------------------------------------------------------------ */
/* Starts the root of a new communicator in this process; hand the id to all ranks. */
TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *id);
/* Collective over the nranks callers with the same id; blocks until all have joined, or core.init_timeout. */
TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank);
TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank,
                                                const tuttiConfig_t *config);
/* The same through nids roots, the ids of nids calls of tuttiGetUniqueId (best in different processes), the same in the same
 * order on all ranks, nids <= nranks: each root serves a contiguous, equal share of the ranks. For jobs of thousands of ranks.
 */
TUTTI_API tuttiResult_t tuttiCommInitRankScalable(tuttiComm_t *comm, int nranks, int rank, int nids, const tuttiUniqueId *ids,
                                                  const tuttiConfig_t *config);
/* All ranks in this process: comms[0 .. nranks-1]; each is then used from a thread of its own, or in groups. */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int nranks, const int *devices);
/* Rank, size and rendezvous from the environment of `tutti run`, mpirun, mpiexec, srun or torchrun, or TUTTI_RANK, TUTTI_NRANKS
 * and TUTTI_COMM_ID (host:port, [v6]:port, or file:PATH); see docs/launching.md. config may be NULL. */
TUTTI_API tuttiResult_t tuttiCommInitFromEnv(tuttiComm_t *comm, const tuttiConfig_t *config);
#define TUTTI_SPLIT_NOCOLOR (-1)
/* Ranks with the same color form a new communicator, ordered by key, then by old rank. NOCOLOR: *newcomm = NULL. Collective;
 * needs no root. config NULL inherits. */
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm, const tuttiConfig_t *config);
/* Ends the operations in flight on all ranks with tuttiRemoteError, "revoked by rank N"; frees nothing. Returns when this
 * rank's buffers are free, and waits for no other rank. From then on calls that begin an operation, a split or the like return
 * tuttiInvalidUsage, and Destroy, Abort, Shrink and the queries are left. For whoever knows that the job has to change, while
 * others may still wait in an operation. A communicator that has failed stays as it is. Any thread; flags:
 * TUTTI_REVOKE_DEFAULT. */
#define TUTTI_REVOKE_DEFAULT 0
TUTTI_API tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int flags);
/* A communicator of the ranks that are left, in their old order; called by those, all with the same list: exclude holds the n
 * ranks that do not come along. Of a communicator that works, has failed or was revoked, which stays as it is. Without a list
 * (exclude NULL, n 0) the callers find out together who is gone: those whose process has ended or does not answer, and those
 * that have not called within core.shrink_timeout. With a list who has not called by then is an error that names it. The ranks
 * still agree when another one dies meanwhile; what dies later is a failure of the new communicator. A rank that the others
 * went on without gets an error. config NULL inherits. See docs/recovering.md. */
#define TUTTI_SHRINK_DEFAULT 0
#define TUTTI_SHRINK_ABORT 1 /* ends the operations of comm first, on all ranks, as an error does */
TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, const int *exclude, int n, tuttiComm_t *newcomm,
                                        const tuttiConfig_t *config, int flags);
/* An id for one tuttiCommGrow of this communicator, made by one of its ranks; hand it to the ranks that join. */
TUTTI_API tuttiResult_t tuttiCommGetUniqueId(tuttiComm_t comm, tuttiUniqueId *id);
/* A communicator of `nranks` ranks: those of comm, under their old numbers, and new ones behind them. Ranks of comm give rank
 * -1; the one that made the id gives it, the others the same or NULL. New ranks give comm NULL, the id and their number. Who
 * does not come within core.init_timeout is named. comm works on, unless it is a rank of comm that has not called. config NULL:
 * as comm, or as the process. */
TUTTI_API tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int nranks, const tuttiUniqueId *id, int rank, tuttiComm_t *newcomm,
                                      const tuttiConfig_t *config);
/* Completes everything enqueued on all ranks; no operation may follow. Collective: one thread that has several ranks calls it
 * for all of them in one group. */
TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);
/* Frees the communicator; finalizes first unless it failed or was finalized, and then returns what that returned. Of the ranks
 * in one process the last call waits for all of them and returns their first error: earlier calls of unfinalized communicators
 * return at once, for the same thread may have to make the others. Who wants each rank's own error finalizes first. NULL is
 * allowed. */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);
/* Ends all operations, or the set-up, with an error, tells the other ranks, frees. Never waits for anybody. */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm);
/* tuttiSuccess, tuttiInProgress (a non-blocking set-up, finalize, or split of this communicator goes on), or the error that
 * ended the communicator. Until a non-blocking set-up has finished, operations are refused with tuttiInvalidUsage. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *asyncError);
TUTTI_API tuttiResult_t tuttiCommCount(tuttiComm_t comm, int *count);
TUTTI_API tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int *rank);

/* ---- groups ------------------------------------------------------------------------------------------------------- */
/* Calls between Start and End are collected, per thread, and begin at the outermost End. Sends and receives of a group make
 * progress together; initialisations of a group run concurrently. Groups nest. */
TUTTI_API tuttiResult_t tuttiGroupStart(void);
TUTTI_API tuttiResult_t tuttiGroupEnd(void);

/* ---- choices for some calls ----------------------------------------------------------------------------------------- */
/* How the operations that this thread calls until the matching End are run. Initialise with TUTTI_CALL_CONFIG_INITIALIZER;
 * fields are only ever appended. What is left undefined comes from the configuration around it, else from what holds for the
 * communicator; what is set here wins over options of every scope. All ranks give the same, but for tag and timeout: ranks that
 * run an operation differently get the error of ranks that disagree. Of sends and receives, which each rank groups in its own
 * way, it takes those two alone. */
typedef struct tuttiCallConfig_t {
  size_t size; /* head: not for users */
  unsigned magic;
  unsigned version;
  const char *algo;  /* grammar of option coll.algo: "ring", "ring,tree", "^direct", "all_reduce:ring;broadcast:tree" */
  const char *proto; /* grammar of option coll.proto */
  int minCTAs;       /* channels: what was chosen for the size is brought between them */
  int maxCTAs;
  uint64_t slotBytes;   /* payload of one slot of a link; 0 = undefined. What memory.cap does not allow is made smaller */
  int depth;            /* slots of a link; 0 = undefined */
  int preferred;        /* what cannot be had is 0: an error of the operation that says why; 1: one log line, and the best other
                           way runs. Undefined: as option coll.choice */
  const char *tag;      /* of the user, up to 63 bytes: in log lines, error texts and explanations */
  uint64_t bufferBytes; /* most bytes of a link's slots together; 0 = undefined */
  int64_t timeoutMs; /* longest wait for another rank inside the operation, instead of core.timeout; 0 = undefined. As the tag
                        a rank's own affair */
} tuttiCallConfig_t;

#define TUTTI_CALL_CONFIG_MAGIC 0x74757463u
#define TUTTI_CALL_CONFIG_INITIALIZER                                                                                          \
  {                                                                                                                            \
    sizeof(tuttiCallConfig_t), TUTTI_CALL_CONFIG_MAGIC, TUTTI_VERSION_CODE, NULL, NULL, TUTTI_CONFIG_UNDEF_INT,                \
        TUTTI_CONFIG_UNDEF_INT, 0, 0, TUTTI_CONFIG_UNDEF_INT, NULL, 0, 0                                                       \
  }

/* The configuration is copied. Nests: fields of the inner one win. After an error nothing has begun and nothing is to be ended.
 * Calls inside a group keep what held when they were called. */
TUTTI_API tuttiResult_t tuttiCallConfigBegin(const tuttiCallConfig_t *config);
TUTTI_API tuttiResult_t tuttiCallConfigEnd(void);

/* ---- operations: counts are elements; sendbuff == recvbuff style in-place forms as noted --------------------------- */
TUTTI_API tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type,
                                       tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);
/* recvbuff is used on the root only. */
TUTTI_API tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type, tuttiRedOp_t op,
                                    int root, tuttiComm_t comm, tuttiStream_t stream);
/* sendbuff is used on the root only. */
TUTTI_API tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type, int root,
                                       tuttiComm_t comm, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiBcast(void *buff, size_t count, tuttiDataType_t type, int root, tuttiComm_t comm,
                                   tuttiStream_t stream);
/* recvbuff holds nranks * sendcount elements. In place: sendbuff == recvbuff + rank * sendcount. */
TUTTI_API tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, tuttiDataType_t type,
                                       tuttiComm_t comm, tuttiStream_t stream);
/* sendbuff holds nranks * recvcount elements. In place: recvbuff == sendbuff + rank * recvcount. */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, tuttiDataType_t type,
                                           tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);
/* Blocks of different sizes: counts[r] elements from recvbuff + displs[r] on come from rank r; displs NULL: one block behind
 * the other. All ranks give the same counts, zeros allowed; arrays are read before the call returns. Blocks do not overlap.
 * sendbuff holds counts[rank] elements. In place: sendbuff == recvbuff + displs[rank]. */
TUTTI_API tuttiResult_t tuttiAllGatherV(const void *sendbuff, void *recvbuff, const size_t counts[], const size_t displs[],
                                        tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t stream);
/* The same for blocks of sendbuff: rank r gets the reduction of everybody's counts[r] elements from sendbuff + displs[r] on.
 * In place: recvbuff == sendbuff + displs[rank]. */
TUTTI_API tuttiResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff, const size_t counts[], const size_t displs[],
                                            tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);
/* Both hold nranks * count elements; not in place. */
TUTTI_API tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type,
                                      tuttiComm_t comm, tuttiStream_t stream);
/* Element counts and displacements per peer; arrays are read before the call returns. Not in place. */
TUTTI_API tuttiResult_t tuttiAlltoAllV(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
                                       const size_t recvcounts[], const size_t rdispls[], tuttiDataType_t type,
                                       tuttiComm_t comm, tuttiStream_t stream);
/* recvbuff holds nranks * count elements, on the root only. In place: sendbuff == recvbuff + root * count. */
TUTTI_API tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type, int root,
                                    tuttiComm_t comm, tuttiStream_t stream);
/* sendbuff holds nranks * count elements, on the root only. In place: recvbuff == sendbuff + root * count. */
TUTTI_API tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type, int root,
                                     tuttiComm_t comm, tuttiStream_t stream);
/* Same count and type on both sides. Outside a group a pair completes when both sides have called. */
TUTTI_API tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm,
                                  tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm,
                                  tuttiStream_t stream);
/* Completes when all ranks have enqueued it. */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream);

/* A sum in which this rank's data is multiplied by *scalar (one element of `type`, read now). For this comm only. */
TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, const void *scalar, tuttiDataType_t type, tuttiComm_t comm);
TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

/* ---- streams, events, work ---------------------------------------------------------------------------------------- */
/* Work of one stream runs in order, also across communicators. */
TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream);
TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);
/* Until all work enqueued so far is done; returns its first error. NULL: what this thread has enqueued on communicators' own
 * streams, of those that still exist. */
TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
/* The same for the communicator's own stream. */
TUTTI_API tuttiResult_t tuttiCommSynchronize(tuttiComm_t comm);
/* tuttiSuccess, or tuttiInProgress; NULL as above. */
TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiEventCreate(tuttiEvent_t *event);
TUTTI_API tuttiResult_t tuttiEventDestroy(tuttiEvent_t event);
/* Fires when what is on the stream now (comm's own stream when stream is NULL) has completed. */
TUTTI_API tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiComm_t comm, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event);
TUTTI_API tuttiResult_t tuttiEventQuery(tuttiEvent_t event);
/* Later work of `stream` waits for the event. NULL is refused: it names no communicator here. */
TUTTI_API tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event);
/* A handle on the operation that this thread enqueued last on comm. */
TUTTI_API tuttiResult_t tuttiCommGetLastWork(tuttiComm_t comm, tuttiWork_t *work);
TUTTI_API tuttiResult_t tuttiWorkTest(tuttiWork_t work);
TUTTI_API tuttiResult_t tuttiWorkWait(tuttiWork_t work);
TUTTI_API tuttiResult_t tuttiWorkDestroy(tuttiWork_t work);

/* ---- memory ------------------------------------------------------------------------------------------------------- */
/* Page-aligned, zeroed memory that suits every transport: it is shared memory, which ranks of the same host map when they first
 * read in it, each allocation with a file descriptor of its own. Without one to be had it is ordinary memory. A forked child
 * shares it with its parent. */
TUTTI_API tuttiResult_t tuttiMemAlloc(void **ptr, size_t bytes);
/* After all operations on it have completed or failed, in all communicators. Peers give up their mappings, networks their
 * registrations. NULL is allowed. tuttiInvalidUsage: an operation that has not completed still uses it and could not be ended
 * within seconds; the memory stays, and may be freed again. */
TUTTI_API tuttiResult_t tuttiMemFree(void *ptr);
/* Says that buff[0, size) will be used in operations of comm. Memory of tuttiMemAlloc is offered to the ranks of the host,
 * which map it at once rather than at the first operation that reads it. Networks whose devices need registrations register it
 * now, whatever memory it is, and then send from it and receive into it without a copy; where that fails they copy, and warn.
 * Not collective; changes no result. */
TUTTI_API tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void *buff, size_t size, void **handle);
/* Before the memory is freed; what is left ends with the communicator. On return no network has it registered,
 * but for tuttiInvalidUsage, as of tuttiMemFree: the handle stays. */
TUTTI_API tuttiResult_t tuttiCommDeregister(tuttiComm_t comm, void *handle);

/* ---- introspection ------------------------------------------------------------------------------------------------ */
/* How an operation of this size would run on comm, as JSON: algorithm, protocol, channels, slot, depth, transports, and why.
 * Honours what tuttiCallConfigBegin set for this thread. Writes at most cap bytes with the NUL. coll is the perf tests' name
 * ("all_reduce"). */
TUTTI_API tuttiResult_t tuttiCommExplain(tuttiComm_t comm, const char *coll, size_t count, tuttiDataType_t type, char *text,
                                         size_t cap);
/* What this rank has sent and received over each link of comm so far, as JSON: docs/communication-map.md. All of the operations
 * that have completed is in it, after a failure too; a rank on its own has no links. Writes at most cap bytes with the NUL.
 * *needed, unless needed is NULL, becomes how many there are, also when cap is too small; text NULL and cap 0 only ask for it.
 * While operations run it may grow by the next call. TUTTI_COMM_MAP_FILE has the same written to a file when comm ends. */
TUTTI_API tuttiResult_t tuttiCommTraffic(tuttiComm_t comm, char *text, size_t cap, size_t *needed);
/* Writes comm's flight recorder, its last operations and what it waits for, to a file: docs/ras.md. In path %h is the host, %p
 * the process, %r the rank and %c the communicator; NULL: to the file of TUTTI_RECORD_FILE. From any thread, also while another
 * one is in a call with comm, and after comm has failed; waits for no rank. An error leaves comm as it was, and no part of a
 * file. */
TUTTI_API tuttiResult_t tuttiCommDump(tuttiComm_t comm, const char *path);
/* Bytes of library memory and file descriptors that comm holds now. */
TUTTI_API tuttiResult_t tuttiCommMemory(tuttiComm_t comm, uint64_t *bytes, uint64_t *fds);

#ifdef __cplusplus
}
#endif
#endif
