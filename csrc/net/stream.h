// Stream: the read path and the write path over a uv_stream_t. A byte in: libuv -> on_alloc, on_read -> Protocol. A byte
// out: write -> at once, or gathered for the end of the turn -> what the kernel refuses waits in uv_write, a piece at a
// time -> on_write. See "the life of a byte" in csrc/README.md.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "net/duplex.h"
#include "net/write_queue.h"
#include "py/buffer.h"
#include "uv/status.h"

namespace uvpy::net {

class Stream : public Duplex {
 public:
  void flush() final;
  void check_descriptor() final;
  void end_with_loop() final;

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

  virtual uv_stream_t* stream() = 0;
  virtual bool stream_is_open() const = 0;

  bool force_close(PyObject* exc) final;
  void settle() final;
  bool abandon_later() final;
  std::size_t waiting() const final;
  int visit_stream(visitproc visit, void* arg) const;
  void clear_stream();

 private:
  // ---- reading
  void settle_hold();
  bool start();
  void start_again();
  void stop() final;
  void received(ssize_t count, const uv_buf_t* buf);
  bool schedule_unread();
  void ended();
  static void on_alloc(uv_handle_t* handle, std::size_t suggested, uv_buf_t* buf);
  static void on_read(uv_stream_t* handle, ssize_t count, const uv_buf_t* buf);
  void offer(uv_buf_t* buf);
  void queue_read();
  void release_buffer();

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
  void send_queue();
  void send_chunks();
  void start_request();
  void write_failed(uv::Status status);
  void written(int status);
  void drained();
  bool shutdown_write(bool raises);
  static void on_write(uv_write_t* request, int status);

  WriteQueue queue_;
  // Made when first needed: most connections never are.
  struct Sending {
    uv_write_t request{};
    WriteQueue queue;  // what the request refers to
  };
  std::unique_ptr<Sending> sending_;
  std::unique_ptr<py::BufferView> read_buffer_;  // of a BufferedProtocol
  py::Ref<> unread_;                             // bytes to be delivered before what the kernel has
  py::Ref<> empty_waiter_;
  std::uint64_t read_turn_ = 0;
  std::uint64_t write_turn_ = 0;
  unsigned turn_writes_ = 0;
  unsigned many_writes_ = 0;  // how often of late a turn had several writes
  bool in_alloc_ = false;
  bool stop_pending_ = false;
  bool eof_ = false;
  bool writing_ = false;
};

}  // namespace uvpy::net
