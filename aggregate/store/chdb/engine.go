package chdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/csigscope/csigscope/ingest/retry"
)

// Options configures Start.
type Options struct {
	// Dir is the data folder.
	Dir string
	// Command is the argument vector of a child that calls Serve, such as [executable, "engine",
	// "--dir", DIR]. ChildEnv is set in its environment.
	Command []string
	// MaxMemory bounds the engine's allocations, in bytes; 0 is 2 GiB. A running engine keeps its
	// own bound.
	MaxMemory uint64
	// ConfigFile is ClickHouse's own configuration for the engine, such as the servers of a
	// cluster; "" is none. A running engine keeps its own.
	ConfigFile string
	// Logger must not be nil.
	Logger *slog.Logger
	// Library is the engine's shared library; "" searches for it (FindLibrary).
	Library string
}

const (
	startPatience  = 60 * time.Second
	lockInterval   = 50 * time.Millisecond
	firstBackoff   = 200 * time.Millisecond
	longestBackoff = 5 * time.Second
)

// Engine is an attachment to a running engine. Safe for concurrent use.
type Engine struct {
	options Options
	folder  folder
	child   childOptions
	id      string
	control *http.Client

	transport *transport

	lifetime context.Context // ends with Close
	end      context.CancelFunc
	started  chan struct{} // closed when the engine has answered for the first time
	failed   chan struct{} // holds a token after a failed start that Wait did not report
	done     chan struct{} // closed when supervise has returned

	mu       sync.Mutex
	address  string    // opened by Listen, or ""
	cmd      *exec.Cmd // the child, if this process started it
	restarts uint64
	failure  error // of the last start; nil while the engine answers
}

// Start attaches to the engine that serves o.Dir, or starts a child that does, and returns once
// it answers. A missing library is ErrNoEngine; if a child fails to start, the error quotes the
// end of its log. ctx bounds only the start.
//
// While it is open, an Engine restarts a crashed process, after growing pauses. Queries in flight
// fail; the next one waits for the new process.
func Start(ctx context.Context, o Options) (*Engine, error) {
	e, err := newEngine(ctx, o)
	if err != nil {
		return nil, err
	}
	attached, err := e.connect(ctx)
	if err != nil {
		e.end()
		return nil, err
	}
	close(e.started)
	go e.supervise(attached)
	return e, nil
}

// StartLater is Start without waiting: it starts the engine in the background, with retries until
// Close. Wait reports the outcome. Its own errors are those that need no engine, such as a missing
// library (ErrNoEngine).
func StartLater(ctx context.Context, o Options) (*Engine, error) {
	e, err := newEngine(ctx, o)
	if err != nil {
		return nil, err
	}
	go func() {
		attached := e.insist()
		if attached == nil {
			close(e.done)
			return
		}
		close(e.started)
		e.supervise(attached)
	}()
	return e, nil
}

// newEngine does all checks that need no process.
func newEngine(ctx context.Context, o Options) (*Engine, error) {
	f, err := openFolder(o.Dir)
	if err != nil {
		return nil, err
	}
	library, err := FindLibrary(o.Library)
	if err != nil {
		return nil, err
	}
	if len(o.Command) == 0 {
		return nil, errors.New("start engine: no command named")
	}
	e := &Engine{
		options: o,
		folder:  f,
		child:   childOptions{Dir: f.path, Library: library, MaxMemory: o.MaxMemory, ConfigFile: o.ConfigFile},
		id:      strconv.FormatUint(rand.Uint64(), 36),
		started: make(chan struct{}),
		failed:  make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	e.control = &http.Client{Transport: &http.Transport{DialContext: e.dialOnce, DisableKeepAlives: true}}
	e.transport = newTransport(e.dial)
	e.lifetime, e.end = context.WithCancel(context.WithoutCancel(ctx))
	return e, nil
}

// Wait returns nil once the engine has answered, or the error of the next failed start. It serves
// one caller at a time.
func (e *Engine) Wait(ctx context.Context) error {
	select {
	case <-e.started:
		return nil
	case <-e.failed:
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.failure
	case <-e.lifetime.Done():
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Socket is the path of the Unix socket. It stays the same while the folder is served, and is
// short enough for any client even if the folder's path is not.
func (e *Engine) Socket() string { return e.folder.socket() }

// Restarts counts how often the engine had to be restarted.
func (e *Engine) Restarts() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.restarts
}

// connect attaches to a running engine, or starts one and attaches to it.
func (e *Engine) connect(ctx context.Context) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("no answer within %v: %w", startPatience, context.DeadlineExceeded))
	defer cancel()
	for {
		attachment, err := e.attach(ctx)
		if err == nil {
			return attachment, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("attach to engine in %s: %w", e.folder.path, context.Cause(ctx))
		}
		refused := err
		cmd, err := spawn(ctx, e.options.Command, e.folder, e.child)
		switch {
		case err == nil:
			e.mu.Lock()
			e.cmd = cmd
			e.mu.Unlock()
			e.folder.warnRoot(e.options.Logger)
		case errors.Is(err, errLocked) && errors.Is(refused, fs.ErrPermission):
			return nil, fmt.Errorf("attach to engine in %s: %w: a command of another user runs it: end that command, or run it as the folder's owner", e.folder.path, refused)
		case errors.Is(err, errLocked):
			// Another child is starting or ending: attach to it, or start the next one.
			retry.Sleep(ctx, lockInterval)
		default:
			return nil, err
		}
	}
}

// attach opens the request that stays open as long as both sides live.
func (e *Engine) attach(ctx context.Context) (io.ReadCloser, error) {
	lifetime, cancel := context.WithCancel(e.lifetime)
	stop := context.AfterFunc(ctx, cancel)
	request, err := http.NewRequestWithContext(lifetime, http.MethodPost, "http://engine/attach?id="+e.id, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	response, err := e.control.Do(request)
	if err != nil {
		cancel()
		return nil, err
	}
	stop()
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		cancel()
		return nil, fmt.Errorf("attach to engine: %s", response.Status)
	}
	return &attachment{response.Body, cancel}, nil
}

type attachment struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (a *attachment) Close() error {
	defer a.cancel()
	return a.ReadCloser.Close()
}

// supervise notices at once when the engine goes away, and restarts it.
func (e *Engine) supervise(attached io.ReadCloser) {
	defer close(e.done)
	for {
		_, _ = io.Copy(io.Discard, attached)
		attached.Close()
		e.transport.CloseIdleConnections()
		if e.lifetime.Err() != nil {
			return
		}
		e.reapChild()
		e.mu.Lock()
		e.restarts++
		e.mu.Unlock()
		e.options.Logger.Warn("engine ended, starting it again", slog.String("dir", e.folder.path))
		if attached = e.insist(); attached == nil {
			return
		}
		e.listenAgain()
	}
}

// insist attaches to the engine or starts it, with retries. It returns nil once the lifetime has
// ended.
func (e *Engine) insist() io.ReadCloser {
	for backoff := (retry.Backoff{First: firstBackoff, Longest: longestBackoff}); ; {
		attached, err := e.connect(e.lifetime)
		if e.lifetime.Err() != nil {
			if attached != nil {
				attached.Close()
			}
			return nil
		}
		e.setFailure(err)
		if err == nil {
			return attached
		}
		pause := backoff.Pause()
		e.options.Logger.Error("engine cannot be started, trying again", slog.Any("error", err), slog.Duration("retry_in", pause))
		if !retry.Sleep(e.lifetime, pause) {
			return nil
		}
	}
}

// setFailure records the outcome of the last start, and reports a failure to Wait.
func (e *Engine) setFailure(err error) {
	e.mu.Lock()
	e.failure = err
	e.mu.Unlock()
	if err == nil {
		return
	}
	select {
	case e.failed <- struct{}{}:
	default:
	}
}

// reapChild collects the child that this process started, if there is one.
func (e *Engine) reapChild() {
	e.mu.Lock()
	cmd := e.cmd
	e.cmd = nil
	e.mu.Unlock()
	if cmd != nil {
		reap(cmd, stopPatience)
	}
}

// dialOnce connects to the socket without retries.
func (e *Engine) dialOnce(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", e.folder.socket())
}

// Close detaches from the engine. If this process started it and no other process is attached,
// Close waits until the engine has closed its tables and ended; otherwise the engine runs until
// the last other process leaves. Later calls do nothing.
func (e *Engine) Close() error {
	if e.lifetime.Err() != nil {
		return nil
	}
	e.end()
	<-e.done
	e.transport.CloseIdleConnections()
	stopping, err := e.release()
	e.mu.Lock()
	cmd := e.cmd
	e.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err == nil && !stopping {
		return cmd.Process.Release()
	}
	e.reapChild()
	return nil
}

// release tells the engine not to linger for this client.
func (e *Engine) release() (stopping bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.lifetime), shutdownPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/release?id="+e.id, nil)
	if err != nil {
		return false, err
	}
	response, err := e.control.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	var answer releaseAnswer
	err = json.NewDecoder(io.LimitReader(response.Body, maxControlAnswer)).Decode(&answer)
	return answer.Stopping, err
}
