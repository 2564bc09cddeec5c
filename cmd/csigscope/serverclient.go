package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/ingest/credential"
)

// addCredentialFlags are for commands that ask a server.
func addCredentialFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.String("token-file", "", "with --server: `FILE` that holds the bearer token to show")
	flags.String("server-ca", "", "with --server: `FILE` of the authorities that vouch for it (PEM), instead of the system's")
	flags.String("client-cert", "", "with --server: `FILE` of the certificate to show (PEM)")
	flags.String("client-key", "", "with --server: `FILE` of its key (PEM)")
}

// newServerClient asks the server of a URL with the credentials that the flags name.
func newServerClient(cmd *cobra.Command, server string) (*client.Client, error) {
	wrong := func(err error) error { return usageError{fmt.Errorf("--server: %w", err)} }
	files := credential.TLSFiles{Cert: flagText(cmd, "client-cert"), Key: flagText(cmd, "client-key"), CA: flagText(cmd, "server-ca")}
	tokenFile := flagText(cmd, "token-file")
	u, err := url.Parse(server)
	if err == nil && u.Scheme == "http" && (files != credential.TLSFiles{} || tokenFile != "" && !credential.IsLoopback(u.Hostname())) {
		return nil, wrong(errors.New("expected https, since credentials would travel in the clear"))
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
	}
	keys, err := files.Watch(time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, usageError{err}
	}
	if keys != nil {
		k := keys.Get()
		transport.TLSClientConfig.RootCAs = k.Pool
		if k.Cert != nil {
			transport.TLSClientConfig.Certificates = []tls.Certificate{*k.Cert}
		}
	}
	h := &http.Client{Transport: transport}
	if tokenFile != "" {
		text, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, usageError{fmt.Errorf("--token-file: %w", err)}
		}
		h.Transport = &bearer{transport, "Bearer " + strings.TrimSpace(string(text))}
		// The token is for this server: it follows no redirect elsewhere.
		h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	c, err := client.New(server, h)
	if err != nil {
		return nil, wrong(err)
	}
	return c, nil
}

// bearer shows a token with each request.
type bearer struct {
	next          http.RoundTripper
	authorization string
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", b.authorization)
	return b.next.RoundTrip(r)
}
