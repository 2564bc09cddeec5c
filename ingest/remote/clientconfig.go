package remote

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/edge"
)

// ClientConfig is what an exporter needs to know.
type ClientConfig struct {
	// Collectors are base URLs, such as "https://collector.example:4319". The first one
	// that answers is used until it does not; so may be a balancer before several.
	Collectors []string
	// Exporter is who the exporter thinks it is: a collector refuses another name than
	// that of the edge. Empty: whatever the credential says.
	Exporter string
	// TLS has the exporter's certificate, and the authority of the collectors' unless
	// the system's are meant.
	TLS edge.TLSFiles
	// TokenFile holds a bearer token, and is read again when it changes; empty: none.
	TokenFile string

	// Dir is the spool's folder: what waits there survives the process. One process at a
	// time may have it.
	Dir string
	// MaxBytes bounds the spool, 1 GiB unless set. Beyond it the oldest blocks that wait
	// give way, and are counted.
	MaxBytes int64
	// SpoolEvery is how long blocks are gathered for one write to disk: a process that is
	// killed loses those. 100 ms unless set; Sync does it at once.
	SpoolEvery time.Duration
	// Timeout is how long a collector may take to answer, 40 s unless set: longer than
	// its own patience with its store.
	Timeout time.Duration
	// HelloEvery is how often an exporter that has nothing to send pushes an empty request,
	// so that both sides know that the other is there; 15 s unless set.
	HelloEvery time.Duration
	// NoCompression sends as is; otherwise Zstandard is used.
	NoCompression bool

	FS     outbox.FS        // nil: the operating system's
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// defaultSpoolBytes bounds a spool.
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
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

// CheckSpoolBytes finds a ClientConfig.MaxBytes out of bounds.
func CheckSpoolBytes(n int64) error {
	if n < 4*recordBytes {
		return fmt.Errorf("spool of %d bytes: expected at least %d", n, 4*recordBytes)
	}
	return nil
}

// CheckCollector finds mistakes in the URL of a collector. Beyond loopback it is https: whoever
// is on the way could otherwise read what the exporter measures, change it, and take its token.
func CheckCollector(text string, files edge.TLSFiles) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("collector: %w", err)
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return fmt.Errorf("collector %q: expected a URL such as https://collector.example:4319", text)
	case edge.InClear(u):
		return fmt.Errorf("collector %q: expected https, since others could read and change everything on the way; http is for this machine alone", text)
	case u.Scheme == "http" && files != edge.TLSFiles{}:
		return fmt.Errorf("collector %q: expected https, since there are TLS files", text)
	}
	return nil
}
