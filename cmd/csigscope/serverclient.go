package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
	if err == nil && (u.Scheme == "http" && files != credential.TLSFiles{} || credential.InClear(u) && tokenFile != "") {
		return nil, wrong(errors.New("expected https, since credentials would travel in the clear"))
	}
	base := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second}
	h, err := credential.NewClient(base, files, tokenFile, time.Now, newLogger(cmd, cmd.ErrOrStderr()))
	if err != nil {
		return nil, usageError{err}
	}
	c, err := client.New(server, h)
	if err != nil {
		return nil, wrong(err)
	}
	return c, nil
}
