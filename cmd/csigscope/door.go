package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"

	"github.com/csigscope/csigscope/aggregate/query/access"
	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/ingest/credential"
)

// door is where the query API is reached: an address, and who may come in.
type door struct {
	listener net.Listener
	gate     *credential.Gate
	control  *access.Control
	loopback bool // this machine alone reaches it
}

// addExposedFlag adds the flag that opens a door beyond loopback to everybody.
func addExposedFlag(cmd *cobra.Command, of string, exposed *bool) {
	cmd.Flags().BoolVar(exposed, "api-dangerously-exposed", false,
		"let "+of+" be an address that other machines reach without TLS or credentials: everybody there can ask, and read on the way")
}

// maxConnections bounds those that are open at a door; further ones wait.
const maxConnections = 4096

// open listens at the address that a flag names. Beyond loopback there has to be a
// certificate, and askers have to have credentials, unless exposed.
func (c *apiConfig) open(ctx context.Context, flag, address string, exposed bool, logger *slog.Logger) (*door, error) {
	if err := c.checkListen(flag, address, exposed); err != nil {
		return nil, err
	}
	gate := c.gate()
	gate.Now, gate.Logger, gate.Refuse = time.Now, logger, newRefusals(logger).tell
	d := &door{}
	var err error
	if d.gate, err = credential.NewGate(gate); err != nil {
		return nil, usageError{fmt.Errorf("api: %w", err)}
	}
	if d.control, err = access.New(access.Config{Who: who{d.gate}, Settings: c.settings(), Open: page.IsFile, Logger: logger}); err != nil {
		return nil, usageError{fmt.Errorf("api: %w", err)}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w: choose another port with %s", address, err, flag)
	}
	host, _, _ := net.SplitHostPort(l.Addr().String())
	d.listener, d.loopback = netutil.LimitListener(l, maxConnections), credential.IsLoopback(host)
	return d, nil
}

// url is the address as askers write it.
func (d *door) url() string {
	if d.gate.TLS() != nil {
		return "https://" + d.listener.Addr().String()
	}
	return "http://" + d.listener.Addr().String()
}

// server serves what the handler answers to who may come in: by HTTP/1.1 and HTTP/2, without
// TLS as well, for those who call by gRPC.
func (d *door) server(h http.Handler) *http.Server {
	h = d.control.Guard(h)
	if d.loopback {
		h = page.LoopbackOnly(h)
	}
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		TLSConfig:         d.gate.TLS(),
		Protocols:         new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(s.TLSConfig != nil)
	s.Protocols.SetUnencryptedHTTP2(s.TLSConfig == nil)
	return s
}

// reconfigure puts what may change of the configuration in force.
func (d *door) reconfigure(c *apiConfig) error { return d.control.Use(c.settings()) }

// who tells access who has come.
type who struct{ gate *credential.Gate }

// Identify implements access.Authenticator.
func (w who) Identify(r *http.Request) (access.Peer, error) {
	p, err := w.gate.Identify(r)
	return access.Peer{Name: p.Name, Role: access.Role(p.Role), How: string(p.How)}, err
}

// refusals logs credentials that are refused, each reason now and then.
type refusals struct {
	logger *slog.Logger
	some   [credential.NumReasons]rate.Sometimes
}

func newRefusals(logger *slog.Logger) *refusals {
	r := &refusals{logger: logger}
	for i := range r.some {
		r.some[i].Interval = 10 * time.Second
	}
	return r
}

func (r *refusals) tell(why credential.Reason, attrs ...slog.Attr) {
	r.some[why].Do(func() {
		r.logger.LogAttrs(context.Background(), slog.LevelWarn, "credential refused", append(attrs, slog.String("reason", why.String()))...)
	})
}
