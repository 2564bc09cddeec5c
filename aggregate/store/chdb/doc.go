// Package chdb runs the embedded ClickHouse engine and answers ClickHouse's HTTP interface over
// it.
//
// It knows the engine's shared library, the process that holds it, and the HTTP protocol of
// clickhouse-go, curl and other clients. It must never know a schema: it names no table, column
// or view of any user.
//
// The engine lives in a child process of its own (Serve), which listens on a Unix socket in the
// data folder, so that a crash of the engine, or its memory limit, never takes the collector
// down. Start attaches to a running engine or starts one; every attached process keeps it alive,
// and it ends when the last one leaves.
//
// The socket is for the program itself, in the roles of a reader, a writer and a migrator.
// Engine.Listen opens a loopback TCP address for other programs, the read-only clients. They may
// only read, have connections, memory and threads of their own, and are not trusted.
//
// The engine is one library per process and one data folder per library: two folders need two
// child processes.
package chdb
