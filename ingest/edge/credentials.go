package edge

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// TLSFiles names the PEM files of one end of a connection. They are reloaded when they change.
// An open connection survives a change at the client; a Server closes it if the new files no
// longer admit the client.
type TLSFiles struct {
	Cert, Key string // of this end
	CA        string // the authorities that sign the other end's certificates
}

// LoadedTLS holds the loaded TLS files. It is read-only.
type LoadedTLS struct {
	Cert *tls.Certificate // nil: none
	Pool *x509.CertPool   // nil: none
}

// Check reports a certificate without its key, or a key without its certificate. It reads no
// file.
func (f TLSFiles) Check() error {
	if (f.Cert == "") != (f.Key == "") {
		return errors.New("expected a certificate and its key, or neither")
	}
	return nil
}

// watch loads the files and reloads them on change. It returns nil if no file is named.
func (f TLSFiles) watch(now func() time.Time, logger *slog.Logger) (*watched[LoadedTLS], error) {
	if f == (TLSFiles{}) {
		return nil, nil
	}
	if err := f.Check(); err != nil {
		return nil, fmt.Errorf("read TLS files: %w", err)
	}
	var paths []string
	for _, p := range []string{f.Cert, f.Key, f.CA} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	w, err := watch(f.Load, now, logger, paths...)
	if err != nil {
		return nil, fmt.Errorf("read TLS files: %w", err)
	}
	return w, nil
}

// Load reads the files once.
func (f TLSFiles) Load() (k LoadedTLS, err error) {
	if f.Cert != "" {
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return k, fmt.Errorf("read certificate %s and its key: %w", f.Cert, err)
		}
		k.Cert = &cert
	}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return k, fmt.Errorf("read authorities: %w", err)
		}
		k.Pool = x509.NewCertPool()
		if !k.Pool.AppendCertsFromPEM(text) {
			return k, fmt.Errorf("read authorities from %s: no certificate in PEM found", f.CA)
		}
	}
	return k, nil
}

// NewClient returns a client that presents the certificate and the token in the files and
// reloads them when they change. Either may be missing. It follows no redirect, because
// requests and credentials are for one server only. base configures all other aspects of the
// connections; the client owns it from then on.
func NewClient(base *http.Transport, files TLSFiles, tokenFile string, now func() time.Time, logger *slog.Logger) (*http.Client, error) {
	t := &transport{base: base}
	var err error
	if t.keys, err = files.watch(now, logger); err != nil {
		return nil, err
	}
	if tokenFile != "" {
		if t.token, err = watch(func() (string, error) { return ReadToken(tokenFile) }, now, logger, tokenFile); err != nil {
			return nil, err
		}
	}
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// ReadToken reads a bearer token from a file that contains nothing else.
func ReadToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read token file: %w", err)
	}
	t := strings.TrimSpace(string(text))
	if t == "" || len(t) > MaxTokenBytes || strings.ContainsAny(t, " \r\n\t") {
		return "", fmt.Errorf("read token file %s: expected one token of at most %d bytes", path, MaxTokenBytes)
	}
	return t, nil
}

// transport opens connections with the current credentials. It is safe for concurrent use.
type transport struct {
	base  *http.Transport     // cloned, never used itself
	keys  *watched[LoadedTLS] // nil: none
	token *watched[string]    // nil: none

	mu     sync.Mutex
	latest *http.Transport
	of     LoadedTLS // the keys of latest
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != nil {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.token.get())
	}
	var opened atomic.Bool // a connection, for this request
	to := t.current()
	if len(to.TLSClientConfig.Certificates) > 0 {
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			TLSHandshakeDone: func(_ tls.ConnectionState, err error) { opened.Store(err == nil) },
		}))
	}
	answer, err := to.RoundTrip(r)
	switch {
	case refusesCertificate(err):
		return nil, fmt.Errorf("%w: the server refused the certificate of this client, or requires one and got none: its log has the reason", err)
	case opened.Load() && broken(err) && r.Context().Err() == nil:
		return nil, fmt.Errorf("%w: perhaps the server refuses the certificate of this client: its log has the reason", err)
	}
	if err == nil && r.URL.Scheme == "http" && answer.StatusCode == http.StatusBadRequest && !answer.ProtoAtLeast(1, 1) {
		if err := wantsTLS(answer); err != nil {
			return nil, err
		}
	}
	return answer, err
}

// refusesCertificate reports whether the other end broke off a handshake because of this end's
// certificate, or for want of one.
func refusesCertificate(err error) bool {
	alert, ok := errors.AsType[*net.OpError](err)
	return ok && alert.Op == "remote error" && strings.Contains(alert.Error(), "certificate")
}

// broken reports whether a request failed, and not for want of time. In TLS 1.3 a client completes the
// handshake before the server has seen its certificate. If the server then closes the connection, the
// client does not always read the alert that says why. A failed stream of HTTP/2 proves that the
// connection works.
func broken(err error) bool {
	if err == nil || strings.HasPrefix(err.Error(), "stream error: ") {
		return false
	}
	slow, ok := errors.AsType[net.Error](err)
	return !ok || !slow.Timeout()
}

// ErrWantsTLS is returned for a request by http to an address that expects https.
var ErrWantsTLS = errors.New("the server expects https: change the URL")

// wantsTLS returns ErrWantsTLS if the answer is that of a listener that expects TLS: ours, or
// that of Go's library. Such answers are in HTTP/1.0.
func wantsTLS(answer *http.Response) error {
	const longest = 64
	text, _ := io.ReadAll(io.LimitReader(answer.Body, longest)) // the reader of the body sees the error again
	if s := string(text); strings.HasPrefix(s, expectedHTTPS) || strings.HasPrefix(s, "Client sent an HTTP request to an HTTPS server") {
		answer.Body.Close()
		return ErrWantsTLS
	}
	answer.Body = &rest{io.MultiReader(bytes.NewReader(text), answer.Body), answer.Body}
	return nil
}

// rest is the body of an answer whose beginning was read.
type rest struct {
	io.Reader
	io.Closer
}

// CloseIdleConnections closes idle connections for http.Client.
func (t *transport) CloseIdleConnections() { t.current().CloseIdleConnections() }

// current returns a transport with the current keys. Connections with earlier keys are not
// reused.
func (t *transport) current() *http.Transport {
	var k LoadedTLS
	if t.keys != nil {
		k = t.keys.get()
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

// watchEvery is the minimum time between two checks of the files.
const watchEvery = time.Second

// watched holds the content of files and reloads it when one of them changes. If a reload
// fails, it logs the error and keeps the earlier content. It is safe for concurrent use.
type watched[T any] struct {
	paths  []string
	load   func() (T, error)
	now    func() time.Time
	logger *slog.Logger

	mu     sync.Mutex
	looked time.Time
	stamps []os.FileInfo // of the loaded version
	value  T
	logged string // last error logged; a repeated error is logged once
}

// watch loads files by calling load, and again after a change. It returns an error if the first
// load fails.
func watch[T any](load func() (T, error), now func() time.Time, logger *slog.Logger, paths ...string) (*watched[T], error) {
	w := &watched[T]{paths: paths, load: load, now: now, logger: logger, looked: now()}
	// Take the stamps first, so that a change during the load is noticed later.
	stamps, err := w.stat()
	w.stamps = stamps
	value, failed := load() // its error names the kind of file
	w.value = value
	return w, cmp.Or(failed, err)
}

func (w *watched[T]) stat() ([]os.FileInfo, error) {
	var list []os.FileInfo
	for _, p := range w.paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("look at file: %w", err)
		}
		list = append(list, info)
	}
	return list, nil
}

// get returns the content, at most a second old.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if now.Sub(w.looked) < watchEvery {
		return w.value
	}
	w.looked = now
	stamps, err := w.stat()
	if err == nil && slices.EqualFunc(stamps, w.stamps, sameVersion) {
		w.logged = ""
		return w.value
	}
	value, failed := w.load()
	if err = cmp.Or(failed, err); err != nil {
		if text := err.Error(); text != w.logged {
			w.logged = text
			w.logger.Error("file changed and cannot be read: its earlier contents stay in force", slog.String("error", text))
		}
		return w.value
	}
	w.logged = ""
	w.logger.Info("file changed and was read again", slog.Any("files", w.paths))
	w.value, w.stamps = value, stamps
	return value
}

func sameVersion(a, b os.FileInfo) bool {
	return a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && os.SameFile(a, b)
}
