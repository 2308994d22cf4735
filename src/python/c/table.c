/* SPDX-License-Identifier: MIT
 * Tables: opened and set up. */
#include <errno.h>
#include <string.h>

#include "python.h"

static PyObject *table_close(struct table *table, PyObject *unused) {
    (void)unused;
    table_shut(table);
    Py_RETURN_NONE;
}

/* ---- Policies ------------------------------------------------------------------------------ */

/* Warns of what a policy allows, but is hardly meant. */
static bool hardly_meant(const char *text) {
    struct stint_policy policy = STINT_POLICY_INIT;
    char note[512];

    if (stint_policy_parse(text, &policy, NULL) != 0 ||
        stint_policy_note(&policy, note, sizeof(note)) <= 0)
        return true;
    return PyErr_WarnFormat(PyExc_UserWarning, 1, "the policy %s: %s", text, note) == 0;
}

/* What apply has changed: the name of each policy, and how. */
struct changes {
    PyObject *told; /* a dict */
    bool good;      /* false: an exception is set, which is raised when the call is over */
};

static void change_tell(void *context, const struct stint_change *change) {
    static const char *const kinds[] = {"unchanged", "added", "changed", "replaced", "removed"};
    struct changes *changes = context;
    const PyGILState_STATE state = PyGILState_Ensure();

    if (changes->good)
        changes->good =
            dict_put(changes->told, change->name, PyUnicode_FromString(kinds[change->kind])) &&
            (change->kind == STINT_POLICY_UNCHANGED || change->text == NULL ||
             hardly_meant(change->text));
    PyGILState_Release(state);
}

/* The text of policies: a str, or several, a policy each. */
static PyObject *text_of(PyObject *policies) {
    if (PyUnicode_Check(policies))
        return Py_NewRef(policies);
    PyObject *newline = PyUnicode_FromString("\n");
    PyObject *text = newline != NULL ? PyUnicode_Join(newline, policies) : NULL;
    Py_XDECREF(newline);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_SetString(PyExc_TypeError,
                        "policies are texts such as '100/minute name=api': a list of str, or one "
                        "str with a policy a line");
    }
    return text;
}

/* Applies policies, a text or several. Returns a dict of what has changed. */
static PyObject *apply(struct table *table, PyObject *policies, uint32_t flags) {
    PyObject *joined = text_of(policies);
    const char *text = joined != NULL ? text_read(joined, "the text of policies") : NULL;
    struct changes changes = {text != NULL ? PyDict_New() : NULL, true};
    struct stint_limiter *limiter = changes.told != NULL ? table_use(table) : NULL;
    int error;

    if (limiter != NULL) {
        Py_BEGIN_ALLOW_THREADS;
        error = stint_policies_apply(limiter, text, flags, NULL, change_tell, &changes);
        Py_END_ALLOW_THREADS;
        if (error != 0 && !PyErr_Occurred())
            failed(error, table->path);
        table_leave(table);
    }
    Py_XDECREF(joined);
    if (PyErr_Occurred())
        Py_CLEAR(changes.told);
    return changes.told;
}

/* table.apply(policies, prune=False, dry_run=False) */
static PyObject *table_apply(struct table *table, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"policies", "prune", "dry_run", NULL};
    PyObject *policies;
    int prune = 0, dry_run = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$pp:apply", names, &policies, &prune,
                                     &dry_run))
        return NULL;
    return apply(table, policies,
                 (prune ? (uint32_t)STINT_PRUNE : 0) | (dry_run ? (uint32_t)STINT_DRY_RUN : 0));
}

/* table.add(policy) */
static PyObject *table_add(struct table *table, PyObject *text) {
    struct stint_policy policy = STINT_POLICY_INIT;
    const char *given = text_read(text, "a policy");
    PyObject *made = NULL;
    uint32_t id = 0;
    int error;

    if (given == NULL)
        return NULL;
    error = stint_policy_parse(given, &policy, NULL);
    if (error != 0) {
        failed(error, NULL);
        return NULL;
    }
    struct stint_limiter *limiter = table_use(table);
    if (limiter == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    error = stint_policy_add(limiter, &policy, &id);
    Py_END_ALLOW_THREADS;
    /* Without a name it has its rate for one. */
    if (error == 0)
        error = stint_policy_get(limiter, id, &policy);
    if (error != 0)
        failed(error, table->path);
    else if (hardly_meant(given)) {
        PyObject *name = PyUnicode_FromString(policy.name);
        made = name != NULL ? policy_made(table, name, id) : NULL;
        Py_XDECREF(name);
    }
    table_leave(table);
    return made;
}

/* Removes a policy of this name. */
static PyObject *table_remove(struct table *table, PyObject *name) {
    const char *text = text_read(name, "a policy's name");
    uint32_t id = 0;
    int error;
    struct stint_limiter *limiter = text != NULL ? table_use(table) : NULL;

    if (limiter == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    error = stint_policy_find(limiter, text, &id);
    if (error == 0)
        error = stint_policy_remove(limiter, id);
    Py_END_ALLOW_THREADS;
    if (error == -ENOENT)
        policy_unknown(table, name);
    else if (error != 0)
        failed(error, table->path);
    table_leave(table);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* table["name"] */
static PyObject *table_item(struct table *table, PyObject *name) {
    uint32_t id = 0;

    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "a policy is found by its name, a str, not %R", name);
    const char *text = text_read(name, "a policy's name");
    if (text == NULL || !table_deciding(table))
        return NULL;
    if (stint_policy_find(table->limiter, text, &id) == 0)
        return policy_made(table, name, id);
    policy_unknown(table, name);
    return NULL;
}

static int table_contains(struct table *table, PyObject *name) {
    const char *text = PyUnicode_Check(name) ? text_read(name, "a policy's name") : "";

    if (text == NULL || !table_deciding(table))
        return -1;
    return stint_policy_find(table->limiter, text, NULL) == 0;
}

/* ---- Opening ------------------------------------------------------------------------------- */

/* Sets stint_options.on_full. */
static bool on_full_read(const char *text, uint32_t *on_full) {
    static const char *const names[] = {"admit", "refuse", "replace"};

    for (uint32_t i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *on_full = i;
            return true;
        }
    PyErr_Format(PyExc_ValueError,
                 "on_full is 'replace' (a new key takes the place of the one that has used least), "
                 "'admit' or 'refuse', not '%s'",
                 text);
    return false;
}

/* A relative path is another table for each directory in which a process runs. */
static bool path_check(const char *path) {
    if (path[0] == '/')
        return true;
    PyErr_Format(PyExc_ValueError,
                 "the path '%s' is relative: processes that run in other directories would open "
                 "other tables. Write the whole path, such as /run/APP/limits",
                 path);
    return false;
}

static struct table *table_made(struct stint_options *options, PyObject *path) {
    struct table *table = PyObject_New(struct table, table_type);
    int error;

    if (table == NULL)
        return NULL;
    table->limiter = NULL;
    table->path = Py_NewRef(path);
    table->forks = forks_of_process();
    table->max_policies = options->max_policies != 0 ? options->max_policies : 64;
    table->users = 0;
    table->closed = true;
    table->warned_full = false;
    table->warned_fork = false;
    struct stint_limiter *limiter = NULL;
    struct stint_stats stats = STINT_STATS_INIT;
    Py_BEGIN_ALLOW_THREADS;
    if (options->max_entries != 0) {
        error = stint_open(options, &limiter);
    } else {
        error = stint_attach(options, &limiter);
        if (error == 0 && stint_stats_get(limiter, &stats) == 0)
            table->max_policies = stats.max_policies;
    }
    Py_END_ALLOW_THREADS;
    if (error == 0) {
        table->limiter = limiter;
        table->closed = false;
        return table;
    }
    if (error == -ENOENT && options->max_entries == 0)
        PyErr_Format(PyExc_FileNotFoundError,
                     "there is no table %S: give max_entries, and it is made", path);
    else
        failed(error, path);
    Py_DECREF(table);
    return NULL;
}

/* What was given as a number that the library has as an unsigned one. */
static bool size_read(PyObject *from, const char *what, uint64_t *size) {
    if (from == NULL || from == Py_None)
        return true;
    if (!PyLong_Check(from) || PyBool_Check(from)) {
        PyErr_Format(PyExc_TypeError, "%s is an int, not %R", what, from);
        return false;
    }
    *size = PyLong_AsUnsignedLongLong(from);
    if (PyErr_Occurred() || *size == 0) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is at least 1 and at most 2**40, not %S", what, from);
        return false;
    }
    return true;
}

/* Sets a number of 32 bits. */
static bool option_set(Py_ssize_t from, const char *what, uint32_t *option) {
    *option = (uint32_t)from;
    if (from >= 0 && (uint64_t)from <= UINT32_MAX)
        return true;
    PyErr_Format(PyExc_ValueError, "%s is 0 to 2**32 - 1, not %zd", what, from);
    return false;
}

/* stint.open(path, max_entries=None, policies=None, *, on_full="replace", max_policies=0, labels=0,
 * mode=0) */
PyObject *table_open(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"path",         "max_entries", "policies", "on_full",
                            "max_policies", "labels",      "mode",     NULL};
    struct stint_options options = STINT_OPTIONS_INIT;
    PyObject *given, *entries = NULL, *policies = NULL, *bytes = NULL, *path = NULL;
    struct table *table = NULL;
    const char *on_full = "replace";
    Py_ssize_t max_policies = 0, labels = 0, mode = 0;

    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO$snnn:open", names, &given, &entries,
                                     &policies, &on_full, &max_policies, &labels, &mode) ||
        !option_set(max_policies, "max_policies", &options.max_policies) ||
        !option_set(labels, "labels", &options.labels) ||
        !option_set(mode, "mode", &options.mode) ||
        !size_read(entries, "max_entries", &options.max_entries) ||
        !on_full_read(on_full, &options.on_full))
        return NULL;
    if (given == Py_None) {
        path = Py_NewRef(Py_None);
        if (options.max_entries == 0) {
            PyErr_SetString(PyExc_ValueError, "a table in private memory needs max_entries: live "
                                              "(key, policy) pairs, clients times policies");
            goto end;
        }
    } else {
        if (!PyUnicode_FSConverter(given, &bytes))
            return NULL;
        options.path = PyBytes_AsString(bytes);
        path = options.path == NULL || !path_check(options.path)
                   ? NULL
                   : PyUnicode_DecodeFSDefault(options.path);
        if (path == NULL)
            goto end;
    }
    options.clock = clock_of_test();
    if (options.clock != NULL) {
        options.path = NULL;
        Py_DECREF(path);
        path = Py_NewRef(Py_None);
        if (options.max_entries == 0)
            options.max_entries = 10000;
    }
    table = table_made(&options, path);
    if (table != NULL && policies != NULL && policies != Py_None) {
        PyObject *changes = apply(table, policies, 0);
        if (changes == NULL)
            Py_CLEAR(table);
        Py_XDECREF(changes);
    }
end:
    Py_XDECREF(path);
    Py_XDECREF(bytes);
    return (PyObject *)table;
}

/* ---- The type ------------------------------------------------------------------------------ */

static PyObject *table_all(struct table *table, PyObject *const *args, Py_ssize_t n) {
    return group_decide(table, args, n);
}

static PyObject *table_enter(struct table *table, PyObject *unused) {
    (void)unused;
    return Py_NewRef((PyObject *)table);
}

static PyObject *table_exit(struct table *table, PyObject *args) {
    return table_close(table, args);
}

static PyObject *table_path(struct table *table, void *unused) {
    (void)unused;
    return Py_NewRef(table->path);
}

static PyObject *table_policies(struct table *table, void *unused) {
    (void)unused;
    return policy_names(table);
}

static PyObject *table_repr(struct table *table) {
    return PyUnicode_FromFormat("<stint.Table %R%s>", table->path, table->closed ? ", closed" : "");
}

static void table_free(PyObject *self) {
    struct table *table = (struct table *)self;

    if (table->limiter != NULL)
        stint_close(table->limiter);
    Py_DECREF(table->path);
    object_free(self);
}

static PyMethodDef methods[] = {
    METHOD("all", table_all, METH_FASTCALL, "($self, /, *requests)",
           "Decides (policy, key) and (policy, key, cost) as one: all take their tokens, or none."),
    METHOD("add", table_add, METH_O, "($self, policy, /)", "Adds a policy. Returns it."),
    METHOD("apply", table_apply, METH_VARARGS | METH_KEYWORDS,
           "($self, policies, *, prune=False, dry_run=False)",
           "Makes the policies those of the texts. Returns what has changed, by name."),
    METHOD("remove", table_remove, METH_O, "($self, name, /)", "Removes a policy."),
    METHOD("key", key_before, METH_O, "($self, key, /)", "A key for many uses."),
    METHOD("address", key_address, METH_VARARGS | METH_KEYWORDS,
           "($self, address, prefix4=32, prefix6=64)",
           "The key of a client's address, of whose bits the first count."),
    METHOD("stats", table_stats, METH_NOARGS, "($self)", "The table's counts, by name."),
    METHOD("metrics", table_metrics, METH_NOARGS, "($self)", "The text for Prometheus."),
    METHOD("close", table_close, METH_NOARGS, "($self)", "Closes the table; its file stays."),
    METHOD("__enter__", table_enter, METH_NOARGS, "($self)", ""),
    METHOD("__exit__", table_exit, METH_VARARGS, "($self, *raised)", ""),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"path", (getter)table_path, NULL, NULL, NULL},
    {"policies", (getter)table_policies, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A table of counts, which stint.open opens."},
    {Py_tp_dealloc, table_free},
    {Py_tp_repr, table_repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_mp_subscript, table_item},
    {Py_sq_contains, table_contains},
    {0, NULL},
};

PyType_Spec table_spec = {
    .name = "stint.Table",
    .basicsize = sizeof(struct table),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
