package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/ingest/credential"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/remote"
	"github.com/csigscope/csigscope/ingest/remote/handover"
)

// ingestConfig says how exporters hand in what they have captured.
type ingestConfig struct {
	Listen word      `yaml:"listen,omitempty"`
	TLS    tlsConfig `yaml:"tls,omitempty"`    // ca: of the exporters' certificates
	Tokens string    `yaml:"tokens,omitempty"` // file of lines "NAME: SHA256 [EXPIRES]"
	// Anonymous takes in who shows no credential, as this exporter: for loopback.
	Anonymous string `yaml:"anonymous,omitempty"`
	// Exporters lists the exporters that may hand in; of several entries that fit a name the
	// first one counts. Exporters that have a token, or are listed by their full name, are
	// expected: an alert reports those that do not come.
	Exporters []ingestExporter   `yaml:"exporters,omitempty"`
	Limits    ingestLimitsConfig `yaml:"limits,omitempty"`
}

// ingestExporter is an exporter that may hand in, or all of a pattern such as rack1-*.
type ingestExporter struct {
	Name           word `yaml:"name"`
	exporterLimits `yaml:",inline"`
}

// tlsConfig names files in PEM. They are read again when they change.
type tlsConfig struct {
	Cert string `yaml:"cert,omitempty"`
	Key  string `yaml:"key,omitempty"`
	CA   string `yaml:"ca,omitempty"` // who vouches for the other end
}

func (c tlsConfig) files() remote.TLSFiles {
	return remote.TLSFiles{Cert: c.Cert, Key: c.Key, CA: c.CA}
}

// ingestLimitsConfig bounds each exporter that has no limits of its own.
type ingestLimitsConfig struct {
	exporterLimits `yaml:",inline"`
	Exporters      quantity `yaml:"exporters,omitempty"` // that are remembered
}

// exporterLimits bound one exporter; see remote.Limits.
type exporterLimits struct {
	Requests    quantity `yaml:"requests,omitempty"`     // a second
	Bytes       byteSize `yaml:"bytes,omitempty"`        // a second
	Rows        quantity `yaml:"rows,omitempty"`         // a second
	WindowRows  quantity `yaml:"window_rows,omitempty"`  // of a stream's window; beyond them overflow rows
	WindowFlows quantity `yaml:"window_flows,omitempty"` // the same of rows of flows
	Streams     quantity `yaml:"streams,omitempty"`
}

func (l *exporterLimits) limits() remote.Limits {
	return remote.Limits{
		RequestRate: float64(l.Requests.n), ByteRate: float64(l.Bytes.n), RowRate: float64(l.Rows.n),
		MaxWindowRows: l.WindowRows.int(), MaxWindowFlows: l.WindowFlows.int(), MaxStreams: l.Streams.int(),
	}
}

func (c *ingestConfig) auth() remote.Auth {
	return remote.Auth{TLS: c.TLS.files(), Tokens: c.Tokens, Anonymous: c.Anonymous}
}

// admission says who may hand in, and how much.
func (c *ingestConfig) admission() remote.Admission {
	a := remote.Admission{Limits: c.Limits.limits()}
	a.Limits.MaxExporters = c.Limits.Exporters.int()
	for i := range c.Exporters {
		a.Permits = append(a.Permits, remote.Permit{Name: c.Exporters[i].Name.text, Limits: c.Exporters[i].limits()})
	}
	return a
}

// check finds mistakes.
func (c *ingestConfig) check() error {
	fail := func(err error) error { return fmt.Errorf("collect: ingest: %w", err) }
	a, auth := c.admission(), c.auth()
	if err := a.Check(&auth); err != nil {
		return fail(err)
	}
	if err := c.TLS.files().Check(); err != nil {
		return fail(fmt.Errorf("tls: %w", err))
	}
	if c.Listen.text == "" {
		return nil
	}
	if err := checkAddress(c.Listen.text); err != nil {
		return fmt.Errorf("%scollect: ingest: listen %q: expected HOST:PORT such as 127.0.0.1:4319", atLine(c.Listen.line), c.Listen.text)
	}
	if err := auth.Check(); err != nil {
		return fail(err)
	}
	return nil
}

// checkAddress says what is wrong with an address to listen on.
func checkAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err
}

// checkListen refuses an address that others can reach, where that is not safe.
func (c *ingestConfig) checkListen(exposed bool) error {
	if c.Listen.text == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(c.Listen.text)
	auth := c.auth()
	if why := auth.Exposed(); err == nil && why != nil && !exposed && !credential.IsLoopback(host) {
		return fmt.Errorf("%scollect: ingest: listen %q: is reachable from other machines, and there is %w", atLine(c.Listen.line), c.Listen.text, why)
	}
	return nil
}

// server is the collector's side. The sink takes rows into the store; names and runs wait
// for it in the file, if that is not nil.
func (c *ingestConfig) server(db *store.Store, sink remote.Sink, waiting *checkpoint.File, exposed bool, logger *slog.Logger) (*remote.Server, error) {
	config := remote.ServerConfig{
		Listen: c.Listen.text, DangerouslyExposed: exposed, Logger: logger,
		Auth: c.auth(), Admission: c.admission(),
	}
	if waiting != nil {
		config.Waiting = handover.Waiting{File: waiting}
	}
	s, err := remote.NewServer(config, sink, handover.Directory{Store: db})
	if err != nil {
		return nil, usageError{fmt.Errorf("%scollect: ingest: %w", atLine(c.Listen.line), err)}
	}
	return s, nil
}

// ingestMetrics are what exporters handed in.
func ingestMetrics(s *remote.Server) metrics.Ingest {
	st := s.Stats()
	m := metrics.Ingest{Refused: make(map[string]uint64)}
	for _, counts := range []*remote.Counts{&st.Total, &st.Strangers} {
		for reason, n := range counts.Refused {
			m.Refused[remote.Reason(reason).String()] += n
		}
	}
	for _, e := range st.Exporters {
		m.Exporters = append(m.Exporters, metrics.Exporter{
			Name: e.Name, LastSeen: e.Last, ClockOffset: e.ClockOffset, Requests: e.Requests, Bytes: e.Bytes, Items: e.StoredItems, Rows: e.StoredRows,
			Observations: e.StoredObservations, Overflowed: e.OverflowObservations, Repeated: e.RepeatedItems,
			Findings: e.StoredFindings, Flows: e.StoredFlows, FoldedFlows: e.OverflowFlows, Undone: e.UndescribedItems + e.RetriedItems, Denied: e.RefusedItems, Contested: e.Refused[remote.ReasonContested],
		})
	}
	return m
}

// exportConfig is what the command export does. Its flags come before it.
type exportConfig struct {
	Instance   word         `yaml:"instance,omitempty"` // default the host's name
	Taps       []collectTap `yaml:"taps,omitempty"`
	Collectors []string     `yaml:"collectors,omitempty,flow"` // URLs; the first that answers is used
	TLS        tlsConfig    `yaml:"tls,omitempty"`             // ca: of the collectors' certificates
	TokenFile  string       `yaml:"token_file,omitempty"`
	Spool      spoolConfig  `yaml:"spool,omitempty"`
	Checkpoint spoolSaving  `yaml:"checkpoint,omitempty"`
}

// spoolSaving says where a killed exporter left off, beside its spool.
type spoolSaving struct {
	Every interval `yaml:"every,omitempty"` // 0 is never
}

// spoolConfig is where blocks wait on disk for a collector.
type spoolConfig struct {
	Dir  string   `yaml:"dir,omitempty"`
	Size byteSize `yaml:"size,omitempty"`
}

// defaultExportConfig is what an empty section means.
func defaultExportConfig() exportConfig {
	return exportConfig{Spool: spoolConfig{Size: byteSize{n: 1 << 30}}, Checkpoint: spoolSaving{Every: intervalOf(local.DefaultInterval)}}
}

// merge returns c with the defaults for what it leaves out.
func (c exportConfig) merge() exportConfig {
	d := defaultExportConfig()
	c.Spool.Size = cmp.Or(c.Spool.Size, d.Spool.Size)
	c.Checkpoint.Every = cmp.Or(c.Checkpoint.Every, d.Checkpoint.Every)
	return c
}

// capture is the part of the section that collect has as well.
func (c *exportConfig) capture() collectConfig {
	return collectConfig{Instance: c.Instance, Taps: c.Taps, Checkpoint: checkpointConfig{Every: c.Checkpoint.Every}}
}

func (c *exportConfig) check() error {
	capture := c.capture()
	for _, url := range c.Collectors {
		if err := remote.CheckCollector(url, c.TLS.files()); err != nil {
			return fmt.Errorf("export: collectors: %w", err)
		}
	}
	if err := c.TLS.files().Check(); err != nil {
		return fmt.Errorf("export: tls: %w", err)
	}
	if size := c.Spool.Size; !size.IsZero() {
		if err := remote.CheckSpoolBytes(int64(size.n)); err != nil {
			return fmt.Errorf("%sexport: spool: size: %w", atLine(size.line), err)
		}
	}
	return errors.Join(capture.checkCheckpoint("export"), capture.checkTaps("export"))
}
