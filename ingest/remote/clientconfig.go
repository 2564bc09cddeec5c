package remote

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/edge"
)

// ClientConfig configures an exporter.
type ClientConfig struct {
	// Collectors lists base URLs, such as "https://collector.example:4319". The client
	// starts with the first one, and goes on to the next when a request fails. A URL may be a load
	// balancer in front of several.
	Collectors []string
	// Exporter is the exporter's own name: a collector refuses one that differs from the name
	// in the credential. Empty: the name in the credential.
	Exporter string
	// TLS names the exporter's certificate, and the authority of the collectors' certificates
	// unless the system's authorities apply.
	TLS edge.TLSFiles
	// TokenFile contains a bearer token and is reloaded when it changes; empty: none.
	TokenFile string

	// Dir is the spool's folder; items in it survive the process. Only one process at a time
	// may use it.
	Dir string
	// MaxBytes is the maximum size of the spool, 1 GiB by default. Beyond it the oldest waiting
	// blocks are dropped and counted.
	MaxBytes int64
	// SpoolEvery is how long blocks are gathered for one write to disk; a killed process loses
	// them. 100 ms by default; Sync writes at once.
	SpoolEvery time.Duration
	// Timeout is the time limit for an answer, 40 s by default: longer than a collector waits
	// for its store.
	Timeout time.Duration
	// HelloEvery is the interval at which an idle exporter pushes an empty request, so that
	// each side sees that the other is alive; 15 s by default.
	HelloEvery time.Duration
	// noCompression is for tests.
	noCompression bool

	FS     outbox.FS        // nil: the operating system's
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// defaultSpoolBytes is the default of ClientConfig.MaxBytes.
const defaultSpoolBytes = 1 << 30

func (c ClientConfig) withDefaults() (ClientConfig, error) {
	setDefault(&c.MaxBytes, defaultSpoolBytes)
	setDefault(&c.SpoolEvery, 100*time.Millisecond)
	setDefault(&c.Timeout, 40*time.Second)
	setDefault(&c.HelloEvery, 15*time.Second)
	if c.FS == nil {
		c.FS = outbox.OS{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if len(c.Collectors) == 0 || c.Dir == "" {
		return c, errors.New("expected a collector and a folder for the spool")
	}
	for _, text := range c.Collectors {
		if err := CheckCollector(text, c.TLS); err != nil {
			return c, err
		}
	}
	return c, CheckSpoolBytes(c.MaxBytes)
}

// CheckSpoolBytes validates ClientConfig.MaxBytes.
func CheckSpoolBytes(n int64) error {
	if n < 4*recordBytes {
		return fmt.Errorf("spool of %d bytes: expected at least %d", n, 4*recordBytes)
	}
	return nil
}

// CheckCollector validates the URL of a collector. Beyond loopback it must be https: otherwise
// anybody on the way could read and change the exporter's measurements and take its token.
func CheckCollector(text string, files edge.TLSFiles) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return fmt.Errorf("collector %q: expected a URL such as https://collector.example:4319", text)
	case edge.InClear(u):
		return fmt.Errorf("collector %q: expected https, since others could read and change everything on the way; http is for this machine alone", text)
	case u.Scheme == "http" && files != edge.TLSFiles{}:
		return fmt.Errorf("collector %q: expected https, since there are TLS files", text)
	}
	return nil
}
