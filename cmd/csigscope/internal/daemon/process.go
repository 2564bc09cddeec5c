// Package daemon integrates a long-running command with its machine: it reports over HTTP and
// to systemd whether the process is alive and ready, and gives up privileges that it does not
// need.
//
// It knows processes. It must never know what the command does: checks are passed in.
package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
)

// Process is a long-running command: its metrics, its health, and its notifications to systemd.
type Process struct {
	Registry *prometheus.Registry
	Health   *Health
	Notifier *Notifier

	server    *Server       // nil without an address
	listening chan struct{} // closed when the server listens
}

// NewProcess validates the configuration and sets its Metrics and Health to the process's own:
// those of the Go runtime and the collectors added with Export. Without Listen nothing is
// served.
func NewProcess(c Config) (*Process, error) {
	p := &Process{
		Registry: prometheus.NewRegistry(), Health: newHealth(time.Now),
		Notifier: newNotifier(os.Getenv, os.Getpid(), c.Logger), listening: make(chan struct{}),
	}
	if err := p.Export(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return nil, err
	}
	if c.Listen == "" {
		close(p.listening)
		return p, nil
	}
	c.Metrics, c.Health = p.Registry, p.Health
	listening := c.Listening
	c.Listening = func(a net.Addr) {
		if listening != nil {
			listening(a)
		}
		close(p.listening)
	}
	var err error
	p.server, err = NewServer(c)
	return p, err
}

// Export adds collectors to /metrics.
func (p *Process) Export(list ...prometheus.Collector) error {
	for _, c := range list {
		if err := p.Registry.Register(c); err != nil {
			return fmt.Errorf("export metrics: %w", err)
		}
	}
	return nil
}

// Run runs the work of the process until ctx ends. It serves metrics and health until the work
// has ended, also while it drains.
func (p *Process) Run(ctx context.Context, work func(context.Context) error) error {
	stop := context.AfterFunc(ctx, func() {
		p.Health.Drain()
		p.Notifier.Stopping()
	})
	defer stop()
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, serving := errgroup.WithContext(serving)
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	stopWork := context.AfterFunc(serving, cancel) // serving or notifying has failed
	defer stopWork()
	g.Go(func() error { return p.Notifier.Run(serving, p.Health) })
	if p.server != nil {
		g.Go(func() error { return p.server.Run(serving) })
	}
	g.Go(func() error {
		defer end()
		select {
		case <-p.listening:
		case <-working.Done():
			return nil
		}
		p.Notifier.Ready()
		return work(working)
	})
	return g.Wait()
}

// oneRequest is the time within which two signals are one request: timeout(1) sends its signal
// to the process and to the process's group.
const oneRequest = 250 * time.Millisecond

// ExitOnSecond waits until a signal ends ctx, which is from signal.NotifyContext. At the next interrupt or termination
// signal more than 250 ms later it prints lastWords and exits with the code.
func ExitOnSecond(ctx context.Context, code int, lastWords func() string) {
	context.AfterFunc(ctx, func() {
		if context.Cause(ctx) == context.Canceled { //nolint:errorlint // a signal's cause is another one
			return
		}
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		awaitSecond(again, time.Now)
		fmt.Fprintln(os.Stderr, "csigscope: ended at once:", lastWords())
		os.Exit(code)
	})
}

// awaitSecond waits for a signal that is a request of its own.
func awaitSecond(again <-chan os.Signal, now func() time.Time) {
	first := now()
	for range again {
		if now().Sub(first) > oneRequest {
			return
		}
	}
}
