// Reading and making addresses. Nothing here resolves a name.
// SPDX-License-Identifier: MIT
#include "net/address.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace uvpy::net {

namespace {

constexpr std::size_t kPath = offsetof(sockaddr_un, sun_path);

// A plain number from 0 to `most`; false for all else.
bool read_number(PyObject* object, unsigned long most, unsigned long* number) {
  if (!PyLong_CheckExact(object)) {
    return false;
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  *number = static_cast<unsigned long>(value);
  return overflow == 0 && value >= 0 && *number <= most;
}

// The text of a plain str of ASCII without NUL, which is what a numeric host is; null for all else.
const char* plain_text(PyObject* object) {
  if (!PyUnicode_CheckExact(object) || !PyUnicode_IS_COMPACT_ASCII(object)) {
    return nullptr;
  }
  const char* text = static_cast<const char*>(PyUnicode_DATA(object));
  return std::strlen(text) == static_cast<std::size_t>(PyUnicode_GET_LENGTH(object)) ? text : nullptr;
}

bool read_internet(int family, PyObject* address, RawAddress* raw) {
  const Py_ssize_t parts = PyTuple_CheckExact(address) ? PyTuple_GET_SIZE(address) : 0;
  unsigned long port = 0;
  const char* host = parts >= 2 ? plain_text(PyTuple_GET_ITEM(address, 0)) : nullptr;
  if (host == nullptr || !read_number(PyTuple_GET_ITEM(address, 1), 0xffff, &port)) {
    return false;
  }
  if (family == AF_INET) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(static_cast<std::uint16_t>(port));
    raw->size = sizeof in;
    const bool known = parts == 2 && inet_pton(AF_INET, host, &in.sin_addr) == 1;
    std::memcpy(&raw->storage, &in, sizeof in);
    return known;
  }
  unsigned long flow = 0;
  unsigned long scope = 0;
  if (parts > 4 || (parts > 2 && !read_number(PyTuple_GET_ITEM(address, 2), 0xfffff, &flow)) ||
      (parts > 3 && !read_number(PyTuple_GET_ITEM(address, 3), 0xffffffff, &scope))) {
    return false;
  }
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(static_cast<std::uint16_t>(port));
  in.sin6_flowinfo = htonl(static_cast<std::uint32_t>(flow));
  in.sin6_scope_id = static_cast<std::uint32_t>(scope);
  raw->size = sizeof in;
  const bool known = inet_pton(AF_INET6, host, &in.sin6_addr) == 1;
  std::memcpy(&raw->storage, &in, sizeof in);
  return known;
}

bool read_path(PyObject* address, RawAddress* raw) {
  const char* path = plain_text(address);
  const std::size_t length = path != nullptr ? std::strlen(path) : 0;
  if (length == 0 || length >= sizeof(sockaddr_un::sun_path)) {
    return false;
  }
  raw->storage = {};
  raw->storage.ss_family = AF_UNIX;
  std::memcpy(reinterpret_cast<char*>(&raw->storage) + kPath, path, length + 1);
  raw->size = static_cast<socklen_t>(kPath + length + 1);
  return true;
}

}  // namespace

py::Ref<> socket_address(const sockaddr_storage& address, socklen_t size) {
  char host[INET6_ADDRSTRLEN];
  if (size >= sizeof(sockaddr_in) && address.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    inet_ntop(AF_INET, &in.sin_addr, host, sizeof host);
    return py::steal(Py_BuildValue("(si)", host, static_cast<int>(ntohs(in.sin_port))));
  }
  if (size >= sizeof(sockaddr_in6) && address.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    inet_ntop(AF_INET6, &in.sin6_addr, host, sizeof host);
    return py::steal(Py_BuildValue("(siII)", host, static_cast<int>(ntohs(in.sin6_port)),
                                   static_cast<unsigned>(ntohl(in.sin6_flowinfo)),
                                   static_cast<unsigned>(in.sin6_scope_id)));
  }
  if (size >= kPath && address.ss_family == AF_UNIX) {
    const char* path = reinterpret_cast<const char*>(&address) + kPath;
    const auto length = static_cast<Py_ssize_t>(size - kPath);
    if (length > 0 && path[0] == '\0') {
      return py::steal(PyBytes_FromStringAndSize(path, length));  // abstract
    }
    return py::steal(PyUnicode_DecodeFSDefaultAndSize(path, static_cast<Py_ssize_t>(strnlen(path, size - kPath))));
  }
  return py::borrow(Py_None);
}

bool read_address(int family, PyObject* address, RawAddress* raw) {
  switch (family) {
    case AF_INET:
    case AF_INET6:
      return read_internet(family, address, raw);
    case AF_UNIX:
      return read_path(address, raw);
    default:
      return false;
  }
}

// ---- the cache

// Where an internet address belongs; null for the other kinds.
AddressCache::Place* AddressCache::place_of(const RawAddress& raw) {
  const int family = raw.storage.ss_family;
  if (raw.size > sizeof(Place::raw) || raw.size < sizeof(sockaddr_in) || (family != AF_INET && family != AF_INET6)) {
    return nullptr;
  }
  // By the port, which stands at the same place in both.
  const unsigned port = ntohs(reinterpret_cast<const sockaddr_in*>(&raw.storage)->sin_port);
  return &places_[(port ^ (port >> 3)) % kPlaces];
}

py::Ref<> AddressCache::object_of(const RawAddress& raw) {
  Place* place = place_of(raw);
  if (place != nullptr && place->object && place->size == raw.size &&
      std::memcmp(&place->raw, &raw.storage, raw.size) == 0) {
    return place->object.dup();
  }
  py::Ref<> made = socket_address(raw.storage, raw.size);
  if (made && place != nullptr) {
    std::memcpy(&place->raw, &raw.storage, raw.size);
    place->size = raw.size;
    place->object = made.dup();
  }
  return made;
}

bool AddressCache::raw_of(int family, PyObject* address, RawAddress* raw) {
  for (const Place& place : places_) {
    // The very tuple: what it says has not changed.
    if (place.object.get() == address) {
      std::memcpy(&raw->storage, &place.raw, place.size);
      raw->size = place.size;
      return true;
    }
  }
  if (!read_address(family, address, raw)) {
    return false;
  }
  if (Place* place = place_of(*raw)) {
    std::memcpy(&place->raw, &raw->storage, raw->size);
    place->size = raw->size;
    place->object = py::borrow(address);
  }
  return true;
}

int AddressCache::visit(visitproc visit, void* arg) const {
  for (const Place& place : places_) {
    Py_VISIT(place.object.get());
  }
  return 0;
}

void AddressCache::clear() {
  for (Place& place : places_) {
    place.object.reset();
  }
}

}  // namespace uvpy::net
