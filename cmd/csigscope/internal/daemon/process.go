// Package daemon is what a long-running command owes the machine that it runs on: to say
// whether it is alive and ready, to whoever asks over HTTP and to systemd, and to give up
// what it does not need.
//
// It knows processes. It must never know what the command does: checks are handed in.
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

// Process is a command that runs for long: its metrics, its health, and what it tells systemd.
type Process struct {
	Registry *prometheus.Registry
	Health   *Health
	Notifier *Notifier

	server    *Server       // nil without an address
	listening chan struct{} // closed when the server does
}

// NewProcess checks the configuration, of which Metrics and Health are the process's own: those
// of the Go runtime, and what is added with Export. Without Listen nothing is served.
func NewProcess(c Config) (*Process, error) {
	p := &Process{
		Registry: prometheus.NewRegistry(), Health: NewHealth(time.Now),
		Notifier: NewNotifier(os.Getenv, os.Getpid(), c.Logger), listening: make(chan struct{}),
	}
	if err := p.Export(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return nil, err
	}
	if c.Listen == "" {
		close(p.listening)
		return p, nil
	}
	c.Metrics, c.Health = p.Registry, p.Health
	told := c.Listening
	c.Listening = func(a net.Addr) {
		if told != nil {
			told(a)
		}
		close(p.listening)
	}
	var err error
	p.server, err = NewServer(c)
	return p, err
}

// Export adds collectors to what is served at /metrics.
func (p *Process) Export(list ...prometheus.Collector) error {
	for _, c := range list {
		if err := p.Registry.Register(c); err != nil {
			return fmt.Errorf("export metrics: %w", err)
		}
	}
	return nil
}

// Run runs the work of the process until ctx ends. Metrics and health are served until the work
// has ended, also while it drains.
func (p *Process) Run(ctx context.Context, work func(context.Context) error) error {
	stop := context.AfterFunc(ctx, func() {
		p.Health.Drain()
		p.Notifier.Stopping()
	})
	defer stop()
	around, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, around := errgroup.WithContext(around)
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	stopWork := context.AfterFunc(around, cancel) // serving or notifying has failed
	defer stopWork()
	g.Go(func() error { return p.Notifier.Run(around, p.Health) })
	if p.server != nil {
		g.Go(func() error { return p.server.Run(around) })
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

// ExitOnSecond ends the process with a code at the first interrupt or termination after the
// end of ctx, once it has said what that means.
func ExitOnSecond(ctx context.Context, code int, lastWords func() string) {
	context.AfterFunc(ctx, func() {
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		<-again
		fmt.Fprintln(os.Stderr, "csigscope: ended at once:", lastWords())
		os.Exit(code)
	})
}
