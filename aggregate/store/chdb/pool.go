package chdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Role chooses the engine connection for a client's queries. A connection serializes its queries,
// so the roles never wait for one another.
type Role uint8

const (
	// RoleReader may run queries that change nothing and read nothing outside the engine; several
	// run at once.
	RoleReader Role = iota
	// RoleWriter is for inserts, one at a time.
	RoleWriter
	// RoleMigrator is for changes of the schema, one at a time.
	RoleMigrator
	// roleReadonlyClient is a reader that connected by TCP. Its connections are separate, with less
	// memory and fewer threads, so that it delays no other client.
	roleReadonlyClient
)

var rolePaths = map[Role]string{RoleReader: "/reader", RoleWriter: "/writer", RoleMigrator: "/migrator"}

// String returns the role's name for logs.
func (r Role) String() string {
	return [...]string{"reader", "writer", "migrator", "read-only client"}[r]
}

// readOnly reports whether the role's statements go through guard.
func (r Role) readOnly() bool { return r == RoleReader || r == roleReadonlyClient }

const (
	defaultMaxMemory    = 2 << 30
	readers             = 2
	readonlyConnections = 2
	maxWaiting          = 256 // queries of one role
	maxReaderSeconds    = 300
	killInterval        = 100 * time.Millisecond
)

// pool owns the engine's connections. Safe for concurrent use.
type pool struct {
	sessions map[Role]chan *session
	all      []*session
	waiting  map[Role]*atomic.Int64
	tables   tableFunctions
	server   serverInfo
	logger   *slog.Logger

	controlMu sync.Mutex
	control   *session
}

// engineArgs are the arguments of the first connection, which boots the engine. By default, the
// engine would take 90 % of the machine's memory.
func engineArgs(f folder, maxMemory uint64, configFile string) []string {
	threads := max(2, runtime.NumCPU())
	args := []string{
		"clickhouse",
		"--path=" + f.data(),
		"--backups.allowed_path=" + f.backups(),
		"--max_server_memory_usage=" + strconv.FormatUint(maxMemory, 10),
		"--mark_cache_size=" + strconv.FormatUint(min(maxMemory/16, 256<<20), 10),
		"--max_threads=" + strconv.Itoa(threads),
		// The profiler signals the process's threads, which are Go's too.
		"--query_profiler_real_time_period_ns=0",
		"--query_profiler_cpu_time_period_ns=0",
		"--max_result_bytes=" + strconv.FormatUint(maxMemory/4, 10),
		"--result_overflow_mode=throw",
		"--async_insert=0",
		// FINAL and merges find rows that replace each other. Looking for them in every insert as
		// well takes a third of its time.
		"--optimize_on_insert=0",
	}
	if !mayCompile() {
		args = append(args, "--compile_expressions=0", "--compile_aggregate_expressions=0", "--compile_sort_description=0")
	}
	if configFile != "" {
		args = append(args, "--config-file="+configFile)
	}
	return args
}

// mayCompile reports whether this process may make memory executable. The engine does so to compile
// the expressions of frequent queries, which otherwise fail. systemd (MemoryDenyWriteExecute) and
// SELinux (execmem) can forbid it.
func mayCompile() bool {
	memory, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return false
	}
	err = unix.Mprotect(memory, unix.PROT_READ|unix.PROT_EXEC)
	_ = unix.Munmap(memory)
	return err == nil
}

// openPool boots the engine and opens every connection.
func openPool(api *capi, args []string, maxMemory uint64, logger *slog.Logger) (*pool, error) {
	p := &pool{sessions: make(map[Role]chan *session), waiting: make(map[Role]*atomic.Int64), logger: logger}
	p.control = &session{api: api, tag: "control", args: args}
	p.all = append(p.all, p.control)
	add := func(role Role, count int, setup ...string) {
		p.sessions[role], p.waiting[role] = make(chan *session, count), new(atomic.Int64)
		for i := range count {
			tag := fmt.Sprintf("%s-%d", role, i)
			s := &session{
				api: api, role: role, tag: tag, args: args,
				setup: append([]string{"SET log_comment = " + quoteString(tag)}, setup...),
			}
			p.all = append(p.all, s)
			p.sessions[role] <- s
		}
	}
	add(RoleWriter, 1)
	add(RoleMigrator, 1)
	limit, lock := fmt.Sprintf("SET max_execution_time = %d", maxReaderSeconds), "SET readonly = 1"
	add(RoleReader, readers, limit, lock)
	add(roleReadonlyClient, readonlyConnections, append(readonlyClientSettings(maxMemory), limit, lock)...)
	for _, s := range p.all {
		if err := s.ensure(); err != nil {
			p.close(context.Background())
			return nil, fmt.Errorf("open engine: %w", err)
		}
	}
	if err := p.ask(); err != nil {
		p.close(context.Background())
		return nil, fmt.Errorf("open engine: %w", err)
	}
	return p, nil
}

// readonlyClientSettings leave half of the memory, and of many processors, to others, even if every
// connection of read-only clients runs a query. A lower priority would be better, but takes a
// privilege that users do not have.
func readonlyClientSettings(maxMemory uint64) []string {
	return []string{
		fmt.Sprintf("SET max_memory_usage = %d", maxMemory/(2*readonlyConnections)),
		fmt.Sprintf("SET max_result_bytes = %d", maxMemory/(4*readonlyConnections)),
		fmt.Sprintf("SET max_threads = %d", max(1, runtime.NumCPU()/(2*readonlyConnections))),
	}
}

// serverInfo is the engine's part of the headers of every answer.
type serverInfo struct{ name, timezone string }

// ask reads the engine's name and time zone.
func (p *pool) ask() error {
	err := p.control.query("SELECT displayName(), timezone()", "TabSeparated", nil, func(row []byte) error {
		p.server.name, p.server.timezone, _ = strings.Cut(strings.TrimSpace(string(row)), "\t")
		return nil
	})
	if err != nil {
		return err
	}
	p.tables, err = readTableFunctions(p.control)
	return err
}

// acquire waits for a free connection of the role, until ctx ends.
func (p *pool) acquire(ctx context.Context, role Role) (*session, error) {
	waiting := p.waiting[role]
	if waiting.Add(1) > maxWaiting {
		waiting.Add(-1)
		return nil, newException(codeTooBusy, "%d queries are waiting for a %s connection: retry later", maxWaiting, role)
	}
	defer waiting.Add(-1)
	select {
	case s := <-p.sessions[role]:
		if err := s.ensure(); err != nil {
			p.release(s)
			return nil, err
		}
		return s, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a %s connection: %w", role, context.Cause(ctx))
	}
}

// release returns a connection to the pool. One that a query has left in an unknown state is
// closed at once, since the engine may keep that query until then.
func (p *pool) release(s *session) {
	if s.broken {
		s.close()
	}
	p.sessions[s.role] <- s
}

// watch kills the query on s once ctx ends. The returned stop must be called before s is
// released; after it no kill can hit the next user's query.
func (p *pool) watch(ctx context.Context, s *session) (stop func()) {
	done, finished := make(chan struct{}), make(chan struct{})
	cancelled := context.AfterFunc(ctx, func() {
		defer close(finished)
		// A kill misses a query that has not registered yet, so repeat it.
		for {
			p.kill(s.tag)
			select {
			case <-done:
				return
			case <-time.After(killInterval):
			}
		}
	})
	return func() {
		close(done)
		if !cancelled() {
			<-finished
		}
	}
}

// kill asks the engine to stop the query on a connection.
func (p *pool) kill(tag string) {
	p.controlMu.Lock()
	defer p.controlMu.Unlock()
	if p.control.handle == nil {
		return
	}
	sql := "KILL QUERY WHERE Settings['log_comment'] = " + quoteString(tag) + " ASYNC"
	if err := p.control.exec(sql); err != nil {
		p.logger.Warn("cannot cancel a query", slog.String("connection", tag), slog.Any("error", err))
	}
}

// close kills running queries and closes every connection. It reports the ones that did not
// become free before ctx ended.
func (p *pool) close(ctx context.Context) error {
	var busy error
	for role, free := range p.sessions {
		for range cap(free) {
			if s := p.drain(ctx, free); s != nil {
				s.close()
				continue
			}
			busy = errors.Join(busy, fmt.Errorf("close %s connection: %w", role, context.Cause(ctx)))
		}
	}
	p.controlMu.Lock()
	defer p.controlMu.Unlock()
	// Closing the last connection stops the engine, which must not happen while a query still
	// runs.
	if busy == nil {
		p.control.close()
	}
	return busy
}

// drain takes one connection out of service, killing its query if needed.
func (p *pool) drain(ctx context.Context, free chan *session) *session {
	for {
		select {
		case s := <-free:
			return s
		case <-ctx.Done():
			return nil
		case <-time.After(killInterval):
			for _, s := range p.all[1:] {
				p.kill(s.tag)
			}
		}
	}
}
