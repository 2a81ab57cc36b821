# SPDX-License-Identifier: MIT
"""psycopg 3's asynchronous side against a real server: what its release's own tests would use of a loop.

psycopg's sdist comes without its tests, so this is a workload of ours over everything that waits: connecting,
queries, pipelines, COPY, notifications, cancellation, server-side cursors, two-phase commit, and the pool. Each wait
registers and removes watchers of a socket of libpq's. Run by tools/dev suites, with the address in UVPY_SUITES_DSN.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import uuid
from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import AsyncConnection, sql
from psycopg_pool import AsyncConnectionPool, AsyncNullConnectionPool, PoolTimeout

DSN = os.environ["UVPY_SUITES_DSN"]


@pytest.fixture
async def conn() -> AsyncIterator[AsyncConnection]:
    async with await AsyncConnection.connect(DSN, autocommit=True) as connection:
        yield connection


async def _one(connection: AsyncConnection, query: str, *values: object) -> object:
    row = await (await connection.execute(query, values or None)).fetchone()
    assert row is not None
    return row[0]


async def test_connect_and_query(conn: AsyncConnection) -> None:
    assert await _one(conn, "select 1") == 1
    assert not conn.closed


async def test_connect_by_name() -> None:
    dsn = DSN.replace("127.0.0.1", "localhost")
    async with await AsyncConnection.connect(dsn) as connection:
        assert await _one(connection, "select 2") == 2


async def test_connect_refused() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(psycopg.OperationalError, match="refused"):
            await AsyncConnection.connect(f"host=127.0.0.1 port={unused.getsockname()[1]} user=postgres")


async def test_connect_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            await AsyncConnection.connect(f"host=127.0.0.1 port={port} user=postgres connect_timeout=2")


async def test_second_host_is_tried() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        words = dict(word.split("=") for word in DSN.split())
        dsn = f"host=127.0.0.1,127.0.0.1 port={port},{words['port']} user=postgres dbname=postgres"
        async with await AsyncConnection.connect(dsn) as connection:
            assert connection.info.port == int(words["port"])


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 5_000_000])
async def test_large_values_come_back(conn: AsyncConnection, size: int) -> None:
    data = os.urandom(size)
    assert await _one(conn, "select %s::bytea", data) == data


async def test_many_rows(conn: AsyncConnection) -> None:
    cursor = await conn.execute("select i, repeat('x', 100) from generate_series(1, 20000) i")
    assert sum([row[0] async for row in cursor]) == 20000 * 20001 // 2


async def test_stream(conn: AsyncConnection) -> None:
    got = [row[0] async for row in conn.cursor().stream("select generate_series(1, 3000)")]
    assert got == list(range(1, 3001))


async def test_server_cursor(conn: AsyncConnection) -> None:
    async with conn.transaction(), conn.cursor("numbers") as cursor:
        await cursor.execute("select generate_series(1, 1000)")
        assert len(await cursor.fetchmany(10)) == 10
        await cursor.scroll(100)
        assert await cursor.fetchone() == (111,)
        assert len(await cursor.fetchall()) == 889


async def test_error_leaves_the_connection_usable(conn: AsyncConnection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await conn.execute("select 1 / 0")
    assert await _one(conn, "select 3") == 3


async def test_transaction_rolls_back(conn: AsyncConnection) -> None:
    await conn.execute("create temp table t (x int)")
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with conn.transaction():
            await conn.execute("insert into t values (1)")
            raise ZeroDivisionError
    assert await _one(conn, "select count(*) from t") == 0


async def test_nested_transactions(conn: AsyncConnection) -> None:
    await conn.execute("create temp table t (x int)")
    async with conn.transaction():
        await conn.execute("insert into t values (1)")
        async with conn.transaction() as inner:
            await conn.execute("insert into t values (2)")
            raise psycopg.Rollback(inner)
    assert await _one(conn, "select sum(x) from t") == 1


async def test_two_phase_commit() -> None:
    async with await AsyncConnection.connect(DSN) as connection:
        xid = connection.xid(1, str(uuid.uuid4()), "branch")
        await connection.tpc_begin(xid)
        await connection.execute("select 1")
        await connection.tpc_prepare()
        await connection.tpc_rollback()


@pytest.mark.parametrize("rows", [1, 5000])
async def test_copy_in_and_out(conn: AsyncConnection, rows: int) -> None:
    await conn.execute("create temp table t (i int, s text)")
    cursor = conn.cursor()
    async with cursor.copy("copy t from stdin") as copy:
        for number in range(rows):
            await copy.write_row((number, "y" * 200))
    assert await _one(conn, "select count(*) from t") == rows
    async with cursor.copy("copy t to stdout") as copy:
        assert len([row async for row in copy.rows()]) == rows


async def test_copy_blocks_of_a_megabyte(conn: AsyncConnection) -> None:
    await conn.execute("create temp table t (s text)")
    cursor = conn.cursor()
    async with cursor.copy("copy t from stdin") as copy:
        for _ in range(8):
            await copy.write("z" * 1_000_000 + "\n")
    async with cursor.copy("copy t to stdout") as copy:
        assert sum([len(block) async for block in copy]) == 8 * 1_000_001


async def test_copy_that_fails_in_the_middle(conn: AsyncConnection) -> None:
    await conn.execute("create temp table t (i int)")
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with conn.cursor().copy("copy t from stdin") as copy:
            await copy.write_row((1,))
            raise ZeroDivisionError
    assert await _one(conn, "select count(*) from t") == 0


async def test_pipeline(conn: AsyncConnection) -> None:
    async with conn.pipeline() as pipeline:
        cursors = [await conn.execute("select %s::int", (number,)) for number in range(200)]
        await pipeline.sync()
        assert [(await cursor.fetchone()) for cursor in cursors] == [(number,) for number in range(200)]


async def test_pipeline_error(conn: AsyncConnection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):  # noqa: PT012
        async with conn.pipeline() as pipeline:
            await conn.execute("select 1 / 0")
            await pipeline.sync()
    assert await _one(conn, "select 4") == 4


async def test_executemany(conn: AsyncConnection) -> None:
    await conn.execute("create temp table t (i int)")
    await conn.cursor().executemany("insert into t values (%s)", [(number,) for number in range(2000)])
    assert await _one(conn, "select count(*) from t") == 2000


async def test_notifications(conn: AsyncConnection) -> None:
    await conn.execute("listen channel")
    async with await AsyncConnection.connect(DSN, autocommit=True) as other:

        async def send() -> None:
            for number in range(20):
                await other.execute(sql.SQL("notify channel, {}").format(str(number)))

        sender = asyncio.create_task(send())
        got = [notify.payload async for notify in conn.notifies(timeout=20, stop_after=20)]
        await sender
    assert got == [str(number) for number in range(20)]


async def test_notifications_time_out(conn: AsyncConnection) -> None:
    await conn.execute("listen channel")
    assert [notify async for notify in conn.notifies(timeout=0.1)] == []


async def test_cancel_safe(conn: AsyncConnection) -> None:
    query = asyncio.create_task(conn.execute("select pg_sleep(30)"))
    async with await AsyncConnection.connect(DSN, autocommit=True) as other:
        while not await _one(other, "select count(*) from pg_stat_activity where query like 'select pg_sleep(30)'"):
            await asyncio.sleep(0.01)
    await conn.cancel_safe()
    with pytest.raises(psycopg.errors.QueryCanceled):
        await query
    assert await _one(conn, "select 5") == 5


async def test_task_cancelled_in_a_query(conn: AsyncConnection) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(conn.execute("select pg_sleep(30)"), 0.2)
    assert await _one(conn, "select 6") == 6


async def test_server_ends_the_connection(conn: AsyncConnection) -> None:
    async with await AsyncConnection.connect(DSN, autocommit=True) as other:
        await other.execute("select pg_terminate_backend(%s)", (conn.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        await conn.execute("select 1")
    assert conn.closed


async def test_many_connections_at_once() -> None:
    async def work(number: int) -> object:
        async with await AsyncConnection.connect(DSN) as connection:
            return await _one(connection, "select %s::int", number)

    assert await asyncio.gather(*(work(number) for number in range(40))) == list(range(40))


async def test_connection_shared_by_tasks(conn: AsyncConnection) -> None:
    got = await asyncio.gather(*(_one(conn, "select %s::int", number) for number in range(200)))
    assert got == list(range(200))


def test_connection_per_loop_in_threads() -> None:
    got: list[object] = []

    async def work(number: int) -> None:
        async with await AsyncConnection.connect(DSN) as connection:
            for _ in range(50):
                got.append(await _one(connection, "select %s::int", number))

    threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 200


async def test_closed_before_its_loop_ends() -> None:
    connection = await AsyncConnection.connect(DSN)
    await connection.close()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        await connection.execute("select 1")


@pytest.mark.parametrize("kind", [AsyncConnectionPool, AsyncNullConnectionPool])
async def test_pool_under_load(kind: type[AsyncConnectionPool]) -> None:
    size = {"min_size": 0} if kind is AsyncNullConnectionPool else {"min_size": 2}
    async with kind(DSN, max_size=5, open=False, **size) as pool:

        async def work(number: int) -> object:
            async with pool.connection(timeout=60) as connection:
                return await _one(connection, "select %s::int", number)

        assert await asyncio.gather(*(work(number) for number in range(100))) == list(range(100))


async def test_pool_timeout() -> None:
    async with AsyncConnectionPool(DSN, min_size=1, max_size=1, open=False) as pool, pool.connection():
        with pytest.raises(PoolTimeout):
            async with pool.connection(timeout=0.1):
                raise AssertionError("there is no second connection")


async def test_pool_replaces_broken_connections() -> None:
    async with AsyncConnectionPool(DSN, min_size=1, max_size=1, open=False) as pool:
        async with pool.connection() as connection:
            pid = connection.info.backend_pid
            await connection.close()
        async with pool.connection() as connection:
            assert connection.info.backend_pid != pid


async def test_pool_shrinks_and_waits() -> None:
    async with AsyncConnectionPool(DSN, min_size=1, max_size=4, max_idle=0.2, open=False) as pool:
        await pool.wait(30)
        held = [await pool.getconn() for _ in range(4)]
        for connection in held:
            await pool.putconn(connection)
        await pool.check()
        assert pool.get_stats()["pool_size"] <= 4
