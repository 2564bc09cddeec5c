package credential

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// NewClient makes a client that shows the certificate and the token in the files, which are
// read again when they change; either may be missing. It follows no redirect: requests and
// credentials are for one server. base says how connections are made otherwise, and is the
// client's from now on.
func NewClient(base *http.Transport, files TLSFiles, tokenFile string, now func() time.Time, logger *slog.Logger) (*http.Client, error) {
	t := &transport{base: base}
	var err error
	if t.keys, err = files.Watch(now, logger); err != nil {
		return nil, err
	}
	if tokenFile != "" {
		if t.token, err = Watch(func() (string, error) { return ReadToken(tokenFile) }, now, logger, tokenFile); err != nil {
			return nil, err
		}
	}
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
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

// transport makes connections with the credentials of the moment. It is safe for concurrent
// use.
type transport struct {
	base  *http.Transport  // is only copied
	keys  *Watched[Keys]   // nil: none
	token *Watched[string] // nil: none

	mu     sync.Mutex
	latest *http.Transport
	of     Keys // of the latest
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != nil {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.token.Get())
	}
	return t.current().RoundTrip(r)
}

// CloseIdleConnections serves http.Client.
func (t *transport) CloseIdleConnections() { t.current().CloseIdleConnections() }

// current is a transport with the keys that the files hold. Connections that were made with
// other ones are used no more.
func (t *transport) current() *http.Transport {
	var k Keys
	if t.keys != nil {
		k = t.keys.Get()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest != nil && t.of == k {
		return t.latest
	}
	if t.latest != nil {
		t.latest.CloseIdleConnections()
	}
	t.latest, t.of = t.base.Clone(), k
	t.latest.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: k.Pool}
	if k.Cert != nil {
		t.latest.TLSClientConfig.Certificates = []tls.Certificate{*k.Cert}
	}
	return t.latest
}
