/* SPDX-License-Identifier: MIT
 * The module stint._stint: its types, and where it refuses to be imported. */
#include <pthread.h>

#include "python.h"

static PyMethodDef functions[] = {
    METHOD(
        "open", table_open, METH_VARARGS | METH_KEYWORDS,
        "(path, max_entries=None, policies=None, *, on_full='replace', max_policies=0, labels=0, "
        "mode=0)",
        "Opens a table that all processes share which open this path.\n\n"
        "path: a whole path. None: private memory, which no other process shares.\n"
        "max_entries: clients times policies. None: the table must be there.\n"
        "policies: texts such as '100/minute name=api', which are put in force.\n"
        "on_full: what a new key gets in a full table: 'replace', 'admit' or 'refuse'.\n"
        "labels: how many names of refused keys there is room for.\n"
        "max_policies, mode: 0: 64, and 0o600."),
    METHOD("clock_set", clock_set, METH_O, "(now, /)", "Of stint.testing."),
    {NULL, NULL, 0, NULL},
};

static bool types_make(void) {
    struct {
        PyTypeObject **type;
        PyType_Spec *spec;
    } types[] = {{&table_type, &table_spec},
                 {&policy_type, &policy_spec},
                 {&key_type, &key_spec},
                 {&verdict_type, &verdict_spec},
                 {&group_type, &group_spec}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        *types[i].type = (PyTypeObject *)PyType_FromSpec(types[i].spec);
        if (*types[i].type == NULL)
            return false;
    }
    full_table_warning = PyErr_NewExceptionWithDoc(
        "stint.FullTableWarning", "The table is full: keys lose their counts, or have none.",
        PyExc_RuntimeWarning, NULL);
    not_shared_warning = PyErr_NewExceptionWithDoc(
        "stint.NotSharedWarning",
        "The process was forked, and its table is in private memory: each process counts apart.",
        PyExc_RuntimeWarning, NULL);
    return full_table_warning != NULL && not_shared_warning != NULL;
}

/* The types are of the main interpreter, and so is what waits for the GIL. */
static int begin(PyObject *module) {
    static bool made;

    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "stint runs in the main interpreter only, and this is a sub-interpreter: "
                        "with mod_wsgi, write 'WSGIApplicationGroup %{GLOBAL}'");
        return -1;
    }
    if (!made) {
        if (!types_make())
            return -1;
        if (pthread_atfork(NULL, NULL, child_begin) != 0) {
            PyErr_NoMemory();
            return -1;
        }
        made = true;
    }
    if (PyModule_AddType(module, table_type) != 0 || PyModule_AddType(module, policy_type) != 0 ||
        PyModule_AddType(module, key_type) != 0 || PyModule_AddType(module, verdict_type) != 0 ||
        PyModule_AddType(module, group_type) != 0 ||
        PyModule_AddObjectRef(module, "FullTableWarning", full_table_warning) != 0 ||
        PyModule_AddObjectRef(module, "NotSharedWarning", not_shared_warning) != 0)
        return -1;
    return PyModule_AddStringConstant(module, "__version__", stint_version());
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, begin},
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "stint._stint",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__stint(void);
PyMODINIT_FUNC PyInit__stint(void) {
    return PyModuleDef_Init(&definition);
}
