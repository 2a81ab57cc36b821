// FileIdentity: which file a descriptor meant when it became ours. Numbers are used again: a program may close what is not
// its to close, and open something else. Used by the loop, the transports and the children before they close or change
// what a number means. It knows a file, not an open file description: two that opened the same file are the same to it.
// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

namespace uvpy::core {

class FileIdentity {
 public:
  FileIdentity() = default;
  explicit FileIdentity(const struct stat& found) : device_(found.st_dev), inode_(found.st_ino) {}
  // What the number means now; nothing where that cannot be told.
  static FileIdentity of(int fd) {
    struct stat found{};
    return fstat(fd, &found) == 0 ? FileIdentity(found) : FileIdentity();
  }

  bool operator==(const FileIdentity&) const = default;
  // Whether the number still means that file.
  bool is(int fd) const {
    struct stat found{};
    return fd >= 0 && fstat(fd, &found) == 0 && FileIdentity(found) == *this;
  }
  // For tables of files.
  ino_t inode() const { return inode_; }

 private:
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace uvpy::core
