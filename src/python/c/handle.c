/* SPDX-License-Identifier: MIT
 * What all calls need: texts, errors, and of a table whether it is open, and what it tells. */
#include <errno.h>
#include <string.h>

#include "python.h"

PyTypeObject *table_type, *policy_type, *key_type, *verdict_type, *group_type;
PyObject *full_table_warning, *not_shared_warning;

static uint64_t forks; /* between the process that imported the module and this one */

void child_begin(void) {
    forks++;
}

uint64_t forks_of_process(void) {
    return forks;
}

/* ---- The clock that a test moves (testing.py) ---- */

static uint64_t test_now; /* ns since the epoch; tables that were opened by it read it ever after */
static bool testing;

static uint64_t test_clock(void) {
    return __atomic_load_n(&test_now, __ATOMIC_RELAXED);
}

/* The clock of a table that is opened now; NULL: the system's. */
uint64_t (*clock_of_test(void))(void) {
    return testing ? test_clock : NULL;
}

/* _stint.clock_set(ns), or None: the test is over. */
PyObject *clock_set(PyObject *module, PyObject *from) {
    const unsigned long long now = from == Py_None ? 0 : PyLong_AsUnsignedLongLong(from);

    (void)module;
    if (PyErr_Occurred())
        return NULL;
    testing = from != Py_None;
    if (testing)
        __atomic_store_n(&test_now, now, __ATOMIC_RELAXED);
    Py_RETURN_NONE;
}

/* ---- Texts and errors ---- */

/* Reads a str for the library, to which a text ends at its first NUL. NULL: an exception is set. */
const char *text_read(PyObject *from, const char *what) {
    Py_ssize_t length = 0;

    if (!PyUnicode_Check(from))
        return PyErr_Format(PyExc_TypeError, "%s is a str, not %R", what, from), NULL;
    const char *text = PyUnicode_AsUTF8AndSize(from, &length);
    if (text != NULL && strlen(text) != (size_t)length) {
        PyErr_Format(PyExc_ValueError, "%s has a NUL, which ends a text in C: %R", what, from);
        return NULL;
    }
    return text;
}

/* What the library says of an error, as arguments and methods are called here. It may quote a path,
 * or a part of a text, that is no UTF-8. */
static PyObject *reason_made(void) {
    static const char *const names[][2] = {
        {"options.", ""},
        {"stint_policy_change or stint_policies_apply", "table.apply"},
        {"stint_policies_apply", "table.apply"},
        {"stint_resize", "`stint resize`"},
        {"stint_open makes one", "with max_entries it is made"},
        {"STINT_CHARGE", "charge"},
        {"STINT_PARTIAL", "partial"},
        {"STINT_DRAIN", "drain"},
        {"STINT_RESERVE", "reserve"},
        {"STINT_OVERRIDES", "`overrides`"},
        {"a limit of the request's own", "limit"},
        {"request.burst", "burst"},
    };
    const char *text = stint_reason();
    PyObject *reason = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");

    for (size_t i = 0; reason != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        PyObject *from = PyUnicode_FromString(names[i][0]), *to = PyUnicode_FromString(names[i][1]);
        PyObject *told =
            from != NULL && to != NULL ? PyUnicode_Replace(reason, from, to, -1) : NULL;
        Py_XDECREF(from);
        Py_XDECREF(to);
        Py_DECREF(reason);
        reason = told;
    }
    return reason;
}

/* Raises what the library says of an error: ValueError for arguments, else the OSError of its kind,
 * such as FileNotFoundError. Returns false. */
bool failed(int error, PyObject *path) {
    if (error == -ENOMEM) {
        PyErr_NoMemory();
        return false;
    }
    PyObject *reason = reason_made();
    if (reason == NULL)
        return false;
    if (error == -EINVAL) {
        PyErr_SetObject(PyExc_ValueError, reason);
    } else {
        PyObject *raised = PyObject_CallFunction(
            PyExc_OSError, path == NULL || path == Py_None ? "iO" : "iOO", -error, reason, path);
        if (raised != NULL)
            PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
        Py_XDECREF(raised);
    }
    Py_DECREF(reason);
    return false;
}

/* ---- Tables ---- */

/* Says whether the table is open; else an exception is set. */
bool table_deciding(const struct table *table) {
    if (!table->closed)
        return true;
    PyErr_SetString(PyExc_ValueError, "the table is closed");
    return false;
}

/* A set-up call begins, which gives the GIL up. Returns NULL if the table is closed. Until
 * table_leave nobody closes the limiter. */
struct stint_limiter *table_use(struct table *table) {
    if (!table_deciding(table))
        return NULL;
    table->users++;
    return table->limiter;
}

static void limiter_close(struct table *table) {
    struct stint_limiter *limiter = table->limiter;

    table->limiter = NULL;
    Py_BEGIN_ALLOW_THREADS;
    stint_close(limiter);
    Py_END_ALLOW_THREADS;
}

/* Who leaves last closes what was closed meanwhile. */
void table_leave(struct table *table) {
    if (--table->users == 0 && table->closed)
        limiter_close(table);
}

void table_shut(struct table *table) {
    if (!table->closed) {
        table->closed = true;
        if (table->users == 0)
            limiter_close(table);
    }
}

/* Warns of what a decision has shown, once for each table of a process.
 *   flags  of its verdict
 * Returns false if an exception is set: the warning is an error. */
bool table_told(struct table *table, uint32_t flags) {
    if ((flags & (STINT_UNTRACKED | STINT_REPLACED)) != 0 && !table->warned_full) {
        table->warned_full = true;
        if (PyErr_WarnFormat(full_table_warning, 1,
                             "%R is full: %s. Open it with more max_entries (clients times "
                             "policies); a file is made larger by `stint resize`",
                             table,
                             (flags & STINT_REPLACED) != 0
                                 ? "a new key has taken the place, and the count, of another"
                                 : "a new key was not counted") != 0)
            return false;
    }
    if (table->path == Py_None && table->forks != forks_of_process() && !table->warned_fork) {
        table->warned_fork = true;
        if (PyErr_WarnEx(not_shared_warning,
                         "this table is in private memory, and the process was forked after it was "
                         "opened: each process now counts apart, and lets the whole limit through. "
                         "Give stint.open a path, and they share one count",
                         1) != 0)
            return false;
    }
    return true;
}
