/* SPDX-License-Identifier: MIT
 * Policies, and the requests that are decided by one. */

#include "python.h"

PyObject *policy_made(struct table *table, PyObject *name, uint32_t id) {
    struct policy *policy = PyObject_New(struct policy, policy_type);

    if (policy == NULL)
        return NULL;
    policy->table = (struct table *)Py_NewRef((PyObject *)table);
    policy->name = Py_NewRef(name);
    policy->id = id;
    policy->counts = UINT32_MAX;
    return (PyObject *)policy;
}

/* The names of the policies that the table has: a list. */
PyObject *policy_names(struct table *table) {
    PyObject *names = PyList_New(0);
    struct stint_policy policy = STINT_POLICY_INIT;

    if (names == NULL || !table_deciding(table))
        goto wrong;
    for (uint32_t id = 0; id < table->max_policies; id++) {
        uint32_t now;
        /* An id that leads to another policy tells that one. */
        if (stint_policy_get(table->limiter, id, &policy) != 0 ||
            stint_policy_find(table->limiter, policy.name, &now) != 0 || now != id)
            continue;
        PyObject *name = PyUnicode_FromString(policy.name);
        if (name == NULL || PyList_Append(names, name) != 0) {
            Py_XDECREF(name);
            goto wrong;
        }
        Py_DECREF(name);
    }
    return names;
wrong:
    Py_XDECREF(names);
    return NULL;
}

/* Raises KeyError: the table has no policy of this name. */
void policy_unknown(struct table *table, PyObject *name) {
    PyObject *names = policy_names(table);

    if (names == NULL)
        return;
    PyObject *comma = PyUnicode_FromString(", ");
    PyObject *list = comma != NULL ? PyUnicode_Join(comma, names) : NULL;
    if (list != NULL)
        PyErr_Format(PyExc_KeyError, "the table has no policy %S; it has: %S", name,
                     PyList_Size(names) == 0 ? Py_None : list);
    Py_XDECREF(list);
    Py_XDECREF(comma);
    Py_DECREF(names);
}

/* A policy that was removed may be back, by another id. */
bool policy_found_again(struct policy *policy) {
    const char *name = PyUnicode_AsUTF8AndSize(policy->name, NULL);

    return name != NULL && stint_policy_find(policy->table->limiter, name, &policy->id) == 0;
}

/* ---- What is asked for --------------------------------------------------------------------- */

/* Reads a number of tokens. */
bool number_read(PyObject *from, const char *what, uint32_t *number) {
    if (!PyLong_Check(from) || PyBool_Check(from)) {
        PyErr_Format(PyExc_TypeError, "%s is an int, not %R", what, from);
        return false;
    }
    const unsigned long long value = PyLong_AsUnsignedLongLong(from);
    if (PyErr_Occurred() || value > UINT32_MAX) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is 0 to 2**32 - 1 tokens, not %S", what, from);
        return false;
    }
    *number = (uint32_t)value;
    return true;
}

/* Reads a limit or a burst of the request's own; None: none. To the library 0 is none, too: who may
 * do nothing would have the policy's. */
static bool own_read(PyObject *from, const char *what, uint32_t *own) {
    if (from == Py_None)
        return true;
    if (!number_read(from, what, own))
        return false;
    if (*own == 0)
        PyErr_Format(
            PyExc_ValueError,
            "%s is at least 1 token, not 0: refuse without asking, or leave it out for the "
            "policy's own %s",
            what, what);
    return *own != 0;
}

/* Reads one argument that was given by its name; an exception says what it may be.
 *   options  whether a take's are allowed */
static bool option_read(PyObject *name, PyObject *value, bool options, struct ask *ask) {
    static const struct {
        const char *name;
        uint32_t flag;
    } flags[] = {{"partial", STINT_PARTIAL},
                 {"drain", STINT_DRAIN},
                 {"reserve", STINT_RESERVE},
                 {"tentative", STINT_TENTATIVE}};

    if (PyUnicode_CompareWithASCIIString(name, "cost") == 0)
        return number_read(value, "cost", &ask->cost);
    if (options && PyUnicode_CompareWithASCIIString(name, "limit") == 0)
        return own_read(value, "limit", &ask->limit);
    if (options && PyUnicode_CompareWithASCIIString(name, "burst") == 0)
        return own_read(value, "burst", &ask->burst);
    for (size_t i = 0; options && i < sizeof(flags) / sizeof(flags[0]); i++)
        if (PyUnicode_CompareWithASCIIString(name, flags[i].name) == 0) {
            const int true_or_false = PyObject_IsTrue(value);
            ask->flags |= true_or_false == 1 ? flags[i].flag : 0;
            return true_or_false >= 0;
        }
    PyErr_Format(PyExc_TypeError, "there is no argument '%U': the arguments are key, cost%s", name,
                 options ? ", limit, burst, partial, drain, reserve and tentative" : "");
    return false;
}

/* What a method was called with: key, cost=1, and options. */
static bool ask_read(struct policy *policy, PyObject *const *args, Py_ssize_t n, PyObject *names,
                     bool options, struct ask *ask) {
    const Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;

    if (n < 1 || n > 2) {
        PyErr_SetString(PyExc_TypeError, "the arguments are a key, and a cost if it is not 1");
        return false;
    }
    ask->cost = 1;
    ask->from = args[0];
    if (!table_deciding(policy->table) || !key_read(policy->table, args[0], &ask->key) ||
        (n == 2 && !number_read(args[1], "cost", &ask->cost)))
        return false;
    for (Py_ssize_t i = 0; i < named; i++)
        if (!option_read(PyTuple_GetItem(names, i), args[n + i], options, ask))
            return false;
    return named == 0 ||
           table_deciding(policy->table); /* an option's __bool__ may have closed it */
}

/* ---- Deciding ------------------------------------------------------------------------------ */

static struct stint_request request_of(const struct policy *policy, const struct ask *ask) {
    struct stint_request request = STINT_REQUEST(policy->id, ask->key, ask->cost);

    request.limit = ask->limit;
    request.flags = ask->flags;
    request.burst = ask->burst;
    return request;
}

static void decide_once(struct policy *policy, const struct ask *ask,
                        struct stint_verdict *verdict) {
    struct stint_limiter *limiter = policy->table->limiter;

    if ((ask->flags | ask->limit | ask->burst) == 0) {
        (void)stint_take(limiter, policy->id, ask->key, ask->cost, STINT_NOW, verdict);
        return;
    }
    const struct stint_request request = request_of(policy, ask);
    (void)stint_decide(limiter, &request, STINT_NOW, verdict);
}

/* Raises what stint_request_check says of a request that makes no sense. */
void request_failed(const struct table *table, const struct stint_request *request) {
    (void)failed(stint_request_check(table->limiter, request), table->path);
}

/* Decides. Returns whether there is a verdict; else an exception is set. */
static bool decide(struct policy *policy, const struct ask *ask, struct stint_verdict *verdict) {
    const uint32_t rare = STINT_FIRST_REFUSAL | STINT_UNTRACKED | STINT_REPLACED |
                          STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST;

    decide_once(policy, ask, verdict);
    if ((verdict->flags & STINT_UNKNOWN_POLICY) != 0 && policy_found_again(policy))
        decide_once(policy, ask, verdict);
    if ((verdict->flags & rare) == 0 && policy->table->forks == forks_of_process())
        return true;
    if ((verdict->flags & STINT_FIRST_REFUSAL) != 0)
        key_label(policy->table, ask->from, ask->key);
    if ((verdict->flags & STINT_UNKNOWN_POLICY) != 0) {
        policy_unknown(policy->table, policy->name);
        return false;
    }
    if ((verdict->flags & STINT_BAD_REQUEST) != 0) {
        const struct stint_request request = request_of(policy, ask);
        request_failed(policy->table, &request);
        return false;
    }
    if (table_told(policy->table, verdict->flags))
        return true;
    if (!policy->table->closed) /* by whoever shows warnings */
        (void)stint_refund(policy->table->limiter, ask->key, verdict, verdict->granted);
    return false;
}

/* What is in flight is given back by its verdict, which allow does not return. Returns whether the
 * verdict is of no such policy; else an exception is set, and it holds nothing. */
static bool allow_check(struct policy *policy, const struct ask *ask,
                        struct stint_verdict *verdict) {
    struct stint_limiter *limiter = policy->table->limiter;
    struct stint_policy now = STINT_POLICY_INIT;

    if (policy->table->closed || stint_policy_get(limiter, verdict->policy, &now) != 0)
        return true;
    if ((now.flags & STINT_IN_FLIGHT) == 0) {
        policy->counts = verdict->policy;
        return true;
    }
    (void)stint_refund(limiter, ask->key, verdict, verdict->granted);
    PyErr_Format(PyExc_ValueError,
                 "%S is in flight, and allow returns nothing to give back: use take and refund, or "
                 "`with table.all((policy, key))`",
                 policy->name);
    return false;
}

static PyObject *policy_allow(struct policy *policy, PyObject *const *args, Py_ssize_t n,
                              PyObject *names) {
    struct ask ask = {.flags = 0};
    struct stint_verdict verdict;

    if (!ask_read(policy, args, n, names, true, &ask) || !decide(policy, &ask, &verdict) ||
        (verdict.policy != policy->counts && !allow_check(policy, &ask, &verdict)))
        return NULL;
    return PyBool_FromLong(verdict.allowed);
}

static PyObject *answered(struct policy *policy, const struct ask *ask) {
    struct stint_verdict verdict;

    return decide(policy, ask, &verdict) ? verdict_made(policy, ask->key, &verdict) : NULL;
}

static PyObject *policy_take(struct policy *policy, PyObject *const *args, Py_ssize_t n,
                             PyObject *names) {
    struct ask ask = {.flags = 0};

    return ask_read(policy, args, n, names, true, &ask) ? answered(policy, &ask) : NULL;
}

static PyObject *policy_charge(struct policy *policy, PyObject *const *args, Py_ssize_t n,
                               PyObject *names) {
    struct ask ask = {.flags = STINT_CHARGE};

    return ask_read(policy, args, n, names, false, &ask) ? answered(policy, &ask) : NULL;
}

static PyObject *policy_peek(struct policy *policy, PyObject *const *args, Py_ssize_t n,
                             PyObject *names) {
    struct ask ask = {.flags = STINT_PEEK};

    return ask_read(policy, args, n, names, true, &ask) ? answered(policy, &ask) : NULL;
}

static PyObject *policy_reset(struct policy *policy, PyObject *from) {
    stint_key key;

    if (!table_deciding(policy->table) || !key_read(policy->table, from, &key))
        return NULL;
    (void)policy_found_again(policy);
    return PyBool_FromLong(stint_reset(policy->table->limiter, policy->id, key));
}

/* policy.refund(verdict, tokens=None) */
static PyObject *policy_refund(struct policy *policy, PyObject *const *args, Py_ssize_t n,
                               PyObject *names) {
    const Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
    uint32_t tokens = UINT32_MAX;

    if (n < 1 || n + named > 2 || !Py_IS_TYPE(args[0], verdict_type) ||
        (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "tokens") != 0))
        return PyErr_Format(PyExc_TypeError, "refund takes what take or charge returned, and how "
                                             "many tokens if not all come back");
    struct verdict *verdict = (struct verdict *)args[0];
    if (!table_deciding(policy->table) ||
        (n + named == 2 && args[1] != Py_None && !number_read(args[1], "tokens", &tokens)))
        return NULL;
    if (verdict->policy->table != policy->table ||
        PyUnicode_Compare(verdict->policy->name, policy->name) != 0)
        return PyErr_Format(PyExc_ValueError,
                            "the verdict is of the policy %R%s: give it back to that one",
                            verdict->policy->name,
                            verdict->policy->table != policy->table ? " of another table" : "");
    return PyLong_FromUnsignedLong(
        stint_refund(policy->table->limiter, verdict->key, &verdict->verdict, tokens));
}

/* policy.stats() */
static PyObject *policy_stats(struct policy *policy, PyObject *unused) {
    (void)unused;
    if (!table_deciding(policy->table))
        return NULL;
    PyObject *counts =
        policy_found_again(policy) ? counts_of_policy(policy->table->limiter, policy->id) : NULL;
    if (counts == NULL && !PyErr_Occurred())
        policy_unknown(policy->table, policy->name);
    return counts;
}

/* ---- The type ------------------------------------------------------------------------------ */

static PyObject *policy_name(struct policy *policy, void *unused) {
    (void)unused;
    return Py_NewRef(policy->name);
}

static PyObject *policy_table(struct policy *policy, void *unused) {
    (void)unused;
    return Py_NewRef((PyObject *)policy->table);
}

/* As it is now, in the notation. */
static PyObject *policy_text(struct policy *policy, void *unused) {
    struct stint_policy now = STINT_POLICY_INIT;
    char text[512];

    (void)unused;
    if (!table_deciding(policy->table))
        return NULL;
    if (!policy_found_again(policy) ||
        stint_policy_get(policy->table->limiter, policy->id, &now) != 0) {
        policy_unknown(policy->table, policy->name);
        return NULL;
    }
    if (stint_policy_format(&now, text, sizeof(text)) < 0)
        return PyErr_Format(PyExc_RuntimeError, "%s", stint_reason());
    return PyUnicode_FromString(text);
}

static PyObject *policy_repr(struct policy *policy) {
    return PyUnicode_FromFormat("<stint.Policy %R>", policy->name);
}

static void policy_free(PyObject *self) {
    Py_DECREF(((struct policy *)self)->table);
    Py_DECREF(((struct policy *)self)->name);
    object_free(self);
}

#define ASKED                                                                                      \
    "($self, key, /, cost=1, *, limit=None, burst=None, partial=False, drain=False, "              \
    "reserve=False, tentative=False)"

static PyMethodDef methods[] = {
    METHOD("allow", policy_allow, METH_FASTCALL | METH_KEYWORDS, ASKED,
           "Says whether the request fits. If so, its tokens are taken."),
    METHOD("take", policy_take, METH_FASTCALL | METH_KEYWORDS, ASKED,
           "Takes the tokens if they fit. Returns the verdict."),
    METHOD("charge", policy_charge, METH_FASTCALL | METH_KEYWORDS, "($self, key, /, cost=1)",
           "Takes the tokens, whatever is left. Returns the verdict."),
    METHOD("peek", policy_peek, METH_FASTCALL | METH_KEYWORDS, ASKED,
           "Returns the verdict that take would return, and takes nothing."),
    METHOD("refund", policy_refund, METH_FASTCALL | METH_KEYWORDS,
           "($self, verdict, /, tokens=None)",
           "Gives back what the verdict took: None: all. Returns how many tokens came back."),
    METHOD("reset", policy_reset, METH_O, "($self, key, /)",
           "Makes the key as good as new. Says whether there was anything to forget."),
    METHOD("stats", policy_stats, METH_NOARGS, "($self)", "The policy's counts, by name."),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"name", (getter)policy_name, NULL, NULL, NULL},
    {"table", (getter)policy_table, NULL, NULL, NULL},
    {"text", (getter)policy_text, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A limit for each key: table[\"api\"]."},
    {Py_tp_dealloc, policy_free},
    {Py_tp_repr, policy_repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {0, NULL},
};

PyType_Spec policy_spec = {
    .name = "stint.Policy",
    .basicsize = sizeof(struct policy),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
