// Python functions whose calls go straight to C++. A method of C type is no function to those who look at a class:
// unittest.mock's autospec, inspect, weakref.WeakMethod and pickle take only real functions for methods. So the class
// that users see has functions, made in Python with their signatures and texts, and a call of one becomes the call
// of the method behind it: uvpy/_native.py makes them. Knows nothing of what the methods do.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

namespace uvpy::py {

// Makes a Python function call `method` with its own arguments from now on. It must be a closure over the method alone,
// and do the same in Python: profilers and debuggers may run its body. Gives what a class is to have: the function, or
// for the interpreters before 3.12, which run the body of every function they see, a stand-in of the given type. Null
// with TypeError set for any other function.
PyObject* native_function(PyTypeObject* stand_in_type, PyObject* function, PyObject* method);

// The type of these stand-ins. Null with an exception set.
PyTypeObject* make_stand_in_type(PyObject* module);

}  // namespace uvpy::py
