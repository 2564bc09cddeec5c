// Package chdb runs the embedded ClickHouse engine and answers ClickHouse's
// HTTP interface over it.
//
// It knows the engine's shared library, the process that holds it, and the HTTP
// protocol that clickhouse-go, curl and other clients speak. It must never know a schema: no
// table, column or view of any user is named here.
//
// The engine lives in a child process of its own (Serve), which listens on a
// Unix socket in the data folder, so that a crash of the engine, or its memory
// limit, never takes the collector down. Start attaches to a running engine or
// starts one; every process that has attached keeps it alive, and it ends when
// the last one has left.
//
// The socket is for the program itself, in the roles of a reader, a writer and a
// migrator. Engine.Listen opens a loopback TCP address for other programs:
// guests, which read, have connections, memory and threads of their own, and are
// trusted with nothing.
//
// The engine is one library per process and one data folder per library: two
// folders need two child processes.
package chdb
