/* SPDX-License-Identifier: MIT
 * Several requests that are decided as one: all of them take their tokens, or none does. */
#include "python.h"

/* Reads (policy, key) or (policy, key, cost). The policy is borrowed. */
static struct policy *part_read(struct table *table, PyObject *part,
                                struct stint_request *request) {
    const Py_ssize_t n = PyTuple_Check(part) ? PyTuple_Size(part) : 0;
    uint32_t cost = 1;
    stint_key key;

    if (n < 2 || n > 3 || !Py_IS_TYPE(PyTuple_GetItem(part, 0), policy_type)) {
        PyErr_SetString(PyExc_TypeError, "all takes tuples of a policy, a key, and a cost if it is "
                                         "not 1: table.all((api, user), (busy, user))");
        return NULL;
    }
    struct policy *policy = (struct policy *)PyTuple_GetItem(part, 0);
    if (policy->table != table) {
        PyErr_Format(PyExc_ValueError, "the policy %R is of another table", policy->name);
        return NULL;
    }
    if (!key_read(table, PyTuple_GetItem(part, 1), &key) ||
        (n == 3 && !number_read(PyTuple_GetItem(part, 2), "cost", &cost)))
        return NULL;
    *request = (struct stint_request)STINT_REQUEST(policy->id, key, cost);
    return policy;
}

/* Looks for what was not decided, and tells of it; labels what was refused first.
 *   args  what the requests were read from
 * Returns whether the verdicts stand. */
static bool all_told(struct table *table, PyObject *const *args,
                     const struct stint_request *requests, const struct stint_verdict *verdicts,
                     size_t n) {
    uint32_t flags = 0;

    for (size_t i = 0; i < n; i++) {
        flags |= verdicts[i].flags;
        if ((verdicts[i].flags & STINT_FIRST_REFUSAL) != 0)
            key_label(table, PyTuple_GetItem(args[i], 1), requests[i].key);
        if ((verdicts[i].flags & STINT_UNKNOWN_POLICY) != 0) {
            policy_unknown(table, ((struct policy *)PyTuple_GetItem(args[i], 0))->name);
            return false;
        }
        if ((verdicts[i].flags & STINT_BAD_REQUEST) != 0) {
            if (stint_request_check(table->limiter, &requests[i]) != 0)
                request_failed(table, &requests[i]);
            else /* the one thing that a group adds */
                PyErr_SetString(PyExc_ValueError, "two requests of all are of one key by one "
                                                  "policy: add their costs");
            return false;
        }
    }
    return table_told(table, flags);
}

static PyObject *verdicts_made(struct policy *const *policies, const struct stint_request *requests,
                               const struct stint_verdict *verdicts, Py_ssize_t n) {
    PyObject *made = PyTuple_New(n);

    for (Py_ssize_t i = 0; made != NULL && i < n; i++) {
        PyObject *verdict = verdict_made(policies[i], requests[i].key, &verdicts[i]);
        if (verdict == NULL || PyTuple_SetItem(made, i, verdict) != 0)
            Py_CLEAR(made);
    }
    return made;
}

/* A policy that was removed may be back, by another id: then all are asked once more. */
static bool found_again(struct stint_request *requests, struct policy *const *policies,
                        const struct stint_verdict *verdicts, size_t n) {
    bool again = false;

    for (size_t i = 0; i < n; i++)
        if ((verdicts[i].flags & STINT_UNKNOWN_POLICY) != 0) {
            again = policy_found_again(policies[i]);
            requests[i].policy = policies[i]->id;
        }
    return again;
}

/* table.all((policy, key[, cost]), ...) */
PyObject *group_decide(struct table *table, PyObject *const *args, Py_ssize_t n) {
    struct policy *policies[STINT_ALL_MAX];
    struct stint_request requests[STINT_ALL_MAX];
    struct stint_verdict verdicts[STINT_ALL_MAX];

    if (!table_deciding(table))
        return NULL;
    if (n < 1 || n > STINT_ALL_MAX)
        return PyErr_Format(PyExc_ValueError, "all takes 1 to %d requests, not %zd", STINT_ALL_MAX,
                            n);
    for (Py_ssize_t i = 0; i < n; i++) {
        policies[i] = part_read(table, args[i], &requests[i]);
        if (policies[i] == NULL)
            return NULL;
    }
    bool allowed = stint_decide_all(table->limiter, requests, (size_t)n, STINT_NOW, verdicts);
    if (!allowed && found_again(requests, policies, verdicts, (size_t)n))
        allowed = stint_decide_all(table->limiter, requests, (size_t)n, STINT_NOW, verdicts);
    if (!all_told(table, args, requests, verdicts, (size_t)n)) {
        if (!table->closed) /* by whoever shows warnings */
            (void)stint_refund_all(table->limiter, requests, verdicts, (size_t)n);
        return NULL;
    }
    struct group *group = PyObject_New(struct group, group_type);
    if (group == NULL)
        return NULL;
    group->table = (struct table *)Py_NewRef((PyObject *)table);
    group->allowed = allowed;
    group->verdicts = verdicts_made(policies, requests, verdicts, n);
    if (group->verdicts == NULL)
        Py_CLEAR(group);
    return (PyObject *)group;
}

/* ---- Giving back --------------------------------------------------------------------------- */

static struct verdict *verdict_at(struct group *group, Py_ssize_t i) {
    return (struct verdict *)PyTuple_GetItem(group->verdicts, i);
}

/* Says whether the policy that decided holds tokens for as long as the work takes. */
static bool holds(struct group *group, const struct verdict *verdict) {
    struct stint_policy policy = STINT_POLICY_INIT;

    return verdict->verdict.granted != 0 &&
           stint_policy_get(group->table->limiter, verdict->verdict.policy, &policy) == 0 &&
           (policy.flags & STINT_IN_FLIGHT) != 0;
}

static uint64_t give_back(struct group *group, bool all) {
    uint64_t given = 0;

    if (group->table->closed)
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(group->verdicts); i++) {
        struct verdict *verdict = verdict_at(group, i);
        if (all || holds(group, verdict))
            given += stint_refund(group->table->limiter, verdict->key, &verdict->verdict,
                                  verdict->verdict.granted);
    }
    return given;
}

/* The work is done: what is in flight comes back. */
static PyObject *group_done(struct group *group, PyObject *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(give_back(group, false));
}

/* The work was not done: all comes back. */
static PyObject *group_refund(struct group *group, PyObject *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(give_back(group, true));
}

static PyObject *group_enter(struct group *group, PyObject *unused) {
    (void)unused;
    return Py_NewRef((PyObject *)group);
}

static PyObject *group_exit(struct group *group, PyObject *args) {
    (void)args;
    (void)give_back(group, false);
    Py_RETURN_NONE;
}

/* ---- The type ------------------------------------------------------------------------------ */

static size_t verdicts_copy(struct group *group, struct stint_verdict *verdicts) {
    const Py_ssize_t n = PyTuple_Size(group->verdicts);

    for (Py_ssize_t i = 0; i < n; i++)
        verdicts[i] = verdict_at(group, i)->verdict;
    return (size_t)n;
}

static PyObject *group_headers(struct group *group, PyObject *args, PyObject *kwargs) {
    struct stint_verdict verdicts[STINT_ALL_MAX];
    const size_t n = verdicts_copy(group, verdicts);

    return headers_of(group->table, args, kwargs, verdicts, n);
}

static int group_true(struct group *group) {
    return group->allowed;
}

static PyObject *get_allowed(struct group *group, void *unused) {
    (void)unused;
    return PyBool_FromLong(group->allowed);
}

static PyObject *get_verdicts(struct group *group, void *unused) {
    (void)unused;
    return Py_NewRef(group->verdicts);
}

/* When it is worth asking again: the longest wait of those that refused. */
static PyObject *get_retry_after(struct group *group, void *unused) {
    uint64_t longest = 0;

    (void)unused;
    for (Py_ssize_t i = 0; i < PyTuple_Size(group->verdicts); i++) {
        const struct stint_verdict *verdict = &verdict_at(group, i)->verdict;
        if (!verdict->allowed && verdict->retry_after > longest)
            longest = verdict->retry_after;
    }
    return seconds_of(longest);
}

static PyObject *get_holds(struct group *group, void *unused) {
    bool any = false;

    (void)unused;
    for (Py_ssize_t i = 0; !group->table->closed && i < PyTuple_Size(group->verdicts); i++)
        any = any || holds(group, verdict_at(group, i));
    return PyBool_FromLong(any);
}

static PyObject *group_repr(struct group *group) {
    return PyUnicode_FromFormat("<stint.Group %s: %R>", group->allowed ? "allowed" : "refused",
                                group->verdicts);
}

static void group_free(PyObject *self) {
    struct group *group = (struct group *)self;

    Py_XDECREF(group->verdicts);
    Py_DECREF(group->table);
    object_free(self);
}

static PyMethodDef methods[] = {
    METHOD("done", group_done, METH_NOARGS, "($self)",
           "The work is done: what is in flight comes back. Returns how many tokens."),
    METHOD("refund", group_refund, METH_NOARGS, "($self)",
           "The work was not done: all comes back. Returns how many tokens."),
    METHOD("headers", group_headers, METH_VARARGS | METH_KEYWORDS, "($self, style='draft')",
           "The fields of a response, as pairs."),
    METHOD("__enter__", group_enter, METH_NOARGS, "($self)", ""),
    METHOD("__exit__", group_exit, METH_VARARGS, "($self, *raised)", ""),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"allowed", (getter)get_allowed, NULL, NULL, NULL},
    {"verdicts", (getter)get_verdicts, NULL, NULL, NULL},
    {"retry_after", (getter)get_retry_after, NULL, NULL, NULL},
    {"in_flight", (getter)get_holds, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Several requests that were decided as one. It is true if all are allowed."},
    {Py_tp_dealloc, group_free},
    {Py_tp_repr, group_repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_nb_bool, group_true},
    {0, NULL},
};

PyType_Spec group_spec = {
    .name = "stint.Group",
    .basicsize = sizeof(struct group),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
