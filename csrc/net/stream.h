// Stream: the read path and the write path over a connected socket, which the watchers wait for. A byte in: on_ready ->
// receive -> Protocol. A byte out: write -> at once, or gathered for the end of the turn -> what the kernel refuses waits
// until on_ready says that it takes more. See "the life of a byte" in csrc/README.md.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "net/duplex.h"
#include "net/write_queue.h"
#include "py/buffer.h"

namespace uvpy::net {

class Stream : public Duplex {
 public:
  void flush() final;
  void end_with_loop() final;
  void leak() final;

  // ---- asyncio's methods
  PyObject* write(PyObject* data);
  PyObject* writelines(PyObject* chunks);
  PyObject* write_eof();
  PyObject* can_write_eof();
  PyObject* close();
  PyObject* abort();
  PyObject* force_close_method(PyObject* exc);
  PyObject* start_reading() final;
  PyObject* close_deferred();
  PyObject* flush_method();
  PyObject* drained_method();
  PyObject* make_empty_waiter();
  PyObject* reset_empty_waiter();
  PyObject* read_ready();
  PyObject* abandon();
  PyObject* unread(PyObject* data);
  PyObject* deliver_unread();
  PyObject* lend_descriptor(PyObject* lent);

 protected:
  ~Stream() = default;

  // The descriptor is ours from here on, and to be closed once.
  void opened();
  // Lets go of it without closing it.
  void give_up_descriptor();
  bool release_descriptor() final;
  bool force_close(PyObject* exc) final;
  void settle() final;
  bool abandon_later() final;
  std::size_t waiting() const final;
  int visit_stream(visitproc visit, void* arg) const;
  void clear_stream();

 private:
  // ---- reading
  void settle_hold();
  void begin_closing();
  static void on_ready(void* owner, unsigned ready);
  bool watch();
  bool has_descriptor();
  bool start();
  void start_again();
  void stop() final;
  struct Room {
    char* data = nullptr;
    std::size_t size = 0;
  };
  void readable();
  bool receive();
  bool receive_directly();
  bool not_received(int code);
  void filled(std::size_t size);
  void deliver(py::Ref<>&& data);
  bool schedule_unread();
  void ended();
  Room offer();
  void queue_read();
  void release_buffer();
  void leave_descriptor() final;

  // ---- writing
  // Whether data may be written now; if not, `answer` (null before) is what the method of that name returns.
  bool accepts(const char* function, PyObject** answer);
  PyObject* refuse_to_send();
  PyObject* write_bytes(PyObject* object, const char* data, Py_ssize_t size);
  bool gathers_now();
  bool send(PyObject* object, const char* data, std::size_t size);
  bool begin_waiting();
  bool keep(PyObject* object, const char* data, std::size_t size, std::size_t offset);
  ssize_t try_send(const char* data, std::size_t size) const;
  ssize_t try_send(uv_buf_t* bufs, unsigned count) const;
  void send_queue();
  void wait_to_write();
  void write_failed(int code);
  void writable();
  void written();
  void drained();
  bool shutdown_write(bool raises);

  WriteQueue queue_;
  std::unique_ptr<py::BufferView> read_buffer_;  // of a BufferedProtocol
  py::Ref<> unread_;                             // bytes to be delivered before what the kernel has
  py::Ref<> empty_waiter_;
  std::uint64_t read_turn_ = 0;
  std::uint64_t write_turn_ = 0;
  unsigned turn_writes_ = 0;
  unsigned many_writes_ = 0;  // how often of late a turn had several writes
  unsigned last_read_ = 0;    // bytes
  bool open_ = false;
  bool eof_ = false;
  bool writing_ = false;  // the kernel has refused some of what waits
};

}  // namespace uvpy::net
