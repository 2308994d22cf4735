/* SPDX-License-Identifier: MIT
 * What the files of the extension share: its objects, and who reads and makes them.
 *
 * All of it is the limited API of Python 3.11. Every object is made with the GIL held. Decisions
 * keep it: they take nanoseconds and wait for nobody. Set-up gives it up, between table_use and
 * table_leave. */
#ifndef STINT_PYTHON_H
#define STINT_PYTHON_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stint.h>

struct table {
    PyObject object;
    struct stint_limiter *limiter; /* NULL: it is closed, and nobody uses it any more */
    PyObject *path;                /* str, or None: in private memory */
    uint64_t forks;                /* of this process when it was opened (forks_of_process) */
    uint32_t max_policies;         /* of the table */
    unsigned users;                /* set-up calls that are under way without the GIL */
    bool closed;
    bool warned_full;
    bool warned_fork;
};

struct policy {
    PyObject object;
    struct table *table;
    PyObject *name; /* str */
    uint32_t id;
    uint32_t counts; /* the id of one that is known to hold nothing in flight; UINT32_MAX: none */
};

/* A key that was made before its use: of an address, or to be used many times. */
struct key {
    PyObject object;
    struct table *table;
    PyObject *from; /* what it was made of */
    stint_key key;
};

struct verdict {
    PyObject object;
    struct policy *policy; /* that was asked */
    stint_key key;
    struct stint_verdict verdict;
};

/* Several requests that were decided as one. */
struct group {
    PyObject object;
    struct table *table;
    PyObject *verdicts; /* a tuple of struct verdict */
    bool allowed;
};

/* What a method of a policy was called with. */
struct ask {
    stint_key key;
    PyObject *from; /* what the key was made of; borrowed */
    uint32_t cost;
    uint32_t limit; /* of the request's own; 0: none */
    uint32_t burst; /* the same, of a bucket */
    uint32_t flags; /* enum stint_request_flags */
};

/* They are made once, by the first import, and stay. */
extern PyTypeObject *table_type, *policy_type, *key_type, *verdict_type, *group_type;
extern PyObject *full_table_warning, *not_shared_warning;

/* Each file calls those above it here.
 *
 * handle.c */
void child_begin(void);
uint64_t forks_of_process(void);
uint64_t (*clock_of_test(void))(void);
PyObject *clock_set(PyObject *module, PyObject *from);
const char *text_read(PyObject *from, const char *what);
bool failed(int error, PyObject *path);
bool table_deciding(const struct table *table);
struct stint_limiter *table_use(struct table *table);
void table_leave(struct table *table);
void table_shut(struct table *table);
bool table_told(struct table *table, uint32_t flags);

/* key.c */
bool key_read(struct table *table, PyObject *from, stint_key *key);
PyObject *key_before(struct table *table, PyObject *from);
PyObject *key_address(struct table *table, PyObject *args, PyObject *kwargs);
void key_label(struct table *table, PyObject *from, stint_key key);

/* verdict.c */
PyObject *verdict_made(struct policy *policy, stint_key key, const struct stint_verdict *verdict);
PyObject *seconds_of(uint64_t ns);
PyObject *headers_of(struct table *table, PyObject *args, PyObject *kwargs,
                     const struct stint_verdict *verdicts, size_t n);

/* counts.c */
PyObject *table_stats(struct table *table, PyObject *unused);
PyObject *table_metrics(struct table *table, PyObject *unused);
PyObject *counts_of_policy(struct stint_limiter *limiter, uint32_t id);

/* policy.c */
void request_failed(const struct table *table, const struct stint_request *request);
PyObject *policy_made(struct table *table, PyObject *name, uint32_t id);
PyObject *policy_names(struct table *table);
void policy_unknown(struct table *table, PyObject *name);
bool policy_found_again(struct policy *policy);
bool number_read(PyObject *from, const char *what, uint32_t *number);

/* group.c */
PyObject *group_decide(struct table *table, PyObject *const *args, Py_ssize_t n);

/* table.c */
PyObject *table_open(PyObject *module, PyObject *args, PyObject *kwargs);

/* Of the types of each file. */
extern PyType_Spec table_spec, policy_spec, key_spec, verdict_spec, group_spec;

/* A method, or a function of the module. inspect reads its signature: "($self, key, /)". */
#define METHOD(name, function, flags, signature, doc)                                              \
    { name, (PyCFunction)(void (*)(void))function, flags, name signature "\n--\n\n" doc }

/* Gives an object back that has no other memory left. */
static inline void object_free(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Puts an entry into a dict; its value is given away. (PyDict_SetItemString interns each name.) */
static inline bool dict_put(PyObject *dict, const char *name, PyObject *value) {
    PyObject *key = PyUnicode_FromString(name);
    const bool put = key != NULL && value != NULL && PyDict_SetItem(dict, key, value) == 0;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return put;
}

#endif /* STINT_PYTHON_H */
