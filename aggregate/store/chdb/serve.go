package chdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/retry"
)

// ServerOptions configures Serve. In a child of Start, zero fields take the value given to Start.
type ServerOptions struct {
	// Dir is the data folder. It is created if missing and closed to other users.
	Dir string
	// Library is the engine's shared library; "" searches for it (FindLibrary).
	Library string
	// MaxMemory bounds the engine's allocations, in bytes; 0 is 2 GiB.
	MaxMemory uint64
	// Listen is a loopback TCP address, host:port, that answers read-only clients from the start;
	// "" leaves it to attached processes (Engine.Listen).
	Listen string
	// Logger must not be nil.
	Logger *slog.Logger

	configFile string // given to Start
}

const (
	shutdownPatience = 5 * time.Second
	closePatience    = 10 * time.Second
	tendInterval     = time.Second
	drainDelay       = 100 * time.Millisecond

	// Limits of the Unix socket, which only this user reaches.
	maxHead    = 1 << 20
	socketIdle = 24 * time.Hour // longer than any client's, which could otherwise lose an insert
)

// Serve runs the engine over a data folder and answers ClickHouse's HTTP interface on a Unix
// socket (mode 0600) inside it until ctx ends. In a child of Start it also ends, with a nil
// error, once no process is attached any more.
//
// A process should do nothing but Serve: the engine cannot be unloaded, and while Serve runs,
// standard output and error go to engine.log in the folder. A folder that another process serves,
// and a missing library (ErrNoEngine), are errors.
func Serve(ctx context.Context, o ServerOptions) error {
	parent, err := readChildOptions(os.Getenv)
	if err != nil {
		return err
	}
	o = parent.fill(o)
	err = serve(ctx, o, parent)
	if err != nil {
		parent.report(childStatus{Error: err.Error(), Locked: errors.Is(err, errLocked)})
	}
	return err
}

func serve(ctx context.Context, o ServerOptions, parent *childOptions) error {
	f, err := openFolder(o.Dir)
	if err != nil {
		return err
	}
	lock, err := f.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	// Files there belong to a backup whose command or engine was killed.
	if err := os.RemoveAll(f.backups()); err != nil {
		return fmt.Errorf("remove unfinished backups: %w", err)
	}
	library, err := FindLibrary(o.Library)
	if err != nil {
		return err
	}
	engineLog, err := openLog(f)
	if err != nil {
		return err
	}
	defer engineLog.Close()
	restore, err := redirectOutput(engineLog)
	if err != nil {
		return err
	}
	defer restore()

	socket, err := listen(f)
	if err != nil {
		return err
	}
	defer socket.close()
	api, err := loadCAPI(library)
	if err != nil {
		return err
	}
	p, err := openPool(api, engineArgs(f, o.MaxMemory, o.configFile), o.MaxMemory, o.Logger)
	if err != nil {
		return err
	}
	o.Logger.Info("engine started", slog.String("library", library), slog.String("socket", socket.path))
	err = answer(ctx, o, parent, p, socket, engineLog)
	return errors.Join(err, closePool(p))
}

// answer serves requests until ctx ends or the last client has left.
func answer(ctx context.Context, o ServerOptions, parent *childOptions, p *pool, l *unixSocket, engineLog *os.File) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	readonlyClients := &port{logger: o.Logger, tally: new(tally)}
	clients := newClients(parent != nil, stop, readonlyClients.leave)
	defer clients.close()
	h := &handler{pool: p, logger: o.Logger, stopping: clients.isStopping, tally: readonlyClients.tally}
	readonlyClients.handler, readonlyClients.attached = h.readonlyClientRoutes(), clients.has
	defer readonlyClients.close()
	if o.Listen != "" {
		if _, err := readonlyClients.open(resident, o.Listen); err != nil {
			return err
		}
	}
	routes := map[string]http.HandlerFunc{
		"POST /attach": clients.attach, "POST /release": clients.release, "POST /listen": readonlyClients.serveListen,
	}
	server, err := edge.New(edge.Config{MaxHeader: maxHead, Read: -1, Write: -1, Idle: socketIdle, Grace: shutdownPatience, Logger: o.Logger})
	if err != nil {
		return err
	}
	server.ListenOn(l.Listener)
	group, ctx := errgroup.WithContext(ctx)
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	group.Go(func() error { return server.Serve(serving, h.routes(routes)) })
	group.Go(func() error {
		<-ctx.Done()
		if clients.close() > 0 {
			// Clients have seen the end of their attachment, and close the connections that
			// Shutdown would otherwise close during a new query.
			time.Sleep(drainDelay)
		}
		stopServing()
		readonlyClients.close()
		return nil
	})
	group.Go(func() error {
		maintain(ctx, engineLog, o.Logger)
		return nil
	})
	parent.report(childStatus{Ready: true})
	return group.Wait()
}

// maintain bounds the engine's log and keeps merges from delaying others until ctx ends.
func maintain(ctx context.Context, engineLog *os.File, logger *slog.Logger) {
	tick := time.Tick(tendInterval)
	failing := retry.LogThrottle{Every: time.Hour}
	for {
		if err := lowerMerges(); err != nil {
			failing.Warn(logger, time.Now(), "cannot lower the priority of the engine's merges: inserts may be slow", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		if err := boundLog(engineLog); err != nil {
			logger.Warn("cannot limit the size of the engine's log", slog.Any("error", err))
		}
	}
}

// closePool gives up on an engine that does not close: the process is about to end, and its
// tables survive that.
func closePool(p *pool) error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- p.close(ctx) }()
	select {
	case err := <-closed:
		return err
	case <-time.After(closePatience + time.Second):
		return errors.New("close engine: it did not answer")
	}
}

// unixSocket is the address of one server: the socket, and the file that records its path.
type unixSocket struct {
	net.Listener
	path string
	far  string
}

func listen(f folder) (*unixSocket, error) {
	l := &unixSocket{far: f.farSocketFile()}
	var err error
	if l.path, err = f.placeSocket(); err == nil {
		l.Listener, err = net.Listen("unix", l.path)
	}
	if err == nil {
		err = os.Chmod(l.path, 0o600)
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("listen on engine socket: %w", err)
	}
	return l, nil
}

func (l *unixSocket) close() {
	if l.Listener != nil {
		l.Close()
	}
	if err := os.Remove(l.far); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
}
