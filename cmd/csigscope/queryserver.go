package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/answers"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/store"
)

// emptyAdvice follows answers.ErrEmpty.
const emptyAdvice = "run csigscope replay or collect, and csigscope query taps if they found no tags or reflections"

// asking selects the target of a question: the server in --server, else the store, for which
// this process answers as query serve does.
type asking struct{ server, dsn string }

func (a *asking) add(cmd *cobra.Command) {
	addStoreFlag(cmd, &a.dsn)
	cmd.Flags().StringVar(&a.server, "server", "", "ask the query API at this `URL`, such as http://127.0.0.1:9465 of collect --api-listen, instead of the store")
	exclusive(cmd.Flags(), "store", "server")
	addCredentialFlags(cmd)
}

// run calls f with a client of the server or the store.
func (a *asking) run(cmd *cobra.Command, f func(c *client.Client) error) error {
	if a.server == "" {
		return a.askStore(cmd, f)
	}
	if cmd.Flags().Changed("store") {
		return usageError{errors.New("--store and --server: leave out one of them")}
	}
	c, err := newServerClient(cmd, a.server)
	if err != nil {
		return err
	}
	return asked(f(c))
}

// Limits of answers from a store that only this command uses.
const (
	storeAnswerTime = time.Hour
	storeExportRows = 1 << 40
)

// askStore answers from the store.
func (a *asking) askStore(cmd *cobra.Command, f func(c *client.Client) error) error {
	db, err := openForReading(cmd, a.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := notePartial(cmd.Context(), cmd.ErrOrStderr(), db); err != nil {
		return err
	}
	h, err := api.New(api.Config{
		Reader: query.FromStore(db.store), Thresholds: db.thresholds, Timeout: storeAnswerTime, ExportTimeout: storeAnswerTime, ExportRows: storeExportRows, Logger: db.logger,
	})
	if err != nil {
		return err
	}
	l := &pipeListener{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	transport := &http.Transport{DialContext: l.dial, DisableCompression: true}
	defer transport.CloseIdleConnections()
	c, err := client.New("http://store", &http.Client{Transport: transport})
	if err != nil {
		return err
	}
	return asked(f(c))
}

// pipeListener accepts connections from within the process.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It is called once.
func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "store", Net: "unix"} }

// noteEmpty prints the time range that has rows, after an empty answer.
func noteEmpty(cmd *cobra.Command, c *client.Client) error {
	h, err := c.Health(cmd.Context())
	if err != nil {
		return err
	}
	first, last := h.GetFirst(), h.GetLast()
	if stored := h.GetStored(); stored != nil {
		first, last = stored.First, stored.Last
	}
	if first == nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: no rows match: there are none yet")
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "note: no rows match: there are rows from %s to %s\n", first.AsTime().Format(time.RFC3339), last.AsTime().Format(time.RFC3339))
	return nil
}

// parameters converts the given flags to parameters of a question, with the range in the
// server's form. A server without recent windows is asked for the whole stored range.
func (r *timeRange) parameters(cmd *cobra.Command, c *client.Client, names ...string) (url.Values, error) {
	values := flagValues(cmd, names...)
	if values.Has("windows") {
		if r.given() {
			return nil, usageError{errors.New("--windows: is for windows in memory: leave it out, or leave out --since, --from and --to")}
		}
		h, err := c.Health(cmd.Context())
		if err == nil && h.GetSource() == "store" {
			err = usageError{errors.New("--windows: is for windows in a collector's memory: leave it out, or name the collector with --server")}
		}
		return values, err
	}
	from, to := r.begin, r.end
	if r.since == 0 && (r.from == "" || r.to == "") {
		h, err := c.Health(cmd.Context())
		if err != nil {
			return nil, err
		}
		first, last := h.GetStored().GetFirst().AsTime(), h.GetStored().GetLast().AsTime()
		switch {
		case !r.given() && h.GetSource() != "store":
			return values, nil
		case r.everything:
			first, last = store.Everything()
		case h.GetStored() == nil:
			return nil, fmt.Errorf("%w: %s", answers.ErrEmpty, emptyAdvice)
		}
		if r.from == "" {
			from = first
		}
		if r.to == "" {
			to = last
		}
	}
	values.Set("from", from.UTC().Format(time.RFC3339Nano))
	values.Set("to", to.UTC().Format(time.RFC3339Nano))
	return values, nil
}

// flagValues converts the given flags to parameters.
func flagValues(cmd *cobra.Command, names ...string) url.Values {
	values := url.Values{}
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		parameter := strings.ReplaceAll(name, "-", "_")
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values[parameter] = list.GetSlice()
		} else if text := f.Value.String(); text != "" {
			values.Set(parameter, text)
		}
	}
	return values
}

func flagText(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// asked turns errors of questions that the server rejects into usage errors, and adds a hint if
// no server answers.
func asked(err error) error {
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == 422 {
		return usageError{err}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: nothing serves there: start collect with --api-listen, query serve or demo, or name the address of one with --server", err)
	}
	return err
}
