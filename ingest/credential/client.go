package credential

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"
)

// NewClient makes a client that shows the certificate and the token in the files, as they are
// now; either may be missing. With a token it follows no redirect: that is for one server.
// Requests may take as long as they like.
func NewClient(files TLSFiles, tokenFile string) (*http.Client, error) {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
	}
	keys, err := files.Watch(time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if keys != nil {
		k := keys.Get()
		transport.TLSClientConfig.RootCAs = k.Pool
		if k.Cert != nil {
			transport.TLSClientConfig.Certificates = []tls.Certificate{*k.Cert}
		}
	}
	c := &http.Client{Transport: transport}
	if tokenFile == "" {
		return c, nil
	}
	token, err := ReadToken(tokenFile)
	if err != nil {
		return nil, err
	}
	c.Transport = &Bearer{transport, func() string { return token }}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// ReadToken reads a bearer token from a file of its own.
func ReadToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	t := strings.TrimSpace(string(text))
	if t == "" || len(t) > MaxTokenBytes || strings.ContainsAny(t, " \r\n\t") {
		return "", fmt.Errorf("read token from %s: expected one token of at most %d bytes", path, MaxTokenBytes)
	}
	return t, nil
}

// Bearer shows a token with each request, where there is one. It is as safe for concurrent
// use as Token.
type Bearer struct {
	*http.Transport
	Token func() string // as it is at the moment; "" for none
}

// RoundTrip implements http.RoundTripper.
func (b *Bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if token := b.Token(); token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return b.Transport.RoundTrip(r)
}
